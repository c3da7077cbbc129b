"""`inputs/job_file.py`: variables that a job file may not set, and its checks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from boa_daemon.engines.generation_units import Layout, units_of
from boa_daemon.engines.local import job_environment
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import OWN_VARIABLES, check_job
from boa_daemon.testing import some_slots
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.ports import JobSpec
from policies.model import Width


def a_document(name: str, value: str = "x") -> Document:
    """Return a job file with one variable."""
    content = {"name": "a", "class": "c", "run": "true", "environment": {name: value}}
    return Document(name="job.yaml", content=content, language="yaml")


@pytest.mark.parametrize("name", [*sorted(OWN_VARIABLES), "BOA_JOB_ID", "BOA_GATE", "PET_RDZV_ENDPOINT"])
def test_a_job_file_cannot_set_the_daemons_variables(name: str) -> None:
    """Otherwise a job could take other GPUs or another job's id."""
    with pytest.raises(InputError, match=f"{name} is set by the daemon"):
        check_job(a_document(name))


@pytest.mark.parametrize("name", ["A=B", "A B", "1A", "", "A\x00"])
def test_an_invalid_variable_name_is_refused(name: str) -> None:
    """No shell can set such a variable."""
    with pytest.raises(InputError):
        check_job(a_document(name))


def test_a_value_with_a_null_character_is_refused() -> None:
    """No process can be started with it."""
    with pytest.raises(InputError, match="null character"):
        check_job(a_document("A", "b\x00c"))


def test_the_daemons_variables_override_those_of_a_job_spec() -> None:
    """A spec that was never checked cannot take the GPUs of other jobs either."""
    spec = JobSpec(
        job="a",
        name="a",
        class_name="c",
        run="true",
        environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3", "BOA_JOB_ID": "b", "KEPT": "1"},
    )
    start = StartJob(
        id="s", job="a", generation=1, width=Width("gpu", 1), slots=some_slots("n1", 2), reason=""
    )
    (unit,) = units_of(spec, start, Layout(root=Path("/x")), addresses={"n1": "127.0.0.1"}, port=1)
    found = {name: unit.environment[name] for name in ("CUDA_VISIBLE_DEVICES", "BOA_JOB_ID", "KEPT")}
    assert found == {"CUDA_VISIBLE_DEVICES": "2", "BOA_JOB_ID": "a", "KEPT": "1"}


def test_a_job_inherits_no_secret_of_the_daemon() -> None:
    """A job inherits the path and the locale, and no other variables."""
    own = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "AWS_SECRET_ACCESS_KEY": "s",
        "BOA_API_TOKENS": "t",
        "NOTIFY_SOCKET": "n",
        "DATABASE_URL": "d",
    }
    assert job_environment(own) == {"PATH": "/bin", "LC_ALL": "C"}


def test_a_checked_job_file_passes_the_check_unchanged() -> None:
    """The client checks the file and fills in defaults, and the daemon checks the result again."""
    content = {
        "name": "a", "class": "c", "run": "true", "code": ".", "data": "s3://lab/train",
        "matrix": {"LR": [0.1, "x", True]}, "retries": {"error": 0}, "secrets": {"TOKEN": "env:TOKEN"},
        "after": ["b-1", "c-g1:end"], "deadline": "2030-01-31T08:00:00Z", "artifacts": ["out/*"],
    }  # fmt: skip
    once = check_job(Document(name="job.yaml", content=content, language="yaml"))
    assert check_job(Document(name="the job", content=once, language="json")) == once
    two = {**content, "data": {"": "s3://lab/a", "b": "s3://lab/b"}}
    with pytest.raises(InputError, match="no name of a folder"):
        check_job(Document(name="job.yaml", content=two, language="yaml"))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("environment", {"A": "x" * 200_000}, "environment A is 200,003 bytes long"),
        ("environment", {"A": "é" * 65_535}, "environment A is 131,073 bytes long"),
        ("environment", {f"A{n}": "x" * 130_000 for n in range(9)}, "environment has 1,17.* bytes together"),
        ("environment", {"A": "\ud800"}, "environment A holds .*, half of a character"),
        ("matrix", {"A": ["x" * 140_000]}, "matrix A is 140,003 bytes long"),
        ("run", "é" * 65_536, "run is 131,073 bytes long"),
        ("setup", "é" * 65_536, "setup is 131,073 bytes long"),
        ("result", "a/" + "x" * 300, "result has a part of 300 bytes"),
        ("workdir", "é" * 200, "workdir has a part of 400 bytes"),
    ],
)
def test_what_linux_cannot_take_is_refused_before_a_node_is_rented(
    key: str, value: object, said: str
) -> None:
    """One text for a program has 128 KiB with its name, a file's name 255 bytes."""
    content = {"name": "a", "class": "c", "run": "python t.py", key: value}
    with pytest.raises(InputError, match=said):
        check_job(Document(name="job.json", content=content))


def test_the_longest_value_that_linux_takes_is_accepted() -> None:
    """A program is started with it."""
    value = "x" * (131_072 - len("A=") - 1)
    check_job(
        Document(name="a", content={"name": "a", "class": "c", "run": "t", "environment": {"A": value}})
    )
    done = subprocess.run(["/bin/sh", "-c", "echo ${#A}"], env={"A": value}, capture_output=True, check=True)

    assert int(done.stdout) == len(value)
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={"A": value + "x"}, check=False)
