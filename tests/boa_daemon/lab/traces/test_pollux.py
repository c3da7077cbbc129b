"""Import of Pollux's measurements and workloads as classes with one phase per epoch."""

import shutil
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.pollux import import_pollux
from boa_daemon.traces.workload import Options, Workload
from policies.model import JobClass
from policies.speedup import Table

SIX = Options(workload="workloads/workload-6.csv")


def a_class(found: Workload, name: str) -> JobClass:
    """Return the class with that name."""
    return next(job_class for job_class in found.classes if job_class.name == name)


def t4(found: Workload, name: str, epoch: int) -> Table:
    """Return the speed-up table of an epoch."""
    curve = a_class(found, name).phases[epoch].speedups["t4"]
    assert isinstance(curve, Table)
    return curve


def test_the_cut_of_the_boa_paper_has_85_jobs_of_three_applications(data: Path) -> None:
    """Workload 1 has 66, 12 and 7 jobs of them in 7.4 hours."""
    options = Options(workload="workloads/workload-1.csv", apps=("cifar10", "deepspeech2", "bert"))

    found = import_pollux(data / "pollux", options)

    assert len(found.trace.jobs) == 66 + 12 + 7
    assert found.trace.jobs[0].arrived_at_seconds == 107.0
    assert found.trace.jobs[-1].arrived_at_seconds == 26_752.0
    hours = (26_752 - 107) / 3600
    rates = {job_class.name: job_class.arrivals_per_hour for job_class in found.classes}
    assert rates == {"bert": 7 / hours, "cifar10": 66 / hours, "deepspeech2": 12 / hours}
    assert found.dropped == {"of other applications": 160 - 85}


def test_every_application_has_its_measured_epochs_and_size(data: Path) -> None:
    """Sizes are GPU-hours on one T4 at the best batch size of each epoch."""
    found = import_pollux(data / "pollux", SIX)

    epochs = {job_class.name: len(job_class.phases) for job_class in found.classes}
    sizes = {job_class.name: round(job_class.size_gpu_hours, 2) for job_class in found.classes}
    assert epochs == {"bert": 2, "cifar10": 100, "deepspeech2": 80, "imagenet": 90, "ncf": 10, "yolov3": 50}
    assert sizes == {
        "bert": 3.76,
        "cifar10": 1.03,
        "deepspeech2": 4.56,
        "imagenet": 147.9,
        "ncf": 0.01,
        "yolov3": 9.37,
    }


def test_speed_ups_are_relative_to_one_gpu_at_the_measured_widths(data: Path) -> None:
    """The widths are 1 to 16 and the few larger ones that were measured."""
    found = import_pollux(data / "pollux", SIX)

    measured = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64)
    for name in ("bert", "cifar10", "deepspeech2", "imagenet", "yolov3"):
        for epoch in (0, -1):
            assert t4(found, name, epoch).gpus == measured
            assert t4(found, name, epoch).speeds[0] == 1.0
    assert t4(found, "ncf", 0) == Table(gpus=(1,), speeds=(1.0,))


def test_late_epochs_scale_better_than_early_ones(data: Path) -> None:
    """Gradients become noisier, so larger batches pay; this is the reason for phases."""
    found = import_pollux(data / "pollux", SIX)

    for name in ("cifar10", "deepspeech2", "imagenet", "yolov3"):
        early, late = (t4(found, name, epoch).speed_at(16) for epoch in (0, -1))
        assert late > 2.0 * early


def test_a_restart_takes_30_seconds_by_default(data: Path) -> None:
    """Options in seconds change start-up and rescale."""
    bert = a_class(import_pollux(data / "pollux", SIX), "bert")
    assert (bert.startup_hours, bert.rescale_hours) == (30 / 3600, 30 / 3600)

    options = Options(workload=SIX.workload, startup_seconds=180.0, rescale_seconds=0.0)
    bert = a_class(import_pollux(data / "pollux", options), "bert")
    assert (bert.startup_hours, bert.rescale_hours) == (180 / 3600, 0.0)


def test_arrivals_in_a_window_count_from_its_begin(data: Path) -> None:
    """Hours 2 to 4 of the trace begin at 0 s."""
    whole = import_pollux(data / "pollux", SIX).trace.jobs
    found = import_pollux(
        data / "pollux", Options(workload=SIX.workload, from_hours=2.0, to_hours=4.0)
    ).trace.jobs

    expected = [
        (job.id, job.arrived_at_seconds - 7200) for job in whole if 7200 <= job.arrived_at_seconds < 14400
    ]
    assert [(job.id, job.arrived_at_seconds) for job in found] == expected


def test_a_workload_file_alone_finds_its_profiles(data: Path) -> None:
    """The profiles are beside its directory."""
    found = import_pollux(data / "pollux/workloads/workload-6.csv", Options(limit=10))

    assert len(found.trace.jobs) == 10
    assert found.dropped == {"beyond the limit": 150}


def test_several_workloads_without_a_choice_are_refused(data: Path) -> None:
    """The error lists the workloads."""
    with pytest.raises(InputError, match=r"--workload: (workloads.workload-[136]\.csv(, )?){3}"):
        import_pollux(data / "pollux", Options())


def test_an_unknown_application_is_refused_with_a_suggestion(data: Path) -> None:
    """A typing error does not lead to an empty trace."""
    with pytest.raises(InputError, match=r"no job of 'cifar'.*Did you mean 'cifar10'"):
        import_pollux(data / "pollux", Options(workload=SIX.workload, apps=("cifar",)))


def test_missing_profiles_and_step_times_are_refused(data: Path, tmp_path: Path) -> None:
    """The error names the application."""
    shutil.copytree(data / "pollux/workloads", tmp_path / "workloads")
    with pytest.raises(InputError, match="no profiles here"):
        import_pollux(tmp_path, SIX)
    shutil.copytree(data / "pollux/traces/bert", tmp_path / "traces/bert")
    with pytest.raises(InputError, match="no profile of application 'cifar10'"):
        import_pollux(tmp_path, SIX)
    (tmp_path / "traces/bert/placements.csv").unlink()
    with pytest.raises(InputError, match="bert has no step times for t4"):
        import_pollux(tmp_path, Options(workload=SIX.workload, apps=("bert",)))


def test_an_application_not_measured_on_one_gpu_is_refused(data: Path, tmp_path: Path) -> None:
    """One GPU is the unit of work."""
    shutil.copytree(data / "pollux/workloads", tmp_path / "workloads")
    shutil.copytree(data / "pollux/traces/bert", tmp_path / "traces/bert")
    path = tmp_path / "traces/bert/placements.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("1,")))

    with pytest.raises(InputError, match="bert was not measured on one GPU of t4"):
        import_pollux(tmp_path, Options(workload=SIX.workload, apps=("bert",)))
