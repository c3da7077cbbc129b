"""Jobs go to what can be had of several machines with the same GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.sim.world_settings import Stock, WorldSettings
from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import Ideal, a_job, a_node, a_state, a_trace, some_slots
from boa_daemon.tick.actions import LaunchNodes
from boa_daemon.tick.controller import Controller, Ports
from boa_daemon.tick.decision import decide
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.offers import Cooldown, Offer
from boa_daemon.tick.ports import Launched, Refused, Unknown
from boa_daemon.tick.stages.change_machine import change_machine
from boa_daemon.tick.state import ClusterState, Plan, Rules
from policies.model import Budget, GpuType, InstanceType, Job, JobClass, Phase, Problem, Width
from policies.placement.first_fit import FirstFit
from policies.registry import PolicyOptions, Site, build_policy
from policies.speedup import Table

LARGE = InstanceType(name="l4", gpu_type="t4", gpus=4, usd_per_hour=4.0)
SMALL = InstanceType(name="s1", gpu_type="t4@s1", gpus=1, usd_per_hour=0.5)
MACHINES = {"t4": LARGE, "t4@s1": SMALL}
CLOSED = {"s1": Cooldown(until=1e9)}


def a_site(width: int = 1, *, machines: dict[str, InstanceType] | None = None) -> Site:
    """Return a class of two widths, the same on each machine, and a budget that pays for the narrow one."""
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
    """Return a job that follows the plan of nearly all."""
    return a_job(name, draw=0.5, **{"remaining_gpu_hours": 4.0, **changes})


def plan_of(state: ClusterState, site: Site | None = None) -> Plan:
    """Return the plan of the fixed policy."""
    site = site or a_site()
    allocator = build_policy("boa", site, PolicyOptions()).allocator
    rules = Rules(instance_types=site.instance_types)
    return decide(state, allocator=allocator, placer=FirstFit(), rules=rules).plan


def test_a_job_of_one_gpu_is_rented_a_machine_with_one() -> None:
    """The plan's option says which machine is launched."""
    assert plan_of(a_state(the_job())).launches == {"s1": 1}


def test_a_machine_without_stock_gives_way_to_the_next_best() -> None:
    """A part of the large machine is rented instead, and `explain` says why."""
    plan = plan_of(a_state(the_job(), cooldowns=CLOSED))

    assert plan.launches == {"l4": 1}
    assert plan.widths == {"a": Width("t4", 1)}
    assert "no stock or no quota" in plan.reasons["a"]


def test_a_gang_goes_to_the_other_machine_as_a_whole() -> None:
    """Four nodes of one GPU are refused: one node of four is rented."""
    assert plan_of(a_state(the_job()), a_site(4)).gangs == {"s1": (4,)}
    assert plan_of(a_state(the_job(), cooldowns=CLOSED), a_site(4)).launches == {"l4": 1}


def test_what_is_free_or_comes_of_the_planned_machine_is_used_first() -> None:
    """Two jobs and one free node of the closed machine: the first takes it, the second goes elsewhere."""
    state = a_state(the_job("a"), the_job("b"), nodes=[a_node("n1", kind=SMALL)], cooldowns=CLOSED)
    plan = plan_of(state)

    assert plan.slots == {"a": some_slots("n1", 0)}
    assert (plan.widths["b"], plan.launches) == (Width("t4", 1), {"l4": 1})


@pytest.mark.parametrize(("hours_left", "moves"), [(4.0, True), (0.05, False)])
def test_it_comes_back_when_that_pays(hours_left: float, moves: bool) -> None:
    """On the dear machine with much left it moves once there is stock; with three minutes left it stays."""
    state = a_state(
        the_job(remaining_gpu_hours=hours_left),
        nodes=[a_node("n1", kind=LARGE)],
        held={"a": some_slots("n1", 0)},
    )

    assert plan_of(replace(state, cooldowns=CLOSED)).widths["a"].gpu_type == "t4", "there is no stock yet"
    assert plan_of(state).widths["a"].gpu_type == ("t4@s1" if moves else "t4")


def test_one_machine_per_gpu_leaves_the_draft_as_it_is() -> None:
    """Whatever is closed: it is the very same draft."""
    site = a_site(machines={"t4@s1": SMALL})
    allocator = build_policy("boa", site, PolicyOptions()).allocator
    state = a_state(the_job(), cooldowns=CLOSED)
    draft = Draft(rules=Rules(instance_types=site.instance_types), allocator=allocator, placer=FirstFit())
    draft = replace(draft, allocation=allocator.allocate([state.jobs["a"].job], now=0.0))

    assert change_machine(state, draft) is draft


class NoSmall(Ideal):
    """A cloud without small machines."""

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Refuse one type."""
        if action.instance_type.name == "s1":
            return Refused(reason="none left", kind="no-capacity")
        return super().launch(action)


def test_after_a_refusal_the_next_tick_follows_at_once() -> None:
    """The tick that is refused asks for another within a second, and that one rents the other machine."""
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


def test_a_whole_run_waits_less_than_for_the_stock_to_come() -> None:
    """No small machine for ten hours: jobs of four hours end on the large one before there is any."""
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


def test_a_gang_needs_its_room_in_one_order() -> None:
    """Three nodes by quota, said of each of three zones: four nodes together go to the other machine."""
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
    """Return the mean JCT of four jobs of two or four GPUs, ten minutes apart."""
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


def test_a_quota_said_of_three_zones_holds_nobody_up() -> None:
    """Three nodes: the second job of two takes the large machine at once, in three zones as in one."""
    one_zone = waits_hours(MACHINES, WorldSettings(quotas={"s1": 3}), budget=2.0)
    three = WorldSettings(zones=("a", "b", "c"), quotas={"s1": 3})
    assert waits_hours(MACHINES, three, budget=2.0) == pytest.approx(one_zone)


@pytest.mark.parametrize("zones", [(), ("a", "b", "c")])
def test_where_a_gang_is_refused_the_job_is_narrower_at_once(zones: tuple[str, ...]) -> None:
    """Three nodes for two days, the plan wants four together: jobs of two hours run on two, and soon."""
    world = WorldSettings(zones=zones, stock={"s1": Stock(path=((0.0, 3), (172_800.0, 100)))})
    assert waits_hours({"t4@s1": SMALL}, world, budget=9.0) < (6.0 if not zones else 3.0)


def test_what_has_no_choice_is_passed_over() -> None:
    """A job without a width, one that stops, one on a machine of another family, one whose node ends."""
    large = a_node("n1", kind=LARGE)
    held = {"a": some_slots("n1", 0)}
    state = a_state(the_job(), nodes=[large], held=held, cooldowns=CLOSED)
    assert plan_of(state).widths["a"].gpu_type == "t4"
    leaving = replace(
        state, nodes={"n1": replace(large, gpus=("a", None, None, None), ends_by=600.0, idle_since=None)}
    )
    assert plan_of(leaving).launches == {"l4": 1}, "it needs a node anyway, and there is no small one"
    stopping = replace(state, jobs={"a": replace(state.jobs["a"], is_stopping=True)})
    assert plan_of(stopping).reasons.get("a", "") != plan_of(state).reasons["a"]
    other = InstanceType(name="h1", gpu_type="h100", gpus=1, usd_per_hour=9.0)
    elsewhere = a_state(
        the_job(), nodes=[a_node("n1", kind=other)], held={"a": some_slots("n1", 0)}, cooldowns=CLOSED
    )
    assert plan_of(elsewhere).widths["a"] == Width("t4@s1", 1)
