"""`boa alerts` and `boa grafana`: what is printed is what can be imported, or what happened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from boa_daemon.cli.common.output import OutputFormat
from boa_daemon.cli.operate import monitoring
from boa_daemon.cli.operate.monitoring import alerts, grafana
from boa_daemon.daemon.watch.grafana import dashboard, rules
from boa_daemon.errors import InputError


def test_the_dashboard_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Only with the flag; the error says what to type."""
    grafana(as_file=True)
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(dashboard()))
    with pytest.raises(InputError, match="boa grafana --print"):
        grafana()


def test_the_rules_are_yaml_and_need_no_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    """As Prometheus reads them."""
    alerts(prometheus=True)
    assert yaml.safe_load(capsys.readouterr().out) == json.loads(json.dumps(rules()))


def test_alerts_are_printed_as_they_were_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets are no markup; without any that is said."""
    document: dict[str, Any] = {
        "as_of": 0.0,
        "alerts": [{"at": 1_800_000_000.0, "sentence": "job [a] failed"}],
    }

    @contextmanager
    def a_client(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(alerts=lambda: document)

    monkeypatch.setattr(monitoring, "a_client", a_client)
    alerts()
    assert "2027-01-15 08:00:00 UTC  job [a] failed\nas of" in capsys.readouterr().out
    alerts(output=OutputFormat.json)
    assert json.loads(capsys.readouterr().out) == document
    document["alerts"] = []
    alerts()
    assert capsys.readouterr().out.startswith("Nothing to report.\n")
