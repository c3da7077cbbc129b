"""`job/run_options.py`: a key that is declared there is in the file, the order and the unit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import boa_daemon
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import PUBLIC_KEYS, check_job
from boa_daemon.job.run_options import RunOptions, run_options
from boa_daemon.job.unit import Unit
from boa_daemon.tick.facts.job_spec import JobSpec

NEW = '    threads: int = option(1, "threads of each process", is_public=True, ge=1, le=64)\n'
FOLLOWS = """
import json, sys, tempfile
from pathlib import Path
from boa_daemon.daemon.jobs.job_visibility import file_for
from boa_daemon.daemon.jobs.taken_back import _content_of
from boa_daemon.engines.generation_units import units_of
from boa_daemon.engines.layout import Layout
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import check_job, job_schema
from boa_daemon.job.unit import Unit
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.tick.facts.ports import JobPapers
from policies.model import GpuSlot, Width

given = {"name": "a", "class": "c", "run": "true", "threads": 7}
content = check_job(Document(name="a", content=given, language="json"))
spec = JobRecord(
    id="a-1", seq=1, user="ann", class_name="c", content=content, arrived_at=0.0, remaining_gpu_hours=1.0,
    size_gpu_hours=1.0,
).spec
slots = (GpuSlot("n", 0),)
start = StartJob(id="t", reason="", job="a-1", generation=1, width=Width("t4", 1), slots=slots)
layout = Layout(root=Path(tempfile.mkdtemp()))
[unit] = units_of(spec, start, layout, addresses={"n": "127.0.0.1"}, port=12000)
unit.write()
papers = JobPapers(spec=JobSpec(**spec.to_document()), generation=1, slots=slots, started_at=0.0)
print(json.dumps({
    "package": sys.modules["boa_daemon"].__file__,
    "schema": job_schema()["properties"]["threads"],
    "answer": file_for(content, is_readable=False)["threads"],
    "unit": Unit.read(unit.folder).threads,
    "papers": _content_of(papers)["threads"],
}))
"""


def test_one_more_key_is_one_line(tmp_path: Path) -> None:
    """A line in this module alone makes a key of the file, its schema, its answer, its order and its unit."""
    code = tmp_path / "boa_daemon"
    package = Path(boa_daemon.__file__).parent
    shutil.copytree(package, code, ignore=shutil.ignore_patterns("__pycache__", "page"))
    module = code / "job" / "run_options.py"
    text = module.read_text()
    mark = "    result: str = option("
    assert text.count(mark) == 1
    module.write_text(text.replace(mark, NEW + mark))

    said = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); exec({FOLLOWS!r})"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert Path(found["package"]).parent == code
    assert found["schema"] == {
        "title": "Threads", "type": "integer", "default": 1, "minimum": 1, "maximum": 64,
        "description": "threads of each process",
    }  # fmt: skip
    assert (found["answer"], found["unit"], found["papers"]) == (7, 7, 7)


def test_each_option_is_a_field_of_the_order_and_of_the_unit() -> None:
    """With the same default, so that a file without the key leaves nothing to convert."""
    for option in fields(RunOptions):
        for other in (JobSpec, Unit):
            mine = {each.name: each for each in fields(other)}[option.name]
            assert (mine.default, mine.default_factory) == (option.default, option.default_factory)


def test_an_option_that_is_not_stated_is_empty_but_for_two_checkpoints() -> None:
    """The newest two are kept by default; everything else is zero or empty."""
    stated = {name: value for name, value in RunOptions().options.items() if value}
    assert stated == {"keep_checkpoints": 2}


def test_texts_of_a_job_are_its_users_alone() -> None:
    """Only numbers may be seen by everybody: an option that is a text or a list of texts may not."""
    shown = {option.name for option in fields(RunOptions) if option.metadata["is_public"]}
    assert shown == {"keep_checkpoints", "cpus", "memory_gb"}
    assert shown <= PUBLIC_KEYS
    assert {str(each.type) for each in fields(RunOptions) if each.name in shown} <= {"int", "float", "bool"}


@pytest.mark.parametrize(
    ("content", "stated"),
    [
        ({}, RunOptions()),
        ({"cpus": None, "image": None, "data": None}, RunOptions()),
        ({"cpus": 2, "artifacts": ["a"]}, RunOptions(cpus=2.0, artifacts=("a",))),
        ({"memory_gb": 1.5, "no_option": 3}, RunOptions(memory_gb=1.5)),
    ],
)
def test_options_are_read_from_any_document_that_has_some(
    content: dict[str, Any], stated: RunOptions
) -> None:
    """Null means the default; other keys are not looked at."""
    assert run_options(content) == stated


@pytest.mark.parametrize(
    ("limits", "has"),
    [({}, False), ({"cpus": 1.0}, True), ({"memory_gb": 1.0}, True), ({"image": "a"}, False)],
)
def test_cores_and_memory_are_limits(limits: dict[str, Any], has: bool) -> None:
    """An image alone limits nothing."""
    assert RunOptions(**limits).has_limits is has


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("keep_checkpoints", 0, "keep_checkpoints must be at least 1; got 0"),
        ("keep_checkpoints", 101, "keep_checkpoints must be at most 100; got 101"),
        ("keep_checkpoints", None, "keep_checkpoints"),
        ("result", None, "result"),
        ("cpus", 0, "cpus"),
        ("memory_gb", "8", "memory_gb must be a number; got the text '8'"),
        ("image", "a b", "an image such as"),
        ("artifacts", [""], "artifacts"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_its_key(key: str, value: object, said: str) -> None:
    """The rules of the declaration are those of the file."""
    content = {"name": "a", "class": "c", "run": "true", key: value}
    with pytest.raises(InputError) as refused:
        check_job(Document(name="a", content=content, language="json"))
    assert said in str(refused.value)
