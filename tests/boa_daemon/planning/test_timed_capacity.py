"""Capacity Blocks in a calendar: their usable hours, their cost, and their file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.inputs.blocks_file import read_blocks

CLASSES = """
gpu_types: {a100: {instance_type: p4d.24xlarge}}
classes: [{name: c, arrivals_per_hour: 1.0, phases: [{size_gpu_hours: 80.0, speedup: {table: {8: 8.0}}}]}]
"""
BLOCK = """
[[blocks]]
name = "{name}"
instance_type = "p4d.24xlarge"
instances = 1
begins = {begins}
ends = {ends}
usd = 300.0
"""
DECEMBER = BLOCK.format(name="december", begins="2026-12-02T00:00:00Z", ends="2026-12-03T00:00:00Z")


def planned(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, object]:
    """Return the calendar of three jobs of ten hours, the last of which is due in twelve."""
    monkeypatch.chdir(folder)
    Path("classes.yaml").write_text(CLASSES)
    Path("blocks.toml").write_text(DECEMBER)
    Path("jobs.csv").write_text(
        "job_id,class_name,submit_at,deadline_at\na,c,2026-12-01,\nb,c,2026-12-01,\n"
        "soon,c,2026-12-01,2026-12-01T12:00\n"
    )
    asked = ["calendar", "jobs.csv", "--classes", "classes.yaml", "--blocks", "blocks.toml"]
    found = CliRunner().invoke(app, [*asked, "--json", *words])
    assert found.exit_code == 0, (found.output, found.exception)
    document: dict[str, object] = json.loads(re.sub(r"\A[^{]*", "", found.stdout))
    return document


def test_jobs_run_in_the_block_from_its_begin_at_no_further_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget pays for one job on demand; the other two run in the block, one after the other."""
    document = planned(tmp_path, monkeypatch, "--budget", "260", "--boot-seconds", "0")
    jobs = {row["job_id"]: row for row in document["jobs"]}  # type: ignore[attr-defined]

    assert jobs["soon"]["gpu_type"] == "a100"
    assert not jobs["soon"]["is_late"]
    in_block = sorted((jobs[name] for name in ("a", "b")), key=lambda row: row["start_hours"])
    assert {row["gpu_type"] for row in in_block} == {"a100@december"}
    assert [row["start_hours"] for row in in_block] == pytest.approx([24.0, 34.0])
    assert sum(row["spend"] for row in in_block) < 0.01
    assert document["blocks_usd"] == 300.0


def test_a_job_that_would_outlast_the_block_is_not_placed_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs with boots of an hour take 22 of 23.5 hours; with boots of two hours they would take 24."""
    for seconds, inside in (("3600", 2), ("7200", 1)):
        document = planned(tmp_path, monkeypatch, "--budget", "800", "--boot-seconds", seconds)
        kinds = [row["gpu_type"] for row in document["jobs"]]  # type: ignore[attr-defined]
        assert kinds.count("a100@december") <= inside
        ends = [row["end_hours"] for row in document["jobs"] if "@" in row["gpu_type"]]  # type: ignore[attr-defined]
        assert all(end <= 47.5 for end in ends)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            DECEMBER + BLOCK.format(name="late", begins="2026-12-02T12:00:00Z", ends="2026-12-04T00:00:00Z"),
            r"14: blocks 'december' and 'late' of p4d.24xlarge overlap",
        ),
        (DECEMBER + DECEMBER, "block 'december' is given twice"),
        (
            BLOCK.format(name="x", begins="2026-12-02T00:00:00Z", ends="2026-12-02T00:20:00Z"),
            "leaves no time to work",
        ),
        (BLOCK.format(name="x", begins='"soon"', ends="2026-12-02T00:20:00Z"), "begins must be an instant"),
        (DECEMBER.replace("300.0", "-3.0"), "usd"),
    ],
)
def test_bad_blocks_are_refused_with_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "blocks.toml"
    path.write_text(text)
    with pytest.raises(InputError) as fault:
        read_blocks(path)

    assert re.search(said, str(fault.value))
    assert re.search(r"blocks.toml:\d+", str(fault.value))


@pytest.mark.parametrize("name", ["spot", "x@spot"])
def test_a_block_whose_name_means_a_market_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`a100@spot` is not a block called `spot`: its jobs would be planned with interruptions."""
    monkeypatch.chdir(tmp_path)
    Path("classes.yaml").write_text(CLASSES)
    Path("blocks.toml").write_text(DECEMBER.replace('"december"', f'"{name}"'))
    Path("jobs.csv").write_text("job_id,class_name,submit_at\na,c,2026-12-01\n")
    words = ["calendar", "jobs.csv", "--classes", "classes.yaml", "--blocks", "blocks.toml"]
    found = CliRunner().invoke(app, [*words, "--budget", "260"])

    assert isinstance(found.exception, InputError)
    assert f"no block can be named {name!r}" in str(found.exception)
