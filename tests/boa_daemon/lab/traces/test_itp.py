"""Import of ITP's jobs with the throughputs that ElasticFlow measured."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.itp import import_itp, read_throughputs
from boa_daemon.traces.workload import GpuSource, Options

Write = Callable[[str, str], Path]
HEADER = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"


@pytest.fixture
def trace(data: Path) -> Path:
    """Return the trace of cluster 10 with models."""
    return data / "itp/elasticflow/cluster10.csv"


def test_a_job_at_its_own_width_takes_its_own_duration(data: Path, trace: Path) -> None:
    """All 260 jobs agree, since iterations are duration times steps a second at the job's width."""
    found = import_itp(trace, Options(profiles=data / "elasticflow"))
    classes = {job_class.name: job_class for job_class in found.classes}
    rows = {row["job_id"]: row for row in csv.DictReader(trace.read_text().splitlines())}

    assert len(found.trace.jobs) == 260
    for job in found.trace.jobs:
        (phase,) = classes[job.class_name].phases
        width = int(rows[job.id]["num_gpu"])
        seconds = phase.size_gpu_hours * job.scale * 3600 / float(phase.speedups["a100"].speed_at(width))
        assert seconds == pytest.approx(float(rows[job.id]["duration"]), rel=0.01)


def test_a_class_is_a_model_with_a_batch_size_at_the_mean_job_size(data: Path, trace: Path) -> None:
    """14 pairs occur, all measured on A100; T4 was not measured and is not offered."""
    found = import_itp(trace, Options(profiles=data / "elasticflow"))

    assert len(found.classes) == 14
    assert found.gpu_types == {"a100": GpuSource(instance_type="p4d.24xlarge")}
    for job_class in found.classes:
        scales = [job.scale for job in found.trace.jobs if job.class_name == job_class.name]
        assert sum(scales) / len(scales) == pytest.approx(1.0)


def test_unmeasured_widths_are_not_offered(data: Path) -> None:
    """Empty, nan and zero cells are unmeasured widths."""
    measured = read_throughputs(data / "elasticflow")

    assert list(measured["deepspeech2", 32]["a100"]) == [1, 2, 4, 8, 16, 32]
    assert list(measured["resnet50_cifar10", 64]["a100"]) == [1, 2, 4, 8]
    assert list(measured["yolov3", 64]["t4"]) == [1, 2, 4, 8, 16]
    assert list(measured["bert", 64]["a100"]) == [1, 2, 4, 8, 16, 32, 64]
    assert "t4" not in measured["bert", 64]


def test_a_model_measured_on_two_gpu_types_has_both_speeds(written: Write) -> None:
    """Speeds are relative to one GPU of the first type; types without a price are left out."""
    written("throughputs_T4/m.csv", "global_batch_size,1,2\n8,1.0,1.5\n")
    written("throughputs_A100/m.csv", "global_batch_size,1,2\n8,4.0,\n")
    home = written("throughputs_X/m.csv", "global_batch_size,1,2\n8,9.0,\n").parent.parent
    trace = written("trace.csv", HEADER + "a,5,3600,m,9,8,1,1\nb,65,7200,m,9,8,1,1\n")

    (only,) = import_itp(trace, Options(profiles=home)).classes

    (phase,) = only.phases
    assert phase.size_gpu_hours == pytest.approx(1.5)
    assert {name: curve.speed_at(1) for name, curve in phase.speedups.items()} == {"t4": 1.0, "a100": 4.0}
    priced = Options(profiles=home, gpu_types={"x": GpuSource(usd_per_gpu_hour=1.0)})
    assert "x" in import_itp(trace, priced).classes[0].phases[0].speedups


def test_jobs_of_unmeasured_models_are_counted(data: Path, written: Write) -> None:
    """An unmeasured batch size counts as an unmeasured model; a job without iterations is dropped."""
    trace = written("t.csv", HEADER + "a,0,10,bert,9,64,1,1\nb,1,10,bert,9,7,1,1\nc,2,0,bert,9,64,1,1\n")

    found = import_itp(trace, Options(profiles=data / "elasticflow"))

    assert [job.id for job in found.trace.jobs] == ["a"]
    assert found.dropped == {"of a model and batch that were not measured": 1, "without iterations": 1}


def test_without_throughputs_jobs_keep_their_width(trace: Path) -> None:
    """Speed-ups at other widths are unknown."""
    found = import_itp(trace, Options())

    assert {job_class.name.split("-")[0] for job_class in found.classes} == {"gpus"}
    assert any("speed-ups are not known" in note for note in found.notes)


def test_throughputs_for_a_trace_without_models_are_refused(data: Path) -> None:
    """The raw trace has no column for models."""
    with pytest.raises(InputError, match="this trace names no models"):
        import_itp(data / "itp/raw/cluster10.csv", Options(profiles=data / "elasticflow"))


def test_a_directory_without_throughputs_is_an_error(data: Path, trace: Path) -> None:
    """Throughputs are files throughputs_TYPE/MODEL.csv."""
    with pytest.raises(InputError, match=r"no throughputs_TYPE/MODEL\.csv here"):
        import_itp(trace, Options(profiles=data / "itp"))


def test_a_damaged_throughput_is_refused(written: Write) -> None:
    """The error names file and line."""
    path = written("throughputs_T4/m.csv", "global_batch_size,1,2\n8,1.0,fast\n")

    with pytest.raises(InputError, match=r"m\.csv:2: 2 must be a number; got 'fast'"):
        read_throughputs(path.parent.parent)
