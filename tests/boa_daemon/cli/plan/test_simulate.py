"""`boa simulate`: its answers and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from boa_daemon import Problem, simulate
from boa_daemon.cli import app, main
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from policies.errors import InfeasibleBudget, PolicyError
from policies.registry import DEFAULT_POLICY

CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 1.0}}
classes:
- name: vision
  phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1.0, 2: 1.8, 4: 3.0}}}]
"""
PROMISED = {
    *("policy", "jobs", "finished", "mean_jct_hours", "p50_jct_hours", "p95_jct_hours", "p99_jct_hours"),
    *("budget_usd_per_hour", "mean_usd_per_hour", "gpu_hours_rented", "gpu_hours_used", "rescales"),
    *("interruptions", "lower_bound_mean_jct_hours", "wall_seconds", "simulated_hours"),
}


@pytest.fixture
def case(tmp_path: Path) -> list[str]:
    """Write a trace of ten jobs and a class file, and return the flags that name them."""
    rows = "".join(f"j{n},{n * 600},vision\n" for n in range(10))
    (tmp_path / "trace.csv").write_text("job_id,arrived_at_seconds,class_name\n" + rows)
    (tmp_path / "classes.yaml").write_text(CLASSES)
    return ["--trace", str(tmp_path / "trace.csv"), "--classes", str(tmp_path / "classes.yaml")]


def boa(*arguments: str) -> Result:
    """Run the command line; an error stays an exception."""
    return CliRunner().invoke(app, ["simulate", *arguments])


@pytest.mark.parametrize("policy", ["boa", "static-fifo", "static-equal", "equal-width"])
def test_json_output_is_one_document_with_the_promised_keys(case: list[str], policy: str) -> None:
    """Every policy finishes the ten jobs."""
    result = boa(*case, "--policy", policy, "--budget", "20/h", "--json")

    document = json.loads(result.stdout)
    assert document.keys() >= PROMISED
    assert (document["policy"], document["finished"]) == (policy, 10)


def test_the_default_policy_is_that_of_the_daemon(case: list[str]) -> None:
    """The function `simulate` has the same default."""
    document = json.loads(boa(*case, "--budget", "20/h", "--json").stdout)
    called = simulate(Problem.from_file(case[3]), case[1], "20/h")

    assert document["policy"] == called.policy == Settings().workload.policy == DEFAULT_POLICY


def test_classes_beside_the_trace_need_no_flag(case: list[str]) -> None:
    """The answer is the same as with --classes."""
    alone, named = (
        json.loads(boa(*words, "--budget", "20/h", "--json").stdout) for words in (case[:2], case)
    )
    assert alone | {"wall_seconds": 0.0} == named | {"wall_seconds": 0.0}


def test_table_and_csv_show_the_number_of_jobs(case: list[str]) -> None:
    """All ten jobs finish."""
    assert "10 of 10 jobs finished" in boa(*case, "--budget", "20/h").stdout
    header, row = boa(*case, "--budget", "20/h", "-o", "csv").stdout.splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["jobs"] == "10"


def test_spend_over_the_budget_is_shown_with_its_reason(case: list[str]) -> None:
    """In the demo's trace, boots and idle GPUs cost money that no plan counts."""
    demo = Path(__file__).resolve().parents[4] / "boa_daemon/data/demo"
    files = ["--trace", str(demo / "trace.csv"), "--classes", str(demo / "classes.yaml")]
    flags = [*files, "--budget", "60/h", "--bound", "plain"]
    shown, found = boa(*flags).stdout, json.loads(boa(*flags, "--json").stdout)

    over = found["mean_usd_per_hour"] - found["budget_usd_per_hour"]
    assert f"${over:,.2f}/hour over the budget: boots, idle GPUs and lost work were" in shown
    assert "over the budget" not in boa(*case, "--budget", "1000/h").stdout


def test_a_budget_in_gpus_is_reported_as_gpus(case: list[str]) -> None:
    """gpus:20 is a budget of 20 GPUs."""
    document = json.loads(boa(*case, "--budget", "gpus:20", "--json").stdout)

    assert document["budget_gpus"] == 20.0


def test_the_bound_with_boots_is_computed_by_default_for_single_phases(
    case: list[str], tmp_path: Path
) -> None:
    """It lies between the plain bound and the run. Classes with several phases need `--bound boots`."""
    found = json.loads(boa(*case, "--budget", "20/h", "--json").stdout)
    key = "lower_bound_with_boots_mean_jct_hours"

    assert found["lower_bound_mean_jct_hours"] < found[key] < found["mean_jct_hours"]
    assert json.loads(boa(*case, "--budget", "20/h", "--bound", "plain", "--json").stdout)[key] is None

    phase = CLASSES[CLASSES.index("{size") : CLASSES.rindex("]")]
    (tmp_path / "classes.yaml").write_text(CLASSES.replace(phase, f"{phase}, {phase}"))
    assert json.loads(boa(*case, "--budget", "40/h", "--json").stdout)[key] is None
    asked = json.loads(boa(*case, "--budget", "40/h", "--bound", "boots", "--json").stdout)
    assert asked["lower_bound_mean_jct_hours"] <= asked[key] < asked["mean_jct_hours"]


def test_rehearse_keeps_the_spend_within_the_budget(case: list[str]) -> None:
    """The rehearsal lowers the plan to make room for boots and idle nodes."""
    plain = json.loads(boa(*case, "--budget", "14/h", "--json").stdout)
    rehearsed = json.loads(boa(*case, "--budget", "14/h", "--rehearse", "--json").stdout)

    assert rehearsed["mean_usd_per_hour"] <= 14.0
    assert rehearsed["mean_usd_per_hour"] <= plain["mean_usd_per_hour"]


@pytest.mark.parametrize(
    ("flags", "kind", "says"),
    [
        (["--budget", "20"], InputError, "does not say for how long"),
        (["--budget", "20/h", "--policy", "bao"], PolicyError, "Did you mean 'boa'"),
        (["--budget", "20/h", "--set", "nodes"], InputError, "is not key=value"),
        (["--budget", "20/h", "--set", "nodes=1"], PolicyError, "no option 'nodes'"),
        (["--budget", "20/h", "--placer", "lfw"], PolicyError, "Did you mean 'lwf'"),
        (["--budget", "20/h", "--placer", "random", "--kappa", "2"], InputError, "goes with --placer lwf"),
        (["--budget", "1/h"], InfeasibleBudget, "--best-effort"),
        (["--budget", "1/h", "--policy", "boa"], InfeasibleBudget, "--best-effort"),
    ],
)
def test_wrong_flags_are_refused(case: list[str], flags: list[str], kind: type[Exception], says: str) -> None:
    """Each error says what to change."""
    result = boa(*case, *flags)

    assert isinstance(result.exception, kind)
    assert says in str(result.exception)


def test_best_effort_finishes_all_jobs_at_the_budget(case: list[str]) -> None:
    """Six jobs an hour of one hour each run at 2 USD/hour; without the flag the budget is refused."""
    refused = boa(*case, "--budget", "2/h").exception
    answer = json.loads(boa(*case, "--budget", "2/h", "--best-effort", "--json").stdout)

    assert isinstance(refused, InfeasibleBudget)
    assert "--best-effort" in str(refused)
    assert (answer["status"], answer["finished"]) == ("best-effort", 10)
    assert 1.8 <= answer["mean_usd_per_simulated_hour"] <= 2.1
    assert answer["lower_bound_at_budget_mean_jct_hours"] is None
    assert answer["best_effort"]["least_spend"] == pytest.approx(refused.least_spend)
    assert "goes with boa and boa-paced" in str(
        boa(*case, "--budget", "2/h", "--best-effort", "--policy", "static-fifo").exception
    )


def test_an_option_given_twice_is_refused(case: list[str]) -> None:
    """--set takes each option once."""
    flags = ["--policy", "static-fifo", "--set", "nodes=9", "--set", "nodes=8"]

    assert "given twice" in str(boa(*case, "--budget", "20/h", *flags).exception)


def test_an_unknown_class_names_the_line_of_the_trace(case: list[str], tmp_path: Path) -> None:
    """The error suggests the right class."""
    (tmp_path / "trace.csv").write_text("job_id,arrived_at_seconds,class_name\na,0,visoin\n")

    with_line = str(boa(*case, "--budget", "20/h").exception)
    assert "trace.csv:2" in with_line
    assert "Did you mean 'vision'" in with_line


HEADER = "job_id,arrived_at_seconds,class_name\n"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("a,600,vision\nb,0,vision\n", "trace.csv:3: arrivals must be in order of time"),
        ("a,0,vision\na,600,vision\n", "trace.csv:3: job_id 'a' occurs twice"),
        ("a,-5,vision\n", "trace.csv:2: arrived_at_seconds of job a must be a finite number, zero or more"),
        ("a,nan,vision\n", "trace.csv:2: arrived_at_seconds of job a must be a finite number"),
        ("a,0,visoin\n", "trace.csv:2: job a is of class 'visoin'"),
        ("", "the trace has no jobs"),
        ("a,0\n", "trace.csv:2: 2 cells where the header has 3"),
    ],
)
def test_a_bad_trace_is_refused_before_the_run(
    case: list[str], tmp_path: Path, rows: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 2, and the error names the line."""
    (tmp_path / "trace.csv").write_text(HEADER + rows)
    monkeypatch.setattr(
        "boa_daemon.sim.world.SimulatedWorld.run", lambda *_, **__: pytest.fail("the run began")
    )
    refused = boa(*case, "--budget", "20/h").exception

    assert isinstance(refused, InputError)
    assert refused.exit_code == 2
    assert says in str(refused)


@pytest.mark.parametrize(
    ("world", "flags", "says"),
    [
        (None, ["--max-nodes", "1"], "needs at least 16 x gpu; at most 8 x gpu can be rented"),
        ("quotas: {default: 1}", [], "at most 8 x gpu can be rented"),
        ("zones: [a, b]\nstock: {default: {nodes: 1}}", [], "at most 8 x gpu can be rented"),
    ],
)
def test_a_job_wider_than_anything_rentable_is_refused_before_the_run(
    case: list[str], tmp_path: Path, world: str | None, flags: list[str], says: str
) -> None:
    """The limit is a flag, a quota, or the stock of every zone."""
    machine = "gpu_types: {gpu: {usd_per_gpu_hour: 1.0, gpus_per_instance: 8}}"
    wide = CLASSES.replace("gpu_types: {gpu: {usd_per_gpu_hour: 1.0}}", machine)
    (tmp_path / "classes.yaml").write_text(wide.replace("{1: 1.0, 2: 1.8, 4: 3.0}", "{16: 9.0}"))
    if world is not None:
        (tmp_path / "world.yaml").write_text(world)
        flags = [*flags, "--world", str(tmp_path / "world.yaml")]
    refused = boa(*case, "--budget", "50/h", *flags).exception

    assert isinstance(refused, InputError)
    assert says in str(refused)


def test_a_world_comes_from_a_file_or_flags(case: list[str], tmp_path: Path) -> None:
    """Spot costs less, slow boots delay jobs, and faults are counted."""
    (tmp_path / "world.yaml").write_text("faults: {throttled_fraction: 0.5, mean_job_failure_hours: 0.5}")
    base = [*case, "--budget", "20/h", "--json"]
    plain, spot, slow, faulty = (
        json.loads(boa(*base, *flags).stdout)
        for flags in ([], ["--spot"], ["--boot", "constant:1800"], ["--world", str(tmp_path / "world.yaml")])
    )

    assert spot["spent_usd"] < plain["spent_usd"]
    assert slow["mean_jct_hours"] > plain["mean_jct_hours"] + 0.2
    assert faulty["launch_refusals"]["throttled"] > 0
    assert faulty["job_failures"] == faulty["restarts"] > 0
    assert "work lost" in boa(*base[:-1], "--world", str(tmp_path / "world.yaml")).stdout


def test_an_interrupted_run_exits_with_130(case: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells expect this code after Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("boa_daemon.sim.world.SimulatedWorld.run", interrupt)
    monkeypatch.setattr("sys.argv", ["boa", "simulate", *case, "--budget", "20/h"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130


@pytest.mark.exhaustive
def test_a_run_that_learns_corrects_a_wrong_arrival_rate(case: list[str], tmp_path: Path) -> None:
    """A rate stated twice too high leaves money unspent; a run that learns spends more."""
    (tmp_path / "world.yaml").write_text("beliefs: {rates: {vision: 2.0}}\n")
    rows = "".join(f"j{n},{n * 600},vision\n" for n in range(60))
    (tmp_path / "trace.csv").write_text("job_id,arrived_at_seconds,class_name\n" + rows)

    def spent(*flags: str) -> float:
        world = ("--world", str(tmp_path / "world.yaml"))
        document = json.loads(
            boa(*case, *world, *flags, "--policy", "boa", "--budget", "14/h", "--json").stdout
        )
        return float(document["mean_usd_per_hour"])

    assert spent("--learn") > 1.05 * spent()


def test_a_run_that_learns_says_what_its_trials_may_take(case: list[str], tmp_path: Path) -> None:
    """Of twenty jobs of one class: 2 % and a twentieth."""
    rows = "".join(f"j{n},{n * 600},vision\n" for n in range(20))
    (tmp_path / "trace.csv").write_text("job_id,arrived_at_seconds,class_name\n" + rows)

    def shown(*flags: str) -> str:
        return " ".join(boa(*case, *flags, "--budget", "14/h").stdout.split())

    assert "these 20 jobs that may take up to 7.0%, 2% and one job of each class" in shown("--learn")
    assert "Jobs try widths" not in shown()


def test_plan_spot_needs_a_spot_market(case: list[str]) -> None:
    """With a spot market all jobs finish."""
    assert (
        json.loads(boa(*case, "--budget", "4/h", "--spot", "--plan-spot", "--json").output)["finished"] == 10
    )

    refused = boa(*case, "--budget", "4/h", "--plan-spot")
    assert isinstance(refused.exception, InputError)
    assert "--plan-spot needs a spot market" in str(refused.exception)


def test_a_warm_pool_is_counted_and_needs_a_budget_in_dollars(case: list[str], tmp_path: Path) -> None:
    """The answer counts started nodes and hours of stopped nodes."""
    rows = "".join(f"j{n},{n * 1800},vision\n" for n in range(10))
    (tmp_path / "trace.csv").write_text("job_id,arrived_at_seconds,class_name\n" + rows)
    flags = ("--budget", "20/h", "--warm-pool", "4", "--start-seconds", "20")
    document = json.loads(boa(*case, *flags, "--json").stdout)
    assert document["nodes_started"] > 0
    assert document["node_hours_stopped"] > 0.0
    shown = boa(*case, *flags).stdout
    assert "of these started" in shown

    plain = json.loads(boa(*case, "--budget", "20/h", "--json").stdout)
    pool = document["warm_pool"]
    assert pool["waiting_saved_fraction"] == pytest.approx(
        1.0 - document["mean_jct_hours"] / plain["mean_jct_hours"]
    )
    assert pool["spend_saved_fraction"] == pytest.approx(1.0 - document["spent_usd"] / plain["spent_usd"])
    assert pool["waiting_saved_fraction"] > 0.0
    assert 0.0 < pool["disk_usd_per_hour"] <= 4 * 0.0219
    assert f"{100.0 * pool['waiting_saved_fraction']:.1f} % less time" in " ".join(shown.split())
    assert "warm_pool" not in plain

    result = boa(*case, "--budget", "gpus:20", "--warm-pool", "4")
    assert isinstance(result.exception, InputError)
    assert "needs a budget in dollars" in str(result.exception)
