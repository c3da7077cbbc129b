"""Every verb that prints tables, at 80 and at 120 columns: no line is too long, no cell is folded or cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_site import Served, a_day, served
from rich.console import Console
from rich.table import Table
from verbs import exit_code

from boa_daemon.cli.common import output
from boa_daemon.cli.common.live_view import view
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

ROOT = Path(__file__).resolve().parents[3]
DEMO, EXAMPLES = ROOT / "boa_daemon/data/demo", ROOT / "examples"
WIDTHS = (80, 120)
PROSE = {
    "",
    "why",
    "what",
    "sentence",
    "alert",
    "found",
    "change",
    "missed",
    "state",
    "file",
    "description",
    "waits for",
}
"""Headers of columns with sentences, which may take several lines."""
CLASSES = """
gpu_types:
  a100: {instance_type: p4d.24xlarge}
classes:
  - name: finetune-of-the-large-model
    arrivals_per_hour: 0.5
    phases:
      - size_gpu_hours: 8.0
        speedup: {a100: {table: {1: 1.0, 2: 1.9, 4: 3.6, 8: 6.5}}}
"""
LIST = "job_id,class_name,scale,submit_at,deadline_at\n" + "".join(
    f"evaluation-{n},finetune-of-the-large-model,{n}.0,2026-12-01,2026-12-0{n}T03:00\n" for n in range(1, 8)
)
OFFERS = """as_of = 2026-11-01
source = "the test"
[[offers]]
name = "compute-savings-1y"
kind = "compute"
term_years = 1
discounts = {p4d = 0.5}
"""
OF_DAEMON = (
    *(("status",), ("jobs",), ("jobs", "--all"), ("decisions",), ("instances",), ("instances", "--all")),
    *(("alerts",), ("classes",), ("plan", "--live")),
    *(("cost", "--by", by) for by in ("job", "user", "class", "market", "day", "kind")),
)
OF_PLANS = (
    ("plan", "--classes", "classes.yaml", "--budget", "20000/month"),
    ("plan", "--classes", "classes.yaml", "--budget", "10000/month", "--best-effort"),
    ("calendar", "list.csv", "--classes", "classes.yaml", "--budget", "1000000/month"),
    ("plan", "--classes", str(EXAMPLES / "two-gpu-types.yaml"), "--budget", "27/h", "--cloud", "all"),
    ("frontier", "classes.yaml"),
    ("solve", str(EXAMPLES / "two-gpu-types.yaml"), "--budget", "27/h"),
    ("commit", "--classes", "classes.yaml", "--budget", "2000000/month", "--offers", "offers.toml"),
    ("whatif", "--classes", "classes.yaml", "--budget", "2000000/month", "--change", "load=x1.5"),
    (
        *("whatif", "--classes", "classes.yaml", "--jobs", "list.csv", "--budget", "1000000/month"),
        *("--change", "budget=9000000/month", "--change", "quota=a100:1"),
    ),
    ("catalog",),
    ("prices",),
    ("simulate", "--trace", str(DEMO / "trace.csv"), "--budget", "30/h"),
    ("demo",),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hours")
    play = a_day(folder, hours=5.0)
    with served(play, folder) as found:
        yield found
    play.close()


def folds_of(table: Table, width: int) -> list[str]:
    """Return the cells that a table breaks or cuts on a terminal of this width."""
    console = Console(width=width, no_color=True, emoji=False)
    lines = "\n".join(
        "".join(part.text for part in line) for line in console.render_lines(table, console.options)
    )
    faults = []
    named = [(str(column.header), column) for column in table.columns]
    left_out = lines.rpartition("left out on this width: ")[2] if "left out on this width" in lines else ""
    for name, column in named:
        if name in PROSE or name in left_out.strip().split(", "):
            continue
        texts = (output.Text.from_markup(str(text)).plain.split("\n") for text in column.cells)
        faults += [f"{name}: {part}" for parts in texts for part in parts if part.strip() not in lines]
    return faults


def check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, words: tuple[str, ...]
) -> None:
    """Run a command on a terminal of this width, and look at its lines and its tables."""
    tables: list[Table] = []
    printed = output._Patient.print

    def spy(self: Any, *objects: Any, **how: Any) -> None:
        tables.extend(one for one in objects if isinstance(one, Table))
        printed(self, *objects, **how)

    monkeypatch.setattr(output._Patient, "print", spy)
    monkeypatch.setenv("COLUMNS", str(width))
    code = exit_code(monkeypatch, *words)
    said = capsys.readouterr()

    assert code in (0, 3), said.err
    assert [line for line in said.out.splitlines() if len(line.rstrip()) > width] == []
    assert {str(table.title): folds_of(table, width) for table in tables if folds_of(table, width)} == {}


@pytest.mark.first_set(3)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", OF_DAEMON, ids=" ".join)
def test_answers_of_the_daemon_fit(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    site: Served,
    words: tuple[str, ...],
    width: int,
) -> None:
    """Ids of jobs and nodes, widths and dollars stay whole; columns that may go are named."""
    check(monkeypatch, capsys, width, (*words, "--socket", str(site.socket)))


@pytest.mark.first_set(4)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", OF_PLANS, ids=lambda words: f"{words[0]} {words[-1]}"[:40])
def test_plans_fit(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    width: int,
) -> None:
    """Amounts of seven digits and names of thirty letters."""
    for name, text in (("classes.yaml", CLASSES), ("list.csv", LIST), ("offers.toml", OFFERS)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    check(monkeypatch, capsys, width, words)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_live_view_has_a_line_for_each_node_and_job(tmp_path: Path, width: int) -> None:
    """The tables stand side by side where there is space, else one below the other."""
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0))
    play.daemon.tick()
    play.service.submit([job_content() for _ in range(6)], user="ann")
    for _ in range(5):
        play.daemon.tick()
        play.clock.instant += 60.0
    decision = play.daemon.standing.decision
    assert decision is not None
    drawn = view(
        decision.state,
        play.daemon.planner.planned,
        started_at=1_800_000_000.0,
        budget=play.daemon.planner.record(set(play.daemon.planner.planned)).site.budget,
        finished=0,
    )
    console = Console(width=width, no_color=True, emoji=False)
    with console.capture() as caught:
        console.print(drawn)
    lines = caught.get().splitlines()
    play.close()

    for node in decision.state.nodes:
        (line,) = [one for one in lines if node in one]
        assert decision.state.nodes[node].instance_type.name in line
    for job in decision.state.jobs:
        assert len([one for one in lines if re.search(rf"\b{job}\b", one)]) == 1
    assert all(len(line.rstrip()) <= width for line in lines)
