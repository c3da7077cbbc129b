"""The contract of commands: an ordered stop loses no step of any of them, on real processes."""

from __future__ import annotations

from pathlib import Path

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
    "exec > >(tee)",
    "setsid",
    "with fresh-pool",
    "handler of its own",
    "deepspeed-shaped",
)
"""The sample of runs that are not exhaustive: one of each kind of fault."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.exhaustive) for name in SHAPES],
)
def test_a_stop_loses_no_step_of_an_ordinary_command(tmp_path: Path, name: str) -> None:
    """What would start after the training does not start when the training was only stopped."""
    shape = SHAPES[name]
    assert shape.is_possible or name not in ALWAYS
    if not shape.is_possible:
        pytest.skip(f"needs {shape.needs}{shape.tool}")
    bench = Bench(engine=LocalEngine(tmp_path / "root"), workdir=tmp_path / "work")
    try:
        end, printed = try_shape(bench, shape)
    finally:
        if bench.job in bench.engine.poll() and not bench.report().is_over:
            bench.engine.kill(bench.job, bench.generation)
    assert (end.phase, end.lost_steps) == ("stopped", 0), f"{end}\n{printed}"
    assert end.manifest is not None
    assert not shape.never or shape.never not in printed
