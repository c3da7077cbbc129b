"""Answers and refusals in the unit in which the budget was typed: every verb that takes one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from verbs import exit_code

CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 2.0, gpus_per_instance: 4}}
classes:
- name: vision
  arrivals_per_hour: 2.0
  phases: [{size_gpu_hours: 1.0, speedup: {gpu: {table: {1: 1.0, 2: 1.8, 4: 3.0}}}}]
"""
OFFERS = Path(__file__).parents[3] / "examples/commitments.toml"
HOURS = {"h": 1.0, "day": 24.0, "week": 168.0, "month": 730.0, "year": 8760.0}
REFUSED = {
    "solve": "solve classes.yaml",
    "plan": "plan --classes classes.yaml",
    "simulate": "simulate --trace trace.csv --classes classes.yaml --policy boa",
    "simulate a rival": "simulate --trace trace.csv --classes classes.yaml --policy static-fifo",
    "compare": "compare --trace trace.csv --classes classes.yaml",
    "commit": f"commit --offers {OFFERS} --classes classes.yaml",
}
ANSWERED = {
    "solve": "solve classes.yaml",
    "plan": "plan --classes classes.yaml",
    "whatif": "whatif --classes classes.yaml --change load=x1.2",
    "frontier": "frontier classes.yaml",
    "simulate": "simulate --trace trace.csv --classes classes.yaml",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder with classes and a trace."""
    (tmp_path / "classes.yaml").write_text(CLASSES)
    rows = "".join(f"j{number},{1800 * number},vision\n" for number in range(4))
    (tmp_path / "trace.csv").write_text("job_id,arrived_at_seconds,class_name\n" + rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("per", HOURS)
@pytest.mark.parametrize("verb", REFUSED)
def test_a_budget_that_is_too_small_is_refused_in_its_unit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, per: str
) -> None:
    """Half a dollar an hour, as it was typed, and the least that would do in the same unit."""
    code = exit_code(monkeypatch, *REFUSED[verb].split(), "--budget", f"{0.5 * HOURS[per]}/{per}")
    said = " ".join(capsys.readouterr().err.split())
    assert code == 3, said
    least = re.search(r"at least \$([\d,.]+)/(\w+)|takes \$([\d,.]+)/(\w+)", said)
    assert least is not None, said
    unit = (least[2] or least[4]).replace("hour", "h")
    assert unit == per, said
    assert f"${0.5 * HOURS[per]:,.2f}/" in said


@pytest.mark.first_set(2)
@pytest.mark.parametrize("per", ["h", "day", "month"])
@pytest.mark.parametrize("verb", ANSWERED)
def test_an_answer_has_no_rate_in_another_unit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, per: str
) -> None:
    """Twelve dollars an hour, as they were typed: no rate of dollars per anything else is in the answer."""
    amount, option = 12.0 * HOURS[per], "--budgets" if verb == "frontier" else "--budget"
    text = f"{amount}..{2 * amount}/{per}:3" if verb == "frontier" else f"{amount}/{per}"
    assert exit_code(monkeypatch, *ANSWERED[verb].split(), option, text) == 0
    said = capsys.readouterr().out
    rates = set(re.findall(r"\$[\d,.]*\d/(h|hour|day|week|month|year)\b", said))
    assert {unit.replace("hour", "h") for unit in rates} <= {per}, said


def test_help_is_a_word_too_and_a_pipe_that_closes_is_no_failure(tmp_path: Path) -> None:
    """`boa help VERB` is `boa VERB --help`; with `| head -1` both end with 0 and say nothing."""
    for words in ("help plan", "plan --help", "catalog --all", "help"):
        command = f"set -o pipefail; {sys.executable} -m boa_daemon {words} | head -1"
        found = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert (found.returncode, found.stderr) == (0, ""), words


def test_a_table_on_a_very_narrow_terminal_is_printed_row_by_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Headings stay words: no column of single letters."""
    monkeypatch.setenv("COLUMNS", "34")
    assert exit_code(monkeypatch, "plan", "--classes", "classes.yaml", "--budget", "12/h") == 0
    said = capsys.readouterr().out
    assert "class: vision" in said
    assert not re.search(r"^\w$", said, re.M)
