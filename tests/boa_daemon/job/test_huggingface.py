"""The callback for the Hugging Face Trainer: the trainer's own folders, and stops."""

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
    """The callback's module over a fake library, whose real import takes seconds; with its own run."""
    library = ModuleType("transformers")
    library.TrainerCallback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", library)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    environment = {"BOA_CHECKPOINT_DIR": str(tmp_path / "kept"), "BOA_PROGRESS_FILE": str(tmp_path / "p")}
    monkeypatch.setattr(run, "_run", run.Run(environment))
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE, None)


class Trainer:
    """The objects that the trainer passes to callbacks, and the folders that it writes."""

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
        """Make a step, and save if the callback asks for that."""
        self.state.global_step += 1
        self.control.should_save = False
        self.callback.on_step_end(self.args, self.state, self.control)
        if self.control.should_save:
            folder = self.out / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "model").write_text(f"step {self.state.global_step}")
            self.callback.on_save(self.args, self.state, self.control)


def test_the_trainers_folders_are_removed_unless_the_user_saves(module: Any, tmp_path: Path) -> None:
    """The checkpoint is kept; with a save strategy of the user, the trainer's folder stays."""
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


def test_files_of_an_earlier_attempt_are_not_in_the_checkpoint(module: Any, tmp_path: Path) -> None:
    """A killed run of another width may have left files in the folder of this step."""
    trainer = Trainer(module, tmp_path)
    old = trainer.out / "checkpoint-1"
    old.mkdir(parents=True)
    (old / "rng_state_3.pth").write_text("of four ranks")
    trainer.step()
    found, _ = newest_checkpoint(tmp_path / "kept")
    assert found is not None
    assert set(found.files) == {"model", "random-0-of-1"}


def test_two_nodes_may_add_the_same_file_at_once(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is in the checkpoint once and complete."""
    link = os.link

    def after_another_node(file: Path, target: Path) -> None:
        if not (others := target.with_name("model")).exists():
            link(file, others)
        link(file, target)

    monkeypatch.setattr(os, "link", after_another_node)
    Trainer(module, tmp_path).step()
    found, wrong = newest_checkpoint(tmp_path / "kept")
    assert found is not None
    assert (wrong, set(found.files), (found.path / "model").read_text()) == (
        "",
        {"model", "random-0-of-1"},
        "step 1",
    )


@pytest.mark.parametrize(("step", "is_done"), [(5, False), (10, True)])
def test_a_stop_ends_the_script_unless_the_last_step_is_done(
    module: Any, tmp_path: Path, step: int, is_done: bool
) -> None:
    """Code after `train()` runs only for a finished model."""
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
