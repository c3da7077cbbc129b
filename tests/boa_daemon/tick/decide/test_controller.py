"""`run_once()` observes, decides, records the intent, acts, and records the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import Ideal, Wishes, a_job, a_node, a_state, rules, some_slots, states
from boa_daemon.tick.decide.controller import ActsFailed, Controller, Ports
from boa_daemon.tick.facts.actions import Action, LaunchNodes, StartJob, StopJob
from boa_daemon.tick.facts.limits import Act, Caps, Steady
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.ports import Launched, Outcome, Refused, Unknown
from boa_daemon.tick.facts.state import ClusterState
from policies.answer import Allocation
from policies.model import Job, Width
from policies.online.pacing import Pace
from policies.placement.first_fit import FirstFit


def a_controller(world: Ideal, wishes: Any, store: MemoryStore | None = None, **changes: Any) -> Controller:
    """Return a controller of an ideal world."""
    ports = Ports(clock=world.clock, cloud=world, jobs=world, engine=world, store=store or MemoryStore())
    return Controller(allocator=wishes, placer=FirstFit(), rules=rules(), ports=ports, **changes)


class Spy(MemoryStore):
    """A store that logs the order of records."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def record_intents(self, actions: Sequence[Action], *, at: float) -> None:
        """Log the intents."""
        self.log += [f"intent {action.id}" for action in actions]
        super().record_intents(actions, at=at)

    def record_outcomes(self, outcomes: Sequence[tuple[Action, Outcome]], *, at: float) -> None:
        """Log the outcomes."""
        self.log += [f"outcome {action.id}" for action, _ in outcomes]
        super().record_outcomes(outcomes, at=at)


class Said:
    """Telemetry that keeps its sentences."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str, **numbers: float | str) -> None:
        """Keep the sentence."""
        self.sentences.append(sentence)


def test_the_intent_is_recorded_before_the_act_and_the_outcome_after() -> None:
    """After a crash in between, the next tick finds the intent."""
    world, spy = Ideal(a_state(a_job("a"))), Spy()

    def launch(action: LaunchNodes) -> Launched:
        spy.log.append(f"act {action.id}")
        return Ideal.launch(world, action)  # type: ignore[return-value]

    world.launch = launch  # type: ignore[method-assign]
    a_controller(world, Wishes(widths={"a": 4}), spy).run_once()

    name = "t1-launch-gpu-x4-0"
    assert spy.log == [f"intent {name}", f"act {name}", f"outcome {name}"]


def test_ticks_take_a_job_from_waiting_to_running() -> None:
    """The first tick rents a node, and the second starts the job."""
    world = Ideal(a_state(a_job("a")))
    controller = a_controller(world, Wishes(widths={"a": 4}))

    controller.run_once()
    controller.run_once()

    assert [type(action) for action in world.done] == [LaunchNodes, StartJob]
    assert controller.run_once().actions == ()


def test_a_launch_that_is_not_listed_yet_is_not_repeated_for_five_minutes() -> None:
    """The intent counts as the node while the listing lags."""
    world = Ideal(a_state(a_job("a")))
    controller = a_controller(world, Wishes(widths={"a": 4}))
    controller.run_once()
    world.nodes_by_id.clear()

    world.clock.instant = 299.0
    assert controller.run_once().actions == ()
    world.clock.instant = 301.0
    assert controller.run_once().actions == ()
    world.clock.instant = 400.0
    assert [type(action) for action in controller.run_once().actions] == [LaunchNodes]


def test_an_intent_without_outcome_counts_as_a_node_after_a_crash() -> None:
    """So nothing is rented twice."""
    world, store = Ideal(a_state(a_job("a"))), MemoryStore()
    intent = LaunchNodes(
        id="t0-launch-x", instance_type=rules().instance_types["gpu"], reason="before the crash"
    )
    store.record_intent(intent, at=0.0)

    decision = a_controller(world, Wishes(widths={"a": 4}), store).run_once()

    assert decision.actions == ()
    assert decision.state.nodes["t0-launch-x/0"].phase == "requested"


def test_a_refused_launch_is_repeated_after_the_time_that_the_cloud_named() -> None:
    """There is no capacity for 60 s: the next tick waits and sets a wake-up."""
    world = Ideal(a_state(a_job("a")), refuse=[LaunchNodes])
    controller = a_controller(world, Wishes(widths={"a": 4}))

    controller.run_once()
    world.clock.instant = 30.0
    second = controller.run_once()
    world.refuse = ()
    world.clock.instant = 60.0
    third = controller.run_once()

    assert (second.actions, second.wake_at) == ((), 60.0)
    assert [type(action) for action in third.actions] == [LaunchNodes]


def test_an_ended_node_is_billed_once() -> None:
    """A cloud lists ended nodes for a while."""
    store = MemoryStore()
    world = Ideal(a_state(nodes=[a_node("n1", idle_since=0.0)], now=3600.0))
    controller = a_controller(world, Wishes(widths={}), store)

    controller.run_once()
    controller.run_once()
    controller.run_once()

    assert store.settled_micro_dollars() == 4_000_000
    assert controller.observe().settled_micro_dollars == 4_000_000


def test_a_refusal_is_reported_with_its_reason() -> None:
    """The sentence names the action and the cloud's reason."""
    world = Ideal(a_state(a_job("a")), refuse=[LaunchNodes])
    controller = a_controller(world, Wishes(widths={"a": 4}))
    said = Said()

    replace(controller, ports=replace(controller.ports, telemetry=said)).run_once()

    assert said.sentences == ["t1-launch-gpu-x4-0: refused: no capacity"]


@given(case=states(), missed=st.integers(0, 5))
def test_later_ticks_finish_the_work_of_an_interrupted_tick(
    case: tuple[ClusterState, Wishes], missed: int
) -> None:
    """However many actions were done before the crash, all jobs end up at their widths.

    A launch whose answer was lost counts for five minutes; then it is requested again.
    """
    state, wishes = case
    world = Ideal(state)
    controller = a_controller(world, wishes)
    interrupted(controller, after=missed)
    for _ in range(10):
        world.clock.instant += 100.0
        world.ready_all()
        controller.run_once()

    held = {name: len(job.slots) for name, job in world.jobs_by_id.items()}
    assert held == {name: wishes.widths.get(name, 0) for name in held}


class Died(BaseException):
    """The end of the process: no code catches it."""


def interrupted(controller: Controller, *, after: int) -> None:
    """Carry out the first `after` actions of a tick, then crash."""
    world: Any = controller.ports.cloud
    budget = [after]
    originals = {name: getattr(world, name) for name in ("launch", "terminate", "start", "stop")}

    def limited(name: str) -> Any:
        def act(action: Any) -> Any:
            if not budget[0]:
                raise Died("the control node died")
            budget[0] -= 1
            return originals[name](action)

        return act

    for name in originals:
        setattr(world, name, limited(name))
    try:
        controller.run_once()
    except Died:
        pass
    finally:
        for name in originals:
            delattr(world, name)


class PerPhase:
    """An allocator that looks at one job at a time: two GPUs in phase 0, one later."""

    def allocate(self, jobs: Any, *, now: float, money: Any = None) -> Allocation:
        """Return the widths."""
        widths: Mapping[str, Width] = {job.id: Width("gpu", 2 if job.phase == 0 else 1) for job in jobs}
        return Allocation(widths=widths)


@pytest.mark.parametrize(
    ("is_job_by_job", "phase", "needs"), [(True, 0, False), (True, 1, True), (False, 0, True)]
)
def test_a_new_phase_needs_a_tick_unless_its_width_surely_stays(
    is_job_by_job: bool, phase: int, needs: bool
) -> None:
    """The width is known beforehand only if the policy looks at one job at a time."""
    controller = a_controller(Ideal(a_state()), PerPhase(), is_job_by_job=is_job_by_job)
    job: Job = a_job("a", phase=phase, width=Width("gpu", 2))

    assert controller.needs_tick(job) is needs


@pytest.mark.parametrize("reads_money", [True, False])
def test_only_an_allocator_that_reads_money_gets_it(reads_money: bool) -> None:
    """The computation of the money would look at every node."""
    told: list[Any] = []

    class Listens:
        def __init__(self) -> None:
            self.reads_money = reads_money

        def allocate(self, jobs: Any, *, now: float, money: Any = None) -> Allocation:
            told.append(money)
            return Allocation(widths={})

    a_controller(Ideal(a_state(a_job("a"))), Listens()).run_once()
    (money,) = told
    assert (money is not None) is reads_money


@pytest.mark.parametrize(
    ("is_still", "age", "needs"), [(True, 30.0, False), (True, 59.5, True), (False, 30.0, True)]
)
def test_between_rounds_a_new_phase_needs_no_tick_if_the_last_tick_had_no_actions(
    is_still: bool, age: float, needs: bool
) -> None:
    """Rounds take a minute; a tick is needed when the next round is due, or after actions."""
    store = MemoryStore()
    store.record_memory((1.0,), at=0.0)
    controller = a_controller(Ideal(a_state(now=age)), PerPhase(), store)
    rounds = replace(controller.rules, round_seconds=60.0)
    controller = replace(controller, rules=rounds, is_round_by_round=True)

    assert controller.needs_tick(a_job("a", phase=1), is_still=is_still) is needs


def test_a_refused_start_is_planned_again_in_the_next_tick() -> None:
    """The refusal is recorded as an outcome, and the job starts in the next tick."""
    world = Ideal(a_state(a_job("a"), nodes=[a_node("n1")]), refuse=[StartJob])
    controller = a_controller(world, Wishes(widths={"a": 2}))

    controller.run_once()
    world.refuse = ()
    controller.run_once()

    assert world.jobs_by_id["a"].slots == some_slots("n1", 0, 1)
    assert any(isinstance(outcome, Refused) for _, outcome, _ in controller.ports.store.outcomes)  # type: ignore[attr-defined]


class Links:
    """A link order that records its calls, or fails."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.followed: list[tuple[ClusterState, Plan]] = []

    def look(self) -> None:
        """Do nothing."""

    def follow(self, state: ClusterState, plan: Plan) -> None:
        """Record the state and the plan, or raise the fault."""
        if self.fault:
            raise OSError(self.fault)
        self.followed.append((state, plan))


def test_the_other_acts_are_done_if_one_act_raises() -> None:
    """Two starts and the gate fail: the error names the first failure, and the launch is still sent."""
    world = Ideal(a_state(a_job("a"), a_job("b"), a_job("c"), nodes=[a_node("n1")]))

    def start(action: StartJob) -> Refused:
        raise OSError(f"no way to {action.job}")

    world.start = start  # type: ignore[method-assign, assignment]
    controller, said = a_controller(world, Wishes(widths={"a": 1, "b": 1, "c": 4})), Said()
    ports = replace(controller.ports, telemetry=said, links=Links("the gate is gone"))
    with pytest.raises(
        ActsFailed, match=r"^an act failed: t1-start-a: OSError: no way to a \(and 2 more\)$"
    ) as found:
        replace(controller, ports=ports).run_once()

    assert set(found.value.decision.plan.jobs.slots) == {"a", "b"}
    assert [type(action) for action in world.done] == [LaunchNodes]
    outcomes = [outcome for _, outcome, _ in controller.ports.store.outcomes]  # type: ignore[attr-defined]
    assert outcomes[:2] == [Unknown(reason=f"OSError: no way to {job}") for job in "ab"]
    assert "no answer: OSError: no way to a" in said.sentences[0]
    with pytest.raises(
        ActsFailed, match=r"^an act failed: links could not be ordered: OSError: the gate is gone$"
    ):
        replace(a_controller(Ideal(a_state()), Wishes(widths={})), ports=ports).run_once()


def test_the_link_order_gets_the_state_and_the_plan_of_every_tick() -> None:
    """Both are those of the decision."""
    links, controller = Links(), a_controller(Ideal(a_state(a_job("a"))), Wishes(widths={"a": 4}))
    decision = replace(controller, ports=replace(controller.ports, links=links)).run_once()
    assert links.followed == [(decision.state, decision.plan)]


def test_a_partly_refused_launch_is_reported_with_its_count_and_reason() -> None:
    """One of two nodes came, and the sentence gives the reason for the other."""
    world, said = Ideal(a_state(a_job("a"))), Said()

    def launch(action: LaunchNodes) -> Launched:
        return Launched(nodes=("n1",), short=Refused(reason="the quota is full"))

    world.launch = launch  # type: ignore[method-assign]
    controller = a_controller(world, Wishes(widths={"a": 8}))
    replace(controller, ports=replace(controller.ports, telemetry=said)).run_once()
    assert said.sentences == ["t1-launch-gpu-x4-0: 1 of 2: the quota is full"]


def test_an_unlisted_node_has_the_zone_market_and_price_of_its_offer() -> None:
    """Without an offer it has the price of its type."""
    world, store = Ideal(a_state()), MemoryStore()
    kind = rules().instance_types["gpu"]
    offer = Offer(
        instance_type=kind.name, zone="z", market="spot", usd_per_hour=1.5, extras=(("disk", 0.25),)
    )
    for name, where in (("t0-a", offer), ("t0-b", None)):
        store.record_intent(LaunchNodes(id=name, instance_type=kind, reason="", offer=where), at=0.0)
    nodes = a_controller(world, Wishes(widths={}), store).observe().nodes
    assert [(n.zone, n.market, n.usd_per_hour, n.is_listed) for n in nodes.values()] == [
        ("z", "spot", 1.5, False),
        ("", "on-demand", 4.0, False),
    ]


def test_unspent_money_older_than_the_window_is_forgone() -> None:
    """With a window of one day and nothing spent for ten days, nine days are forgone once."""
    day, store = 86_400.0, MemoryStore()
    world = Ideal(a_state(now=0.0))
    pace = Pace(budget=1.0, window_hours=24.0)
    controller = a_controller(world, Wishes(widths={}), store)
    controller = replace(controller, rules=replace(controller.rules, pace=pace))
    opened = controller.observe().books_opened_at
    assert opened == 0.0
    world.clock.instant = 10.0 * day
    for opened in (controller.observe().books_opened_at, store.books_opened_at(10.0 * day)):
        assert opened == pytest.approx(9.0 * day)
    assert controller.observe().books_opened_at == opened


@pytest.mark.parametrize(
    ("phase", "gpus", "needs"), [(0, 1, True), (0, 2, False), (1, 1, False), (2, 1, False)]
)
def test_a_job_below_its_width_needs_no_tick_for_a_phase_with_the_same_width(
    phase: int, gpus: int, needs: bool
) -> None:
    """Two GPUs are planned in every phase; only a job that begins needs a tick for holding fewer."""
    controller = a_controller(Ideal(a_state()), Wishes(widths={"a": 2}), is_job_by_job=True)
    assert controller.needs_tick(a_job("a", phase=phase, width=Width("gpu", gpus))) is needs


class Planned:
    """An allocator that knows the widths of all phases; 0 stands for one GPU of another type."""

    def __init__(self, gpus: list[int]) -> None:
        self.widths = [Width("gpu", one) if one else Width("other", 1) for one in gpus]

    def allocate(self, jobs: Any, *, now: float, money: Any = None) -> Allocation:
        """Return the widths of the jobs' current phases."""
        return Allocation(widths={job.id: self.widths[job.phase] for job in jobs})

    def by_phase(self, job: Job) -> list[Width]:
        """Return the widths of all phases."""
        return self.widths


@given(
    planned=st.lists(st.integers(0, 2), min_size=1, max_size=8),
    held=st.integers(1, 2),
    is_job_by_job=st.booleans(),
    every=st.sampled_from((None, 60.0)),
)
def test_the_next_phase_to_look_at_is_the_first_that_needs_a_tick(
    planned: list[int], held: int, is_job_by_job: bool, every: float | None
) -> None:
    """If jobs are not planned one by one, or in rounds, it is the next phase."""
    controller = a_controller(Ideal(a_state()), Planned(planned), is_job_by_job=is_job_by_job)
    controller = replace(controller, rules=replace(controller.rules, round_seconds=every))
    for phase in range(len(planned)):
        job = a_job("a", phase=phase, width=Width("gpu", held))
        later = [replace(job, phase=number) for number in range(phase + 1, len(planned))]
        worth = [one.phase for one in later if controller.needs_tick(one)]
        found = controller.next_phase_to_look_at(job)
        assert found == ([*worth, len(planned)][0] if is_job_by_job and every is None else phase + 1)


class Keeping(Planned):
    """An allocator that only knows until which phase a job keeps its width."""

    by_phase = None

    def alone(self, job: Job) -> Width:
        """Return the width of the job's current phase."""
        return self.widths[job.phase]

    def keeps_until(self, job: Job) -> int:
        """Return the next phase with another width."""
        rest = range(job.phase + 1, len(self.widths))
        return next((phase for phase in rest if self.widths[phase] != job.width), len(self.widths))


@pytest.mark.parametrize(
    ("is_job_by_job", "every", "found"), [(True, None, 3), (True, 60.0, 1), (False, None, 1)]
)
def test_an_allocator_may_say_until_which_phase_a_job_keeps_its_width(
    is_job_by_job: bool, every: float | None, found: int
) -> None:
    """Three phases have two GPUs and the fourth one; in rounds, or with other jobs, each phase counts."""
    controller = a_controller(Ideal(a_state()), Keeping([2, 2, 2, 1]), is_job_by_job=is_job_by_job)
    controller = replace(controller, rules=replace(controller.rules, round_seconds=every))
    assert controller.next_phase_to_look_at(a_job("a", width=Width("gpu", 2))) == found


class Bills(MemoryStore):
    """A store whose bills since an instant equal that instant."""

    def standing_charged_until(self) -> float:
        return 0.0

    def settled_since(self, at: float) -> int:
        """Return the instant as the bills."""
        return int(at)

    def acts_since(self, at: float) -> list[Act]:
        """Return one act at that instant."""
        return [Act(kind="stop", target="a", at=at)]


def test_a_state_has_the_bills_and_acts_that_the_limits_need() -> None:
    """Caps need the bills of the day and month (UTC), and rules against flapping need recent acts."""
    now = 40.5 * 86_400.0
    controller = a_controller(Ideal(a_state(now=now)), Wishes(widths={}), Bills())
    plain = controller.observe()
    assert (plain.settled_today_micro_dollars, plain.settled_month_micro_dollars, plain.acts) == (0, 0, ())
    site = rules(caps=Caps(usd_per_day=1.0), steady=Steady())
    known = replace(controller, rules=site).observe()
    assert known.settled_today_micro_dollars == 40 * 86_400
    assert known.settled_month_micro_dollars == 31 * 86_400
    assert [act.at for act in known.acts] == [now - Steady().memory_seconds]


def test_the_policys_memory_is_stored_with_its_time_and_read_back() -> None:
    """A policy without a memory leaves the stored memory as it is."""
    world, store = Ideal(a_state(now=50.0)), MemoryStore()

    class Remembers:
        def allocate(self, jobs: Any, *, now: float, money: Any = None) -> Allocation:
            return Allocation(widths={}, memory=(1.0, 2.0))

    a_controller(world, Remembers(), store).run_once()
    assert a_controller(world, Wishes(widths={}), store).run_once().state.memory == ((1.0, 2.0), 50.0)
    assert store.memory() == ((1.0, 2.0), 50.0)


@pytest.mark.parametrize("has_to_leave", [False, True])
def test_a_job_is_stopped_when_its_next_start_is_ready(has_to_leave: bool) -> None:
    """Until then it runs on and nothing is recorded; a job on an ending node stops at once."""
    node = replace(a_node("n"), ends_by=500.0 if has_to_leave else None)
    others = [a_node("m")] if has_to_leave else []
    world = Ideal(a_state(a_job("a"), nodes=[node, *others], held={"a": some_slots("n", 0)}))
    ready: list[StartJob] = []
    world.is_ready_for = lambda start: bool(ready.append(start)) or len(ready) > 2  # type: ignore[attr-defined]
    spy = Spy()
    controller = a_controller(world, Wishes(widths={"a": 2}), spy)

    first = controller.run_once()
    assert bool(world.done) == has_to_leave
    if not has_to_leave:
        assert [start.slots for start in ready] == [some_slots("n", 0, 1)]
        assert spy.log == []
        assert first.wake_at == world.clock.now() + 1.0
        controller.run_once()
        assert world.done == []
        controller.run_once()
    assert isinstance(world.done[0], StopJob)
