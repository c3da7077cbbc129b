"""Written class files are read back with the measured or learnt values."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.planning.class_file import gpu_types_text, learnt_classes, measured_class
from policies.model import InstanceType

OWN = InstanceType(name="mine", gpu_type="gpu x", gpus=4, usd_per_hour=8.0)
KNOWN = InstanceType(name="p4d.24xlarge", gpu_type="a100", gpus=8, usd_per_hour=1.0)


def test_measured_step_times_are_read_back_as_speeds(tmp_path: Path) -> None:
    """A machine outside the catalogue keeps its price."""
    path = tmp_path / "c.yaml"
    seconds = {1: 2.0, 2: 1.25, 4: 0.5}
    path.write_text(
        gpu_types_text({"gpu x": OWN}) + measured_class("a: b", {"gpu x": seconds}, steps=3600, note="n")
    )
    file = load_problem(path, require_rates=False)
    (found,) = file.problem.classes

    assert found.name == "a: b"
    assert found.size_gpu_hours == pytest.approx(2.0)
    assert found.phases[0].speedups["gpu x"].speed_at([1, 2, 4]).tolist() == pytest.approx([1.0, 1.6, 4.0])
    assert file.problem.gpu_types[0].usd_per_gpu_hour == 2.0


def test_learnt_values_are_read_back_without_unmeasured_widths(tmp_path: Path) -> None:
    """The GPU type was measured at 1 and 4 GPUs; another type was not measured at all."""
    width = {"measured_seconds": 0.0, "measurements": 0, "estimate": None}
    row = {
        "name": "vision",
        "arrivals_per_hour": {"planned": 1.0, "estimate": 3.0, "jobs": 9},
        "size_gpu_hours": {"planned": 5.0, "estimate": None, "ended": 0},
        "needs": {"cpus_per_gpu": 8.0},
        "speedups": [
            {**width, "gpu_type": "a100", "gpus": 1, "stated": 1.0, "stated_speed": 2.0, "estimate": 1.0},
            {**width, "gpu_type": "a100", "gpus": 2, "stated": 1.9, "stated_speed": 3.8, "estimate": 1.8},
            {
                **{**width, "gpu_type": "a100", "gpus": 4, "stated": 3.5, "stated_speed": 7.0},
                **{"estimate": 3.0, "measured_seconds": 3600.0, "measurements": 2},
            },
            {**width, "gpu_type": "gpu x", "gpus": 1, "stated": 1.0, "stated_speed": 1.0},
        ],
    }
    path = tmp_path / "c.yaml"
    path.write_text(gpu_types_text({"a100": KNOWN, "gpu x": OWN}) + learnt_classes([row]))
    file = load_problem(path)
    (found,) = file.problem.classes

    assert file.needs["vision"].cpus_per_gpu == 8.0
    assert (found.arrivals_per_hour, found.size_gpu_hours) == (3.0, 5.0)
    curve = found.phases[0].speedups["a100"]
    assert curve.whole_widths().tolist() == [1, 4]
    assert curve.speed_at([1, 4]).tolist() == [2.0, 6.0]
    assert "as stated, not measured" in path.read_text()
