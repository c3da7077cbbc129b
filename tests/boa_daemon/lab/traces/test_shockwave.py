"""Import of Shockwave's trace: run times on some GPUs, for kinds of jobs that Gavel measured."""

from collections.abc import Callable
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.gavel import read_throughputs
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.lab.traces.shockwave import import_shockwave
from boa_daemon.traces.workload import Options

Write = Callable[[str, str], Path]


def test_work_is_run_time_times_the_speed_of_the_gpus(data: Path) -> None:
    """The twelfth job ran 1942 s on two V100, which are 2.04 times as fast as one."""
    found = import_shockwave(data / "shockwave", Options(profiles=data / "gavel"))

    rates = read_throughputs(data / "gavel" / "simulation_throughputs.json")["LM (batch size 20)"]["v100"]
    job = found.trace.jobs[11]
    size = next(c for c in found.classes if c.name == job.class_name).size_gpu_hours * job.scale
    assert job.class_name == "lm-b20"
    assert rates[2] / rates[1] == pytest.approx(2.04, abs=0.005)
    assert size == pytest.approx(1942.0 / 3600.0 * rates[2] / rates[1])


def test_the_work_of_a_job_on_one_gpu_is_its_run_time(data: Path) -> None:
    """Its number of steps does not count, since its batch size changes."""
    found = import_source("shockwave", data / "shockwave", Options(profiles=data / "gavel"))

    first = found.trace.jobs[0]
    size = next(c for c in found.classes if c.name == first.class_name).size_gpu_hours * first.scale
    assert (first.id, first.arrived_at_seconds, size) == ("0", 0.0, pytest.approx(1418.0 / 3600.0))
    assert len(found.trace.jobs) == 15
    assert "15 of 15 jobs change their batch size" in " ".join(found.notes)


def test_a_job_of_an_unmeasured_width_is_dropped_and_counted(data: Path, written: Write) -> None:
    """Gavel measured recommendation on one GPU only."""
    first = (data / "shockwave" / "first-15.trace").read_text().splitlines()[0]
    cells = first.split("\t")
    cells[0], cells[6] = "Recommendation (batch size 2048)", "8"
    path = written("two.trace", first + "\n" + "\t".join(cells) + "\n")

    found = import_shockwave(path, Options(profiles=data / "gavel"))
    assert len(found.trace.jobs) == 1
    assert found.dropped == {"of a kind that was not measured on that many GPUs": 1}


def test_an_import_without_throughputs_is_refused(data: Path) -> None:
    """The hint names `--profiles`."""
    with pytest.raises(InputError, match="how fast") as caught:
        import_shockwave(data / "shockwave", Options())
    assert "--profiles" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a\tb", "2 columns where 12"),
        ("\t".join(["K", "c", "d", "s", "1", "9", "x", "static", "1", "-1", "5", "0"]), "gpus"),
    ],
)
def test_a_damaged_line_is_refused_with_its_number(data: Path, written: Write, line: str, words: str) -> None:
    """The line has too few columns or a width that is no number."""
    with pytest.raises(InputError, match=words) as caught:
        import_shockwave(written("bad.trace", line + "\n"), Options(profiles=data / "gavel"))
    assert caught.value.line == 1
