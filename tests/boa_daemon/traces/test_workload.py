"""Cutting a trace to a window, and assembling jobs and classes."""

import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import InputError
from boa_daemon.traces.reader import TraceJob
from boa_daemon.traces.workload import GpuSource, Options, assemble, cut
from policies.model import JobClass, Phase
from policies.speedup import Table

HOURS = st.floats(min_value=0, max_value=50)


@given(
    seconds=st.lists(st.floats(min_value=0, max_value=1e5)),
    start=st.none() | HOURS,
    end=st.none() | HOURS,
    limit=st.none() | st.integers(min_value=1, max_value=5),
)
def test_a_cut_keeps_the_earliest_jobs_of_the_window_and_counts_the_rest(
    seconds: list[float], start: float | None, end: float | None, limit: int | None
) -> None:
    """Kept arrivals are in order; kept and dropped jobs add up to all."""
    dropped: Counter[str] = Counter()
    kept = cut(seconds, float, Options(from_hours=start, to_hours=end, limit=limit), dropped)

    low, high = (start or 0.0) * 3600.0, math.inf if end is None else end * 3600.0
    inside = sorted(value for value in seconds if low <= value < high)
    assert [item for _, item in kept] == inside[:limit]
    assert all(at == item - low for at, item in kept)
    assert len(kept) + dropped.total() == len(seconds)


def a_class(name: str, gpu_type: str = "t4") -> JobClass:
    """Return a class of one GPU-hour."""
    phase = Phase(size_gpu_hours=1.0, speedups={gpu_type: Table(gpus=(1,), speeds=(1.0,))})
    return JobClass(name=name, phases=(phase,))


@given(
    arrivals=st.lists(
        st.tuples(st.floats(min_value=0, max_value=1e5), st.sampled_from("ab")), min_size=2, max_size=30
    )
)
def test_the_rate_of_a_class_is_its_jobs_divided_by_the_window(arrivals: list[tuple[float, str]]) -> None:
    """A class without a job is left out."""
    jobs = [TraceJob(str(number), at, name) for number, (at, name) in enumerate(arrivals)]
    found = assemble(
        "x", jobs, [a_class("a"), a_class("b"), a_class("c")], {}, path=Path("x"), options=Options()
    )

    counts = Counter(name for _, name in arrivals)
    assert {job_class.name for job_class in found.classes} == set(counts)
    if found.rates_known:
        for job_class in found.classes:
            assert job_class.arrivals_per_hour * found.trace.window_hours == pytest.approx(
                counts[job_class.name]
            )


def test_an_import_without_jobs_names_the_reasons() -> None:
    """Each reason has its number of jobs."""
    with pytest.raises(InputError, match=r"no job is left to import \(3 without GPUs\)"):
        assemble(
            "x", [], [], {}, path=Path("x"), options=Options(), dropped={"without GPUs": 3, "of others": 0}
        )


def test_a_repeated_job_id_is_refused() -> None:
    """An id identifies one job."""
    with pytest.raises(InputError, match="job_id 'a' occurs twice"):
        assemble(
            "x",
            [TraceJob("a", 0.0, "a"), TraceJob("a", 1.0, "a")],
            [a_class("a")],
            {},
            path=Path("x"),
            options=Options(),
        )


def test_a_price_for_an_unused_type_is_refused() -> None:
    """The closest type is suggested; a price for a used type replaces that of the source."""
    jobs, classes = [TraceJob("a", 0.0, "a")], [a_class("a", "v100")]
    own = {"v100": GpuSource(instance_type="p3dn.24xlarge")}
    dear = {"v100": GpuSource(usd_per_gpu_hour=9.0)}

    found = assemble("x", jobs, classes, own, path=Path("x"), options=Options(gpu_types=dear))
    assert dict(found.gpu_types) == dear
    with pytest.raises(InputError, match=r"'v10', which no class uses.*Did you mean 'v100'"):
        assemble("x", jobs, classes, own, path=Path("x"), options=Options(gpu_types={"v10": dear["v100"]}))
