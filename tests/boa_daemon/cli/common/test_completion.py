"""Completion offers what begins with the typed word, and never fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.cli.common import daemon_client
from boa_daemon.cli.common.completion import complete_jobs, complete_placers, complete_policies
from policies.registry import PLACERS, POLICIES


def test_jobs_that_begin_with_the_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the daemon that the settings name."""

    @contextmanager
    def a_client(*_: Any) -> Iterator[Any]:
        rows = [{"id": "train-1"}, {"id": "tune-2"}, {"id": "retrain-3"}]
        yield SimpleNamespace(jobs=lambda **_: {"jobs": rows})

    monkeypatch.setattr(daemon_client, "a_client", a_client)
    assert complete_jobs("t") == ["train-1", "tune-2"]
    assert complete_jobs("tr") == ["train-1"]
    assert complete_jobs("x") == []


def test_without_a_daemon_no_job_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message would garble the line that is being typed."""

    def a_client(*_: Any) -> Any:
        raise RuntimeError("no daemon")

    monkeypatch.setattr(daemon_client, "a_client", a_client)
    assert complete_jobs("") == []


def test_policies_come_with_their_summaries_and_placers_by_name() -> None:
    """All of them for an empty word."""
    assert {name for name, _ in complete_policies("")} >= set(POLICIES)
    assert dict(complete_policies("bo"))["boa"] == POLICIES["boa"].summary
    assert all(name.startswith("bo") for name, _ in complete_policies("bo"))
    assert set(complete_placers("")) >= set(PLACERS)
    assert complete_placers("lw") == ["lwf"]
