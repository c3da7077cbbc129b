"""The public functions: they give the same answers as the commands, and their errors say what to do."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from verbs import exit_code

import boa_daemon
from boa_daemon import Problem, commit, compare, frontier, plan, simulate, solve
from boa_daemon.errors import InputError
from policies.errors import InfeasibleBudget, UnknownPolicy

ROOT = Path(__file__).resolve().parents[3]
PRICES = {"a10g": 1.418}
DAY = [(3600.0 * hour, name) for hour in range(6) for name in ("vision", "speech")]


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem.from_csv(ROOT / "examples/classes.csv", prices=PRICES)


@pytest.mark.lab
def test_a_mapping_and_a_frame_give_the_same_problem(problem: Problem) -> None:
    """The problems have the same optimum."""
    import pandas

    table = {1: 1.0, 2: 1.9, 4: 3.5, 8: 5.8}
    vision = {"name": "vision", "arrivals_per_hour": 3.0}
    vision |= {"phases": [{"size_gpu_hours": 2.0, "speedup": {"a10g": {"table": table}}}]}
    document = {"gpu_types": {"a10g": {"usd_per_gpu_hour": 1.418}}, "classes": [vision]}
    frame = pandas.read_csv(ROOT / "examples/classes.csv").query("`class` == 'vision'")
    hours = {
        solve(one, "12/h").mean_jct_hours
        for one in (Problem.from_dict(document), Problem.from_frame(frame, prices=PRICES))
    }
    assert len(hours) == 1


@pytest.mark.lab
def test_a_plan_has_a_document_figures_a_frame_and_a_table(problem: Problem) -> None:
    """The plan's mean completion time equals that of `solve`, and its knee that of `frontier`."""
    found = plan(problem, "40/h")
    assert found.to_dict()["mean_jct_hours"] == found.mean_jct_hours == solve(problem, 40.0).mean_jct_hours
    assert found.knee_budget == frontier(problem).knee_budget
    assert list(found.to_frame()["class"]) == ["vision", "language", "speech"]
    assert "<caption>Plan for $40.00/hour</caption>" in found._repr_html_()


def test_the_frontier_equals_the_optimum_at_every_budget(problem: Problem) -> None:
    """Below the cheapest feasible budget the time is infinite; the curve can be plotted."""
    curve = frontier(problem)
    for budget in (curve.cheapest_feasible_spend, 26.0, 31.7, 200.0):
        assert curve.hours_at(budget) == pytest.approx(solve(problem, budget).mean_jct_hours)
    assert curve.hours_at(1.0) == float("inf")
    assert curve.plot(mark=30.0).get_xlabel() == "dollars per hour"
    assert frontier(problem, unit="gpus").unit == "gpus"


def test_html_in_a_class_name_is_escaped() -> None:
    """The table shows the name as it is written."""
    rows = [
        {
            "class": "<b>x",
            "arrivals_per_hour": 1,
            "size_gpu_hours": 1,
            "gpu_type": "g",
            "gpus": 1,
            "speedup": 1,
        }
    ]
    said = plan(Problem.from_rows(rows), "gpus:5")._repr_html_()
    assert "&lt;b&gt;x" in said
    assert "<b>x" not in said


def test_simulate_and_compare_take_pairs_or_a_trace_file(problem: Problem, tmp_path: Path) -> None:
    """Pairs and file give the same run, and a comparison has BOA and each rival."""
    lines = [
        "job_id,arrived_at_seconds,class_name",
        *(f"j{n},{at},{name}" for n, (at, name) in enumerate(DAY)),
    ]
    (tmp_path / "trace.csv").write_text("\n".join(lines) + "\n")
    found = simulate(problem, DAY, "60/h")
    assert found.to_dict()["finished"] == len(DAY)
    assert found.lower_bound_mean_jct_hours <= found.mean_jct_hours
    assert simulate(problem, tmp_path / "trace.csv", "60/h").mean_jct_hours == found.mean_jct_hours
    compared = compare(problem, DAY, "60/h", policies=["equal-width"])
    assert set(compared.ratios) == {"boa", "equal-width"}


@pytest.mark.lab
def test_commit_gives_the_same_document_as_the_command(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Offers may be a file or a mapping, and a trace adds a proof."""
    file = ROOT / "examples/commitments.toml"
    two = ROOT / "examples/two-gpu-types.yaml"
    found = commit(Problem.from_file(two), file, "27/h")
    words = ("commit", "--offers", str(file), "--classes", str(two), "--budget", "27/h", "--json")
    assert exit_code(monkeypatch, *words) == 0
    assert found.to_dict() == json.loads(capsys.readouterr().out)
    assert commit(Problem.from_file(two), tomllib.loads(file.read_text()), "27/h").document == found.document
    assert set(found.usd_per_hour) == {1, 3}
    assert all(found.least_saved_fraction[years] <= found.saved_fraction[years] for years in (1, 3))
    assert sum(found.to_frame().query("term_years == 3")["usd_per_hour"]) == pytest.approx(
        found.usd_per_hour[3]
    )
    assert "<caption>What to commit to at $27.00/hour</caption>" in found._repr_html_()
    offers = {
        "as_of": "2026-11-01",
        "source": "a test",
        "offers": [{"name": "a", "kind": "compute", "discounts": {"a10g": 0.4}}],
    }
    (proof,) = commit(problem, offers, "60/h", trace=DAY).to_dict()["proof"]
    assert proof["advised_usd_per_hour"] >= 0.0


@pytest.mark.parametrize(
    ("ask", "kind", "sentence"),
    [
        (solve, InputError, 'Give one, such as "40/h"'),
        (lambda one: solve(one, "40"), InputError, "the budget .40. does not say for how long"),
        (lambda one: solve(one, -3.0), InputError, "positive"),
        (lambda one: plan(one, "1/h"), InfeasibleBudget, "at least"),
        (lambda one: simulate(one, [(0.0, "vison")], "60/h"), InputError, "vison"),
        (lambda one: simulate(one, [3], "60/h"), InputError, "pairs of seconds"),
        (lambda one: simulate(one, DAY, "60/h", policy="bao"), UnknownPolicy, "Did you mean 'boa'"),
        (lambda one: frontier(one, unit="eur"), InputError, "gpus or usd_per_hour"),
        (lambda one: commit(one, "none.toml", "60/h"), InputError, "none.toml: there is no such file"),
        (lambda one: commit(one, {}, "60/h"), InputError, "the offers: the file has no offers"),
        (lambda one: commit(one, {"offer": []}, "60/h"), InputError, "Did you mean 'offers'"),
        (lambda one: commit(one, {}, "gpus:9"), InputError, "paid in dollars"),
        (lambda one: commit(one, {}, "60/h", spread=2.0), InputError, "spread is a fraction"),
        (lambda one: Problem.from_rows([]), InputError, "no rows"),
        (lambda one: Problem.from_rows([{"class": "a"}]), InputError, "'arrivals_per_hour' is missing"),
        (lambda one: Problem.from_csv("none.csv"), InputError, "none.csv"),
    ],
)
def test_wrong_arguments_give_an_error_that_names_the_fault(
    problem: Problem, ask: object, kind: type[Exception], sentence: str
) -> None:
    """The type of the error and its sentence are checked."""
    assert callable(ask)
    with pytest.raises(kind, match=sentence):
        ask(problem)


def test_rows_of_a_class_that_disagree_are_refused() -> None:
    """The error has the line of the second row."""
    row = {
        "class": "a",
        "arrivals_per_hour": 1,
        "size_gpu_hours": 1,
        "gpu_type": "g",
        "gpus": 1,
        "speedup": 1,
    }
    with pytest.raises(InputError, match="another rate, size or weight") as caught:
        Problem.from_rows([row, {**row, "gpus": 2, "size_gpu_hours": 2}])
    assert ":3" in str(caught.value)


def test_importing_boa_daemon_does_not_import_numpy() -> None:
    """Nodes import the package too; numpy is imported with the first public function."""
    said = "import sys, boa_daemon; print('numpy' in sys.modules, 'boa_daemon.library' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert set(boa_daemon.__all__) == {
        "Client",
        "Problem",
        "__version__",
        "commit",
        "compare",
        "frontier",
        "plan",
        "simulate",
        "solve",
    }
    with pytest.raises(AttributeError, match="no attribute 'sovle'"):
        boa_daemon.sovle  # type: ignore[attr-defined]  # noqa: B018


def test_the_example_script_plots_the_curve_of_a_csv_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script prints the knee and writes an image."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [sys.executable, "examples/curve_from_csv.py"], capture_output=True, text=True, check=True
    )
    assert "knee at $26.42/hour" in done.stdout
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_no_public_name_is_a_submodule_too() -> None:
    """Importing a submodule would replace the function of the same name."""
    top = Path(boa_daemon.__file__).parent
    inside = {path.stem for path in top.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}

    assert not inside & set(boa_daemon.__all__)
