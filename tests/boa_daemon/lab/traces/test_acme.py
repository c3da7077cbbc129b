"""Acme's trace: jobs as they ran, on A100."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.acme import import_acme
from boa_daemon.traces.workload import Options

Write = Callable[[str, str], Path]


def test_the_example_by_hand(data: Path) -> None:
    """8 x 1 h and 8 x 3 h, mean 16; 64 x 0.5 h. The second came at 12:00 UTC, an hour later."""
    found = import_acme(data / "acme", Options())
    sizes = {job_class.name: job_class.size_gpu_hours for job_class in found.classes}
    assert sizes == {"a100-8": 16.0, "a100-64": 32.0}
    times = [(job.id, job.arrived_at_seconds, job.scale) for job in found.trace.jobs]
    assert times == [("j1", 0.0, 0.5), ("j2", 3600.0, 1.5), ("j3", 7200.0, 1.0)]
    assert found.dropped == {"that still run or wait": 1, "without GPUs": 1, "without run time": 1}


DAMAGE = {
    "cut short": (lambda text: text[:-10], ":7: 16 cells|:7: .*cells"),
    "no number": (
        lambda text: text.replace("10800.0", "long"),
        ":3: duration must be seconds, or a run time",
    ),
    "negative": (lambda text: text.replace("10800.0", "-1"), ":3: duration must be a finite number"),
    "half a GPU": (
        lambda text: text.replace("j1,u1,1,8", "j1,u1,1,7.5"),
        ":2: gpu_num must be a whole number",
    ),
    "no time": (lambda text: text.replace("2023-05-17 11:00:00+00:00", "noon"), ":2: submit_time must be"),
    "one id twice": (lambda text: text.replace("j2,", "j1,"), "'j1' occurs twice"),
    "no column": (lambda text: text.replace("gpu_num", "gpus"), ":1: column 'gpu_num' is missing"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_refused_by_line(
    damage: Callable[[str], str], said: str, data: Path, written: Write
) -> None:
    """The error says what is wrong and where."""
    text = damage((data / "acme" / "trace_kalos.csv").read_text())
    with pytest.raises(InputError, match=said):
        import_acme(written("trace.csv", text), Options())
