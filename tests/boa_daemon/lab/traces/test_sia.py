"""Import of Sia's formats, from a directory made of Pollux's profiles.

The type `azure` is made up and twice as fast as `aws`: Sia's own measurements have no licence.
"""

import csv
import shutil
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.pollux import import_pollux
from boa_daemon.lab.traces.sia import import_sia
from boa_daemon.traces.workload import GpuSource, Options

WORKLOAD = """name,time,application,num_replicas,batch_size,category
a,0,cifar10,4,1024,adaptive
b,60,cifar10,4,1024,scale-gpus
c,120,cifar10,4,1024,rigid
d,180,gpt_pmp,8,48,adaptive
e,240,cifar10,17,1024,rigid
f,3600,ncf,2,256,rigid
"""


def twice_as_fast(source: Path, target: Path) -> None:
    """Write halved step times, with the columns in another order."""
    with source.open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["step_time"] = str(float(row["step_time"]) / 2)
        row["sync_time"] = str(float(row["sync_time"]) / 2)
    with target.open("w") as file:
        writer = csv.DictWriter(file, sorted(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def sia(data: Path, tmp_path: Path) -> Path:
    """Return a directory in Sia's layout, with two priced GPU types and one without a price."""
    for application in ("cifar10", "ncf"):
        home, source = tmp_path / "traces" / application, data / "pollux/traces" / application
        home.mkdir(parents=True)
        for path in source.glob("validation-*.csv"):
            shutil.copy(path, home)
        for kind in ("placements", "scalability"):
            shutil.copy(source / f"{kind}.csv", home / f"{kind}-aws.csv")
            twice_as_fast(source / f"{kind}.csv", home / f"{kind}-azure.csv")
            twice_as_fast(source / f"{kind}.csv", home / f"{kind}-rtx.csv")
    (tmp_path / "workloads/new").mkdir(parents=True)
    (tmp_path / "workloads/new/workload-1.csv").write_text(WORKLOAD)
    return tmp_path


def test_aws_profiles_give_the_classes_of_pollux(sia: Path, data: Path) -> None:
    """Half the step time gives twice the speed."""
    ours = {job_class.name: job_class for job_class in import_sia(sia, Options()).classes}
    six = import_pollux(data / "pollux", Options(workload="workloads/workload-6.csv", apps=("cifar10",)))

    for mine, theirs in zip(ours["cifar10"].phases, six.classes[0].phases, strict=True):
        assert mine.size_gpu_hours == theirs.size_gpu_hours
        assert mine.speedups["t4"] == theirs.speedups["t4"]
        widths = mine.speedups["t4"].whole_widths()
        fast = mine.speedups["v100"].speed_at(widths)
        assert fast == pytest.approx(2.0 * mine.speedups["t4"].speed_at(widths))


def test_categories_decide_which_widths_a_job_may_have(sia: Path) -> None:
    """Adaptive and scale-gpus jobs have all widths, the latter at their own batch; rigid jobs have one."""
    found = import_sia(sia, Options())
    phases = {job_class.name: job_class.phases[50] for job_class in found.classes}

    assert sorted(phases) == ["cifar10", "cifar10-b1024", "cifar10-b1024-x4"]
    adaptive, fixed, rigid = (phases[name].speedups["t4"] for name in sorted(phases))
    assert rigid.whole_widths().tolist() == [4]
    assert rigid.speed_at(4) == fixed.speed_at(4)
    widths = fixed.whole_widths()
    assert set(widths) <= set(adaptive.whole_widths())
    assert (fixed.speed_at(widths) <= adaptive.speed_at(widths) * (1 + 1e-12)).all()
    assert len({phase.size_gpu_hours for phase in phases.values()}) == 1


def test_jobs_in_pipelines_or_of_unmeasured_shapes_are_counted(sia: Path) -> None:
    """An unmeasured width and ncf on two GPUs are unmeasured shapes."""
    found = import_sia(sia, Options())

    assert [job.id for job in found.trace.jobs] == ["a", "b", "c"]
    assert found.dropped == {"in pipelines": 1, "of a shape that was not measured": 2}


def test_a_type_without_an_instance_needs_a_price(sia: Path) -> None:
    """Without a price it is left out with a note."""
    found = import_sia(sia, Options())
    assert list(found.gpu_types) == ["t4", "v100"]
    assert found.gpu_types["v100"] == GpuSource(instance_type="p3dn.24xlarge")
    assert "rtx was measured" in found.notes[0]

    price = GpuSource(usd_per_gpu_hour=1.2)
    found = import_sia(sia, Options(gpu_types={"rtx": price}))
    assert found.gpu_types["rtx"] == price
    assert found.notes == ()


def test_restarts_take_sias_times_by_default(sia: Path) -> None:
    """A restart of cifar10 takes 50 s."""
    assert import_sia(sia, Options()).classes[0].rescale_hours == 50 / 3600
    assert import_sia(sia, Options(rescale_seconds=10.0)).classes[0].rescale_hours == 10 / 3600


def test_the_reference_is_the_first_measured_type(sia: Path) -> None:
    """Without aws, one V100 has speed 1 and the job is half as large."""
    whole = import_sia(sia, Options()).classes[0].size_gpu_hours
    for path in sia.glob("traces/*/*-aws.csv"):
        path.unlink()

    phases = import_sia(sia, Options()).classes[0].phases

    assert phases[0].speedups["v100"].speed_at(1) == 1.0
    assert sum(phase.size_gpu_hours for phase in phases) == pytest.approx(whole / 2)


def test_profiles_without_a_priced_type_are_refused(sia: Path) -> None:
    """A plan needs at least one type with a price."""
    for suffix in ("aws", "azure"):
        for path in sia.glob(f"traces/*/*-{suffix}.csv"):
            path.unlink()

    with pytest.raises(InputError, match="no type that has a price"):
        import_sia(sia, Options())


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("scale-gpus", "scale-gpu", ":3: category must be adaptive, scale-gpus or rigid; got 'scale-gpu'"),
        ("60,cifar10,4,1024", "60,cifar10,4,0", ":3: batch_size must be a finite number, 1 or more"),
        ("num_replicas", "replicas", "needs the column 'num_replicas'"),
    ],
)
def test_damaged_workloads_are_refused(sia: Path, old: str, new: str, problem: str) -> None:
    """The error names the fault, and the line if there is one."""
    (sia / "workloads/new/workload-1.csv").write_text(WORKLOAD.replace(old, new))

    with pytest.raises(InputError, match=problem):
        import_sia(sia, Options())
