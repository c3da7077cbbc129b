"""``boa jobs`` says in words what a job waits for, with the words of the page; JSON and CSV have the code."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from verbs import exit_code

from boa_daemon.cli.common import output
from boa_daemon.cli.operate.decisions import _print_decisions
from boa_daemon.cli.run.jobs import _jobs_table
from boa_daemon.tick.facts.reasons import SENTENCES, WAIT_REASON_TEXTS

NOW = 1_800_000_000.0


def a_row(**more: Any) -> dict[str, Any]:
    """Return a row of the answer, as far as the table needs it."""
    row = {"id": "vision-of-the-large-model-12", "user": "ann", "class": "vision", "status": "queued"}
    numbers = {"gpus": 0, "step": None, "arrived_at": NOW - 90.0, "usd": 0.0}
    return {**row, **numbers, "stalled_since": None, "waits_for": None, **more}


def drawn(*rows: dict[str, Any], width: int = 120) -> str:
    """Return the table on a terminal of this width, in one line."""
    console = Console(width=width, no_color=True, emoji=False)
    with console.capture() as caught:
        console.print(_jobs_table({"as_of": NOW, "jobs": list(rows)}))
    return " ".join(caught.get().split())


@pytest.mark.parametrize("code", sorted(WAIT_REASON_TEXTS))
def test_a_code_is_printed_as_its_text(code: str) -> None:
    """Each member of the closed list; the code itself is for programs."""
    said = drawn(a_row(waits_for=code, place_in_queue=1234, starts_at=NOW + 7200.0), width=300)
    assert f"{WAIT_REASON_TEXTS[code]}, number 1,234, about 2.00 h more" in said  # type: ignore[index]
    assert f"({code})" not in said


def test_a_code_of_a_later_release_is_printed_as_it_is() -> None:
    """A client may be older than the daemon."""
    assert "stars-to-align" in drawn(a_row(waits_for="stars-to-align"))


def test_the_column_is_there_only_while_a_job_waits() -> None:
    """A stalled job says so beside its state; a job that waits is never called by its code."""
    said = drawn(a_row(status="running", stalled_since=NOW - 60.0))
    assert "waits for" not in said
    assert "running (stalled)" in said


@pytest.mark.parametrize("width", [80, 100, 120])
def test_sentences_are_folded_between_words(width: int) -> None:
    """Ids and dollars stay whole, and no word is cut: each column of a sentence has room for the longest."""
    rows = [a_row(waits_for=code, usd=1234.5) for code in sorted(WAIT_REASON_TEXTS)]
    console = Console(width=width, no_color=True, emoji=False)
    with console.capture() as caught:
        console.print(_jobs_table({"as_of": NOW, "jobs": rows}))
    lines = caught.get().splitlines()
    assert sum("vision-of-the-large-model-12" in line for line in lines) == len(rows)
    assert sum("$1,234.50" in line for line in lines) == len(rows)
    words = {word for text in WAIT_REASON_TEXTS.values() for word in text.split()}
    assert words <= {word for line in lines for word in line.split()}
    assert max(len(line.rstrip()) for line in lines) <= width


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_programs_get_the_code(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Sentences may change, codes may not."""
    row = a_row(waits_for="cap-day")
    output.show(output.OutputFormat(kind), {"jobs": [row]}, rows=lambda: [row], table=lambda: None)
    said = capsys.readouterr().out
    rows = json.loads(said)["jobs"] if kind == "json" else list(csv.DictReader(io.StringIO(said)))
    assert [one["waits_for"] for one in rows] == ["cap-day"]


def test_the_words_need_no_numpy() -> None:
    """A machine that only submits and asks has neither numpy nor scipy."""
    script = "import sys, boa_daemon.cli.run.jobs; print('numpy' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert said.stdout == "False\n"


def test_what_a_decision_held_back_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """The subject, and what is in its way; codes are for JSON."""
    option = {"gpus": 1, "usd_per_hour": 1.0, "job_hours_left": 1.0, "jobs_without_gpus": 0}
    held = [{"what": f"job a-{at}", "code": code} for at, code in enumerate(SENTENCES)]
    row = {"tick": 1, "at": NOW, "actions": [], "held": held, "chosen": option}
    _print_decisions([{**row, "runner_up": {"name": "change nothing", **option}}])
    said = " ".join(capsys.readouterr().out.split())
    for at, text in enumerate(SENTENCES.values()):
        assert f"held back: job a-{at}: {text}" in said


def test_variables_of_sbatch_are_told_beside_the_lines_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each by its name; a line has its number, a variable has 0 in JSON."""
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH -G2 -p a\nsrun python train.py\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SBATCH_PARTITION", "b")
    monkeypatch.setenv("COLUMNS", "200")
    words = ("submit", "--check", "train.sbatch")
    assert exit_code(monkeypatch, *words) == 0
    said = capsys.readouterr().out
    assert "train.sbatch:2: --partition meant" in said
    assert "environment: SBATCH_PARTITION meant: --partition, as sbatch reads it" in said
    assert exit_code(monkeypatch, *words, "--json") == 0
    notes = json.loads(capsys.readouterr().out)["sbatch"]["train.sbatch"]
    assert [(note["line"], note["option"]) for note in notes][-1] == (0, "SBATCH_PARTITION")
    monkeypatch.setenv("SBATCH_SIGNAL", "FOO")
    assert exit_code(monkeypatch, *words) == 2
    assert "SBATCH_SIGNAL" in capsys.readouterr().err
