"""`job/accelerate.py`: what `job.steps` calls to save and load an `Accelerator`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from boa_daemon.job import accelerate


def test_a_state_is_a_folder_and_is_trusted_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job wrote it itself, and its digest was checked; its run knows that."""
    said: list[tuple[str, str]] = []
    run = SimpleNamespace(loads_with_trust=False)
    monkeypatch.setattr(accelerate, "current", lambda: run)
    monkeypatch.setattr(accelerate, "trust", lambda path: said.append(("trust", str(path))))
    accelerator = SimpleNamespace(
        load_state=lambda path: said.append(("load", path)),
        save_state=lambda path: said.append(("save", path)),
    )
    hooks = accelerate.accelerator_state(accelerator)
    assert (hooks["folder"], run.loads_with_trust, said) == (True, True, [])
    hooks["save"](Path("/a"))
    hooks["load"](Path("/b"))
    assert said == [("save", "/a"), ("trust", "/b"), ("load", "/b")]
