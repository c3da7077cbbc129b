"""Import of Philly, Helios and raw ITP: measured widths and durations, and drawn profiles on request."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.helios import import_helios
from boa_daemon.lab.traces.instants import instant_seconds
from boa_daemon.lab.traces.itp import import_itp
from boa_daemon.lab.traces.philly import import_philly
from boa_daemon.lab.traces.rigid import RigidJob, rigid_workload
from boa_daemon.traces.workload import Options, Workload

Write = Callable[[str, str], Path]
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"


def run_seconds(found: Workload) -> dict[str, float]:
    """Return the duration of each job alone at its only width."""
    classes = {job_class.name: job_class for job_class in found.classes}
    taken = {}
    for job in found.trace.jobs:
        (phase,) = classes[job.class_name].phases
        (curve,) = phase.speedups.values()
        (width,) = curve.whole_widths()
        taken[job.id] = float(phase.size_gpu_hours * job.scale * 3600.0 / curve.speed_at(width))
    return taken


def mean_scales(found: Workload) -> dict[str, float]:
    """Return the mean scale of each class's jobs."""
    scales = defaultdict(list)
    for job in found.trace.jobs:
        scales[job.class_name].append(job.scale)
    return {name: sum(values) / len(values) for name, values in scales.items()}


JOBS = st.lists(
    st.builds(
        RigidJob,
        id=st.uuids().map(str),
        submitted_at_seconds=st.floats(min_value=0, max_value=1e7),
        gpus=st.integers(min_value=0, max_value=16),
        gpu_seconds=st.just(0.0) | st.floats(min_value=1.0, max_value=1e8),
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda job: job.id,
)


@given(jobs=JOBS)
def test_a_rigid_job_takes_its_measured_duration_at_its_measured_width(jobs: list[RigidJob]) -> None:
    """Scales average 1; jobs without GPUs or run time are dropped and counted."""
    ran = {job.id: job for job in jobs if job.gpus and job.gpu_seconds}
    dropped: Counter[str] = Counter()
    if not ran:
        with pytest.raises(InputError, match="no job is left"):
            rigid_workload("x", jobs, Options(), path=Path("x"), dropped=dropped)
        return
    found = rigid_workload("x", jobs, Options(), path=Path("x"), dropped=dropped)

    for name, seconds in run_seconds(found).items():
        assert seconds == pytest.approx(ran[name].gpu_seconds / ran[name].gpus)
    assert all(mean == pytest.approx(1.0) for mean in mean_scales(found).values())
    assert len(ran) + sum(found.dropped.values()) == len(jobs)
    assert found.trace.jobs[0].arrived_at_seconds == 0.0


def test_philly_arrivals_are_sorted_and_count_from_the_first(data: Path) -> None:
    """The 300 rows of the extract are out of order."""
    found = import_philly(data / "philly", Options())

    assert len(found.trace.jobs) == 300
    assert found.trace.jobs[0].arrived_at_seconds == 0.0
    assert found.gpu_types == {}
    assert any("budget in GPUs" in note for note in found.notes)
    path = data / "philly/philly-2017-09-10.csv"
    rows = dict(enumerate(path.read_text().splitlines(), start=1))
    for name, seconds in run_seconds(found).items():
        assert seconds == pytest.approx(float(rows[int(name.removeprefix("philly-"))].split(",")[1]))


def test_timestamps_become_seconds(written: Write) -> None:
    """The two jobs arrive a day and an hour apart."""
    path = written("philly.csv", PHILLY + "2017-10-09 07:01:55,66.0,1,66,v\n2017-10-08 06:01:55,10,2,20,v\n")

    found = import_philly(path, Options())

    assert [job.arrived_at_seconds for job in found.trace.jobs] == [0.0, 25 * 3600.0]
    assert [job.class_name for job in found.trace.jobs] == ["gpus-2", "gpus-1"]


def an_attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, object]:
    """Return an attempt on nodes with these numbers of GPUs."""
    detail = [{"ip": f"m{n}", "gpus": [f"gpu{i}" for i in range(count)]} for n, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def a_log_entry(name: str, *attempts: dict[str, object], submitted: str = "2017-10-09 07:00:00") -> object:
    """Return a job of Philly's log."""
    return {
        "status": "Pass",
        "vc": "v",
        "jobid": name,
        "attempts": attempts,
        "submitted_time": submitted,
        "user": "u",
    }


def test_finished_attempts_in_the_original_log_are_added_up(written: Write) -> None:
    """Jobs that never ran on GPUs are dropped and counted."""
    twice = a_log_entry(
        "twice",
        an_attempt("2017-10-09 08:00:00", "2017-10-09 08:10:00", 8, 8),
        an_attempt("2017-10-09 09:00:00", "2017-10-09 09:20:00", 8, 8),
        an_attempt("2017-10-09 10:00:00", None, 8, 8),
    )
    path = written(
        "cluster_job_log",
        json.dumps([twice, a_log_entry("never"), a_log_entry("cpu", an_attempt(None, "None"))]),
    )

    found = import_philly(path.parent, Options())

    assert [(job.id, job.class_name) for job in found.trace.jobs] == [("twice", "gpus-16")]
    assert run_seconds(found) == {"twice": pytest.approx(30 * 60.0)}
    assert found.dropped == {"without GPUs": 2}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[{"jobid": "a"', "not JSON"),
        ('[{"jobid": "a"}]', "entry 0 is not a job of Philly's log: 'attempts' is missing"),
        ('[{"jobid": "a", "attempts": [], "submitted_time": "None"}]', "entry 0 is not a job"),
        ("[7]", "entry 0 is not a job"),
    ],
)
def test_a_damaged_log_is_refused(written: Write, text: str, problem: str) -> None:
    """The log is cut short or has another structure."""
    with pytest.raises(InputError, match=problem):
        import_philly(written("cluster_job_log", text), Options())


def test_a_damaged_time_is_refused_with_its_line(written: Write) -> None:
    """The error gives the expected format."""
    path = written("philly.csv", PHILLY + "yesterday,66.0,1,66,v\n")

    with pytest.raises(InputError, match=r":2: timestamp must be YYYY-MM-DD HH:MM:SS; got 'yesterday'"):
        import_philly(path, Options())


def test_helios_jobs_without_gpus_or_run_time_are_left_out(written: Write) -> None:
    """Both reasons are counted."""
    day = "2020-04-01"
    path = written(
        "cluster_log.csv",
        HELIOS
        + f"1,u,vc,8,32,1,COMPLETED,{day} 00:00:10,{day} 00:01:00,{day} 01:01:00,3600,50\n"
        + f"2,u,vc,0,32,1,COMPLETED,{day} 00:00:00,{day} 00:01:00,{day} 01:01:00,3600,60\n"
        + f"3,u,vc,1,4,1,FAILED,{day} 00:00:40,None,None,0,60\n"
        + f"4,u,vc,1,4,1,FAILED,{day} 00:01:10,{day} 00:02:10,{day} 00:03:50,100,60\n",
    )

    found = import_helios(path.parent, Options())

    assert [(job.id, job.arrived_at_seconds) for job in found.trace.jobs] == [("1", 0.0), ("4", 60.0)]
    assert run_seconds(found) == {"1": pytest.approx(3600.0), "4": pytest.approx(100.0)}
    assert found.dropped == {"without GPUs": 1, "without run time": 1}


def test_raw_itp_keeps_the_260_jobs_and_their_work(data: Path) -> None:
    """The work of the cluster is 4,023 GPU-hours."""
    found = import_itp(data / "itp/raw/cluster10.csv", Options())

    assert len(found.trace.jobs) == 260
    assert sum(found.work_gpu_hours().values()) == pytest.approx(4023, abs=1)


def test_drawn_profiles_keep_the_work_of_the_trace(data: Path) -> None:
    """Each class has the mean size of its jobs, and each job a profile of its size category."""
    plain = import_philly(data / "philly", Options())
    drawn = import_philly(data / "philly", Options(profiles=data / "pollux", seed=3))

    assert sum(drawn.work_gpu_hours().values()) == pytest.approx(sum(plain.work_gpu_hours().values()))
    assert all(mean == pytest.approx(1.0) for mean in mean_scales(drawn).values())
    assert list(drawn.gpu_types) == ["t4"]
    sizes = {job_class.name: job_class.size_gpu_hours for job_class in drawn.classes}
    for job in drawn.trace.jobs:
        hours = sizes[job.class_name] * job.scale
        allowed = {"cifar10": (0, 1), "ncf": (0, 1), "deepspeech2": (1, 10), "bert": (1, 10)}
        low, high = allowed.get(job.class_name, (10, 100) if job.class_name == "yolov3" else (100, 1e9))
        assert low * (1 - 1e-9) <= hours <= high * (1 + 1e-9)


def test_a_seed_fixes_the_draw(data: Path) -> None:
    """Equal seeds give equal traces, and another seed gives another trace."""
    once, again, other = (
        import_philly(data / "philly", Options(profiles=data / "pollux", seed=seed)).trace
        for seed in (1, 1, 2)
    )

    assert once == again
    assert once != other


def test_a_directory_without_profiles_is_refused(data: Path) -> None:
    """A rigid job draws its application from the profiles."""
    job = RigidJob(id="a", submitted_at_seconds=0.0, gpus=8, gpu_seconds=8 * 3600.0)
    home = data / "elasticflow"

    with pytest.raises(InputError, match="no profiles here"):
        rigid_workload("x", [job], Options(profiles=home), path=Path("x"), dropped=Counter())


def test_a_missing_profile_is_named(data: Path, tmp_path: Path) -> None:
    """A job of 8 GPU-hours needs deepspeech2 or bert."""
    (tmp_path / "cifar10").symlink_to(data / "pollux/traces/cifar10")
    job = RigidJob(id="a", submitted_at_seconds=0.0, gpus=8, gpu_seconds=8 * 3600.0)

    with pytest.raises(InputError, match="job a took 8 GPU-hours and needs a profile of deepspeech2 or bert"):
        rigid_workload("x", [job], Options(profiles=tmp_path), path=Path("x"), dropped=Counter())


def test_clock_seconds_ignore_time_zones() -> None:
    """The day of a clock change has 86,400 s like every other day."""
    assert instant_seconds("2017-11-06 00:00:00") - instant_seconds("2017-11-05 00:00:00") == 86_400.0
