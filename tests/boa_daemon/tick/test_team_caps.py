"""Caps of teams: whatever a plan wants, and however late jobs obey, a purse is never overdrawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.testing import a_job, a_node, a_state
from boa_daemon.tick.caps import within_caps
from boa_daemon.tick.limits import Caps
from boa_daemon.tick.state import ClusterState, JobTerms, Plan, Rules
from boa_daemon.tick.team_money import TeamMoney
from policies.model import GpuSlot, InstanceType, JobId, Width

TICK = 30.0
CAPS = Caps(tick_seconds=TICK, checkpoint_seconds=60.0, shutdown_seconds=60.0, least_run_seconds=120.0)
KIND = InstanceType(name="m", gpus=2, usd_per_hour=60.0, gpu_type="gpu")
RULES = Rules(instance_types={"gpu": KIND}, caps=CAPS)
NOON = 1_800_014_400.0 - 1_800_014_400.0 % 86_400.0 + 43_200.0


@dataclass
class World:
    """Two teams, nodes of two GPUs at 60 USD/h, and jobs that stop when they like within their grace."""

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
                terms=JobTerms(team=self.teams[job], grace_seconds=self.grace),
            )
            for job, found in state.jobs.items()
        }
        money = {
            name: TeamMoney(day_cap_usd=cap, spent_today_usd=self.spent.get(name, 0.0))
            for name, cap in self.caps.items()
        }
        return replace(state, jobs=jobs, teams=money)

    def tick(self, wanted: Mapping[JobId, int], chance: float) -> Plan:
        """Plan what is wanted on whatever is free, keep the caps, obey, and let the time of a tick pass."""
        state = self.state()
        rows = [(name, at, job) for name, node in state.nodes.items() for at, job in enumerate(node.gpus)]
        free = [GpuSlot(name, at) for name, at, job in rows if job is None]
        slots: dict[JobId, tuple[GpuSlot, ...]] = {}
        for job, gpus in wanted.items():
            if job in self.slots or gpus > len(free):
                continue
            slots[job], free = tuple(free[:gpus]), free[gpus:]
        widths = {job: Width("gpu", len(taken)) for job, taken in {**self.slots, **slots}.items()}
        plan = within_caps(state, Plan(widths=widths, slots=slots), RULES)
        stop = max(CAPS.checkpoint_seconds, self.grace)
        for job in plan.stops:
            assert job in self.slots
            late = stop * chance if self.obeys else 1e9
            self.ends.setdefault(job, self.now + late)
        for job, taken in plan.slots.items():
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
    """Jobs of both, on shared nodes, that stop early, late or not at all: the nodes end under the last."""
    red, blue = purses
    world = World(caps={"red": red, "blue": blue}, teams=JOBS, grace=grace, obeys=obeys)
    for wanted, chance in zip(wants, chances, strict=False):
        world.tick(wanted, chance)
        assert world.spent.get("red", 0.0) <= red + 1e-6
        assert world.spent.get("blue", 0.0) <= blue + 1e-6


def test_a_job_starts_while_its_teams_purse_has_room_and_is_stopped_before_it_has_none() -> None:
    """30 USD an hour, a cap of 5: ten minutes; it is told to stop in time, and the other team runs on."""
    world = World(caps={"red": 5.0, "blue": 500.0}, teams=JOBS, grace=60.0)
    codes: set[str] = set()
    while world.now < NOON + 1800.0:
        plan = world.tick({"red0": 1, "blue0": 1}, 1.0)
        codes |= {held.code for held in plan.held}
        assert all("blue" not in held.what for held in plan.held)
    assert 3.0 < world.spent["red"] <= 5.0
    assert world.spent["blue"] == 30.0 * 0.5
    assert codes == {"team-day-cap"}
    assert world.tick({"red1": 1}, 1.0).waiting["red1"] == "team-day-cap"


def test_a_new_day_opens_the_purse_again() -> None:
    """What was spent yesterday is over; a start before midnight has to fit both days."""
    world = World(caps={"red": 5.0}, teams=JOBS, grace=60.0)
    world.spent["red"] = 5.0
    assert "red0" not in world.tick({"red0": 1}, 1.0).slots
    world.now, world.spent["red"] = NOON + 43_200.0, 0.0
    assert "red0" in world.tick({"red0": 1}, 1.0).slots


def test_a_job_that_the_policy_does_not_know_draws_on_its_teams_purse_too() -> None:
    """It stops in time, as if it were planned."""
    world = World(caps={"red": 10.0}, teams={"a": "red"}, grace=60.0, spent={"red": 8.8})
    world.slots["a"] = (GpuSlot("n1", 0),)
    state = world.state()
    nothing = Plan(widths={}, slots={})
    assert within_caps(replace(state, jobs={}, unplanned=state.jobs), nothing, RULES).stops == ("a",)
    assert within_caps(state, nothing, RULES).stops == ("a",)
