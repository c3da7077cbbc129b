"""The callback for the Trainer of Hugging Face: what becomes of the trainer's own folders, and of a stop."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from boa_daemon.job import run
from boa_daemon.job.checkpoint import newest_checkpoint

MODULE = "boa_daemon.job.huggingface"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, over a stand-in for the library, whose import takes seconds; and a run of its own."""
    library = ModuleType("transformers")
    library.TrainerCallback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", library)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    environment = {"BOA_CHECKPOINT_DIR": str(tmp_path / "kept"), "BOA_PROGRESS_FILE": str(tmp_path / "p")}
    monkeypatch.setattr(run, "_run", run.Run(environment))
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE, None)


class Trainer:
    """What the trainer hands to callbacks, and the folders that it writes."""

    def __init__(self, module: Any, folder: Path, save_strategy: str = "no") -> None:
        self.callback = module.BoaCallback(every=1)
        self.out = folder / "out"
        self.args = SimpleNamespace(
            output_dir=str(self.out),
            local_process_index=0,
            process_index=0,
            world_size=1,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=1,
            save_strategy=save_strategy,
        )
        self.state = SimpleNamespace(global_step=0, max_steps=10)
        self.control = SimpleNamespace(should_save=False, should_training_stop=False)

    def step(self) -> None:
        """Make a step, and save where that is asked for."""
        self.state.global_step += 1
        self.control.should_save = False
        self.callback.on_step_end(self.args, self.state, self.control)
        if self.control.should_save:
            folder = self.out / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "model").write_text(f"step {self.state.global_step}")
            self.callback.on_save(self.args, self.state, self.control)


def test_the_trainers_own_folders_go_where_it_saves_nothing_by_itself(module: Any, tmp_path: Path) -> None:
    """A long training fills no disk: what is kept is what the manifests name; else they are the user's."""
    trainer = Trainer(module, tmp_path)
    for _ in range(5):
        trainer.step()
    assert list(trainer.out.iterdir()) == []
    found, wrong = newest_checkpoint(tmp_path / "kept")
    assert found is not None
    assert (wrong, found.step, (found.path / "model").read_text()) == ("", 5, "step 5")

    own = Trainer(module, tmp_path / "own", save_strategy="steps")
    own.state.global_step = 5
    own.step()
    assert [path.name for path in own.out.iterdir()] == ["checkpoint-6"]


def test_files_of_an_earlier_try_of_a_step_are_in_no_checkpoint(module: Any, tmp_path: Path) -> None:
    """A node that had saved this step at another width, before a kill, still has that width's files."""
    trainer = Trainer(module, tmp_path)
    old = trainer.out / "checkpoint-1"
    old.mkdir(parents=True)
    (old / "rng_state_3.pth").write_text("of four ranks")
    trainer.step()
    found, _ = newest_checkpoint(tmp_path / "kept")
    assert found is not None
    assert set(found.files) == {"model"}


def test_nodes_that_share_the_folders_bring_the_same_files_at_once(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node has brought a file just before this one does: it is there once, and whole."""
    link = os.link

    def after_another_node(file: Path, target: Path) -> None:
        if not (others := target.with_name("model")).exists():
            link(file, others)
        link(file, target)

    monkeypatch.setattr(os, "link", after_another_node)
    Trainer(module, tmp_path).step()
    found, wrong = newest_checkpoint(tmp_path / "kept")
    assert found is not None
    assert (wrong, set(found.files), (found.path / "model").read_text()) == ("", {"model"}, "step 1")


@pytest.mark.parametrize(("step", "is_done"), [(5, False), (10, True)])
def test_a_stop_ends_the_script_and_the_last_step_is_done(
    module: Any, tmp_path: Path, step: int, is_done: bool
) -> None:
    """What follows `train()`, an upload say, is for a model that is done."""
    trainer = Trainer(module, tmp_path)
    trainer.state.global_step = step - 1
    run.current().stop_asked = True
    trainer.step()
    assert trainer.control.should_training_stop
    if is_done:
        trainer.callback.on_train_end(trainer.args, trainer.state, trainer.control)
    else:
        with pytest.raises(SystemExit):
            trainer.callback.on_train_end(trainer.args, trainer.state, trainer.control)
    assert (tmp_path / "p.done").exists() is is_done
