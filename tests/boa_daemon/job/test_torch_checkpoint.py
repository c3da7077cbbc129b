"""`torch_state`: what a training consists of is saved, can be loaded, and goes on where it was."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import enum
import os
import random
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from boa_daemon.job.checkpoint import CheckpointFailed, newest_checkpoint
from boa_daemon.job.run import Run
from boa_daemon.job.torch_checkpoint import torch_state

pytestmark = pytest.mark.frameworks

HERE = Path(__file__).parent


class Colour(enum.Enum):
    RED = 1


class Kept:
    """An object with a state of any kind, like a sampler or a scheduler of one's own."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class CannotBeRebuilt:
    """Pickled without complaint, and not to be rebuilt."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return int, ("not a number",)


STATES = {
    "a numpy number": np.float64(0.5),
    "an array": np.arange(3.0),
    "a numpy type": np.dtype("float32"),
    "a deque": collections.deque([1, 2], maxlen=2),
    "a default dict": collections.defaultdict(int, a=1),
    "a counter": collections.Counter("aab"),
    "an ordered dict": collections.OrderedDict(a=1),
    "numpy's random state": np.random.RandomState(3).get_state(),
    "a path": Path("data/train"),
    "a namespace": argparse.Namespace(lr=0.1),
    "a set": {1, 2},
    "an enum": Colour.RED,
    "a date": datetime.datetime(2026, 11, 28, tzinfo=datetime.UTC),
    "a decimal": decimal.Decimal("0.1"),
    "a fraction": Fraction(1, 3),
    "an object": slice(1, 2),
    "a complex number": 1j,
    "bytes": b"x",
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_of_any_object_is_loaded_again(name: str, tmp_path: Path) -> None:
    """`torch.load` refuses many of them by default."""
    hooks = torch_state(Kept(STATES[name]))
    Run({"BOA_CHECKPOINT_DIR": str(tmp_path)}).save(1, hooks["save"], hooks["check"])
    fresh = Kept(None)
    found, wrong = newest_checkpoint(tmp_path)
    assert found is not None
    torch_state(fresh)["load"](found.path)

    assert wrong == ""
    np.testing.assert_equal(fresh.value, STATES[name])


def test_a_scheduler_with_numpy_numbers_resumes(tmp_path: Path) -> None:
    """The learning rate goes on where it was, a scaler and a numpy rate included."""

    def parts() -> tuple[Any, ...]:
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=np.float64(0.1))
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: np.float64(0.9) ** epoch)
        return model, optimizer, scheduler, torch.amp.GradScaler("cpu")

    before = parts()
    for _ in range(3):
        before[1].step()
        before[2].step()
    Run({"BOA_CHECKPOINT_DIR": str(tmp_path)}).save(3, torch_state(*before)["save"])
    after = parts()
    torch_state(*after)["load"](newest_checkpoint(tmp_path)[0].path)  # type: ignore[union-attr]

    assert after[1].param_groups[0]["lr"] == pytest.approx(0.1 * 0.9**3)
    assert torch.equal(before[0].weight, after[0].weight)


GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "torch's": (lambda: torch.Generator().manual_seed(3), lambda g: torch.rand(2, generator=g).tolist()),
    "numpy's": (lambda: np.random.default_rng(3), lambda g: g.random(2).tolist()),
    "numpy's old one": (lambda: np.random.RandomState(3), lambda g: g.rand(2).tolist()),
    "Python's": (lambda: random.Random(3), lambda g: [g.random(), g.random()]),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_of_ones_own_is_a_part(name: str, tmp_path: Path) -> None:
    """It goes on with the number that would have been next."""
    make, draw = GENERATORS[name]
    generator = make()
    draw(generator)
    Run({"BOA_CHECKPOINT_DIR": str(tmp_path)}).save(1, torch_state(generator)["save"])
    expected = draw(generator)
    fresh = make()
    torch_state(fresh)["load"](newest_checkpoint(tmp_path)[0].path)  # type: ignore[union-attr]

    assert draw(fresh) == expected


def test_a_dict_is_updated_in_place_and_anything_else_is_refused() -> None:
    """The message says what to do."""
    with pytest.raises(TypeError, match="put plain values into a dict"):
        torch_state(3)
    assert set(torch_state({"best": 1.0})) == {"load", "save", "before_save", "check"}


def test_a_checkpoint_of_the_first_format_is_still_read(tmp_path: Path) -> None:
    """It was the list of states alone."""
    torch.save([{"value": 7}], tmp_path / "old")
    part = Kept(0)
    torch_state(part)["load"](tmp_path / "old")

    assert part.value == 7


def test_another_number_of_parts_is_said(tmp_path: Path) -> None:
    """Both numbers are named."""
    torch.save([{"value": 7}], tmp_path / "old")
    with pytest.raises(ValueError, match="states of 1 objects, and torch_state was given 2"):
        torch_state(Kept(0), Kept(1))["load"](tmp_path / "old")


def test_what_cannot_be_loaded_is_no_checkpoint(tmp_path: Path) -> None:
    """It was written, and is not counted."""
    hooks = torch_state(Kept(CannotBeRebuilt()))
    run = Run({"BOA_CHECKPOINT_DIR": str(tmp_path)})
    with pytest.raises(CheckpointFailed, match=r"cannot be loaded again.*ValueError"):
        run.save(1, hooks["save"], hooks["check"])

    assert newest_checkpoint(tmp_path) == (None, "")


SCRIPT = """
import random, sys, threading
import numpy as np, torch
from boa_daemon import job
{setup}
torch.manual_seed(0); np.random.seed(0); random.seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: np.float64(0.9) ** e)
for step in job.steps(12, **job.torch_state(model, optimizer, scheduler{parts})):
    x = torch.randn(16, 4) * random.random() + torch.from_numpy(np.random.randn(16, 4)).float()
    loss = model(x).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step(); scheduler.step()
    job.report(np.int64(step + 1), samples=torch.tensor(16), loss=loss)
    print("LOSS", step, float(loss), flush=True)
    {body}
"""


def _losses(tmp_path: Path, **lines: str) -> tuple[dict[int, float], str, int]:
    """Run the script once; return its loss by step, its other output and its exit code."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(**{"setup": "", "parts": "", "body": "", **lines}))
    environment = {
        **os.environ,
        "BOA_CHECKPOINT_DIR": str(tmp_path / "c"),
        "BOA_PROGRESS_FILE": str(tmp_path / "p"),
    }
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False
    )
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("LOSS")]
    return {int(row[1]): float(row[2]) for row in rows}, done.stderr, done.returncode


def test_a_resumed_job_has_the_random_numbers_that_would_have_come(tmp_path: Path) -> None:
    """Dropout and data augmentation included: each loss is that of the unbroken run, to the last bit."""
    (tmp_path / "whole").mkdir()
    unbroken, _, code = _losses(tmp_path / "whole")
    first, _, _ = _losses(
        tmp_path, body="if step == 4: import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    )
    second, told, _ = _losses(tmp_path)

    assert code == 0
    assert len(unbroken) == 12
    assert max(first) + 1 == min(second)
    assert {**first, **second} == unbroken
    assert "random generators go on from step" in told


def test_a_state_that_cannot_be_saved_fails_after_the_first_step(tmp_path: Path) -> None:
    """Not at the stop, when all the work since the start would be lost."""
    losses, told, code = _losses(
        tmp_path,
        setup="class P:\n  def state_dict(self): return {'lock': threading.Lock()}\n"
        "  def load_state_dict(self, s): pass",
        parts=", P()",
    )

    assert (list(losses), code) == ([0], 1)
    assert "the state of this job cannot be saved: TypeError" in told


def test_a_save_by_hand_that_loads_only_with_trust_is_warned_of(tmp_path: Path) -> None:
    """The script's own `torch.load` would refuse it at the resume."""
    program = (
        "import torch, numpy as np\nfrom boa_daemon import job\njob.report(1)\n"
        "job.save(1, lambda f: torch.save({'lr': np.float64(0.1)}, f))\n"
    )
    environment = {**os.environ, "BOA_CHECKPOINT_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )

    assert "g0-step1 loads only by torch.load(..., weights_only=False)" in done.stderr
    assert newest_checkpoint(tmp_path)[0] is not None
