"""A job moves to another machine with the same GPU if its own machine is unavailable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.sim.world_settings import Stock, WorldSettings
from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import Ideal, a_job, a_node, a_state, a_trace, some_slots
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.offers import Cooldown, Offer, RefusalKind
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.ports import Launched, Refused, Unknown
from boa_daemon.tick.facts.state import ClusterState, Rules, Transfer
from boa_daemon.tick.stages.widths.change_machine import change_machine
from policies.model import Budget, GpuType, InstanceType, Job, JobClass, Phase, Problem, Width
from policies.placement.first_fit import FirstFit
from policies.registry import PolicyOptions, Site, build_policy
from policies.speedup import Table

LARGE = InstanceType(name="l4", gpu_type="t4", gpus=4, usd_per_hour=4.0)
SMALL = InstanceType(name="s1", gpu_type="t4@s1", gpus=1, usd_per_hour=0.5)
MACHINES = {"t4": LARGE, "t4@s1": SMALL}
CLOSED = {"s1": Cooldown(until=1e9)}


def a_site(width: int = 1, *, machines: dict[str, InstanceType] | None = None) -> Site:
    """Return a job class with two widths, the same on each machine, and a budget for the narrow one."""
    kinds = machines or MACHINES
    curve = Table(gpus=(width, 2 * width), speeds=(float(width), 1.5 * width))
    phase = Phase(size_gpu_hours=4.0, speedups=dict.fromkeys(kinds, curve))
    return Site(
        problem=Problem(
            classes=(JobClass(name="c", phases=(phase,), arrivals_per_hour=0.5, rescale_hours=0.1),),
            gpu_types=tuple(GpuType(name=k, usd_per_gpu_hour=m.usd_per_gpu_hour) for k, m in kinds.items()),
        ),
        budget=Budget(amount=1.001),
        instance_types=kinds,
    )


def the_job(name: str = "a", **changes: float) -> Job:
    """Return a job that draws the plan's most common option."""
    return a_job(name, draw=0.5, **{"remaining_gpu_hours": 4.0, **changes})


def plan_of(state: ClusterState, site: Site | None = None, **terms: Any) -> Plan:
    """Return the plan of the policy `boa`."""
    site = site or a_site()
    allocator = build_policy("boa", site, PolicyOptions()).allocator
    rules = Rules(instance_types=site.instance_types, **terms)
    return decide(state, allocator=allocator, placer=FirstFit(), rules=rules).plan


def test_a_job_of_one_gpu_gets_the_machine_with_one_gpu() -> None:
    """The plan's option decides which machine is rented."""
    assert plan_of(a_state(the_job())).launches == {"s1": 1}


def test_the_next_best_machine_is_rented_if_the_planned_one_has_no_stock() -> None:
    """The job gets one GPU of the large machine, and its reason names stock and quota."""
    plan = plan_of(a_state(the_job(), cooldowns=CLOSED))

    assert plan.launches == {"l4": 1}
    assert plan.jobs.widths == {"a": Width("t4", 1)}
    assert "no stock or no quota" in plan.jobs.reasons["a"]


def test_a_job_over_four_nodes_moves_to_one_node_of_the_other_machine() -> None:
    """If four nodes of one GPU are refused, one node of four GPUs is rented."""
    assert plan_of(a_state(the_job()), a_site(4)).gangs == {"s1": (4,)}
    assert plan_of(a_state(the_job(), cooldowns=CLOSED), a_site(4)).launches == {"l4": 1}


def test_free_nodes_of_the_planned_machine_are_used_first() -> None:
    """The first job takes the free node of the closed machine; the second gets the other machine."""
    state = a_state(the_job("a"), the_job("b"), nodes=[a_node("n1", kind=SMALL)], cooldowns=CLOSED)
    plan = plan_of(state)

    assert plan.jobs.slots == {"a": some_slots("n1", 0)}
    assert (plan.jobs.widths["b"], plan.launches) == (Width("t4", 1), {"l4": 1})


@pytest.mark.parametrize(("hours_left", "moves"), [(4.0, True), (0.05, False)])
def test_a_job_returns_to_the_cheaper_machine_if_much_work_is_left(hours_left: float, moves: bool) -> None:
    """Once there is stock, a job with four hours left moves; a job with three minutes left stays."""
    state = a_state(
        the_job(remaining_gpu_hours=hours_left),
        nodes=[a_node("n1", kind=LARGE)],
        held={"a": some_slots("n1", 0)},
    )

    assert plan_of(replace(state, cooldowns=CLOSED)).jobs.widths["a"].gpu_type == "t4", (
        "there is no stock yet"
    )
    assert plan_of(state).jobs.widths["a"].gpu_type == ("t4@s1" if moves else "t4")


def test_one_machine_per_gpu_leaves_the_draft_as_it_is() -> None:
    """With one machine for each GPU the stage returns the same draft, even if that machine is closed."""
    site = a_site(machines={"t4@s1": SMALL})
    allocator = build_policy("boa", site, PolicyOptions()).allocator
    state = a_state(the_job(), cooldowns=CLOSED)
    draft = Draft(rules=Rules(instance_types=site.instance_types), allocator=allocator, placer=FirstFit())
    draft = replace(draft, allocation=allocator.allocate([state.jobs["a"].job], now=0.0))

    assert change_machine(state, draft) is draft


class NoSmall(Ideal):
    """A cloud that refuses small machines."""

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Refuse the small machine."""
        if action.instance_type.name == "s1":
            return Refused(reason="none left", kind="no-capacity")
        return super().launch(action)


def test_the_tick_after_a_refusal_comes_within_a_second_and_rents_the_other_machine() -> None:
    """The refused tick wakes up after one second."""
    site, world = a_site(), NoSmall(a_state(the_job()))
    store = MemoryStore()
    controller = Controller(
        allocator=build_policy("boa", site, PolicyOptions()).allocator,
        placer=FirstFit(),
        rules=Rules(instance_types=site.instance_types),
        ports=Ports(clock=world.clock, cloud=world, jobs=world, engine=world, store=store),
    )

    assert controller.run_once().wake_at == 1.0
    world.clock.instant = 1.0
    controller.run_once()
    assert [node.instance_type.name for node in world.nodes_by_id.values()] == ["l4"]


def test_jobs_end_on_the_large_machine_before_the_small_one_has_stock() -> None:
    """The small machine has no stock for ten hours; the mean JCT stays below 4.2 h."""
    site = a_site()
    world = WorldSettings(stock={"s1": Stock(path=((0.0, 0), (36_000.0, 100)))})
    run = simulate(
        SimulationSettings(
            trace=a_trace(0.0, 600.0, 1200.0),
            problem=site.problem,
            instance_types=site.instance_types,
            budget=Budget(amount=2.0),
            world=world,
        )
    )

    assert run.finished == 3
    assert run.mean_jct_hours < 4.2


def test_a_job_over_several_nodes_needs_all_of_them_in_one_zone() -> None:
    """Three nodes of quota per zone are too few for four nodes; a job uses free nodes of one zone only."""
    offers = tuple(
        Offer(instance_type=kind.name, zone=zone, usd_per_hour=kind.usd_per_hour, nodes_left=left)
        for kind, left in ((SMALL, 3), (LARGE, None))
        for zone in "abc"
    )
    assert plan_of(a_state(the_job(), offers=offers), a_site(4)).launches == {"l4": 1}
    free = [replace(a_node(f"n{zone}", kind=SMALL), zone=zone) for zone in "abc"]
    scattered = plan_of(a_state(the_job(), nodes=free, offers=offers), a_site(2))
    assert scattered.launches == {"s1": 2}, "a job is inside one zone: three free nodes in three are no two"


def waits_hours(machines: dict[str, InstanceType], world: WorldSettings, *, budget: float) -> float:
    """Return the mean JCT of four jobs that arrive ten minutes apart."""
    site = a_site(2, machines=machines)
    return simulate(
        SimulationSettings(
            trace=a_trace(0.0, 600.0, 1200.0, 1800.0),
            problem=site.problem,
            instance_types=machines,
            budget=Budget(amount=budget),
            world=world,
        )
    ).mean_jct_hours


def test_a_quota_that_is_stated_for_each_of_three_zones_delays_no_job() -> None:
    """The mean JCT with a quota of three nodes is the same with one zone and with three."""
    one_zone = waits_hours(MACHINES, WorldSettings(quotas={"s1": 3}), budget=2.0)
    three = WorldSettings(zones=("a", "b", "c"), quotas={"s1": 3})
    assert waits_hours(MACHINES, three, budget=2.0) == pytest.approx(one_zone)


@pytest.mark.parametrize("zones", [(), ("a", "b", "c")])
def test_a_job_whose_four_nodes_are_refused_runs_on_two(zones: tuple[str, ...]) -> None:
    """Three nodes have stock for two days, yet the mean JCT is below 6 h (3 h with three zones)."""
    world = WorldSettings(zones=zones, stock={"s1": Stock(path=((0.0, 3), (172_800.0, 100)))})
    assert waits_hours({"t4@s1": SMALL}, world, budget=9.0) < (6.0 if not zones else 3.0)


def test_stopping_jobs_and_jobs_on_another_family_get_no_other_machine() -> None:
    """A job on the large machine stays on it; if its node ends, it gets another large machine."""
    large = a_node("n1", kind=LARGE)
    held = {"a": some_slots("n1", 0)}
    state = a_state(the_job(), nodes=[large], held=held, cooldowns=CLOSED)
    assert plan_of(state).jobs.widths["a"].gpu_type == "t4"
    leaving = replace(
        state, nodes={"n1": replace(large, gpus=("a", None, None, None), ends_by=600.0, idle_since=None)}
    )
    assert plan_of(leaving).launches == {"l4": 1}, "it needs a node anyway, and there is no small one"
    stopping = replace(state, jobs={"a": replace(state.jobs["a"], is_stopping=True)})
    assert plan_of(stopping).jobs.reasons.get("a", "") != plan_of(state).jobs.reasons["a"]
    other = InstanceType(name="h1", gpu_type="h100", gpus=1, usd_per_hour=9.0)
    elsewhere = a_state(
        the_job(), nodes=[a_node("n1", kind=other)], held={"a": some_slots("n1", 0)}, cooldowns=CLOSED
    )
    assert plan_of(elsewhere).jobs.widths["a"] == Width("t4@s1", 1)


NEAR = InstanceType(name="n1", gpu_type="t4@n1", gpus=1, usd_per_hour=0.6)
FAR = InstanceType(name="s1~eu-west-1", gpu_type="t4@far", gpus=1, usd_per_hour=0.55)


@pytest.mark.parametrize(
    ("gigabytes", "rented"), [(None, "s1~eu-west-1"), (1.0, "s1~eu-west-1"), (100.0, "n1")]
)
def test_a_checkpoint_that_is_dear_to_move_decides_between_two_machines(
    gigabytes: float | None, rented: str
) -> None:
    """Without the planned machine the cheaper one is far away; 100 GB cost 2 USD and half an hour."""
    site = a_site(machines={"t4@s1": SMALL, "t4@n1": NEAR, "t4@far": FAR})
    far = Transfer(usd_per_gb=0.02, gb_per_second=0.05, source="us-east-1")
    state = a_state(the_job(), cooldowns=CLOSED)
    job = state.jobs["a"]
    terms = replace(job.terms, checkpoint_gb=gigabytes)
    state = replace(state, jobs={"a": replace(job, terms=terms)})
    plan = plan_of(state, site, transfers={"t4@far": far})

    assert plan.launches == {rented: 1}
    said = "its checkpoint of 1 GB comes from us-east-1 for $0.02, in about 20 s"
    assert (said in plan.jobs.reasons["a"]) == (gigabytes == 1.0)


SLOW = InstanceType(name="v1", gpu_type="v100", gpus=1, usd_per_hour=0.2)
FAST = InstanceType(name="a1", gpu_type="a100", gpus=1, usd_per_hour=0.6)
DEAR = InstanceType(name="h1", gpu_type="h100", gpus=1, usd_per_hour=60.0)


def two_types(*machines: InstanceType) -> Site:
    """Return one class on several GPU types; the A100 is three times as fast as the others."""
    kinds = {machine.gpu_type: machine for machine in machines}
    speeds = {kind: Table(gpus=(1, 2), speeds=(3.0, 4.5) if kind == "a100" else (1.0, 1.5)) for kind in kinds}
    site = a_site(machines=kinds)
    (job_class,) = site.problem.classes
    phase = replace(job_class.phases[0], speedups=speeds)
    problem = replace(site.problem, classes=(replace(job_class, phases=(phase,)),))
    return replace(site, problem=problem, budget=Budget(amount=0.401))


def offer_of(machine: InstanceType, left: int | None = None) -> Offer:
    """Return an offer of a machine, of which so many more may be had."""
    return Offer(
        instance_type=machine.name,
        zone="a",
        market="on-demand",
        usd_per_hour=machine.usd_per_hour,
        nodes_left=left,
    )


CLOSINGS: dict[str, dict[str, Any]] = {
    "a quota of zero": {"offers": (offer_of(FAST, 0), offer_of(SLOW))},
    "a quota of zero, of two types": {"offers": (offer_of(FAST, 0), offer_of(DEAR, 0), offer_of(SLOW))},
    "not offered here": {"offers": (offer_of(SLOW),)},
    **{kind: {"cooldowns": {"a1": Cooldown(until=300.0, kind=kind)}} for kind in RefusalKind.__args__},
    "denied in its only zone": {
        "offers": (offer_of(FAST), offer_of(SLOW)),
        "cooldowns": {"a1/a": Cooldown(until=300.0, kind="denied")},
    },
}


LACKS = {
    "no-capacity": "has no stock or no quota now",
    "quota": "has no stock or no quota now",
    "denied": "is denied to the account",
    "bad-request": "is refused as it is asked for",
    "no-price": "has no price",
    "throttled": "cannot be asked for yet",
    "busy": "cannot be asked for yet",
}


@pytest.mark.parametrize("closing", CLOSINGS.values(), ids=list(CLOSINGS))
def test_a_waiting_job_takes_another_gpu_type_while_its_own_cannot_be_had(closing: dict[str, Any]) -> None:
    """The plan names the A100; without it the job gets the V100 in the same tick, and the reason says so."""
    site = two_types(SLOW, FAST, DEAR)
    assert plan_of(a_state(the_job()), site).launches == {"a1": 1}

    plan = plan_of(a_state(the_job(), **closing), site)

    assert set(plan.launches) == {"v1"}
    assert plan.jobs.widths["a"].gpu_type == "v100"
    kind = next((one.kind for one in closing.get("cooldowns", {}).values()), "quota")
    assert plan.jobs.reasons["a"] == f"the next best width: 1 x a100 {LACKS[kind]}"


@pytest.mark.parametrize(
    ("closing", "launches"),
    [
        ({"cooldowns": {"a1": Cooldown(until=300.0)}}, {}),
        ({"cooldowns": {"a1": Cooldown(until=300.0, kind="denied")}}, {"h1": 1}),
        ({"offers": (offer_of(FAST, 0), offer_of(DEAR))}, {"h1": 1}),
    ],
)
def test_a_far_dearer_gpu_is_no_way_out_of_a_short_wait(
    closing: dict[str, Any], launches: dict[str, int]
) -> None:
    """At a hundred times the price and a third of the speed a job waits for stock, but not for a person."""
    assert plan_of(a_state(the_job(), **closing), two_types(FAST, DEAR)).launches == launches


@pytest.mark.parametrize(("waited_hours", "launches"), [(4.4, {}), (4.5, {"v1": 2})])
def test_a_job_waits_for_stock_no_longer_than_pays(waited_hours: float, launches: dict[str, int]) -> None:
    """With m = 5/3 two V100 cost 8/3 (1 + 1.0 m) = 7.11 hours, one A100 4/3 (1 + 0.6 m) = 2.67."""
    job = the_job(arrived_at=-3600.0 * waited_hours)
    state = a_state(job, cooldowns={"a1": Cooldown(until=300.0)})

    assert plan_of(state, two_types(replace(SLOW, usd_per_hour=0.5), FAST)).launches == launches


def test_a_job_on_the_other_gpu_type_stays_while_its_own_is_closed_and_goes_back_then() -> None:
    """It is not told to leave for a GPU type that is closed; once that is open, the policy may move it."""
    site = two_types(SLOW, FAST)
    state = a_state(the_job(), nodes=[a_node("n1", kind=SLOW)], held={"a": some_slots("n1", 0)})

    stays = plan_of(replace(state, cooldowns={"a1": Cooldown(until=300.0)}), site)
    assert stays.jobs.widths["a"] == Width("v100", 1)
    assert "1 x a100 has no stock" in stays.jobs.reasons["a"]
    assert plan_of(state, site).jobs.widths["a"] == Width("a100", 1)


def test_the_last_node_of_the_planned_type_goes_to_the_first_in_order() -> None:
    """With one A100 left the job that is served first gets it; the later one takes a V100."""
    offers = (offer_of(FAST, 1), offer_of(SLOW))
    plan = plan_of(a_state(the_job("a"), the_job("b"), offers=offers), two_types(SLOW, FAST))

    assert plan.launches == {"a1": 1, "v1": 2}
    assert plan.jobs.widths["a"].gpu_type == "a100"
