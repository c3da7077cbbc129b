"""The worth of whole nodes: patience, idle nodes and head starts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, a_problem, an_instance_type
from policies.answer import NodeRetention
from policies.links.contention import Link
from policies.links.link_share import network_share
from policies.model import AllReduce, GpuType, Problem, Width
from policies.online import node_prices
from policies.online.lending import LENT_ARRIVALS
from policies.online.node_prices import (
    LEAST_NODE_PRICE,
    LENT_NODES,
    LONGEST_HOLD_HOURS,
    MOST_PATIENCE,
    NodeDemand,
    WholeNodePrices,
    demands_of,
    idle_retention,
    stopped_retention,
    with_boots_at_changes,
)
from policies.optimum.boa import solve
from policies.speedup import Table

BOOT = 0.05
prices = st.floats(min_value=1e-3, max_value=1e3)
rates = st.floats(min_value=0.0, max_value=1e3)


def some_nodes(*, startup: float = 0.01, rescale: float = 0.01, boot: float = BOOT) -> WholeNodePrices:
    """Return a class of two phases with speeds 1, 1.8, 3, 5 on 1, 2, 4, 8 GPUs, boots in its start-up."""
    curve = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 3.0, 5.0))
    problem = a_problem(
        a_class(sizes=(1.0, 2.0), curve=curve, startup_hours=startup + boot, rescale_hours=rescale)
    )
    return WholeNodePrices.of(problem, solve(problem, 6.0), {"gpu": an_instance_type()}, boot_hours=boot)


@given(price=prices, jobs=rates, nodes=rates, gpus=st.sampled_from([1, 2, 8]))
def test_the_number_of_idle_nodes_is_the_best_whole_number(
    price: float, jobs: float, nodes: float, gpus: int
) -> None:
    """The number or the next one costs the least, in idle time and unmet demands.

    Lent GPUs count as an idle node only where a node has several GPUs.
    """
    price = max(price, LEAST_NODE_PRICE)

    def cost(n: float) -> float:
        return price * n / 2.0 + BOOT * (jobs + price * nodes) / (n + 1.0)

    n = idle_retention(
        price,
        NodeDemand(weighted_jobs_per_hour=jobs, nodes_per_hour=nodes),
        boot_hours=BOOT,
        weight=1.0,
        gpus_of_node=gpus,
    ).nodes
    assert n >= 0
    ready = n + (LENT_NODES if gpus > 1 else 0)
    assert min(cost(ready), cost(ready + 1)) <= cost(ready + 2) + 1e-9
    if n > 0:
        assert min(cost(ready), cost(ready + 1)) <= cost(ready - 1) + 1e-9


@pytest.mark.parametrize("gpus", [1, 4])
def test_nodes_without_boot_time_are_not_kept_idle(gpus: int) -> None:
    """With a longer boot more nodes are kept idle, for a longer time."""
    demand = NodeDemand(weighted_jobs_per_hour=50.0, nodes_per_hour=50.0)
    holds = [
        idle_retention(0.1, demand, boot_hours=boot, weight=1.0, gpus_of_node=gpus)
        for boot in (0.0, 0.9, 1.0, 1.1)
    ]
    assert holds[0] == NodeRetention(nodes=0, seconds=0.0)
    assert 0 < holds[1].nodes <= holds[2].nodes <= holds[3].nodes
    assert 0.0 < holds[1].seconds <= holds[2].seconds <= holds[3].seconds


@given(price=prices, weight=st.floats(min_value=0.1, max_value=10.0))
def test_an_idle_node_costs_no_more_than_the_boot_and_the_wait_that_it_may_save(
    price: float, weight: float
) -> None:
    """The ski-rental bound: price x hold is at most boot x (price + weight); the hold is within its limit."""
    held = (
        idle_retention(
            price, NodeDemand(nodes_per_hour=50.0), boot_hours=BOOT, weight=weight, gpus_of_node=4
        ).seconds
        / 3600.0
    )

    assert max(price, LEAST_NODE_PRICE) * held <= BOOT * (max(price, LEAST_NODE_PRICE) + weight) * (
        1.0 + 1e-9
    )
    assert held <= LONGEST_HOLD_HOURS


@given(cheap=prices, factor=st.floats(min_value=1.0, max_value=100.0))
def test_a_higher_price_keeps_fewer_nodes_idle_for_less_time(cheap: float, factor: float) -> None:
    """The number and the seconds fall as the price of a node rises."""
    demand = NodeDemand(weighted_jobs_per_hour=20.0, nodes_per_hour=40.0)
    low, high = (
        idle_retention(p, demand, boot_hours=BOOT, weight=1.0, gpus_of_node=4)
        for p in (cheap, cheap * factor)
    )

    assert high.nodes <= low.nodes
    assert high.seconds <= low.seconds


def test_without_boots_no_node_is_kept_idle_and_no_job_waits() -> None:
    """A node that comes at once is never worth keeping."""
    nodes = some_nodes(boot=0.0)

    assert nodes.hold("gpu") == NodeRetention(nodes=0, seconds=0.0)
    assert nodes.patience_hours("gpu") == 0.0


def test_patience_grows_with_the_price_of_money_up_to_three_boots() -> None:
    """b (1 + mu P): one boot at mu = 0, 1.5 boots at P = 4 and mu = 1/8, and at most three."""
    nodes = some_nodes()
    patience = [nodes.priced(mu).patience_hours("gpu") for mu in (0.0, 0.125, 100.0)]

    assert patience == pytest.approx([BOOT, 1.5 * BOOT, MOST_PATIENCE * BOOT])


def test_hours_left_are_those_of_all_phases_at_the_width_held() -> None:
    """Half of phase 0 and all of phase 1, at speed 3, twice the size: 2 (0.5 + 2) / 3 hours."""
    job = a_job(phase=0, remaining_gpu_hours=5.0, scale=2.0, width=Width("gpu", 4))

    assert some_nodes().hours_left(job) == pytest.approx(5.0 / 3.0)
    assert some_nodes().hours_left(replace(job, width=None)) == math.inf


def test_a_head_start_takes_the_fastest_width_that_fits() -> None:
    """With three GPUs free a job that is planned at eight starts on two."""
    assert some_nodes().head_start(a_job(), Width("gpu", 8), most_gpus=3, wait_hours=BOOT) == Width("gpu", 2)


def test_a_head_start_has_to_outweigh_the_restart() -> None:
    """A head start saves 0.0144 h of work and 0.01 h of start-up; a restart of 0.03 h costs more."""
    job, then = a_job(), Width("gpu", 8)

    assert some_nodes(rescale=0.02).head_start(job, then, most_gpus=3, wait_hours=BOOT) is not None
    assert some_nodes(rescale=0.03).head_start(job, then, most_gpus=3, wait_hours=BOOT) is None


def test_no_head_start_is_shorter_than_the_start_up_or_as_wide_as_planned() -> None:
    """Without time beyond the start-up no work would be done."""
    nodes, job = some_nodes(), a_job()

    assert nodes.head_start(job, Width("gpu", 8), most_gpus=4, wait_hours=0.005) is None
    assert nodes.head_start(job, Width("gpu", 1), most_gpus=4, wait_hours=BOOT) is None


def test_demand_counts_starts_and_growth() -> None:
    """One job per hour that starts at 1 GPU and grows to 4: a quarter of a node, then three quarters."""
    slow = Table(gpus=(1, 4), speeds=(1.0, 1.001))
    fast = Table(gpus=(1, 4), speeds=(1.0, 3.99))
    first, second = a_class(curve=slow), a_class(sizes=(2.0,), curve=fast)
    problem = a_problem(replace(first, phases=first.phases + second.phases))
    demand = demands_of(problem, solve(problem, 3.1), {"gpu": an_instance_type()})["gpu"]

    assert demand.weighted_jobs_per_hour == pytest.approx(1.0)
    assert demand.nodes_per_hour == pytest.approx(0.25 + 0.75)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_change_of_gpu_type_needs_all_gpus_anew(names: tuple[str, str]) -> None:
    """4 GPUs of one type, then 4 of another, in any order of names: a node of each per job."""
    first, second = (
        replace(a_class().phases[0], speedups={name: Table(gpus=(4,), speeds=(4.0,))}) for name in names
    )
    types = tuple(GpuType(name=name, usd_per_gpu_hour=1.0) for name in names)
    job_class = replace(a_class(), phases=(first, second))
    problem = Problem(classes=(job_class,), gpu_types=types, budget_unit="usd_per_hour")
    machines = {name: an_instance_type(gpu_type=name) for name in names}
    demand = demands_of(problem, solve(problem, 100.0), machines)

    assert [demand[name].nodes_per_hour for name in names] == pytest.approx([1.0, 1.0])


def test_changes_of_width_are_charged_half_a_boot_in_the_plan() -> None:
    """0.01 h of rescale and half of 0.05 h; without boots the problem is the same object."""
    problem = a_problem(a_class(rescale_hours=0.01))

    assert with_boots_at_changes(problem, BOOT).classes[0].rescale_hours == pytest.approx(0.01 + 0.5 * BOOT)
    assert with_boots_at_changes(problem, 0.0) is problem


def test_one_gpu_nodes_keep_one_idle_node_more() -> None:
    """On nodes of several GPUs lent GPUs stand in for one idle node."""
    busy = {"gpu": NodeDemand(weighted_jobs_per_hour=20.0, nodes_per_hour=40.0)}
    several = replace(some_nodes().priced(0.01), demands=busy)
    single = replace(several, node_gpus={"gpu": 1})

    assert several.node_gpus == {"gpu": an_instance_type().gpus}
    assert single.hold("gpu").nodes == several.hold("gpu").nodes + 1
    assert several.hold("gpu").nodes >= 1


@given(price=prices, jobs=rates, nodes=rates, share=st.floats(1e-3, 0.5), idle=st.integers(0, 3))
def test_the_number_of_stopped_nodes_or_the_next_is_the_best(
    price: float, jobs: float, nodes: float, share: float, idle: int
) -> None:
    """The cost is that of a disk, and the gain is the part of a boot that is saved."""
    price = max(price, LEAST_NODE_PRICE)
    saved = 0.03

    def cost(n: float) -> float:
        return price * share * n / 2.0 + saved * (jobs + price * nodes) / (n + 1.0)

    demand = NodeDemand(weighted_jobs_per_hour=jobs, nodes_per_hour=nodes)
    n = stopped_retention(price, demand, saved_hours=saved, share=share, weight=1.0, idle_nodes=idle).nodes
    if n > 0:
        beside = n + idle
        assert cost(beside) <= cost(beside - 1) * (1.0 + 1e-9)
        assert cost(beside + 1) <= cost(beside + 2) * (1.0 + 1e-9)


def test_a_stopped_node_stays_until_its_disk_has_cost_what_it_may_save() -> None:
    """Half a boot saves 0.025 h of waiting and of rent; a node that saves nothing is not kept."""
    demand = NodeDemand(weighted_jobs_per_hour=10.0, nodes_per_hour=10.0)
    hold = stopped_retention(2.0, demand, saved_hours=0.025, share=0.01, weight=1.0, idle_nodes=0)
    assert hold.seconds == pytest.approx(3600.0 * 0.025 * (1.0 + 2.0) / (2.0 * 0.01))
    assert hold.nodes == math.floor(math.sqrt(2.0 * 0.025 * 30.0 / 0.02) - 1.0)

    nothing = stopped_retention(2.0, demand, saved_hours=0.0, share=0.01, weight=1.0, idle_nodes=0)
    assert nothing == NodeRetention(nodes=0, seconds=0.0)


def test_more_nodes_are_kept_stopped_than_idle() -> None:
    """Both save a whole boot, and a disk is cheaper than a node."""
    nodes = some_nodes().priced(1.0)
    assert nodes.warm("gpu", saved_hours=BOOT, share=0.005).nodes > nodes.hold("gpu").nodes


def test_hours_left_are_of_the_job_as_it_is_now() -> None:
    """A job that has progressed is computed again; a waiting job has infinite hours left."""
    nodes = some_nodes()
    begun = a_job("a", width=Width("gpu", 2), remaining_gpu_hours=3.0)
    later = replace(begun, remaining_gpu_hours=2.5)
    assert nodes.hours_left(begun) - nodes.hours_left(later) == pytest.approx(0.5 / 1.8)
    assert nodes.hours_left(replace(begun, width=None)) == math.inf


def test_hours_of_sending_are_a_share_of_the_hours_left_times_their_worth() -> None:
    """The share is measured or follows from the network of the class; without both, or a width, it is 0."""
    curve = Table(gpus=(1, 2), speeds=(1.0, 1.8))
    need = AllReduce(message_bytes=1e7, compute_seconds=0.1)
    problems = [a_problem(a_class(curve=curve, network=network)) for network in (None, need)]
    plain, sends = (
        WholeNodePrices.of(problem, solve(problem, 6.0), {"gpu": an_instance_type()}, boot_hours=BOOT)
        for problem in problems
    )
    job = a_job(width=Width("gpu", 2))
    worth = 1.0 + plain.multiplier * 2.0

    def sending(of: WholeNodePrices, share: float | None) -> float:
        return of.hours_sending(job, share=share, gigabits=10.0, hours_left=3.0)

    assert sending(plain, 0.25) == pytest.approx(3.0 * 0.25 * worth)
    assert sending(plain, None) == 0.0
    assert (plain.knows_messages, sends.knows_messages) == (False, True)
    assert sends.hours_sending(a_job(), share=0.25, gigabits=10.0, hours_left=3.0) == 0.0
    share = network_share(Link.of_gigabits(10.0), need)
    assert 0.0 < share < 1.0
    assert sending(sends, None) == pytest.approx(3.0 * share * worth)


def test_a_width_that_is_no_faster_than_a_narrower_one_is_on_no_menu() -> None:
    """Speeds 1, 3 and 2 on 1, 2 and 4 GPUs."""
    curve = Table(gpus=(1, 2, 4), speeds=(1.0, 3.0, 2.0))
    problem = a_problem(a_class(curve=curve))
    nodes = WholeNodePrices.of(problem, solve(problem, 6.0), {"gpu": an_instance_type()}, boot_hours=BOOT)
    claims = nodes.claims([a_job()], [Width("gpu", 4)], size_per_gpu={"gpu": 1.0}, now=0.0)
    assert [width.gpus for width in claims.menus[0].widths] == [1, 2]


@pytest.mark.parametrize(
    ("held", "like"),
    [("gpu@spot 1", 1), ("gpu@spot 2", 2), ("gpu@spot 3", 2), ("gpu@spot 64", 8)],
)
@pytest.mark.parametrize("phase", [0, 1])
def test_a_width_that_the_plan_no_longer_offers_is_claimed_as_it_is(held: str, like: int, phase: int) -> None:
    """The job runs where its class has no width any more, as after a plan without spot."""
    curve = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 3.0, 5.0))
    problem = a_problem(a_class(sizes=(1.0, 2.0), curve=curve))
    spot = an_instance_type(gpu_type="gpu@spot", usd_per_gpu_hour=0.3)
    kinds = {"gpu": an_instance_type(), "gpu@spot": spot}
    nodes = WholeNodePrices.of(problem, solve(problem, 6.0), kinds, boot_hours=BOOT)
    name, gpus = held.split()
    width, offered = Width(name, int(gpus)), Width("gpu", like)
    sizes = {"gpu": 1.0, "gpu@spot": 1.0}
    claims = nodes.claims(
        [a_job(width=width, phase=phase), a_job(width=offered, phase=phase)],
        [width, offered],
        size_per_gpu=sizes,
        now=0.0,
    )
    mine, known = (claims.menus[number] for number in claims.menu.tolist())
    assert (mine.widths, mine.speeds[0]) == ((width,), known.speeds[-1])
    assert claims.held.tolist()[0] == 0
    assert np.isfinite(claims.work).all()


@pytest.mark.parametrize(("per_hour", "stretches"), [(0.0, True), (0.01, True), (1e6, False)])
def test_spare_gpus_are_lent_only_where_arrivals_are_rare(per_hour: float, stretches: bool) -> None:
    """Without arrivals GPUs stay lent for ever; with an arrival at every instant no restart pays."""
    nodes = some_nodes(rescale=0.05)
    demand = NodeDemand(weighted_jobs_per_hour=per_hour, nodes_per_hour=1.0)
    nodes = replace(nodes, demands={"gpu": demand})
    job = a_job(width=Width("gpu", 1), remaining_gpu_hours=3.0)
    found = nodes.stretch(job, Width("gpu", 1), most_gpus=4, hours_left=3.0)
    assert (found is not None) is stretches
    claims = nodes.claims([job], [Width("gpu", 4)], size_per_gpu={"gpu": 1.0}, now=0.0)
    lasts = math.inf if per_hour == 0.0 else pytest.approx(LENT_ARRIVALS / per_hour)
    assert claims.lasts_hours.tolist() == [lasts]


@pytest.mark.parametrize(
    ("price", "weight", "gpus", "nodes", "seconds"),
    [
        # The root of 2 x 0.05 x (10 + 10 P) / P, 11 at P = 0.1, less one, and less one lent node.
        (0.1, 1.0, 8, 1, 0.05 * 11.0),
        (0.1, 1.0, 2, 1, 0.05 * 11.0),
        (0.1, 1.0, 1, 2, 0.05 * 11.0),
        (0.1, 2.0, 1, 2, 1.0),
        # A price of 0 counts as a hundredth of an hour, and no node is kept idle for more than an hour.
        (0.0, 0.1, 1, 9, 0.05 * 11.0),
        (0.0, 1.0, 1, 9, 1.0),
        (1e4, 1.0, 1, 0, 0.05 * 1.0001),
    ],
)
def test_idle_retention_by_price_and_weight(
    price: float, weight: float, gpus: int, nodes: int, seconds: float
) -> None:
    """The number is the square root of savings (boots and waits) over the cost of an idle node."""
    demand = NodeDemand(weighted_jobs_per_hour=10.0, nodes_per_hour=10.0)
    found = idle_retention(price, demand, boot_hours=0.05, weight=weight, gpus_of_node=gpus)
    assert found.nodes == nodes
    assert found.seconds == pytest.approx(3600.0 * seconds)


def test_a_disk_has_a_least_cost_where_money_has_no_price() -> None:
    """A node-hour counts as at least 0.01 hours, and its disk as at least a ten-thousandth of that."""
    demand = NodeDemand(weighted_jobs_per_hour=10.0, nodes_per_hour=10.0)
    for price, share, disk in ((0.0, 0.0, 1e-6), (0.0, 0.5, 5e-3), (4.0, 1e-7, 1e-6), (4.0, 0.5, 2.0)):
        at_least = max(price, 0.01)
        found = stopped_retention(price, demand, saved_hours=0.02, share=share, weight=1.5, idle_nodes=1)
        expected = math.floor(math.sqrt(2.0 * 0.02 * (10.0 + 10.0 * at_least) / disk) - 1.0 - 1)
        assert found.nodes == max(expected, 0)
        assert found.seconds == pytest.approx(3600.0 * 0.02 * (1.5 + at_least) / disk)


@pytest.mark.parametrize(
    ("phase", "widths", "wait", "rescale", "width"),
    [
        (0, (8, 4), 0.05, 0.01, 4),
        (0, (8, 8), 0.05, 0.01, 4),
        (0, (4, 4), 0.05, 0.01, 2),
        (0, (8, 1), 0.05, 0.01, 1),
        (0, (8, 0), 0.05, 0.01, None),
        # (wait - 0.01) x 3 / 5 has to exceed the time of the restart beyond the start-up.
        (0, (8, 4), 0.0099, 0.0, None),
        (0, (8, 4), 0.01, 0.0, None),
        (0, (8, 4), 0.0101, 0.0, 4),
        (0, (8, 4), 0.0599, 0.04, None),
        (0, (8, 4), 0.0601, 0.04, 4),
        # Later phases have no start-up.
        (1, (8, 4), 0.0666, 0.04, None),
        (1, (8, 4), 0.0667, 0.04, 4),
    ],
)
def test_the_width_of_a_head_start_near_its_thresholds(
    phase: int, widths: tuple[int, int], wait: float, rescale: float, width: int | None
) -> None:
    """`widths` are planned and free: the widest below both, where it gains more than the restart costs."""
    then, most = widths
    found = some_nodes(rescale=rescale).head_start(
        a_job(phase=phase), Width("gpu", then), most_gpus=most, wait_hours=wait
    )
    assert (None if found is None else found.gpus) == width


def test_claims_have_the_menu_the_work_and_the_overdue_time_of_each_job() -> None:
    """Two phases of 1 and 2 GPU-hours with speeds 1, 1.8, 3, 5; one job has waited, one is half done."""
    nodes = some_nodes(startup=0.01, rescale=0.03).priced(0.25)
    waits = a_job("a", phase=0, remaining_gpu_hours=6.0, scale=2.0, arrived_at=0.0)
    half = a_job("b", phase=1, remaining_gpu_hours=1.0, width=Width("gpu", 2), arrived_at=7200.0)
    other = a_job("c", phase=1, remaining_gpu_hours=0.0, width=Width("gpu", 8), arrived_at=3600.0)
    claims = nodes.claims(
        [waits, half, other, replace(waits, id="d")],
        [Width("gpu", width) for width in (4, 4, 2, 4)],
        size_per_gpu={"gpu": 0.5},
        now=3600.0,
    )

    assert claims.menu.tolist() == [0, 1, 2, 0]
    assert [[width.gpus for width in menu.widths] for menu in claims.menus] == [[1, 2, 4], [1, 2, 4], [1, 2]]
    assert claims.menus[0].speeds == pytest.approx((1.0, 1.8, 3.0))
    assert claims.menus[1].speeds == pytest.approx((0.5, 0.9, 1.5))
    assert claims.held.tolist() == [-1, 1, -1, -1]
    assert claims.work == pytest.approx([2.0 * (1.0 + 2.0), 0.5, 1e-12, 2.0 * (1.0 + 2.0)])
    assert claims.size_per_gpu.tolist() == [0.5] * 4
    assert claims.money_per_gpu == pytest.approx([0.25] * 4)
    assert claims.restart_hours == pytest.approx([0.03] * 4)
    assert claims.weight.tolist() == [1.0] * 4
    alone = [2.0 * 3.0 / 3.0 + 0.06, 1.0 * 3.0 / 3.0 + 0.06, 3.0 / 1.8 + 0.06]
    assert claims.overdue == pytest.approx([0.1 / alone[0], 0.0, 0.0, 0.1 / alone[0]])


def test_nodes_are_priced_in_the_unit_of_the_budget() -> None:
    """A node costs 7 USD, or 4 where GPUs are counted; the weight is a mean over arrivals."""
    curve = Table(gpus=(1, 2), speeds=(1.0, 1.8))
    classes = (
        a_class("a", curve=curve, weight=1.0, arrivals_per_hour=3.0),
        a_class("b", curve=curve, weight=5.0, arrivals_per_hour=1.0),
    )
    kinds = {"gpu": replace(an_instance_type(), usd_per_hour=7.0)}
    for unit, price in (("usd_per_hour", 7.0), ("gpus", 4.0)):
        problem = replace(a_problem(*classes), budget_unit=unit)
        nodes = WholeNodePrices.of(problem, solve(problem, 12.0), kinds, boot_hours=BOOT).priced(2.0)
        assert nodes.weight == (3.0 * 1.0 + 1.0 * 5.0) / 4.0
        assert nodes.node_worth("gpu") == 2.0 * price
        assert nodes.at_part({"gpu": 0.5}).node_worth("gpu") == price
        assert nodes.at_part({"none": 0.5}).node_worth("gpu") == 2.0 * price
        assert nodes.demands["gpu"].weighted_jobs_per_hour == pytest.approx(3.0 * 1.0 + 1.0 * 5.0)
        assert nodes.priced(0.05).patience_hours("gpu") == pytest.approx(BOOT * (1.0 + 0.05 * price / 2.0))


def test_hours_left_are_cached_for_a_limited_number_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same job object is served from the cache; beyond the limit the cache is emptied."""
    monkeypatch.setattr(node_prices, "MOST_KNOWN", 2)
    nodes = some_nodes()
    jobs = [a_job(name, width=Width("gpu", 1), remaining_gpu_hours=3.0) for name in "abc"]
    for job, known in zip(jobs, ({"a"}, {"a", "b"}, {"c"}), strict=True):
        assert nodes.hours_left(job) == 3.0
        assert set(nodes.known_left) == known
    nodes.known_left["c"] = jobs[2], 42.0
    assert nodes.hours_left(jobs[2]) == 42.0
    assert nodes.hours_left(replace(jobs[2])) == 3.0
