"""Jobs that must not start yet are set aside, and the record of the decision gives the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots, states
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.explain.explain import explain_job
from boa_daemon.tick.facts.codec import decode, encode
from boa_daemon.tick.facts.limits import DAY_SECONDS, Caps
from boa_daemon.tick.facts.retries import Failure
from boa_daemon.tick.facts.state import ClusterState, JobState, UserMoney
from boa_daemon.tick.facts.team_money import TeamMoney
from boa_daemon.tick.money.team_caps import usd_per_hour
from policies.placement.first_fit import FirstFit
from policies.protocols import Allocator

NOON = 0.5 * DAY_SECONDS


def changed(state: ClusterState, name: str, **facts: object) -> ClusterState:
    """Return the state with other terms of one job."""
    return replace(state, jobs={**state.jobs, name: _with(state.jobs[name], facts)})


def _with(job: JobState, facts: dict[str, object]) -> JobState:
    return replace(job, terms=replace(job.terms, **facts))  # type: ignore[arg-type]


def decided(state: ClusterState, **widths: int) -> Decision:
    """Return the decision of a policy with these widths."""
    return decide(state, allocator=Wishes(widths=widths), placer=FirstFit(), rules=rules())


def test_a_resting_job_starts_when_its_rest_is_over() -> None:
    """Both jobs have room: the failed one starts 40 s later, and the plan wakes up for that."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node()], now=NOON)
    resting = changed(
        state, "b", failed=(Failure(at=NOON + 35.0, step=0),), failures=2, last_end="exit code 1"
    )
    found = decided(resting, a=1, b=1)
    assert set(found.plan.jobs.slots) == {"a"}
    assert found.plan.jobs.waiting == {"b": "resting"}
    assert found.wake_at == NOON + 40.0
    said = found.explain("b")
    assert "It failed 2 times so far; how it ended last: exit code 1." in said
    assert "It rests for 40 s more" in said
    for late in (40.0, 41.0):
        assert set(decided(replace(resting, now=NOON + late), a=1, b=1).plan.jobs.slots) == {"a", "b"}


def test_no_job_of_a_user_at_the_daily_cap_starts_until_midnight() -> None:
    """Running jobs go on, and the record names the user once, with both numbers."""
    state = a_state(
        *(a_job(name) for name in "abc"), nodes=[a_node()], held={"a": some_slots("n1", 0)}, now=NOON
    )
    for name in "abc":
        state = changed(state, name, user="ann" if name == "c" else "bob")
    spent = replace(state, users={"bob": UserMoney(cap_usd=5.0, spent_usd=5.0)})
    found = decided(spent, a=1, b=1, c=1)
    assert set(found.plan.jobs.slots) == {"c"}
    assert found.plan.jobs.stops == ()
    assert found.plan.jobs.waiting == {"b": "user-day-cap"}
    assert [(note.what, note.code, dict(note.numbers)) for note in found.plan.held] == [
        ("user bob", "user-day-cap", {"spent_usd": 5.0, "cap_usd": 5.0})
    ]
    assert found.wake_at == DAY_SECONDS
    assert "user bob have spent today's cap: $5.00 of $5.00" in found.explain("b")
    rested = changed(spent, "b", failed=(Failure(at=NOON - 6.0, step=0),), failures=1)
    assert decided(rested, a=1, b=1, c=1).wake_at == DAY_SECONDS, "a rest that is over wakes nobody"
    capped = replace(rules(), caps=Caps(least_run_seconds=900.0))
    held = decide(spent, allocator=Wishes(widths={"a": 1}), placer=FirstFit(), rules=capped).plan.held
    money = next(note.money for note in held if note.what == "user bob")
    assert money is not None
    # Job a has one GPU of a node, for as long as it takes to stop it.
    per_hour = usd_per_hour(spent, spent.jobs["a"].slots)
    assert 0.0 < money.reserved_usd == per_hour * 900.0 / 3600.0
    richer = replace(spent, users={"bob": UserMoney(cap_usd=5.01, spent_usd=5.0)})
    assert set(decided(richer, a=1, b=1, c=1).plan.jobs.slots) == {"b", "c"}


def test_a_recorded_decision_explains_jobs_that_were_set_aside() -> None:
    """The decoded state gives the same actions and the same explanation."""
    state = changed(
        a_state(a_job("a"), a_job("b"), nodes=[a_node()], now=NOON),
        "a",
        failed=(Failure(at=NOON + 4.0, step=0),),
    )
    state = replace(changed(state, "b", user="bob"), users={"bob": UserMoney(cap_usd=1.0, spent_usd=2.0)})
    first, again = decided(state, a=1, b=1), decided(decode(encode(state)), a=1, b=1)
    assert again.actions == first.actions
    for name in "ab":
        assert first.explain(name).endswith(explain_job(again.state, decode(encode(again.plan)), name))


@given(case=states(), data=st.data())
def test_jobs_that_are_set_aside_change_nothing_for_other_jobs(
    case: tuple[ClusterState, Allocator], data: st.DataObject
) -> None:
    """The actions are those of the same cluster without these jobs."""
    state, allocator = case
    waiting = [name for name, job in state.jobs.items() if not job.slots]
    aside = data.draw(st.sets(st.sampled_from(waiting)) if waiting else st.just(set()))

    def rest(job: JobState) -> JobState:
        return _with(job, {"not_before": state.now + 60.0})

    with_them = replace(
        state, jobs={name: rest(job) if name in aside else job for name, job in state.jobs.items()}
    )
    without = replace(state, jobs={name: job for name, job in state.jobs.items() if name not in aside})
    found, other = (
        decide(one, allocator=allocator, placer=FirstFit(), rules=rules()) for one in (with_them, without)
    )
    assert found.actions == other.actions
    assert {name: why for name, why in found.plan.jobs.waiting.items() if name not in aside} == dict(
        other.plan.jobs.waiting
    )


def test_a_job_waits_for_its_start_time_or_for_the_job_that_its_file_names() -> None:
    """The plan wakes up at the start time, and the explanation names the other job's state."""
    state = a_state(
        *(a_job(name) for name in "abc"), nodes=[a_node()], held={"a": some_slots("n1", 0)}, now=NOON
    )
    state = changed(changed(state, "b", not_before=NOON + 50.0), "c", waits_for="a")
    found = decided(state, a=1, b=1, c=1)
    assert (found.plan.jobs.waiting, found.wake_at) == ({"b": "not-before", "c": "after"}, NOON + 50.0)
    assert "It is not to start before 1970-01-01" in found.explain("b")
    assert "It waits for job a, which is running (after)." in found.explain("c")
    for other, how in (("b", "waits itself"), ("gone", "is over")):
        said = decided(changed(state, "c", waits_for=other), a=1).explain("c")
        assert f"It waits for job {other}, which {how} (after)." in said


def test_jobs_of_teams_at_their_cap_or_ahead_of_their_share_do_not_start() -> None:
    """Both teams are reported, and the job of the team behind its share starts."""
    state = a_state(*(a_job(name, arrived_at=NOON) for name in "abc"), nodes=[a_node()], now=NOON)
    for name, team in (("a", "red"), ("b", "blue"), ("c", "green")):
        state = changed(state, name, team=team)
    red = TeamMoney(day_cap_usd=1.0, spent_today_usd=1.0)
    state = replace(
        state, teams={"red": red, "blue": TeamMoney(ahead_usd=5.0), "green": TeamMoney(ahead_usd=-5.0)}
    )
    site = rules(caps=Caps(usd_per_day=1e6))
    found = decide(state, allocator=Wishes(widths={"a": 1, "b": 1, "c": 1}), placer=FirstFit(), rules=site)
    assert found.plan.jobs.waiting == {"a": "team-day-cap", "b": "team-share"}
    assert set(found.plan.jobs.slots) == {"c"}
    assert found.wake_at == DAY_SECONDS
    assert [(held.what, held.code) for held in found.plan.held] == [
        ("team blue", "team-share"),
        ("team red", "team-day-cap"),
    ]
    assert "It is held back with its team red: the team's cap for today (UTC)" in found.explain("a")


@pytest.mark.parametrize(("waited_hours", "said"), [(0.0, "24.00 h"), (23.5, "30.0 min")])
def test_a_team_ahead_of_its_share_is_told_when_its_jobs_may_start_at_the_latest(
    waited_hours: float, said: str
) -> None:
    """The claim of the job that waits for the other team ends after a half-life; the daemon looks then."""
    jobs = (a_job("b", arrived_at=NOON), a_job("c", arrived_at=NOON - 3600.0 * waited_hours))
    state = changed(changed(a_state(*jobs, now=NOON), "b", team="blue"), "c", team="green")
    teams = {"blue": TeamMoney(ahead_usd=5.0), "green": TeamMoney(ahead_usd=-5.0)}
    site = rules(caps=Caps(usd_per_day=1e6))
    found = decide(
        replace(state, teams=teams), allocator=Wishes(widths={"b": 1}), placer=FirstFit(), rules=site
    )

    assert (
        f"unless a team behind its share submits more, jobs of this team may start within {said}"
        in found.explain("b")
    )
    assert found.wake_at == min(DAY_SECONDS, NOON + 3600.0 * (24.0 - waited_hours))
