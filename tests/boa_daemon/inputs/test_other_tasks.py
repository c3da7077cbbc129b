"""Tasks of SkyPilot and dstack: what is meant, ignored and refused, by line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document, read_document
from boa_daemon.inputs.other_tasks import TASKS, Translation, translate

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "tasks"

SKY = "resources: {accelerators: A100:8}\nrun: python t.py\n"
DSTACK = "type: task\nresources: {gpu: 8}\ncommands: [python t.py]\n"
DURATIONS: list[tuple[str, str, float | None]] = [
    ("max_duration: off\n", "max_hours", None),
    ("max_duration: 'off'\n", "max_hours", None),
    ("max_duration: 0\n", "max_hours", 0.0),
    ("stop_duration: 0\n", "stop_grace_seconds", 0.0),
    ("stop_duration: 5m\n", "stop_grace_seconds", 300.0),
    ("max_duration: 1 w\n", "max_hours", 168.0),
]


def of_text(text: str, kind: str, tmp_path: Path) -> Translation:
    """Return the translation of a task in YAML."""
    path = tmp_path / "task.yaml"
    path.write_text(text, encoding="utf-8")
    return translate(read_document(path), kind, class_name="c")


def test_sky_by_hand() -> None:
    """2 nodes x 8 GPUs; numbers stay as they were typed; the code is the folder."""
    found = translate(read_document(DATA / "sky-task.yaml"), "sky", class_name="bert")
    assert not found.refused
    run = found.content.pop("run")
    assert found.content == {
        "name": "bert",
        "class": "bert",
        "code": ".",
        "min_gpus": 16,
        "max_gpus": 16,
        "image": "pytorch/pytorch:2.8.0",
        "environment": {"MODEL": "bert-base", "LR": "1e-4", "VERSION": "3.10"},
        "setup": "pip install -r requirements.txt\n",
    }
    assert run.startswith('export SKYPILOT_NODE_RANK="$BOA_NODE_RANK"\n')
    verdicts = {(one.line, one.verdict) for one in found.findings}
    assert {(1, "meant"), (5, "ignored"), (6, "meant"), (7, "ignored"), (11, "meant")} <= verdicts


def test_dstack_by_hand() -> None:
    """2 nodes x 4 to 8 GPUs; commands stop at the first that fails; 12 h."""
    found = translate(read_document(DATA / "dstack-task.yaml"), "dstack", class_name="c")
    assert not found.refused
    assert (found.content["min_gpus"], found.content["max_gpus"]) == (8, 16)
    assert found.content["environment"] == {"NCCL_DEBUG": "INFO", "LR": "1e-4"}
    assert found.content["max_hours"] == 12.0
    assert "\nset -e\npip install" in found.content["run"]


def test_the_variables_of_the_tool_have_the_values_of_boa(tmp_path: Path) -> None:
    """The translated command runs in a shell and prints what the tool's own variables would say."""
    text = (
        "resources: {accelerators: A100:4}\nnum_nodes: 2\nrun: |\n"
        '  echo "$SKYPILOT_NODE_RANK $SKYPILOT_NUM_NODES $SKYPILOT_NUM_GPUS_PER_NODE" '
        '$(echo "$SKYPILOT_NODE_IPS" | head -n1)\n'
    )
    found = of_text(text, "sky", tmp_path)
    assert not found.refused
    done = subprocess.run(
        ["sh", "-c", found.content["run"]],
        env={"BOA_NODE_RANK": "1", "BOA_NODES": "2", "BOA_GPUS_PER_NODE": "4", "MASTER_ADDR": "10.0.0.7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1 2 4 10.0.0.7\n"


def test_the_variables_of_a_setup_are_set_before_it(tmp_path: Path) -> None:
    """The setup runs before the command, so what the command exports comes too late for it."""
    text = SKY + "setup: echo $SKYPILOT_NUM_GPUS_PER_NODE\n"
    found = of_text(text, "sky", tmp_path)
    assert found.content["setup"].startswith('export SKYPILOT_NUM_GPUS_PER_NODE="$BOA_GPUS_PER_NODE"\n')
    assert found.content["run"] == "python t.py"


def test_a_variable_that_the_command_sets_is_its_own(tmp_path: Path) -> None:
    """Nor is a macro of the C compiler a variable of dstack."""
    text = DSTACK.replace("python t.py", '"DSTACK_MINE=1; echo $DSTACK_MINE; cc -DSTACK_TRACE a.c"')
    assert not of_text(text, "dstack", tmp_path).refused


def test_names_stay_as_they_were_typed(tmp_path: Path) -> None:
    """YAML reads 1.10 as the number 1.1."""
    found = of_text(DSTACK + "name: 1.10\nimage: 3.10\nworking_dir: 007\n", "dstack", tmp_path)
    assert [found.content[key] for key in ("name", "image", "workdir")] == ["1.10", "3.10", "007"]


@pytest.mark.parametrize(("text", "key", "value"), DURATIONS)
def test_durations(text: str, key: str, value: float | None, tmp_path: Path) -> None:
    """``off`` is no limit; 0 is none of its spellings."""
    assert of_text(DSTACK + text, "dstack", tmp_path).content.get(key) == value


WIDTHS: dict[str, tuple[str, str, tuple[int, int]]] = {
    "a name alone is one GPU": ("sky", "resources: {accelerators: V100}\nrun: a\n", (1, 1)),
    "a mapping": ("sky", "resources: {accelerators: {A100: 4}}\nrun: a\n", (4, 4)),
    "choices of one size": ("sky", "resources: {accelerators: [A100:8, H100:8]}\nrun: a\n", (8, 8)),
    "gpus": ("sky", "resources: {gpus: H100:4}\nrun: a\n", (4, 4)),
    "choices of one number": (
        "sky",
        "resources: {any_of: [{infra: aws, accelerators: H100:8}, {infra: gcp, gpus: A100:8}]}\nrun: a\n",
        (8, 8),
    ),
    "places in order": (
        "sky",
        "resources: {accelerators: H100:8, ordered: [{infra: aws/us-east-1}, {infra: gcp}]}\nrun: a\n",
        (8, 8),
    ),
    "least and most of dstack": ("dstack", DSTACK.replace("8", "{count: {min: 2, max: 8}}"), (2, 8)),
    "8.0": ("sky", "resources: {accelerators: 'A100:8.0'}\nrun: a\n", (8, 8)),
    "a number": ("dstack", DSTACK, (8, 8)),
    "a name": ("dstack", DSTACK.replace("8", "H100"), (1, 1)),
    "a range": ("dstack", DSTACK.replace("8", "'H100:1..4'"), (1, 4)),
    "memory and number": ("dstack", DSTACK.replace("8", "24GB:2"), (2, 2)),
    "a mapping of dstack": (
        "dstack",
        DSTACK.replace("8", "{name: [A100, H100], count: 2, memory: 40GB..}"),
        (2, 2),
    ),
    "nodes": ("dstack", DSTACK + "nodes: 3\n", (24, 24)),
}


@pytest.mark.parametrize(("kind", "text", "width"), WIDTHS.values(), ids=WIDTHS)
def test_widths(kind: str, text: str, width: tuple[int, int], tmp_path: Path) -> None:
    """GPUs of a node x nodes."""
    found = of_text(text, kind, tmp_path)
    assert not found.refused
    assert (found.content["min_gpus"], found.content["max_gpus"]) == width


REFUSED: dict[str, tuple[str, str, int | None, str]] = {
    "mounts": ("sky", SKY + "file_mounts: {/data: s3://b}\n", 3, "write data:"),
    "a service": ("sky", SKY + "service: {replicas: 2}\n", 3, "no service"),
    "secrets": ("sky", SKY + "secrets: {TOKEN: abc}\n", 3, "values do not belong here"),
    "a value of the shell": ("sky", SKY + "envs: {TOKEN: null}\n", 3, "TOKEN has no value"),
    "parts of a GPU": ("sky", SKY.replace("A100:8", "'A100:0.5'"), 1, "a whole number of GPUs"),
    "choices of two sizes": (
        "sky",
        SKY.replace("A100:8", "[A100:8, H100:4]"),
        1,
        "the same for every choice",
    ),
    "a choice of another number": (
        "sky",
        SKY.replace("A100:8", "A100:8, any_of: [{accelerators: H100:4}]"),
        1,
        "one number of GPUs for every choice",
    ),
    "a choice without GPUs": (
        "sky",
        SKY.replace("accelerators: A100:8", "any_of: [{accelerators: H100:4}, {infra: aws}]"),
        1,
        "one number of GPUs for every choice",
    ),
    "choices without GPUs": (
        "sky",
        SKY.replace("accelerators: A100:8", "any_of: [{infra: gcp}, {infra: aws}]"),
        None,
        "no accelerators",
    ),
    "two names that differ": ("sky", SKY.replace("A100:8", "A100:8, gpus: A100:4"), 1, "accelerators says"),
    "a TPU": ("sky", SKY.replace("A100:8", "tpu-v5p-8"), 1, "is no GPU"),
    "a number without its GPU": ("sky", SKY.replace("A100:8", "8"), 1, "a GPU and how many, such as A100:8"),
    "a number for a GPU": ("sky", SKY.replace("A100:8", "{8: 1}"), 1, "a GPU and how many, such as A100:8"),
    "no GPUs": ("sky", "run: a\n", None, "no resources.accelerators"),
    "a typing mistake": ("sky", SKY + "evns: {A: 1}\n", 3, "Did you mean 'envs'"),
    "a typing mistake inside": (
        "sky",
        "resources: {accelerator: A100:8}\nrun: a\n",
        1,
        "Did you mean 'accelerators'",
    ),
    "all addresses": ("sky", SKY.replace("python t.py", "echo $SKYPILOT_NODE_IPS | wc -l"), 2, "MASTER_ADDR"),
    "nothing to run": ("sky", "resources: {accelerators: A100:8}\n", None, "nothing to run"),
    "a service of dstack": ("dstack", DSTACK.replace("task", "service"), 1, "only `type: task`"),
    "a secret of dstack": ("dstack", DSTACK + "env: ['A=${{ secrets.a }}']\n", 4, "filled in by its tool"),
    "a name without a value": ("dstack", DSTACK + "env: [TOKEN]\n", 4, "TOKEN has no value"),
    "volumes": ("dstack", DSTACK + "volumes: [a:/b]\n", 4, "no counterpart"),
    "a job's arguments in a command": (
        "dstack",
        DSTACK.replace("python t.py", "'python t.py ${{ run.args }}'"),
        3,
        "filled in by its tool",
    ),
    "another variable": ("dstack", DSTACK.replace("python t.py", "echo $DSTACK_RUN_ID"), 3, "DSTACK_RUN_ID"),
    "another variable of a setup": ("sky", SKY + 'setup: echo "${SKYPILOT_USER}"\n', 3, "SKYPILOT_USER"),
    "another variable in Python": (
        "sky",
        SKY.replace("t.py", "-c 'import os; os.environ[\"SKYPILOT_CLUSTER_INFO\"]'"),
        2,
        "SKYPILOT_CLUSTER_INFO",
    ),
    "all addresses in a setup": ("sky", SKY + "setup: echo $SKYPILOT_NODE_IPS\n", 3, "MASTER_ADDR"),
    "empty resources": ("sky", "resources:\nrun: a\n", None, "no resources.accelerators"),
    "empty resources of dstack": ("dstack", DSTACK.replace("{gpu: 8}", ""), None, "no resources.gpu"),
    "GPUs without an end": ("sky", SKY.replace("A100:8", "'A100:1e999'"), 1, "a whole number of GPUs"),
    "a list as a name": ("sky", SKY + "name: [a]\n", 3, "it must be text"),
    "a mapping as an image": ("dstack", DSTACK + "image: {name: a}\n", 4, "it must be text"),
    "a duration of 5,000 digits": ("dstack", DSTACK + f"max_duration: '{'9' * 5000}'\n", 4, "such as 2h"),
    "a duration in Arabic digits": ("dstack", DSTACK + "max_duration: ٣h\n", 4, "such as 2h"),
    "a duration": ("dstack", DSTACK + "max_duration: soon\n", 4, "a duration such as 2h"),
}


@pytest.mark.parametrize(("kind", "text", "line", "why"), REFUSED.values(), ids=REFUSED)
def test_refused(kind: str, text: str, line: int | None, why: str, tmp_path: Path) -> None:
    """With the line of the key."""
    found = of_text(text, kind, tmp_path)
    assert any(one.line == line or line is None for one in found.refused)
    assert any(why in one.why for one in found.refused), found.refused


def test_submit_reports_every_line(tmp_path: Path) -> None:
    """A refused task is not submitted, and the report names its lines."""
    path = tmp_path / "task.yaml"
    path.write_text(SKY + "envs: {A: b}\nfile_mounts: {/d: s3://b}\n")
    run = CliRunner()
    done = run.invoke(app, ["submit", str(path), "--from", "sky", "--class", "c", "--check"])
    assert isinstance(done.exception, InputError)
    assert f"{path}:4: file_mounts: write data:" in str(done.exception)
    assert "task.yaml:3: envs: meant: environment: A" in done.stderr.replace("\n", "")


@pytest.mark.parametrize("kind", TASKS)
def test_the_examples_pass_the_check(kind: str) -> None:
    """From the file of the other tool to a valid job in one command."""
    path = DATA / TASKS[kind].example
    flags = [str(path), "--from", kind, "--class", "bert", "--check", "-o", "json"]
    done = CliRunner().invoke(app, ["submit", *flags])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["valid"]
    assert {row["verdict"] for row in document["translated"]} == {"meant", "ignored"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--from", "sky"], "names no class"),
        (["--from", "skypilot", "--class", "c"], "--from 'skypilot' is not one of 'sky', 'dstack'"),
        (["--class", "c"], "--class goes with --from"),
    ],
)
def test_flags_that_do_not_go_together(flags: list[str], said: str) -> None:
    """A sentence says what is missing."""
    done = CliRunner().invoke(app, ["submit", str(DATA / "sky-task.yaml"), *flags])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


def test_a_list_is_no_task() -> None:
    """Several documents or a list are refused."""
    with pytest.raises(InputError, match="is a mapping"):
        translate(Document(name="a", content=[1]), "sky", class_name="c")


def test_the_page_lists_every_kind() -> None:
    """The rows of the reference page are those of the table."""
    page = (ROOT / "docs" / "reference" / "imports.md").read_text(encoding="utf-8")
    for kind, entry in TASKS.items():
        assert f"| `{kind}` | {entry.file} | {entry.meant} | {entry.ignored} | {entry.refused} |" in page
