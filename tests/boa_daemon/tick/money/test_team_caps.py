"""Caps of teams: no team spends more than its cap, whatever the plan wants and however late jobs stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from drafts import a_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.testing import a_job, a_node, a_state
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, JobTerms, Rules
from boa_daemon.tick.facts.team_money import TeamMoney
from boa_daemon.tick.money.caps import within_caps
from boa_daemon.tick.money.team_caps import TeamVerdict, judge_teams
from policies.model import GpuSlot, InstanceType, JobId, Width

TICK = 30.0
CAPS = Caps(tick_seconds=TICK, checkpoint_seconds=60.0, shutdown_seconds=60.0, least_run_seconds=120.0)
KIND = InstanceType(name="m", gpus=2, usd_per_hour=60.0, gpu_type="gpu")
RULES = Rules(instance_types={"gpu": KIND}, caps=CAPS)
NOON = 1_800_014_400.0 - 1_800_014_400.0 % 86_400.0 + 43_200.0


@dataclass
class World:
    """Two teams on nodes of two GPUs at 60 USD per hour, and jobs that stop within their grace time."""

    caps: Mapping[str, float]
    teams: Mapping[JobId, str]
    grace: float
    obeys: bool = True
    now: float = NOON
    slots: dict[JobId, tuple[GpuSlot, ...]] = field(default_factory=dict)
    ends: dict[JobId, float] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)

    def state(self) -> ClusterState:
        nodes = [a_node(name, kind=KIND, launched_at=self.now - 7200.0) for name in ("n1", "n2", "n3")]
        state = a_state(*map(a_job, self.teams), nodes=nodes, held=self.slots, now=self.now)
        jobs = {
            job: replace(
                found,
                is_stopping=job in self.ends,
                # Another object with an equal name, as from another row of the store.
                terms=JobTerms(team="".join([*self.teams[job]]), grace_seconds=self.grace),
            )
            for job, found in state.jobs.items()
        }
        money = {
            name: TeamMoney(day_cap_usd=cap, spent_today_usd=self.spent.get(name, 0.0))
            for name, cap in self.caps.items()
        }
        return replace(state, jobs=jobs, teams=money)

    def tick(self, wanted: Mapping[JobId, int], chance: float) -> Plan:
        """Plan the wanted jobs on free GPUs, keep the caps, obey, and let the time of a tick pass."""
        state = self.state()
        rows = [(name, at, job) for name, node in state.nodes.items() for at, job in enumerate(node.gpus)]
        free = [GpuSlot(name, at) for name, at, job in rows if job is None]
        slots: dict[JobId, tuple[GpuSlot, ...]] = {}
        for job, gpus in wanted.items():
            if job in self.slots or gpus > len(free):
                continue
            slots[job], free = tuple(free[:gpus]), free[gpus:]
        widths = {job: Width("gpu", len(taken)) for job, taken in {**self.slots, **slots}.items()}
        plan = within_caps(state, a_plan(widths=widths, slots=slots), RULES)
        stop = max(CAPS.checkpoint_seconds, self.grace)
        for job in plan.jobs.stops:
            assert job in self.slots
            late = stop * chance if self.obeys else 1e9
            self.ends.setdefault(job, self.now + late)
        for job, taken in plan.jobs.slots.items():
            self.slots[job] = taken
        gone = set(plan.forced)
        for job, taken in list(self.slots.items()):
            if gone & {slot.node for slot in taken}:
                self.ends[job] = min(self.ends.get(job, 1e12), self.now + CAPS.shutdown_seconds)
        for job, taken in list(self.slots.items()):
            until = min(self.ends.get(job, 1e12), self.now + TICK)
            team = self.teams[job]
            cost = len(taken) * 30.0 * max(until - self.now, 0.0) / 3600.0
            self.spent[team] = self.spent.get(team, 0.0) + cost
            if until < self.now + TICK:
                del self.slots[job]
                self.ends.pop(job, None)
        self.now += TICK
        return plan


JOBS = {f"{team}{number}": team for team in ("red", "blue") for number in range(4)}


@settings(max_examples=sampled(150), deadline=None)
@given(
    purses=st.tuples(*[st.floats(min_value=0.05, max_value=40.0)] * 2),
    grace=st.sampled_from([1.0, 60.0, 300.0]),
    obeys=st.booleans(),
    wants=st.lists(
        st.dictionaries(st.sampled_from(sorted(JOBS)), st.integers(min_value=1, max_value=4)),
        min_size=1,
        max_size=60,
    ),
    chances=st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=60, max_size=60),
)
def test_no_team_ever_spends_more_than_its_cap(
    purses: tuple[float, float],
    grace: float,
    obeys: bool,
    wants: list[Mapping[JobId, int]],
    chances: list[float],
) -> None:
    """Jobs of both teams share nodes and stop early, late or not at all; in the last case their nodes end."""
    red, blue = purses
    world = World(caps={"red": red, "blue": blue}, teams=JOBS, grace=grace, obeys=obeys)
    for wanted, chance in zip(wants, chances, strict=False):
        world.tick(wanted, chance)
        assert world.spent.get("red", 0.0) <= red + 1e-6
        assert world.spent.get("blue", 0.0) <= blue + 1e-6


def test_a_job_starts_while_its_team_has_money_and_stops_before_the_cap() -> None:
    """At 30 USD per hour a cap of 5 USD lasts ten minutes; the job of the other team runs on."""
    world = World(caps={"red": 5.0, "blue": 500.0}, teams=JOBS, grace=60.0)
    codes: set[str] = set()
    while world.now < NOON + 1800.0:
        plan = world.tick({"red0": 1, "blue0": 1}, 1.0)
        codes |= {held.code for held in plan.held}
        assert all("blue" not in held.what for held in plan.held)
    assert 3.0 < world.spent["red"] <= 5.0
    assert world.spent["blue"] == 30.0 * 0.5
    assert codes == {"team-day-cap"}
    assert world.tick({"red1": 1}, 1.0).jobs.waiting["red1"] == "team-day-cap"


def test_a_team_at_its_daily_cap_may_start_jobs_again_the_next_day() -> None:
    """The spending of the day before does not count."""
    world = World(caps={"red": 5.0}, teams=JOBS, grace=60.0)
    world.spent["red"] = 5.0
    assert "red0" not in world.tick({"red0": 1}, 1.0).jobs.slots
    world.now, world.spent["red"] = NOON + 43_200.0, 0.0
    assert "red0" in world.tick({"red0": 1}, 1.0).jobs.slots


def test_a_job_that_the_policy_does_not_know_counts_towards_its_teams_cap() -> None:
    """It stops like a planned job."""
    world = World(caps={"red": 10.0}, teams={"a": "red"}, grace=60.0, spent={"red": 8.8})
    world.slots["a"] = (GpuSlot("n1", 0),)
    state = world.state()
    nothing = a_plan()
    assert within_caps(replace(state, jobs={}, unplanned=state.jobs), nothing, RULES).jobs.stops == ("a",)
    assert within_caps(state, nothing, RULES).jobs.stops == ("a",)


SECOND = InstanceType(name="s", gpus=4, usd_per_hour=4 * 3600.0, gpu_type="gpu")
"""Each GPU costs a dollar a second."""
TIMES = Caps(
    tick_seconds=10.0,
    checkpoint_seconds=60.0,
    refused_seconds=30.0,
    shutdown_seconds=10.0,
    least_run_seconds=500.0,
)
"""A stop takes 120 s, a job that goes on may cost 130 s, one that starts 500 s."""


def judged(
    money: TeamMoney, *, plan: Plan | None = None, now: float = NOON, grace: float = 1.0, **work: float
) -> TeamVerdict:
    """Return the verdict of a red team's caps on jobs of one GPU each, with this work left."""
    held = {job: (GpuSlot("n1", at),) for at, job in enumerate(work)}
    jobs = (a_job(job, remaining_gpu_hours=left) for job, left in work.items())
    node = a_node("n1", kind=SECOND, launched_at=now - 7200.0)
    state = a_state(*jobs, a_job("new"), nodes=[node, replace(node, id="n2")], held=held, now=now)
    terms = JobTerms(team="red", grace_seconds=grace)
    known = {name: replace(job, terms=terms) for name, job in state.jobs.items()}
    teams = {"green": TeamMoney(), "red": money}
    return judge_teams(replace(state, jobs=known, teams=teams), plan or a_plan(), TIMES)


@pytest.mark.parametrize(
    ("left", "stops", "forced"),
    [(130.5, (), ()), (130.0, (), ()), (129.98, ("a",), ()), (60.0, ("a",), ()), (59.98, ("a",), ("n1",))],
)
def test_a_running_job_is_stopped_if_the_money_does_not_last_until_the_next_tick(
    left: float, stops: tuple[str, ...], forced: tuple[str, ...]
) -> None:
    """It needs 130 dollars to be stopped at the next tick; below 60 dollars its node ends at once."""
    for money in (TeamMoney(day_cap_usd=left), TeamMoney(month_cap_usd=left + 9.0, spent_month_usd=9.0)):
        found = judged(money, a=1.0)
        assert (tuple(found.stops), found.forced) == (stops, forced)
        assert {held.what for held in found.held} == {f"job {job}" for job in stops}


@pytest.mark.parametrize(("left", "stops"), [(260.0, ""), (255.0, "l"), (249.0, "ls"), (600.0, "")])
def test_jobs_with_the_most_work_left_stop_first_and_no_more_than_needed(left: float, stops: str) -> None:
    """Job s has three hours left and l fifty; a stop saves the ten seconds until the next tick."""
    assert "".join(judged(TeamMoney(day_cap_usd=left), s=3.0, l=50.0).stops) == stops
    done = judged(TeamMoney(day_cap_usd=1.0), z=0.0, s=0.25, l=50.0)
    assert "".join(done.stops) == "lsz"


def test_stopping_jobs_count_for_the_time_that_a_stop_takes() -> None:
    """A stop costs 120 dollars, not 130; a longer grace time of the job counts instead."""
    plan = a_plan(stops=("a",))
    assert judged(TeamMoney(day_cap_usd=250.0), plan=plan, a=1.0, b=1.0).stops == {}
    assert set(judged(TeamMoney(day_cap_usd=249.9), plan=plan, a=1.0, b=1.0).stops) == {"b"}
    assert judged(TeamMoney(day_cap_usd=170.0), grace=100.0, a=1.0).stops == {}
    assert set(judged(TeamMoney(day_cap_usd=169.9), grace=100.0, a=1.0).stops) == {"a"}


@pytest.mark.parametrize(
    ("grace", "left", "starts"),
    [(1.0, 500.0, True), (1.0, 499.9, False), (470.0, 550.0, True), (470.0, 549.9, False)],
)
def test_a_start_needs_money_for_the_least_run_and_for_a_stop_after_two_ticks(
    grace: float, left: float, starts: bool
) -> None:
    """That is 500 dollars; with a grace time of 470 s a stop takes 530 s, and two ticks take 20 s."""
    plan = a_plan(widths={}, slots={"new": (GpuSlot("n2", 0),)})
    found = judged(TeamMoney(day_cap_usd=left), plan=plan, grace=grace)
    assert found.waits == ({} if starts else {"new": "team-day-cap"})
    if not starts:
        assert found.held[0].numbers == {"cap_usd": left, "left_usd": left}


def test_a_start_before_midnight_needs_todays_money_only_until_midnight() -> None:
    """Of today 0.7 s are left, so the start costs 0.7 of today's dollars."""
    midnight = NOON + 43_200.0
    plan = a_plan(widths={}, slots={"new": (GpuSlot("n2", 0),)})
    for left, starts in ((0.5, False), (0.75, True)):
        money = TeamMoney(day_cap_usd=600.0, spent_today_usd=600.0 - left)
        assert (judged(money, plan=plan, now=midnight - 0.7).waits == {}) is starts
    third = judged(TeamMoney(day_cap_usd=1.0 / 3.0), a=1.0)
    assert third.held[0].numbers == {"cap_usd": 1.0 / 3.0, "left_usd": round(1.0 / 3.0 - 130.0 + 10.0, 6)}
