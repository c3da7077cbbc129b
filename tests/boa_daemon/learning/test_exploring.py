"""Jobs that try a width: an allocator around another one."""

from __future__ import annotations

from boa_daemon.learning.exploring import Exploring
from boa_daemon.learning.speedups import Exploration
from boa_daemon.testing import Wishes, a_job


def test_a_job_tries_a_width_and_the_others_do_not() -> None:
    """Only jobs that hold something by plan try anything, and the reason says so."""
    base = Wishes(widths={"a": 4, "b": 4})
    tried = Exploration(gpus=2, gpu_seconds=1.0, reason="2 GPUs are tried")
    jobs = [a_job("a"), a_job("b")]
    found = Exploring(base=base, tries={"a": tried, "z": tried}).allocate(jobs, now=0.0)

    assert {job: width.gpus for job, width in found.widths.items()} == {"a": 2, "b": 4}
    assert found.reasons["a"] == "2 GPUs are tried"
    assert Exploring(base=base).allocate(jobs, now=0.0) == base.allocate(jobs, now=0.0)
