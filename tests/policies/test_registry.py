"""Policies by name, with typed options and errors that suggest a remedy."""

from __future__ import annotations

import pytest

from boa_daemon.testing import a_class, a_job, a_problem, an_instance_type
from policies.errors import InfeasibleBudget, InvalidProblem, UnknownPolicy
from policies.model import Budget, GpuSlot, InstanceType, Node, Width
from policies.registry import (
    POLICIES,
    PolicyOptions,
    Site,
    build_policy,
    find_placer,
    find_policy,
    parse_options,
)
from policies.rivals.baselines import EfficiencyThreshold, EqualWidth, StaticFifo


def a_site(budget: float = 8.0, unit: str = "usd_per_hour") -> Site:
    """Return one class of one hour of work, twice an hour, on nodes of four GPUs at 1 USD per GPU-hour."""
    chosen = Budget(amount=budget, unit=unit)  # type: ignore[arg-type]
    problem = a_problem(a_class(arrivals_per_hour=2.0), budget=chosen)
    return Site(problem=problem, budget=chosen, instance_types={"gpu": an_instance_type()})


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_can_be_built(name: str) -> None:
    """Every registered name builds a policy and has a summary."""
    assert build_policy(name, a_site()).allocator.allocate([], now=0.0).widths == {}
    assert find_policy(name).summary


def test_an_unknown_policy_names_the_closest() -> None:
    """The error for a typo suggests the closest name."""
    with pytest.raises(UnknownPolicy, match="Did you mean 'static-fifo'"):
        find_policy("static-fito")


def test_an_unknown_placer_names_all() -> None:
    """A word without a close match gets the list of known names."""
    with pytest.raises(UnknownPolicy, match="Known: first-fit, list-scheduling, lwf, random"):
        find_placer("quux")


def test_options_are_typed() -> None:
    """Text becomes whole numbers."""
    options = parse_options(find_policy("static-fifo"), {"nodes": "3", "gpus_per_job": "2"})

    assert options == PolicyOptions(nodes=3, gpus_per_job=2)


@pytest.mark.parametrize(
    ("policy", "settings", "says"),
    [
        ("static-fifo", {"node": "3"}, "Did you mean 'nodes'"),
        ("boa", {"nodes": "3"}, "It has no options"),
        ("static-fifo", {"nodes": "2.5"}, "must be a positive whole number; got '2.5'"),
        ("static-fifo", {"nodes": "0"}, "must be a positive whole number; got '0'"),
        ("static-fifo", {"nodes": "²"}, "must be a positive whole number"),
    ],
)
def test_an_error_for_a_wrong_option_suggests_a_remedy(
    policy: str, settings: dict[str, str], says: str
) -> None:
    """Unknown names, and values that are not positive whole numbers, are refused."""
    with pytest.raises(InvalidProblem, match=says):
        parse_options(find_policy(policy), settings)


def test_an_unknown_gpu_type_is_refused() -> None:
    """A type that no machine carries cannot be chosen."""
    with pytest.raises(InvalidProblem, match=r"no GPU type 'gpv'\. Did you mean 'gpu'"):
        build_policy("equal-width", a_site(), PolicyOptions(gpu_type="gpv"))


def test_a_fleet_is_as_many_whole_nodes_as_the_budget_pays_for() -> None:
    """11 USD per hour buy two nodes at 4; 11 GPUs are two nodes of four."""
    for unit in ("usd_per_hour", "gpus"):
        allocator = build_policy("static-fifo", a_site(11.0, unit)).allocator
        assert isinstance(allocator, StaticFifo)
        assert allocator.fleet.nodes == 2


def test_a_budget_below_one_node_is_infeasible_for_a_fleet() -> None:
    """The error names the price of a node."""
    with pytest.raises(InfeasibleBudget, match=r"4\.00") as caught:
        build_policy("static-equal", a_site(3.0))
    assert caught.value.least_spend == 4.0


def test_equal_width_picks_the_fastest_limit_that_the_budget_pays_for() -> None:
    """Two jobs per hour hold 2 GPUs at width 1, 2.22 at 2, 2.67 at 4."""
    widths = {}
    for budget in (2.1, 2.3, 2.7):
        allocator = build_policy("equal-width", a_site(budget)).allocator
        assert isinstance(allocator, EqualWidth)
        widths[budget] = allocator.gpus_per_job

    assert widths == {2.1: 1, 2.3: 2, 2.7: 4}


def test_a_budget_below_the_least_is_infeasible_for_equal_width() -> None:
    """Two jobs per hour of one GPU-hour each need two GPUs."""
    with pytest.raises(InfeasibleBudget) as caught:
        build_policy("equal-width", a_site(1.9))
    assert caught.value.least_spend == pytest.approx(2.0)


def test_a_policy_for_one_type_needs_a_type_that_runs_everything() -> None:
    """The error says that no GPU type runs every phase."""
    site = a_site()
    foreign = a_problem(a_class(gpu_type="gpu"))
    broken = Site(
        problem=type(foreign)(
            classes=(a_class("x", gpu_type="a"), a_class("y", gpu_type="b")),
            gpu_types=tuple(
                type(foreign.gpu_types[0])(name=name, usd_per_gpu_hour=1.0) for name in ("a", "b")
            ),
        ),
        budget=site.budget,
        instance_types={name: an_instance_type(gpu_type=name) for name in ("a", "b")},
    )
    with pytest.raises(InvalidProblem, match="no GPU type runs every phase"):
        build_policy("static-fifo", broken)


def test_a_window_is_hours() -> None:
    """Fractions are allowed; zero, infinity and words are refused."""
    entry = find_policy("boa-paced")

    assert parse_options(entry, {"window_hours": "7.5"}) == PolicyOptions(window_hours=7.5)
    for text in ("0", "inf", "nan", "day"):
        with pytest.raises(InvalidProblem, match="must be a positive number of hours"):
            parse_options(entry, {"window_hours": text})


def test_one_efficiency_for_all_is_the_best_that_the_budget_pays_for() -> None:
    """Two jobs per hour hold 2 GPUs at width 1, 2.22 at 2 (efficiency 0.9), 2.67 at 4 (0.75)."""
    chosen = {}
    for budget in (2.1, 2.3, 2.7):
        built = build_policy("efficiency", a_site(budget))
        assert isinstance(built.allocator, EfficiencyThreshold)
        chosen[budget] = built.allocator.efficiency
        assert built.planned_spend is not None
        assert built.planned_spend <= budget

    assert chosen == {2.1: 1.0, 2.3: pytest.approx(0.9), 2.7: pytest.approx(0.75)}


@pytest.mark.parametrize("policy", ["efficiency", "greedy-marginal"])
def test_rivals_that_plan_name_the_least_budget(policy: str) -> None:
    """The error is in dollars, not GPUs: at 3 USD per GPU-hour two GPUs take 6."""
    budget = Budget(amount=5.0)
    problem = a_problem(a_class(arrivals_per_hour=2.0), usd_per_gpu_hour=3.0)
    site = Site(problem=problem, budget=budget, instance_types={"gpu": an_instance_type()})

    with pytest.raises(InfeasibleBudget, match=r"\$5\.00/hour is too small.*6\.00") as caught:
        build_policy(policy, site)
    assert caught.value.least_spend == pytest.approx(6.0)


@pytest.mark.parametrize("text", ["1.5", "-0.1", "nan", "half"])
def test_an_efficiency_option_is_a_fraction(text: str) -> None:
    """The value is a number from 0 to 1."""
    with pytest.raises(InvalidProblem, match="must be a number from 0 to 1"):
        parse_options(find_policy("efficiency"), {"efficiency": text})
    assert parse_options(find_policy("efficiency"), {"efficiency": "0.5"}) == PolicyOptions(efficiency=0.5)


def test_kappa_is_the_widest_job_that_lwf_spreads() -> None:
    """A job of two GPUs gets a whole node by default, and two half-free nodes from kappa 2 on."""
    kind = InstanceType(name="node", gpu_type="gpu", gpus=2, usd_per_hour=1.0)
    nodes = [Node(id=name, instance_type=kind, is_ready=True) for name in "abc"]
    one = Width("gpu", 1)
    held = {"x": (GpuSlot("a", 0),), "y": (GpuSlot("b", 0),)}
    wanted = {"x": one, "y": one, "new": Width("gpu", 2)}

    def nodes_of(name: str, kappa: float) -> set[str]:
        placer = find_placer(name, kappa=kappa)
        return {slot.node for slot in placer.place(wanted, nodes=nodes, held=held).slots["new"]}

    assert nodes_of("lwf", 1) == {"c"}
    assert nodes_of("lwf", 2) == {"a", "b"}
    assert nodes_of("list-scheduling", 1) == {"a", "b"}
    assert nodes_of("first-fit", 2) == {"c"}


def test_given_options_are_used_whatever_the_budget() -> None:
    """The options are a width, an efficiency and a GPU type; the planned spend is their true cost."""
    for name, options in (
        ("equal-width", PolicyOptions(gpu_type="gpu", gpus_per_job=4)),
        ("efficiency", PolicyOptions(gpu_type="gpu", efficiency=0.75)),
    ):
        built = build_policy(name, a_site(0.01), options)
        assert {w.gpus for w in built.allocator.allocate([a_job()], now=0.0).widths.values()} == {4}
        assert built.planned_spend == pytest.approx(2.0 * 4.0 / 3.0)
        assert built.planned_mean_jct_hours == pytest.approx(1.0 / 3.0)


def test_which_policies_decide_job_by_job_and_which_read_progress() -> None:
    """Job-by-job policies need no tick at a new phase; work is measured for policies that read progress."""
    by_job = {name for name, entry in POLICIES.items() if entry.is_job_by_job}
    plans = {"boa", "boa-authors", "boa-paced"}
    assert by_job == plans | {"asked", "asked-hold", "efficiency", "equal-width", "greedy-marginal"}
    by_progress = {name for name, entry in POLICIES.items() if entry.reads_progress}
    fleets = {"a-srpt", "dally", "elastic-srpt", "gittins", "srpt", "static-srsf", "tiresias"}
    assert by_progress == fleets | {"boa-paced"}
