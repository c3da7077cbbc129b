"""Jobs that rest, or whose user's money is spent, have no part in a decision, and its record says so."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots, states
from boa_daemon.tick.codec import decode, encode
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.explain import explain_job
from boa_daemon.tick.limits import DAY_SECONDS, Caps
from boa_daemon.tick.retries import Failure
from boa_daemon.tick.state import ClusterState, JobState, UserMoney
from boa_daemon.tick.team_money import TeamMoney
from policies.placement.first_fit import FirstFit
from policies.protocols import Allocator

NOON = 0.5 * DAY_SECONDS


def changed(state: ClusterState, name: str, **facts: object) -> ClusterState:
    """Return a state with other facts on a job."""
    return replace(state, jobs={**state.jobs, name: _with(state.jobs[name], facts)})


def _with(job: JobState, facts: dict[str, object]) -> JobState:
    """Return a job on other terms."""
    return replace(job, terms=replace(job.terms, **facts))  # type: ignore[arg-type]


def decided(state: ClusterState, **widths: int) -> Decision:
    """Return the decision of a policy that gives widths."""
    return decide(state, allocator=Wishes(widths=widths), placer=FirstFit(), rules=rules())


def test_a_job_that_rests_is_given_nothing_until_then() -> None:
    """Two jobs, room for both: the one that failed starts 40 s later, when the plan wakes up for it."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node()], now=NOON)
    resting = changed(
        state, "b", failed=(Failure(at=NOON + 35.0, step=0),), failures=2, last_end="exit code 1"
    )
    found = decided(resting, a=1, b=1)
    assert set(found.plan.slots) == {"a"}
    assert found.plan.waiting == {"b": "resting"}
    assert found.wake_at == NOON + 40.0
    said = found.explain("b")
    assert "It failed 2 times so far; how it ended last: exit code 1." in said
    assert "It rests for 40 s more" in said
    for late in (40.0, 41.0):
        assert set(decided(replace(resting, now=NOON + late), a=1, b=1).plan.slots) == {"a", "b"}


def test_a_user_without_money_starts_nothing_until_midnight() -> None:
    """What runs goes on, what waits waits; the user is named once, with both numbers."""
    state = a_state(
        *(a_job(name) for name in "abc"), nodes=[a_node()], held={"a": some_slots("n1", 0)}, now=NOON
    )
    for name in "abc":
        state = changed(state, name, user="ann" if name == "c" else "bob")
    spent = replace(state, users={"bob": UserMoney(cap_usd=5.0, spent_usd=5.0)})
    found = decided(spent, a=1, b=1, c=1)
    assert set(found.plan.slots) == {"c"}
    assert found.plan.stops == ()
    assert found.plan.waiting == {"b": "user-day-cap"}
    assert [(note.what, note.code, dict(note.numbers)) for note in found.plan.held] == [
        ("user bob", "user-day-cap", {"spent_usd": 5.0, "cap_usd": 5.0})
    ]
    assert found.wake_at == DAY_SECONDS
    assert "user bob have spent today's cap: 5.00 of 5.00 USD" in found.explain("b")
    rested = changed(spent, "b", failed=(Failure(at=NOON - 6.0, step=0),), failures=1)
    assert decided(rested, a=1, b=1, c=1).wake_at == DAY_SECONDS, "a rest that is over wakes nobody"
    richer = replace(spent, users={"bob": UserMoney(cap_usd=5.01, spent_usd=5.0)})
    assert set(decided(richer, a=1, b=1, c=1).plan.slots) == {"b", "c"}


def test_the_record_of_a_decision_says_who_was_set_aside() -> None:
    """Written down and read back, the same decision and the same explanation: nothing else was looked at."""
    state = changed(
        a_state(a_job("a"), a_job("b"), nodes=[a_node()], now=NOON),
        "a",
        failed=(Failure(at=NOON + 4.0, step=0),),
    )
    state = replace(changed(state, "b", user="bob"), users={"bob": UserMoney(cap_usd=1.0, spent_usd=2.0)})
    first, again = decided(state, a=1, b=1), decided(decode(encode(state)), a=1, b=1)
    assert again.actions == first.actions
    for name in "ab":
        assert explain_job(again.state, decode(encode(again.plan)), name) == first.explain(name)


@given(case=states(), data=st.data())
def test_whoever_is_set_aside_changes_nothing_for_the_others(
    case: tuple[ClusterState, Allocator], data: st.DataObject
) -> None:
    """The actions are those of the same cluster without the jobs that are set aside."""
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
    assert {name: why for name, why in found.plan.waiting.items() if name not in aside} == dict(
        other.plan.waiting
    )


def test_a_job_waits_for_an_instant_or_for_another_job_and_says_so() -> None:
    """Not before its instant, which wakes the plan; not before the end of the job that its file names."""
    state = a_state(
        *(a_job(name) for name in "abc"), nodes=[a_node()], held={"a": some_slots("n1", 0)}, now=NOON
    )
    state = changed(changed(state, "b", not_before=NOON + 50.0), "c", waits_for="a")
    found = decided(state, a=1, b=1, c=1)
    assert (found.plan.waiting, found.wake_at) == ({"b": "not-before", "c": "after"}, NOON + 50.0)
    assert "It is not to start before 1970-01-01" in found.explain("b")
    assert "It waits for job a, which is running (after)." in found.explain("c")
    for other, how in (("b", "waits itself"), ("gone", "is over")):
        said = decided(changed(state, "c", waits_for=other), a=1).explain("c")
        assert f"It waits for job {other}, which {how} (after)." in said


def test_teams_without_money_or_ahead_of_their_share_start_nothing() -> None:
    """The closed purse is named with its numbers; a claim of a team that is behind goes first."""
    state = a_state(*(a_job(name, arrived_at=NOON) for name in "abc"), nodes=[a_node()], now=NOON)
    for name, team in (("a", "red"), ("b", "blue"), ("c", "green")):
        state = changed(state, name, team=team)
    red = TeamMoney(day_cap_usd=1.0, spent_today_usd=1.0)
    state = replace(
        state, teams={"red": red, "blue": TeamMoney(ahead_usd=5.0), "green": TeamMoney(ahead_usd=-5.0)}
    )
    site = rules(caps=Caps(usd_per_day=1e6))
    found = decide(state, allocator=Wishes(widths={"a": 1, "b": 1, "c": 1}), placer=FirstFit(), rules=site)
    assert found.plan.waiting == {"a": "team-day-cap", "b": "team-share"}
    assert set(found.plan.slots) == {"c"}
    assert found.wake_at == DAY_SECONDS
    assert [(held.what, held.code) for held in found.plan.held] == [
        ("team blue", "team-share"),
        ("team red", "team-day-cap"),
    ]
    assert "It is held back: team red: the team's cap for today (UTC)" in found.explain("a")
