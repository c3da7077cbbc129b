"""Cores, memory and disk that a class or a job needs exclude machines, with a reason for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.testing.daemon_in_a_folder import job_content

FILE = """
gpu_types:
  a10g: {{instance_type: g5.xlarge}}
  l4: {{instance_type: g6.4xlarge}}
classes:
  - name: heavy
    arrivals_per_hour: 1.0
    needs: {needs}
    phases: [{{size_gpu_hours: 1.0, speedup: {{a10g: {{table: {{1: 1.0}}}}, l4: {{table: {{1: 1.2}}}}}}}}]
"""


def a_file(folder: Path, needs: str) -> Path:
    path = folder / "classes.yaml"
    path.write_text(FILE.format(needs=needs))
    return path


@pytest.mark.parametrize(
    ("needs", "kinds"),
    [
        ("{cpus_per_gpu: 4}", {"a10g", "l4"}),
        ("{cpus_per_gpu: 8}", {"l4"}),
        ("{memory_gb_per_gpu: 40}", {"l4"}),
        ("{cpus_per_gpu: 2, memory_gb_per_gpu: 10}", {"a10g", "l4"}),
    ],
)
def test_a_class_is_planned_only_on_machines_that_meet_its_needs(
    tmp_path: Path, needs: str, kinds: set[str]
) -> None:
    file = load_problem(a_file(tmp_path, needs))

    assert set(file.problem.classes[0].phases[0].speedups) == kinds
    reasons = [said for said in file.warnings if said.startswith("class heavy is not planned on")]
    assert len(reasons) == 2 - len(kinds)
    assert all("g5.xlarge: " in said and "needed" in said for said in reasons)


def test_needs_that_no_machine_meets_are_refused_with_line_and_reason(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"classes.yaml:8: .*g5.xlarge has 4 vCPUs for each GPU, and 99"
    ) as one:
        load_problem(a_file(tmp_path, "{cpus_per_gpu: 99}"))
    with pytest.raises(InputError, match="cpu_per_gpu"):
        load_problem(a_file(tmp_path, "{cpu_per_gpu: 1}"))

    assert "larger machine" in str(one.value.hint)


def test_the_gpus_of_a_node_share_its_disk(tmp_path: Path) -> None:
    """Eight GPUs on 400 GiB have 53.7 GB each, and one GPU has all; a class file alone has no disks."""
    settings = Settings.model_validate(
        {
            "cloud": {"provider": "aws", "instance_types": ["g5.xlarge", "g5.48xlarge"], "volume_gib": 400},
            "workload": {"classes": str(a_file(tmp_path, "{disk_gb_per_gpu: 100}"))},
        }
    )
    planner = Planner(settings, cloud=AwsCloud)
    content = job_content(min_gpus=None, **{"class": "heavy"})

    assert planner.needs_of("heavy") == {"disk_gb_per_gpu": 100.0}
    assert planner.needs_of("unknown") == {}
    assert set(planner.class_for(content).phases[0].speedups) == {"a10g"}
    assert planner.lacks(content) == [
        "Class heavy is not planned on g5.48xlarge: 53.69 GB of disk for each GPU, and 100 are needed."
    ]
    assert planner.lacks({**content, "class": "unknown"}) == []
    assert (
        len(load_problem(a_file(tmp_path, "{disk_gb_per_gpu: 1e6}")).problem.classes[0].phases[0].speedups)
        == 2
    )


def test_instance_disks_count_for_engines_that_put_jobs_on_them(tmp_path: Path) -> None:
    """With `ssm` the instance's disks count instead of the root volume; with `ray` they do not."""
    classes = a_file(tmp_path, "{disk_gb_per_gpu: 300}").read_text().replace("l4:", "v100:")
    (tmp_path / "classes.yaml").write_text(classes.replace("g6.4xlarge", "p3.2xlarge"))
    rented = ["g5.xlarge", "g5.48xlarge", "p3.2xlarge", "p3.8xlarge"]

    def planned_on(engine: str) -> set[str]:
        settings = Settings.model_validate(
            {
                "cloud": {"provider": "aws", "instance_types": rented, "volume_gib": 400},
                "workload": {"classes": str(tmp_path / "classes.yaml")},
                "engine": {"name": engine},
            }
        )
        content = job_content(min_gpus=None, **{"class": "heavy"})
        return set(Planner(settings, cloud=AwsCloud).class_for(content).phases[0].speedups)

    assert planned_on("ssm") == {"a10g@g5.48xlarge", "v100"}
    assert planned_on("ray") == {"a10g", "v100"}


def test_the_daemon_plans_by_the_needs_of_classes_and_of_jobs(tmp_path: Path) -> None:
    """A machine of the settings that the class file does not name must meet the needs too."""
    settings = Settings.model_validate(
        {
            "cloud": {"instance_types": ["g5.xlarge", "g5.4xlarge", "g6.4xlarge"]},
            "workload": {"classes": str(a_file(tmp_path, "{cpus_per_gpu: 4}"))},
        }
    )
    planner = Planner(settings)
    content = job_content(min_gpus=None, **{"class": "heavy"})
    everywhere = planner.class_for(content)
    large = planner.class_for({**content, "cpus": 8.0})

    assert set(everywhere.phases[0].speedups) == {"a10g", "a10g@g5.4xlarge", "l4"}
    assert set(large.phases[0].speedups) == {"a10g@g5.4xlarge", "l4"}
    assert large.name != everywhere.name
    assert planner.left_out(large.name, {"cpus": 8.0}) == [
        "It is not planned on g5.xlarge: it has 4 vCPUs, and cpus is 8."
    ]
    assert planner.left_out(everywhere.name, {}) == []
    with pytest.raises(InputError, match=r"no machine has enough for it: .*g6.4xlarge: it has 16"):
        planner.class_for({**content, "cpus": 64.0})
    with pytest.raises(InputError, match=r"memory_gb is 500"):
        planner.class_for({**content, "memory_gb": 500.0})


def test_a_class_may_share_gpus_if_its_memory_fits_into_a_place(tmp_path: Path) -> None:
    """A T4 has 16 GiB: 6 GB fit into half of it, 9 GB only into the whole, and 20 GB not at all."""
    path = tmp_path / "shared.yaml"
    text = (
        "gpu_types: {t4: {instance_type: g4dn.12xlarge, places_per_gpu: 2}}\n"
        "classes: [{name: c, arrivals_per_hour: 1, shares_gpu: true, needs: {gpu_memory_gb: GB}, "
        "phases: [{size_gpu_hours: 1, speedup: {t4: {table: {1: 1.0, 4: 3.0}}}}]}]\n"
    )
    shared = "t4@g4dn.12xlarge/2"
    path.write_text(text.replace("GB", "6"), encoding="utf-8")
    file = load_problem(path)
    assert file.instance_types[shared].gpus == 8
    assert file.problem.classes[0].phases[0].speedups[shared].speed_at([1, 4]).tolist() == [0.5, 1.5]
    path.write_text(text.replace("GB", "9"), encoding="utf-8")
    found = load_problem(path)
    assert set(found.problem.classes[0].phases[0].speedups) == {"t4"}
    assert any("of 2 places on a GPU" in said for said in found.warnings)
    path.write_text(text.replace("GB", "20"), encoding="utf-8")
    with pytest.raises(InputError, match="no machine has"):
        load_problem(path)
