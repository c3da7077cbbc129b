"""Weeks of best effort on a budget below the load: the budget is kept, and the queue grows as stated."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from load_scenarios import Scenario, a_trace_of
from sampling import sampled

from boa_daemon.sim.wiring import SimulationSettings, prepare, site_of
from boa_daemon.testing import a_class, a_problem, an_instance_type
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.money.ledger import Ledger
from policies.errors import InfeasibleBudget
from policies.model import Budget
from policies.online.best_effort import Shortfall
from policies.registry import shortfall_of_site

PROBLEM = a_problem(
    a_class("small", sizes=(0.5,), arrivals_per_hour=1.5, startup_hours=0.01, rescale_hours=0.01),
    a_class("large", sizes=(3.0, 3.0), arrivals_per_hour=0.2, startup_hours=0.02, rescale_hours=0.02),
)
"""About two GPUs' worth of work."""


class Over(Exception):
    """The observed hours are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Figures at the end of the observed hours, and the highest values until then."""

    spent: float
    jobs: int
    gpu_hours: float
    shortfall: Shortfall | None
    most_rented: float
    most_nodes: int
    most_ahead: float
    ticks: int


def a_run(
    share: float,
    *,
    policy: str = "boa",
    hours: float = 336.0,
    gpus: int = 1,
    boot_seconds: float = 180.0,
    seed: int = 0,
) -> SimulationSettings:
    """Return Poisson arrivals under a share of the least budget that runs every job."""
    found = SimulationSettings(
        trace=a_trace_of(Scenario(name="steady"), PROBLEM.classes, hours=hours, seed=seed),
        problem=PROBLEM,
        instance_types={"gpu": an_instance_type(gpus=gpus)},
        budget=Budget(amount=1.0),
        policy=policy,
        boot_seconds=boot_seconds,
        seed=seed,
        best_effort=True,
    )
    least = shortfall_of_site(site_of(found)).least_spend
    return replace(found, budget=Budget(amount=share * least))


def seen_after(run_settings: SimulationSettings, hours: float, caps: Caps | None = None) -> Seen:
    """Run for the given hours and return the figures."""
    run = prepare(run_settings)
    if caps is not None:
        rules = replace(run.controller.rules, caps=caps)
        run = replace(run, controller=replace(run.controller, rules=rules))
    begin, budget = run.world.started_at, run_settings.budget.amount
    rented: list[float] = [0.0]
    nodes: list[int] = [0]
    ahead: list[float] = [0.0]
    last: list[Seen] = []

    def look(decision: Decision) -> None:
        state = decision.state
        passed = (state.now - begin) / 3600.0
        spent = Ledger.of(state).committed_usd
        rented.append(sum(n.usd_per_hour for n in run.world.cloud._live.values()))
        nodes.append(len(run.world.cloud._live))
        ahead.append(spent - budget * passed)
        if passed >= hours:
            last.append(
                Seen(
                    spent=spent / passed,
                    jobs=len(state.jobs),
                    gpu_hours=sum(job.job.remaining_gpu_hours for job in state.jobs.values()),
                    shortfall=run.shortfall,
                    most_rented=max(rented),
                    most_nodes=max(nodes),
                    most_ahead=max(ahead),
                    ticks=run.world.ticks,
                )
            )
            raise Over

    with pytest.raises(Over):
        run.finish(look)
    return last[0]


@pytest.mark.parametrize(
    ("share", "policy", "gpus"),
    [
        pytest.param(0.3, "boa", 1, marks=pytest.mark.exhaustive),
        pytest.param(0.6, "boa", 1, marks=pytest.mark.exhaustive),
        pytest.param(0.9, "boa", 1, marks=pytest.mark.exhaustive),
        pytest.param(0.3, "boa-paced", 4, marks=pytest.mark.exhaustive),
        pytest.param(0.9, "boa-paced", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_two_weeks_below_the_load_spend_the_budget(share: float, policy: str, gpus: int) -> None:
    """Mean spend is within 3 % of the budget, on nodes of one GPU and of four."""
    run_settings = a_run(share, policy=policy, gpus=gpus)
    seen = seen_after(run_settings, 336.0 - 1.0)

    assert seen.spent == pytest.approx(run_settings.budget.amount, rel=0.03)


@pytest.mark.exhaustive
def test_a_budget_of_a_fortieth_of_a_node_rents_one_node_part_of_the_time() -> None:
    """At most one node is rented, and spend is 75 % to 110 % of the budget."""
    run_settings = replace(a_run(0.1, policy="boa-paced", gpus=4), budget=Budget(amount=0.1))
    seen = seen_after(run_settings, 200.0)

    assert seen.most_nodes == 1
    assert 0.75 * 0.1 <= seen.spent <= 1.1 * 0.1


@pytest.mark.exhaustive
def test_the_queue_grows_as_fast_as_the_shortfall_states() -> None:
    """After two weeks on a third of the least budget, work left is within 25 % of the stated growth."""
    seen = seen_after(a_run(0.33), 335.0)

    assert seen.shortfall is not None
    assert seen.gpu_hours == pytest.approx(335.0 * seen.shortfall.gpu_hours_per_hour, rel=0.25)
    assert 0 < seen.jobs <= 335.0 * seen.shortfall.jobs_per_hour * 1.25


@st.composite
def thin_runs(draw: st.DrawFn) -> tuple[SimulationSettings, Caps]:
    """Return two days of arrivals under 2 % to 120 % of the least budget, and caps."""
    found = a_run(
        draw(st.floats(0.02, 1.2)),
        policy=draw(st.sampled_from(["boa", "boa-paced"])),
        hours=48.0,
        gpus=draw(st.sampled_from([1, 2, 4])),
        boot_seconds=draw(st.sampled_from([0.0, 180.0, 420.0])),
        seed=draw(st.integers(0, 99)),
    )
    ceiling, nodes = draw(st.sampled_from([None, 4.0])), draw(st.sampled_from([None, 3]))
    return found, Caps(usd_per_hour=ceiling, instances=nodes, checkpoint_seconds=0.0)


@settings(max_examples=sampled(12), deadline=None)
@given(case=thin_runs())
def test_best_effort_keeps_caps_and_bounds_overspending(
    case: tuple[SimulationSettings, Caps],
) -> None:
    """No cap is broken, and overspending is at most the budget of half the hours that spread a credit.

    The bound also allows the rent of five minutes until the next look, and the rent of a boot.
    """
    run_settings, caps = case
    seen = seen_after(run_settings, 40.0, caps)

    assert caps.usd_per_hour is None or seen.most_rented <= caps.usd_per_hour
    assert caps.instances is None or seen.most_nodes <= caps.instances
    if seen.shortfall is not None:
        spread_hours = max(1.0, 10.0 * run_settings.boot_seconds / 3600.0)
        until_next_look = seen.most_rented * (300.0 + run_settings.boot_seconds) / 3600.0
        assert seen.most_ahead <= 0.5 * spread_hours * run_settings.budget.amount + until_next_look


def test_without_best_effort_an_infeasible_budget_names_the_least_spend() -> None:
    """The error has the least feasible spend, here twice the budget."""
    run_settings = replace(a_run(0.5), best_effort=False)
    with pytest.raises(InfeasibleBudget) as refused:
        prepare(run_settings)

    assert refused.value.least_spend == pytest.approx(2.0 * run_settings.budget.amount)


def test_a_sufficient_budget_has_no_shortfall() -> None:
    """The best-effort flag then changes nothing: the run has the status `planned`."""
    run = prepare(a_run(1.2, hours=48.0))

    assert run.shortfall is None
    assert run.finish().status == "planned"
