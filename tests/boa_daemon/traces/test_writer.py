"""Written traces and class files are read back unchanged, and are never written in part."""

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import BoaError
from boa_daemon.traces.reader import Trace, TraceJob, read_trace
from boa_daemon.traces.workload import GpuSource, Options, Workload, assemble
from boa_daemon.traces.writer import classes_text, trace_text, write_workload
from policies.model import JobClass, Phase
from policies.speedup import Table

NAMES = st.text(st.characters(categories=("L", "N", "P", "Zs")), min_size=1, max_size=12)
JOBS = st.builds(
    TraceJob,
    id=NAMES,
    arrived_at_seconds=st.floats(min_value=0, max_value=1e12),
    class_name=NAMES,
    scale=st.floats(min_value=1e-300, max_value=1e300),
)


def a_workload(*seconds: float) -> Workload:
    """Return jobs of one class that arrive at these times."""
    phase = Phase(size_gpu_hours=1.23456789, speedups={"t4": Table(gpus=(1, 2), speeds=(1.0, 1.87654321))})
    return assemble(
        "A test",
        [TraceJob(f"j{number}", at, "vision") for number, at in enumerate(seconds)],
        [JobClass(name="vision", phases=(phase,), startup_hours=30 / 3600)],
        {"t4": GpuSource(instance_type="g4dn.12xlarge"), "unused": GpuSource(usd_per_gpu_hour=1.0)},
        path=Path("here.csv"),
        options=Options(),
    )


@given(jobs=st.lists(JOBS, min_size=1, max_size=20, unique_by=lambda job: job.id))
def test_a_trace_reads_back_unchanged(jobs: list[TraceJob], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Times and scales are exact, and names may have commas and quotes."""
    trace = Trace(tuple(sorted(jobs, key=lambda job: job.arrived_at_seconds)))
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    path.write_text(trace_text(trace), encoding="utf-8")

    assert read_trace(path) == trace


def test_an_unscaled_trace_has_no_scale_column() -> None:
    """The trace has three columns."""
    assert trace_text(Trace((TraceJob("a", 1.0, "c"),))) == "job_id,arrived_at_seconds,class_name\na,1,c\n"


def test_the_class_file_has_rates_prices_and_rounded_tables() -> None:
    """Tables are on one line with 6 significant digits, and unused types are left out."""
    text = classes_text(a_workload(0.0, 3600.0, 7200.0))

    assert "  - {size_gpu_hours: 1.23457, speedup: {t4: {table: {1: 1.0, 2: 1.87654}}}}\n" in text
    assert yaml.load(text, yaml.CSafeLoader) == {
        "gpu_types": {"t4": {"instance_type": "g4dn.12xlarge"}},
        "classes": [
            {
                "name": "vision",
                "arrivals_per_hour": 1.5,
                "startup_hours": 0.00833333,
                "phases": [{"size_gpu_hours": 1.23457, "speedup": {"t4": {"table": {1: 1.0, 2: 1.87654}}}}],
            }
        ],
    }


def test_an_unknown_rate_is_left_out() -> None:
    """One arrival, or several at one instant, have no rate."""
    assert "arrivals_per_hour" not in classes_text(a_workload(5.0))
    assert "arrivals_per_hour" not in classes_text(a_workload(5.0, 5.0))


def test_a_failed_write_keeps_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the second file, and no partial file is left."""
    write_workload(a_workload(0.0, 60.0), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    calls = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BoaError, match="No space left on device"):
        write_workload(a_workload(0.0, 120.0), tmp_path)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """A file has the name of the directory."""
    (tmp_path / "file").write_text("")

    with pytest.raises(BoaError, match="cannot write"):
        write_workload(a_workload(0.0, 60.0), tmp_path / "file")
