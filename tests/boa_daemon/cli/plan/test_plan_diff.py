"""`boa plan --diff`: the comparison with a saved plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verbs import exit_code

PROBLEM = Path(__file__).resolve().parents[4] / "examples/two-gpu-types.yaml"


def test_diff_lists_changed_figures_and_widths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same budget changes nothing."""
    words = ("plan", "--classes", str(PROBLEM), "--budget")
    assert exit_code(monkeypatch, *words, "40/h", "-o", "json") == 0
    text = capsys.readouterr().out
    (tmp_path / "old.json").write_text(text)
    diff = ("--diff", str(tmp_path / "old.json"))

    assert exit_code(monkeypatch, *words, "40/h", *diff) == 0
    assert capsys.readouterr().out == "Nothing changed.\n"
    assert exit_code(monkeypatch, *words, "25/h", *diff, "-o", "json") == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    spend = next(one for one in changes if one["figure"] == "mean_spend")
    assert spend["old"] == json.loads(text)["mean_spend"] > spend["new"]
    assert any(one["figure"] == "widths" for one in changes)
    assert exit_code(monkeypatch, *words, "25/h", *diff) == 0
    assert "0 new, 0 gone, " in capsys.readouterr().out
