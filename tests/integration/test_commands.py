"""The contract of commands: an ordered stop loses no step of any of them, on real processes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from command_shapes import SHAPES, try_shape
from engine_bench import Bench

from boa_daemon.engines.local import LocalEngine

ALWAYS = (
    "alone",
    "followed by &&",
    "trap that kills",
    "./run.sh",
    "|& tee",
    "a shell below script",
    "the second begins late",
    "exec > >(tee)",
    "setsid",
    "with fresh-pool",
    "handler of its own",
    "env -i",
    "shell=True, then",
    "unshare, first of its processes",
    "deepspeed-shaped",
    "closes all descriptors",
    "suspended by others",
    "bash -i",
    "started apart, kill -0",
    "srun: a server starts it",
    "a daemon of its own",
    "dash, a trap that tells",
    "bash, a trap that clears up at its end too",
    "a server that stays",
    "a runner of stages",
)
"""The sample of runs that are not exhaustive: one of each kind of fault."""

KILLED = (
    "followed by &&",
    "|& tee",
    "setsid",
    "trap that kills",
    "the second begins late",
    "sleeps for ever",
)


@pytest.mark.first_set(4)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.exhaustive) for name in SHAPES],
)
def test_a_stop_loses_no_step_of_an_ordinary_command(tmp_path: Path, name: str) -> None:
    """What would start after the training does not start when the training was only stopped."""
    _stop_loses_nothing(tmp_path, name)


@pytest.mark.first_set(2)
@pytest.mark.parametrize("whom", [("pid",), ("guard", "pid")], ids=["keeper", "keeper and guard"])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in KILLED else pytest.mark.exhaustive) for name in SHAPES],
)
def test_a_stop_loses_no_step_though_the_keeper_is_killed(
    tmp_path: Path, name: str, whom: tuple[str, ...]
) -> None:
    """At a random moment about the stop: before it, while a save of 2 s is under way, or after it."""
    at = random.Random(f"{name}{whom}").uniform(-0.5, 3.0)
    _stop_loses_nothing(tmp_path, name, save_seconds=2.0, kill_at=at, whom=whom)


def _stop_loses_nothing(tmp_path: Path, name: str, **how: Any) -> None:
    shape = SHAPES[name]
    assert shape.is_possible or name not in ALWAYS
    if not shape.is_possible:
        pytest.skip(f"needs {shape.needs}{shape.tool}")
    bench = Bench(engine=LocalEngine(tmp_path / "root"), workdir=tmp_path / "work")
    try:
        end, printed = try_shape(bench, shape, **how)
    finally:
        if bench.job in bench.engine.poll() and not bench.report().is_over:
            bench.engine.kill(bench.job, bench.generation)
    assert (end.phase, end.lost_steps) == ("stopped", 0), f"{end}\n{printed}"
    assert end.manifest is not None
    assert not shape.never or shape.never not in printed
