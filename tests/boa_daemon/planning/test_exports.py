"""Exports of a plan: valid by the other project's own schema or parser, and with the widths of the plan."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.planning.exports import EXPORT_KINDS, EXPORTS

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = {
    (entry["kind"], f"{entry['group']}/{entry['version']}"): entry["schema"]
    for path in sorted((ROOT / "tests" / "data" / "schemas").glob("*.json"))
    for entry in [json.loads(path.read_text(encoding="utf-8"))]
}
# Two widths of one class: 2 GPUs are cheaper than the budget, 8 dearer; the other class has one width, of 16.
CLASSES = """
gpu_types: {a100: {instance_type: p4d.24xlarge}}
classes:
  - name: wide
    arrivals_per_hour: 0.5
    phases: [{size_gpu_hours: 8.0, speedup: {table: {16: 12.0}}}]
  - name: Small One
    arrivals_per_hour: 1.0
    phases: [{size_gpu_hours: 4.0, speedup: {table: {2: 2.0, 8: 6.0}}}]
"""


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """A class file."""
    path = tmp_path / "classes.yaml"
    path.write_text(CLASSES)
    return path


def exported(kind: str, classes: Path, budget: str = "27/h") -> str:
    """Return what the command prints."""
    done = CliRunner().invoke(app, ["plan", "--classes", str(classes), "--budget", budget, "--export", kind])
    assert done.exit_code == 0, done.output
    return done.stdout


def strict(schema: Any) -> Any:
    """Return a schema that refuses unknown keys, as a cluster does with ``--validate=strict``."""
    if isinstance(schema, dict):
        found = {key: strict(value) for key, value in schema.items()}
        if "properties" in found and found.get("type") == "object":
            found.setdefault("additionalProperties", False)
        return found
    return [strict(one) for one in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("kind", ["hyperpod", "kueue", "karpenter"])
def test_manifests_are_valid_by_the_definitions_of_their_projects(kind: str, classes: Path) -> None:
    """Unknown keys are refused; metadata is that of Kubernetes."""
    documents = list(yaml.safe_load_all(exported(kind, classes)))
    assert documents
    for document in documents:
        schema = SCHEMAS[document["kind"], document["apiVersion"]]
        body = {"spec": document["spec"]} if kind != "hyperpod" else document["spec"]
        checked = strict(schema)
        if kind != "hyperpod":
            checked = {"type": "object", "properties": {"spec": checked["properties"]["spec"]}}
        jsonschema.Draft202012Validator(checked).validate(body)
        assert document["metadata"]["name"].replace("-", "").isalnum()


ODD_NAMES = [
    *(
        "a_b",
        "a-b",
        "A B",
        "a-b-2",
        "größe",
        "日本語",
        "中文",
        "-x-",
        "n" * 80,
        "n" * 80 + "x",
        "o'brien",
        'a"b',
    ),
    *("null", "#x", "a: b", "$(rm -rf)", "a\u2028kind: Pod", "a\x85kind: Pod"),
]


@pytest.mark.parametrize("kind", ["hyperpod", "ray", "sbatch"])
def test_odd_names_of_classes_stay_apart(kind: str, tmp_path: Path) -> None:
    """Of two manifests with one name the second replaces the first; a name ends no comment."""
    names = ODD_NAMES + [f"c{number}" for number in range(100 - len(ODD_NAMES))]
    row = {"arrivals_per_hour": 0.1, "phases": [{"size_gpu_hours": 1.0, "speedup": {"table": {1: 1.0}}}]}
    path = tmp_path / "classes.yaml"
    types = {"a100": {"instance_type": "p4d.24xlarge"}}
    content = {"gpu_types": types, "classes": [{"name": name, **row} for name in names]}
    path.write_text(yaml.safe_dump(content))
    text = exported(kind, path, "900/h")
    if kind == "hyperpod":
        jobs = [one["metadata"]["name"] for one in yaml.safe_load_all(text)]
        assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", one) for one in jobs)
    elif kind == "ray":
        tree = ast.parse(text)
        scaling = next(node for node in ast.walk(tree) if isinstance(node, ast.Dict))
        jobs = [ast.literal_eval(key) for key in scaling.keys if key is not None]
        assert sorted(jobs) == sorted(names)
    else:
        jobs = re.findall(r"^#SBATCH --job-name=(.+)$", text, re.MULTILINE)
        assert all(line.startswith("#") or not line for line in text.splitlines())
    assert len(set(jobs)) == len(jobs) == 100


def test_the_schema_check_can_fail(classes: Path) -> None:
    """A misspelt key of a NodePool is found."""
    (pool,) = yaml.safe_load_all(exported("karpenter", classes))
    pool["spec"]["limit"] = pool["spec"].pop("limits")
    spec = strict(SCHEMAS["NodePool", "karpenter.sh/v1"])["properties"]["spec"]
    with pytest.raises(jsonschema.ValidationError, match="'limit' was unexpected"):
        jsonschema.Draft202012Validator(spec).validate(pool["spec"])


def test_the_widths_are_discrete_replicas(classes: Path) -> None:
    """16 GPUs are 2 pods of 8; widths of 2 and 8 are 1 and 4 pods of 2."""
    wide, small = yaml.safe_load_all(exported("hyperpod", classes))
    assert wide["spec"]["elasticPolicy"]["replicaDiscreteValues"] == [2]
    assert wide["spec"]["nprocPerNode"] == "8"
    assert small["metadata"]["name"] == "small-one"
    policy = small["spec"]["elasticPolicy"]
    assert (policy["minReplicas"], policy["maxReplicas"]) == (1, 4)
    assert policy["replicaDiscreteValues"] == [1, 4]
    (container,) = small["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    selector = small["spec"]["replicaSpecs"][0]["template"]["spec"]["nodeSelector"]
    assert selector == {"node.kubernetes.io/instance-type": "ml.p4d.24xlarge"}


def test_ray_train_builds_the_configurations(classes: Path) -> None:
    """The module is imported by Ray's own class."""
    train = pytest.importorskip("ray.train")
    found: dict[str, Any] = {}
    exec(exported("ray", classes), found)
    scaling = found["SCALING"]
    assert scaling["wide"] == train.ScalingConfig(
        num_workers=16, use_gpu=True, resources_per_worker={"GPU": 1}, accelerator_type="A100"
    )
    assert scaling["Small One"].num_workers == (2, 8)
    assert scaling["wide"].total_resources["GPU"] == 16


def test_sbatch_takes_the_lines(classes: Path, tmp_path: Path) -> None:
    """Slurm's own parser finds no fault; there is no controller to take the job."""
    text = exported("sbatch", classes)
    blocks = [block for block in text.split("\n\n") if "#SBATCH" in block]
    assert len(blocks) == 3
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=a100:8" in text
    if shutil.which("sbatch") is None:
        pytest.skip("Slurm's sbatch is not installed")
    settings = tmp_path / "slurm.conf"
    settings.write_text(
        "ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nMessageTimeout=1\n"
        "AuthType=auth/none\nSlurmctldTimeout=1\nGresTypes=gpu\n"
    )

    def said(block: str) -> str:
        script = tmp_path / "job.sh"
        script.write_text(f"#!/bin/bash\n{block}\ntrue\n")
        done = subprocess.run(
            ["sbatch", "--test-only", str(script)],
            env={"SLURM_CONF": str(settings), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stderr

    for block in blocks:
        assert "Unable to contact slurm controller" in said(block)
    assert "not a valid node count" in said(blocks[0].replace("--nodes=", "--nodes=x"))


def test_quotas_suffice_for_99_percent_of_the_time(classes: Path) -> None:
    """The quota is p99 of the GPUs in use, as the plan itself states it; nodes are whole."""
    done = CliRunner().invoke(app, ["plan", "--classes", str(classes), "--budget", "27/h", "-o", "json"])
    (swing,) = json.loads(done.stdout)["swing"]
    queue = next(
        one for one in yaml.safe_load_all(exported("kueue", classes)) if one["kind"] == "ClusterQueue"
    )
    (flavor,) = queue["spec"]["resourceGroups"][0]["flavors"]
    quotas = {one["name"]: one["nominalQuota"] for one in flavor["resources"]}
    assert quotas["nvidia.com/gpu"] == swing["p99_gpus"]
    assert quotas["cpu"] == swing["p99_instances"] * 96
    (pool,) = yaml.safe_load_all(exported("karpenter", classes))
    assert pool["spec"]["limits"] == {"nvidia.com/gpu": swing["p99_instances"] * 8}


def test_a_machine_of_your_own_has_a_placeholder(tmp_path: Path) -> None:
    """A machine that the class file prices itself has no name that a cloud knows."""
    path = tmp_path / "classes.yaml"
    path.write_text(
        CLASSES.replace("{instance_type: p4d.24xlarge}", "{usd_per_gpu_hour: 2, gpus_per_instance: 8}")
    )
    (pool,) = yaml.safe_load_all(exported("karpenter", path))
    (kind, _) = pool["spec"]["template"]["spec"]["requirements"]
    assert kind["values"] == ["INSTANCE-TYPE-WITH-8-a100"]


def test_json_has_the_text(classes: Path) -> None:
    """One document on standard output."""
    flags = ["--classes", str(classes), "--budget", "27/h", "--export", "sbatch", "-o", "json"]
    done = CliRunner().invoke(app, ["plan", *flags])
    assert json.loads(done.stdout) == {"export": "sbatch", "text": exported("sbatch", classes)}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--export", "karpentr"], "Did you mean 'karpenter'"),
        (
            ["--export", "kueue", "--jobs", "examples/jobs.csv"],
            "--export does not go with --cloud and a list",
        ),
        (["--export", "kueue", "--cloud", "all"], "--export does not go with --cloud and a list"),
    ],
)
def test_refused(flags: list[str], said: str, classes: Path) -> None:
    """Kinds that do not exist, and plans that are not of a stream."""
    done = CliRunner().invoke(app, ["plan", "--classes", str(classes), "--budget", "27/h", *flags])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


def test_the_page_lists_every_kind() -> None:
    """The rows of the reference page are those of the table."""
    page = (ROOT / "docs" / "reference" / "imports.md").read_text(encoding="utf-8")
    assert tuple(EXPORTS) == EXPORT_KINDS
    for kind, entry in EXPORTS.items():
        assert f"| `{kind}` | {entry.what} | {entry.checked} |" in page
