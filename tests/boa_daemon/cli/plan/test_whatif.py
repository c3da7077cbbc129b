"""`boa whatif`: each scenario equals the plan of `boa plan` for the changed input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.planning.whatif import why_later

CLASSES = """
gpu_types: {{gpu: {{usd_per_gpu_hour: {price}, gpus_per_instance: 4}}}}
classes:
- name: vision
  arrivals_per_hour: {rate}
  phases: [{{size_gpu_hours: {size}, speedup: {{table: {{1: 1.0, 2: 1.8, 4: 3.2, 8: 5.0}}}}}}]
"""
COMMITTED = """
as_of = 2026-11-01
source = "made up"
[[commitments]]
name = "ours"
kind = "compute"
discounts = {gpu = 0.4}
usd_per_hour = 10.0
"""
JOBS = "job_id,class_name,submit_hours,deadline_hours\na,vision,0,6\nb,vision,0,6\n"


def a_site(folder: Path, *, price: float = 2.0, rate: float = 1.0, size: float = 16.0) -> list[str]:
    """Write classes and return the flag that names them."""
    path = folder / f"classes-{price}-{rate}-{size}.yaml"
    path.write_text(CLASSES.format(price=price, rate=rate, size=size))
    return ["--classes", str(path)]


def boa(*arguments: object) -> Result:
    """Run the command line; an error stays an exception."""
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "140"})


def answer(*arguments: object) -> Any:
    """Return the JSON answer."""
    return json.loads(boa(*arguments, "--json").stdout)


@pytest.mark.parametrize(
    ("change", "site", "budget"),
    [
        ("budget=60/h", {}, "60/h"),
        ("prices=+10%", {"price": 2.2}, "45/h"),
        ("load=x1.2", {"rate": 1.2}, "45/h"),
        ("class=vision:x0.5", {"size": 8.0}, "45/h"),
        ("budget=60/h,prices=-50%", {"price": 1.0}, "60/h"),
    ],
)
def test_a_scenario_equals_the_plan_of_a_changed_class_file(
    tmp_path: Path, change: str, site: dict[str, float], budget: str
) -> None:
    """Mean JCT and spend are those of `boa plan`."""
    base, found = answer("whatif", *a_site(tmp_path), "--budget", "45/h", "--change", change)["scenarios"]
    alone = answer("plan", *a_site(tmp_path, **site), "--budget", budget)

    assert found["mean_jct_hours"] == pytest.approx(alone["mean_jct_hours"])
    assert found["spend"] == pytest.approx(alone["mean_spend"])
    assert found["spend_more"] == pytest.approx(found["spend"] - base["spend"])


def test_spot_and_commitments_shorten_the_jobs_of_a_stream(tmp_path: Path) -> None:
    """With commitments the figures are those of `boa plan --commitments`."""
    offers = tmp_path / "commit.toml"
    offers.write_text(COMMITTED)
    flags = ["whatif", *a_site(tmp_path), "--budget", "45/h", "--change", "market=spot"]
    base, spot, committed = answer(*flags, "--change", f"commit={offers}")["scenarios"]

    alone = answer("plan", *a_site(tmp_path), "--budget", "45/h", "--commitments", offers)
    assert committed["mean_jct_hours"] == pytest.approx(alone["mean_jct_hours"])
    assert committed["spend"] == pytest.approx(alone["commitments"]["usd_per_hour"])
    assert max(spot["mean_jct_hours"], committed["mean_jct_hours"]) < base["mean_jct_hours"]


def test_a_trace_is_simulated_for_every_scenario(tmp_path: Path) -> None:
    """The base equals `boa simulate` with the daemon's policy."""
    trace = tmp_path / "trace.csv"
    rows = [f"{n},{1800 * n},vision" for n in range(12)]
    trace.write_text("\n".join(["job_id,arrived_at_seconds,class_name", *rows]) + "\n")
    flags = [*a_site(tmp_path, rate=2.0), "--trace", trace, "--budget", "90/h"]
    found = answer("whatif", *flags, "--change", "budget=70/h")
    base, less = found["scenarios"]
    run = answer("simulate", *flags, "--policy", "boa-paced")

    assert (found["spend_unit"], base["status"]) == ("usd", "planned")
    assert (base["mean_jct_hours"], base["spend"]) == (run["mean_jct_hours"], run["spent_usd"])
    assert less["spend_more"] == less["spend"] - base["spend"] < 0.0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--jobs", "x.csv", "--trace", "y.csv"], "exclude each other"),
        (["--trace", "y.csv"], "no budget"),
        (["--budget", "40/h"], "--classes is missing"),
        ([], "or --history 30 for the daemon's own past"),
    ],
)
def test_a_missing_or_ambiguous_base_is_refused(flags: list[str], says: str) -> None:
    """The error says which flag is missing or which flags exclude each other."""
    error = boa("whatif", *flags, "--change", "load=x2").exception

    assert isinstance(error, InputError)
    assert says in str(error)


def test_a_scenario_of_a_list_equals_its_calendar(tmp_path: Path) -> None:
    """One instance misses a deadline, and two do not."""
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(JOBS)
    listed = [*a_site(tmp_path), "--jobs", jobs, "--budget", "1000/month", "--boot-seconds", "0"]
    base, found = answer("whatif", *listed, "--quota", "gpu=1", "--change", "quota=gpu:2")["scenarios"]

    assert len(base["missed"]) == 1
    assert found["missed"] == []
    assert found["all_done_hours"] == answer("plan", *listed, "--quota", "gpu=2")["all_done_hours"]


def test_the_answer_says_why_more_money_may_end_a_list_later(tmp_path: Path) -> None:
    """Deadlines come before waiting."""
    base = {"scenario": "base", "missed": ["a", "b"], "all_done_hours": 9.0, "mean_jct_hours_more": 0.0}
    more = {"scenario": "more", "missed": ["b"], "all_done_hours": 12.0, "mean_jct_hours_more": 1.0}

    said = "more keeps the dates of a: dates come before waiting, so the list is done later."
    assert why_later([base, more]) == [said]
    assert why_later([base, base | {"all_done_hours": 8.0}]) == []


def test_an_infeasible_scenario_does_not_stop_the_others(tmp_path: Path) -> None:
    """Its row has the least feasible budget."""
    flags = ["whatif", *a_site(tmp_path), "--budget", "45/h", "--change", "budget=20/h"]

    assert [row["status"] for row in answer(*flags)["scenarios"]] == ["optimal", "infeasible"]
    assert "budget=20/h is infeasible: the jobs need $32.00/h." in boa(*flags).stdout


def test_the_plot_names_every_scenario(tmp_path: Path) -> None:
    """The base is one of the scenarios."""
    picture = tmp_path / "whatif.svg"
    boa("whatif", *a_site(tmp_path), "--budget", "45/h", "--change", "load=x1.2", "--plot", picture)

    assert all(f"<!-- {name} -->" in picture.read_text() for name in ("base", "load=x1.2"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("bugdet=60/h", "Did you mean 'budget'"),
        ("prices=10%", "'10%' is no factor"),
        ("load=xx", "'xx' is no factor"),
        ("load", "is no change that BOA knows"),
        ("class=visoin:x2", "unknown class 'visoin'"),
        ("quota=gpu:2", "a quota is for a list"),
        ("budget=60", "does not say for how long"),
        ("market=spto", "Did you mean 'spot'"),
        ("commit=there-is-none.toml", "there-is-none.toml"),
    ],
)
def test_malformed_changes_are_refused(tmp_path: Path, change: str, says: str) -> None:
    """Each error says what is wrong with the change."""
    error = boa("whatif", *a_site(tmp_path), "--budget", "45/h", "--change", change).exception

    assert isinstance(error, InputError)
    assert says in str(error)


@pytest.mark.parametrize(("per", "hours"), [("h", 1.0), ("day", 24.0), ("month", 730.0)])
def test_more_money_that_buys_nothing_is_said_in_the_unit_that_was_asked(
    tmp_path: Path, per: str, hours: float
) -> None:
    """Of 100 dollars per hour 51.2 are spent: 8 GPUs for 16/5 h of each job, at 2 dollars."""
    flags = ["whatif", *a_site(tmp_path), "--budget", f"{45.0 * hours:g}/{per}"]
    flags += ["--change", f"budget={100.0 * hours:g}/{per}", "--change", "market=spot"]
    base, more, spot = answer(*flags)["scenarios"]
    assert more["largest_useful_spend"] == pytest.approx(51.2)
    assert more["not_spent"] == pytest.approx(48.8)
    assert base["not_spent"] == pytest.approx(0.0, abs=1e-6)
    assert 0.0 < base["beyond_knee"]["spend"] < more["beyond_knee"]["spend"]
    assert spot["beyond_knee"]["spend"] > 0.0

    said = " ".join(boa(*flags).stdout.split())
    name = f"budget={100.0 * hours:g}/{per}"
    assert (
        f"{name}: ${48.8 * hours:,.2f}/{per} is not spent: more than ${51.2 * hours:,.2f}/{per} buys" in said
    )
    assert f"{name}: the last ${more['beyond_knee']['spend'] * hours:,.2f}/{per} of it buy" in said


@pytest.mark.parametrize("nodes", [3, 5, 40])
@pytest.mark.parametrize(("unit", "hours"), [("h", 1.0), ("month", 730.0)])
def test_on_one_machine_a_limit_on_nodes_is_the_budget_of_these_nodes(
    tmp_path: Path, nodes: int, unit: str, hours: float
) -> None:
    """Nodes of four GPUs at 8 dollars an hour; `boa plan --max-nodes` says the same of them."""
    budget, site = f"{60.0 * hours}/{unit}", a_site(tmp_path)
    asked = ("whatif", *site, "--budget", budget, "--change", f"nodes={nodes}")
    found, limit = answer(*asked)["scenarios"][1], f"nodes={nodes}"
    planned = answer("plan", *site, "--budget", budget, "--max-nodes", nodes)["second_limit"]
    said = " ".join(boa(*asked).stdout.split())

    if nodes == 3:
        assert (found["status"], found["mean_jct_hours"], found["spend"]) == ("infeasible", None, None)
        assert f"{limit} is infeasible. " in said
        assert planned["mean_jct_hours"] is None
        return
    alone = answer("plan", *site, "--budget", f"{min(8.0 * nodes, 60.0)}/h")
    assert found["mean_jct_hours"] == pytest.approx(alone["mean_jct_hours"])
    assert found["spend"] == pytest.approx(alone["mean_spend"])
    assert (planned is None) is (nodes == 40)
    if nodes < 7:
        assert planned["mean_jct_hours"] == pytest.approx(alone["mean_jct_hours"])
        assert f"Under {limit} jobs take at least" in said
        assert "more money under it buys nothing" in said


@pytest.mark.parametrize("value", ["0", "1.5", "two", ""])
def test_a_limit_on_nodes_is_a_whole_number(tmp_path: Path, value: str) -> None:
    """And a list of jobs has quotas in its place."""
    (tmp_path / "jobs.csv").write_text(JOBS)
    site, lists = a_site(tmp_path), ("--jobs", tmp_path / "jobs.csv", "--budget", "60/h")
    for asked, said in (
        (("whatif", *site, "--budget", "60/h", "--change", f"nodes={value}"), "nodes"),
        (("whatif", *site, *lists, "--change", "nodes=4"), "a limit on nodes is for a stream or a trace"),
        (("plan", *site, *lists, "--max-nodes", "4"), "--max-nodes is for a stream of jobs"),
    ):
        error = boa(*asked).exception
        assert isinstance(error, InputError)
        assert said in str(error)
