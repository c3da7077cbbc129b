"""The scripts of schedules with foresight, `benchmarks/foresight.py` and `benchmarks/clairvoyant.py`."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest
from benchmark_modules import BENCHMARKS, benchmark_module

from boa_daemon.sim.bounds.boot_bound import NodeSupply, SearchEffort, lower_bound_with_boots_hours
from boa_daemon.sim.wiring import SimulationSettings
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from policies.model import Budget
from policies.speedup import Table

ONE_GPU = Table(gpus=(1,), speeds=(1.0,))


@pytest.fixture
def clairvoyant(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script as a module; it imports the other one."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return benchmark_module("clairvoyant")


@pytest.fixture
def foresight() -> ModuleType:
    """Return the search a few jobs at a time as a module."""
    return benchmark_module("foresight")


@pytest.mark.parametrize(
    ("arrival", "money", "mean_hours"),
    [(0.5, 3.5, 1.25), (0.9, 2.55, (1.5 + 1.6) / 2.0)],
    ids=["a node each", "the second waits for the node of the first"],
)
def test_two_jobs_take_a_node_each_or_share_one_as_money_allows(
    foresight: ModuleType, arrival: float, money: float, mean_hours: float
) -> None:
    """A job of an hour after a boot of half an hour; the schedule is the best but for its steps."""
    supply = NodeSupply(instance_types={"gpu": an_instance_type(gpus=1)}, boot_hours=0.5)
    problem = a_problem(a_class(sizes=[1.0], curve=ONE_GPU))
    trace = a_trace(0.0, 3600.0 * arrival)
    workload = foresight.Workload.of(trace, problem, supply, step_seconds=60.0)
    price = workload.usd_per_hour

    found = foresight.best_for(workload, 1.03 * money * price, 1.0 / price, rounds=4, tries=6)

    assert found is not None
    assert found.spent_usd <= 1.03 * money * price
    assert mean_hours * (1.0 - 1e-9) <= found.mean_jct_hours <= mean_hours + 0.05
    assert lower_bound_with_boots_hours(trace, problem, found.spent_usd, supply) <= found.mean_jct_hours


def test_planning_anew_never_makes_a_schedule_worse_and_stays_above_the_bound(foresight: ModuleType) -> None:
    """Twelve jobs with overheads on nodes of four GPUs; the GPUs of every step are those of the plans."""
    curve = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 3.2, 5.0))
    problem = a_problem(
        a_class(sizes=[0.3, 0.2], curve=curve, startup_hours=30.0 / 3600.0, rescale_hours=30.0 / 3600.0)
    )
    supply = NodeSupply(instance_types={"gpu": an_instance_type(gpus=4)}, boot_hours=0.1)
    trace = a_trace(*(400.0 * number for number in range(12)))
    workload = foresight.Workload.of(trace, problem, supply, step_seconds=60.0)
    multiplier = 0.1 / workload.usd_per_hour

    first = foresight.first_schedule(workload, multiplier)
    later = foresight.improved(workload, first, multiplier, tries=8)

    def value(hours: float, usd: float) -> float:
        """Return the sum of completion times and the price of the bill."""
        return 12.0 * hours + multiplier * usd

    after = value(later.mean_jct_hours, later.spent_usd)
    assert after <= value(first.mean_jct_hours, first.spent_usd) + 1e-9
    bound = lower_bound_with_boots_hours(
        trace, problem, later.spent_usd, supply, effort=SearchEffort(steps=9, programs=0)
    )
    assert bound <= later.mean_jct_hours
    for job, plan in zip(workload.jobs, later.plans, strict=True):
        done = sum(stint.end_unit - stint.first_unit for stint in plan.stints)
        assert done == len(job.unit_hours)
        assert plan.stints[0].begin * workload.step_hours >= job.ready_at - 1e-9


def test_the_script_prints_bound_schedules_and_the_default(
    clairvoyant: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On three small jobs the bound is below every schedule."""
    shared = SimulationSettings(
        trace=a_trace(0.0, 300.0, 600.0),
        problem=a_problem(a_class(sizes=[0.5], curve=Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0)))),
        instance_types={"gpu": an_instance_type(gpus=2)},
        budget=Budget(amount=30.0),
        policy="boa-paced",
        boot_seconds=180.0,
    )
    case = SimpleNamespace(trace="three jobs", draw=0, comparison=SimpleNamespace(shared=shared))
    study = SimpleNamespace(of_group=lambda _name: SimpleNamespace(cases=[case]))
    monkeypatch.setattr(clairvoyant, "load_study", lambda _path: study)
    monkeypatch.setattr("sys.argv", ["clairvoyant.py", "--plans", "4", "--rounds", "2", "--tries", "4"])

    clairvoyant.main()

    printed = capsys.readouterr().out
    _, row, last = printed.strip().splitlines()
    name, bound, simulated, by_jobs, default, *_ = row.split(" | ")
    assert name == "three jobs"
    found = [float(each) for each in (simulated, by_jobs) if each != "-"]
    assert found
    assert float(bound) <= min(*found, float(default)) + 0.05
    assert last.startswith("median of 1")
