"""`boa trace fit`: the fit, its comparison with the trace, and a drawn trace as a file."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.traces.reader import read_trace

DEMO = Path(__file__).resolve().parents[4] / "boa_daemon" / "data" / "demo"


def fit(*arguments: object) -> Any:
    """Run the command on the shipped trace."""
    words = ["trace", "fit", str(DEMO / "trace.csv"), *map(str, arguments)]
    return CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "120"})


@pytest.mark.exhaustive
def test_a_drawn_trace_has_the_asked_length_and_load_and_can_be_simulated(tmp_path: Path) -> None:
    """The same seed gives the same file."""
    first, again, other = (tmp_path / name for name in ("first.csv", "again.csv", "other.csv"))
    for path, seed in ((first, 1), (again, 1), (other, 2)):
        assert fit("--out", path, "--seed", seed, "--hours", 24, "--load", 2).exit_code == 0
    words = ["simulate", "--trace", str(first), "--classes", str(DEMO / "classes.yaml"), "--budget", "90/h"]
    run = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)

    assert first.read_text() == again.read_text() != other.read_text()
    jobs = read_trace(first).jobs
    # 85 jobs in 7.4 hours give 552 in 24 hours at twice the load, within four standard errors.
    assert len(jobs) == pytest.approx(2.0 * 24.0 * 85.0 / 7.4, abs=4.0 * 552.0**0.5)
    assert jobs[-1].arrived_at_seconds <= 86_400.0
    assert run["finished"] == len(jobs)


def test_the_comparison_is_shown_as_text_json_and_csv() -> None:
    """The text names the groups; JSON and CSV have every figure."""
    text = " ".join(fit().stdout.split())
    document = json.loads(fit("--json").stdout)
    rows = list(csv.DictReader(io.StringIO(fit("-o", "csv").stdout)))

    assert "classes by hour 0 of 6" in text
    assert "85 jobs in 85 submissions over 7.40 h" in text
    assert text.endswith("Drawn load is like the trace: all 9 groups of figures agree.")
    assert document["likeness"]["is_like"]
    assert document["file"] is None
    assert {row["name"]: row["jobs"] for row in document["fit"]["classes"]} == {
        "bert": 7,
        "cifar10": 66,
        "deepspeech2": 12,
    }
    figures = [figure for group in document["likeness"]["groups"] for figure in group["figures"]]
    assert len(rows) == len(figures)
    assert float(rows[0]["seen"]) == figures[0]["seen"] == 85.0


def test_a_bad_fit_is_reported(tmp_path: Path) -> None:
    """Each job is followed by another after 20 seconds, which the fit cannot draw."""
    trace = tmp_path / "pairs.csv"
    rows = "".join(f"{n}-{k},{n * 700 + k},a\n" for n in range(60) for k in (0, 20))
    trace.write_text("job_id,arrived_at_seconds,class_name\n" + rows)
    words = ["trace", "fit", str(trace)]
    text = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "120"}).stdout
    document = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)

    assert "NOT LIKE" in text
    assert "Drawn load is NOT like the trace in" in " ".join(text.split())
    assert not document["likeness"]["is_like"]


def test_a_trace_of_too_few_jobs_is_refused(tmp_path: Path) -> None:
    """No file is written."""
    trace = tmp_path / "few.csv"
    trace.write_text("job_id,arrived_at_seconds,class_name\na,0,x\nb,60,x\n")

    with pytest.raises(InputError, match="10 jobs or more; got 2"):
        CliRunner().invoke(
            app, ["trace", "fit", str(trace), "--out", str(tmp_path / "x.csv")], catch_exceptions=False
        )
    assert not (tmp_path / "x.csv").exists()
