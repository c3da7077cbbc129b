"""The callback for Lightning: a stop is immediate, and a job that resumes at its end is done."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from boa_daemon.job import run

MODULE = "boa_daemon.job.lightning"


@pytest.fixture
def callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The callback over a fake library, whose real import takes seconds; with its own run."""
    library = ModuleType("lightning.pytorch")
    library.Callback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", library)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    environment = {"BOA_CHECKPOINT_DIR": str(tmp_path / "kept"), "BOA_PROGRESS_FILE": str(tmp_path / "p")}
    monkeypatch.setattr(run, "_run", run.Run(environment))
    yield importlib.import_module(MODULE).BoaCallback()
    sys.modules.pop(MODULE, None)


def a_trainer() -> Any:
    """Return a Lightning trainer that must make 100 steps and validates."""
    loop = SimpleNamespace(min_epochs=3, epoch_loop=SimpleNamespace(min_steps=100))
    return SimpleNamespace(
        global_step=1,
        should_stop=False,
        limit_val_batches=1.0,
        fit_loop=loop,
        save_checkpoint=lambda path: Path(path).write_text("all"),
    )


def test_a_stop_skips_validation_and_minimum_length(callback: Any, tmp_path: Path) -> None:
    """Lightning would otherwise validate or go on below `min_epochs`, beyond the grace."""
    trainer = a_trainer()
    run.current().stop_asked = True
    callback.on_train_batch_end(trainer, None, None, None, 0)

    assert trainer.should_stop
    assert not trainer.limit_val_batches
    assert not trainer.fit_loop.min_epochs
    assert not trainer.fit_loop.epoch_loop.min_steps
    with pytest.raises(SystemExit):
        callback.on_fit_end(trainer, None)
    assert not (tmp_path / "p.done").exists()


def test_a_job_that_resumes_after_its_last_step_is_done(callback: Any, tmp_path: Path) -> None:
    """No training happens then, so the end of `fit` counts."""
    callback.on_fit_end(a_trainer(), None)

    assert (tmp_path / "p.done").exists()
