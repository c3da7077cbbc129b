"""Explanations: why a job has its width and its nodes, or why it waits."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from drafts import a_plan, gpus, with_columns

from boa_daemon.errors import InputError
from boa_daemon.testing import Wishes, a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.explain.explain import explain_job
from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.offers import NO_PRICE_SECONDS, Cooldown, RefusalKind
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WAIT_REASON_TEXTS, WaitReason
from boa_daemon.tick.facts.retries import GivenUp
from boa_daemon.tick.facts.state import (
    ClusterState,
    GatedJob,
    GatedLink,
    GateView,
    JobTerms,
    Rules,
    UserMoney,
)
from policies.model import Width
from policies.placement.first_fit import FirstFit


def explained(state: ClusterState, wishes: Wishes, job: str = "a", site: Rules | None = None) -> str:
    """Return the explanation under first fit on nodes of four GPUs."""
    plan = decide(state, allocator=wishes, placer=FirstFit(), rules=site or rules()).plan
    return explain_job(state, plan, job)


def test_the_explanation_of_a_running_job_says_what_it_holds_and_why() -> None:
    """It has class, age, phase, width, and the nodes with the GPUs used on each."""
    state = a_state(a_job("a", phase=3), nodes=[a_node("n1")], held={"a": some_slots("n1", 0, 1)}, now=1800.0)
    assert explained(state, Wishes(widths={"a": 2})) == (
        "Job a of class c arrived 30.0 min ago and is in phase 4; it holds 2 x gpu on n1 (2 GPUs). "
        "Planned are 2 x gpu: the policy's width for its class and phase."
    )


def test_the_explanation_quotes_the_reason_of_the_policy() -> None:
    """The policy's own reason replaces the default one."""
    state = a_state(a_job("a"))
    plan = decide(state, allocator=Wishes(widths={"a": 2}), placer=FirstFit(), rules=rules()).plan
    plan = with_columns(plan, reasons={"a": "an hour is worth 2.50 USD"})

    assert "Planned are 2 x gpu: an hour is worth 2.50 USD." in explain_job(state, plan, "a")


def test_the_explanation_of_a_waiting_job_counts_free_booting_and_requested_gpus() -> None:
    """The job needs ten GPUs: two are free, one node boots, and one node is requested."""
    state = a_state(
        a_job("b"),
        a_job("a"),
        nodes=[a_node("n1"), a_node("n2", phase="requested")],
        held={"b": some_slots("n1", 0, 1)},
    )
    assert explained(state, Wishes(widths={"a": 10, "b": 2})).endswith(
        f"It waits: {WAIT_REASON_TEXTS['nodes-to-come']}. "
        "Of its 10 GPUs 2 are free; nodes booting: 1, asked for now: 1."
    )


@pytest.mark.parametrize(
    ("wishes", "changes", "site", "says"),
    [
        (
            Wishes(widths={"a": 4}),
            {"cooldowns": {"gpu-x4": Cooldown(until=60.0)}},
            rules(),
            f"{WAIT_REASON_TEXTS['out-of-stock']}; it is asked again in 60 s",
        ),
        (
            Wishes(widths={"a": 4}),
            {},
            rules(max_nodes=0),
            f"{WAIT_REASON_TEXTS['node-limit']} (0 held, 0 asked for now)",
        ),
        (Wishes(widths={"a": 4}, nodes={"gpu-x4": 1}), {}, rules(), WAIT_REASON_TEXTS["fleet-full"]),
        (Wishes(widths={}, nodes={"gpu-x4": 1}), {}, rules(), "earlier jobs have them all"),
    ],
)
def test_each_of_these_wait_reasons_has_its_own_sentence(
    wishes: Wishes, changes: dict[str, object], site: Rules, says: str
) -> None:
    """The reasons are no stock, the node limit, a full fleet, and no width from the policy."""
    assert says in explained(a_state(a_job("a"), **changes), wishes, site=site)


def test_an_unknown_job_is_an_error_with_a_suggestion() -> None:
    """The error suggests the job with the closest name."""
    with pytest.raises(InputError, match="Did you mean 'train-1'"):
        explained(a_state(a_job("train-1")), Wishes(widths={}), job="train-2")


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        (1, "1 step that no checkpoint has, and repeats it"),
        (2, "2 steps that no checkpoint has, and repeats them"),
        (7, "7 steps that no checkpoint has, and repeats them"),
    ],
)
def test_the_explanation_counts_lost_steps_and_failures(lost: int, says: str) -> None:
    """Lost steps are those that no checkpoint has."""
    state = a_state(a_job("a"))
    job = replace(state.jobs["a"], lost_steps=lost, terms=JobTerms(failures=1, last_end="signal 9"))
    said = explained(replace(state, jobs={"a": job}), Wishes(widths={}))
    assert f"It lost {says}; `boa jobs` and its log say why." in said
    assert "It failed once so far; how it ended last: signal 9." in said


def test_the_explanation_says_what_ordering_links_saves_the_job() -> None:
    """Links on which the job does not send are left out."""
    nodes = [a_node("n1", gpus=2), a_node("n2", gpus=2)]
    held = {"a": some_slots("n1", 0) + some_slots("n2", 0), "b": some_slots("n1", 1) + some_slots("n2", 1)}
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, held=held)
    for gain, says in (
        (0.125, "its remaining time by -12.5%."),
        (-0.125, "its remaining time by +12.5%."),
        (None, "of its time."),
    ):
        job = GatedJob(ranked_by_hours=1.0, exposed_fraction=0.4, gain_fraction=gain)
        seen = replace(state, gate=GateView(links={}, jobs={"a": job}))
        plan = decide(seen, allocator=Wishes(widths={"a": 2, "b": 2}), placer=FirstFit(), rules=rules()).plan
        said = explain_job(seen, replace(plan, link_order={"other": ("b", "c"), "n1": ("b", "a")}), "a")
        assert "It waits for messages 40% of its time" in said
        assert says in said
        assert "It shares the link of n1 with job b; b sends first" in said
        assert "other" not in said


ON_TWO, TWO = some_slots("n1", 0, 1), Width("gpu", 2)
ONLY_OF_HOLDERS = ("keeps its GPUs", "works on", "told to stop", "has stopped", "goes on", "the job is on it")
ONLY_OF_WAITERS = ("holds no GPUs", "It waits", "it waits", "rests", "given up", "It starts now", "held back")


def seen(*, holds: bool, unplanned: bool = False, is_stopping: bool = False, **terms: Any) -> ClusterState:
    """Return job a, on two GPUs of n1 or waiting, and the waiting job b."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held={"a": ON_TWO} if holds else {})
    job = replace(state.jobs["a"], is_stopping=is_stopping, terms=JobTerms(**terms))
    others = {"b": state.jobs["b"]}
    if unplanned:
        return replace(state, jobs=others, unplanned={"a": job})
    return replace(state, jobs={"a": job, **others})


def for_a(
    waits: WaitReason | None = None, *, gpus: int | None = None, slots: Any = None, **changes: Any
) -> Plan:
    """Return a plan with this width, these slots or this wait reason for job a."""
    return a_plan(
        widths={} if gpus is None else {"a": Width("gpu", gpus)},
        slots={} if slots is None else {"a": slots},
        waiting={} if waits is None else {"a": waits},
        **changes,
    )


STATES: dict[str, tuple[ClusterState, Plan, str, str]] = {
    "unplanned, waits": (
        seen(holds=False, unplanned=True),
        for_a(),
        "unplanned",
        "the last one lacks its class: it waits for a plan that has it.",
    ),
    "unplanned, given up": (
        seen(holds=False, unplanned=True),
        for_a(given_up={"a": GivenUp(code="max-usd", reason="max_usd reached")}),
        "given-up",
        "It is given up: max_usd reached.",
    ),
    "unplanned, runs": (
        seen(holds=True, unplanned=True),
        for_a(),
        "running",
        "the last one lacks its class: it keeps its GPUs, and starts nowhere else.",
    ),
    "unplanned, told to stop": (
        seen(holds=True, unplanned=True),
        for_a(stops=("a",)),
        "running",
        "it starts nowhere once it has stopped. It is told to stop now.",
    ),
    "unplanned, stopping": (
        seen(holds=True, unplanned=True, is_stopping=True),
        for_a(),
        "running",
        "it starts nowhere once it has stopped. It was told to stop, and holds its GPUs until it stops.",
    ),
    "unplanned, hangs": (
        seen(holds=True, unplanned=True),
        for_a(ends={"a": "made no step for 900 s"}),
        "running",
        "It made no step for 900 s, and is ended.",
    ),
    "runs": (seen(holds=True), for_a(gpus=2), "running", "Planned are 2 x gpu"),
    "runs, waits for more": (
        seen(holds=True),
        for_a("nodes-to-come", gpus=4),
        "nodes-to-come",
        "It works on at its present width, and waits for the planned one: "
        f"{WAIT_REASON_TEXTS['nodes-to-come']}. Of its 4 GPUs it holds 2, and 2 more are free",
    ),
    "runs, moves now": (
        seen(holds=True),
        for_a(gpus=4, slots=some_slots("n1", 0, 1, 2, 3)),
        "running",
        "It is told to stop now. Once it has stopped it starts on n1 (4 GPUs).",
    ),
    "runs, told to stop for the budget": (
        seen(holds=True),
        for_a("budget", stops=("a",)),
        "budget",
        f"It is to wait: {WAIT_REASON_TEXTS['budget']}.",
    ),
    "runs, told to stop for a team's cap": (
        seen(holds=True),
        for_a(
            "team-day-cap", gpus=2, stops=("a",), held=(Held(what="job a", code="team-day-cap"),)
        ),
        "team-day-cap",
        "It is to wait: the team's cap for today (UTC) leaves no room for it.",
    ),
    "runs, put off": (
        seen(holds=True),
        for_a(gpus=4, held=(Held(what="job a", code="not-ready"),)),
        "running",
        "it works on where it is",
    ),
    "runs, node forced": (
        seen(holds=True),
        for_a("cap-day", gpus=2, stops=("a",), forced=("n1",)),
        "cap-day",
        "It is told to stop now. Node n1 is given back while the job is on it.",
    ),
    "stopping": (
        seen(holds=True, is_stopping=True),
        for_a("nodes-to-come", gpus=4),
        "nodes-to-come",
        "It was told to stop, and holds its GPUs until it stops. It is to wait",
    ),
    "starts": (seen(holds=False), for_a(gpus=2, slots=ON_TWO), "starting", "It starts now on n1 (2 GPUs)."),
    "put off": (
        seen(holds=False),
        for_a(gpus=2, held=(Held(what="job a", code="not-free"),)),
        "gpus-to-fall-free",
        "it moves once they are free",
    ),
    "not planned": (seen(holds=False), for_a(), "not-planned", "The policy gives it no GPUs now"),
    "rests": (
        seen(holds=False), for_a("resting"), "resting", "It rests for 0 s more before it is tried again.",
    ),
    "after a job that is unplanned": (
        replace(
            seen(holds=False, waits_for="b"), unplanned={"b": seen(holds=False).jobs["b"]},
            jobs={"a": seen(holds=False, waits_for="b").jobs["a"]},
        ),
        for_a("after"),
        "after",
        "It waits for job b, which waits itself (after).",
    ),
    "left out": (seen(holds=False), for_a("cap-hour"), "cap-hour",
                 f"It waits: {WAIT_REASON_TEXTS['cap-hour']}."),
}  # fmt: skip


@pytest.mark.parametrize("case", STATES)
def test_an_explanation_contains_only_phrases_that_fit_the_jobs_state(case: str) -> None:
    """Jobs without GPUs get no phrases of running jobs, and running jobs no phrases of waiting jobs."""
    state, plan, code, says = STATES[case]
    said, holds = explain_job(state, plan, "a"), state.all_jobs["a"].is_running

    assert says in said
    assert not [words for words in (ONLY_OF_WAITERS if holds else ONLY_OF_HOLDERS) if words in said]
    assert Decision(state=state, plan=plan, actions=()).reason("a", holds_gpus=holds) == code


def test_the_reason_follows_changes_since_the_last_decision() -> None:
    """A job that lost its GPUs or is unknown is "new", and a job that got GPUs is "running"."""
    ran = Decision(state=seen(holds=True), plan=for_a(gpus=2), actions=())
    assert ran.reason("a", holds_gpus=False) == "new"
    waited = Decision(state=seen(holds=False), plan=for_a(gpus=2, slots=ON_TWO), actions=())
    assert waited.reason("a", holds_gpus=True) == "running"
    assert waited.reason("c", holds_gpus=False) == "new"


@pytest.mark.parametrize(
    ("kind", "until", "says"),
    [("no-capacity", 90.0, "asked again in 90 s"), ("quota", inf, "quota is used up. Of")],
)
def test_the_time_of_the_next_request_is_that_of_the_type_that_the_job_waits_for(
    kind: RefusalKind, until: float, says: str
) -> None:
    """The shorter refusal of another type is ignored; a refusal without an end has no time."""
    rests = {"gpu-x4": Cooldown(until=until, kind=kind), "other-x8": Cooldown(until=10.0)}
    assert says in explained(a_state(a_job("a"), cooldowns=rests), Wishes(widths={"a": 4}))


def test_a_job_on_a_node_that_is_no_longer_listed_has_an_explanation() -> None:
    """The job also holds a GPU on a listed node."""
    held = {"a": some_slots("n1", 0) + some_slots("n2", 0)}
    state = a_state(a_job("a"), nodes=[a_node("n1"), a_node("n2")], held=held)
    state = replace(state, nodes={"n1": state.nodes["n1"]})

    assert "It is on 2 nodes because" in explain_job(state, for_a(gpus=2), "a")


def waiting(reason: str, **terms: Any) -> tuple[ClusterState, Plan]:
    """Return a state at 600 s and a plan in which job a is set aside for this reason."""
    state = a_state(a_job("a"), a_job("b"), now=600.0)
    jobs = {**state.jobs, "a": replace(state.jobs["a"], terms=JobTerms(**terms))}
    return replace(state, jobs=jobs), a_plan(waiting={"a": reason})


PRESENT = "Job a of class c arrived 10.0 min ago and is in phase 1; it holds no GPUs."


@pytest.mark.parametrize(
    ("reason", "terms", "says"),
    [
        ("given-up", {}, f"It is given up: {WAIT_REASON_TEXTS['given-up']}."),
        ("resting", {}, "It rests for 0 s more before it is tried again."),
        (
            "not-before",
            {"not_before": 7200.0},
            "It is not to start before 1970-01-01T02:00:00+00:00 (not_before).",
        ),
        ("after", {"waits_for": "b"}, "It waits for job b, which waits itself (after)."),
        ("after", {"waits_for": "gone"}, "It waits for job gone, which is over (after)."),
        ("after", {}, "It waits for job None, which is over (after)."),
        (
            "user-day-cap",
            {"user": "eve"},
            "It is held back: the jobs of user eve have spent today's cap. It may start after midnight UTC.",
        ),
        ("team-day-cap", {"team": "red"}, f"It is held back: {WAIT_REASON_TEXTS['team-day-cap']}."),
    ],
)
def test_the_explanation_of_a_job_set_aside_gives_only_its_reason(
    reason: str, terms: dict[str, Any], says: str
) -> None:
    """The sentence uses the job's own terms."""
    assert explain_job(*waiting(reason, **terms), "a") == f"{PRESENT} {says}"


def test_the_explanation_of_a_job_set_aside_quotes_known_numbers() -> None:
    """The reason for giving up, a user's spending, a team's note, and the state of the awaited job."""
    state, plan = waiting("given-up")
    gone = with_columns(plan, given_up={"a": GivenUp(code="failed", reason="it failed 4 times")})
    assert explain_job(state, gone, "a") == f"{PRESENT} It is given up: it failed 4 times."
    state, plan = waiting("user-day-cap", user="eve")
    state = replace(state, users={"eve": UserMoney(spent_usd=4.5, cap_usd=4.25)})
    assert "today's cap: $4.50 of $4.25. It may start" in explain_job(state, plan, "a")
    state, plan = waiting("team-day-cap", team="red")
    notes = tuple(
        Held(what=f"team {team}", code="team-day-cap", numbers={"cap_usd": usd})
        for team, usd in (("blue", 1.0), ("red", 2.0), ("zoo", 3.0))
    )
    assert (
        explain_job(state, replace(plan, held=notes), "a")
        == f"{PRESENT} It is held back with its team red: {notes[1].why}."
    )
    state, plan = waiting("after", waits_for="b")
    busy = replace(state.jobs["b"], slots=some_slots("n1", 0))
    state = replace(state, jobs={**state.jobs, "b": busy})
    assert "job b, which is running (after)." in explain_job(state, plan, "a")


@pytest.mark.parametrize("reason", ["budget", "cap-hour", "cap-instances", "spot"])
def test_the_explanation_of_a_job_without_a_width_under_a_ceiling_gives_the_reason(reason: str) -> None:
    """A job with a width gets the sentence for its planned width."""
    state, plan = waiting(reason)
    assert explain_job(state, plan, "a").startswith(f"{PRESENT} It waits: {WAIT_REASON_TEXTS[reason]}. ")  # type: ignore[index]
    planned = explain_job(state, with_columns(plan, widths=gpus(a=2)), "a")
    assert planned.startswith(f"{PRESENT} Planned are 2 x gpu: the policy's width for its class and phase.")
    assert explain_job(state, a_plan(), "a") == (
        f"{PRESENT} The policy gives it no GPUs now: earlier jobs have them all."
    )


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("out-of-stock", "; it is asked again in 60 s"),
        ("no-price", f"; it is asked again in {NO_PRICE_SECONDS:.0f} s"),
        ("node-limit", " (3 held, 6 asked for now)"),
        ("loop", ""),
    ],
)
def test_the_explanation_counts_free_booting_requested_and_stopped_nodes_of_the_type(
    reason: Any, says: str
) -> None:
    """Nodes of another type count only towards the node limit."""
    nodes = [
        replace(a_node("n1"), gpus=("b", "b", None, None)),
        a_node("n2", phase="requested"),
        a_node("s1", phase="stopped"),
        a_node("s2", phase="stopped"),
        a_node("other", kind=an_instance_type(gpu_type="new")),
    ]
    rests = {"gpu-x4": Cooldown(until=660.0), "new-x4": Cooldown(until=610.0)}
    state = a_state(a_job("a"), nodes=nodes, now=600.0, cooldowns=rests)
    plan = a_plan(
        widths=gpus(a=4),
        waiting={"a": reason},
        launches={"gpu-x4": 1, "new-x4": 5},
        instance_types={"gpu-x4": an_instance_type(), "new-x4": an_instance_type(gpu_type="new")},
        held=(Held(what="2 gpu-x4", code="cap-day"),),
    )
    assert explain_job(state, plan, "a").endswith(
        f"It waits: {WAIT_REASON_TEXTS[reason]}{says}. Of its 4 GPUs 2 are free; nodes booting: 1, asked for "
        "now: 1, stopped and started first: 1 of 2."
    )
    noted = explain_job(state, with_columns(plan, waiting={"a": "cap-day"}), "a")
    assert f"It waits: {plan.held[0].why}. Of its" in noted


@pytest.mark.parametrize(
    ("tiers", "says"),
    [
        ((("top", "x"), ("top", "x")), " All are under x, tier 2 of 2 of the network."),
        ((("top", "x"), ("top", "y")), " All are under top, tier 1 of 2 of the network."),
        ((("left",), ("right",)), " They share no part of the network below their zone."),
        ((("top",), ()), ""),
    ],
)
def test_the_explanation_of_a_job_on_several_nodes_says_why_and_names_shared_switches(
    tiers: tuple[tuple[str, ...], tuple[str, ...]], says: str
) -> None:
    """Six GPUs are more than one node has; four were free on no one node."""
    nodes = [replace(a_node(name), tiers=tier) for name, tier in zip(("n1", "n2"), tiers, strict=True)]
    for slots, why in (
        ((0, 1, 2), "6 GPUs are more than the 4 of one node"),
        ((0, 1), "no one node had 4 GPUs free when it was placed"),
    ):
        held = some_slots("n1", *slots) + some_slots("n2", *slots)
        state = a_state(a_job("a"), nodes=nodes, held={"a": held})
        said = explain_job(state, a_plan(widths=gpus(a=len(held))), "a")
        assert said.endswith(f"It is on 2 nodes because {why}.{says}")


def test_the_explanation_names_jobs_that_share_a_gpu() -> None:
    """Places 1 and 3 are on GPU 1; a job that stops or moves away shares no GPU."""
    kind = replace(an_instance_type(gpus=4), places_per_gpu=2)
    held = {"a": some_slots("n1", 1), "b": some_slots("n1", 3), "c": some_slots("n1", 0)}
    state = a_state(*(a_job(name) for name in "abc"), nodes=[a_node("n1", kind=kind)], held=held)
    assert explain_job(state, a_plan(), "a").endswith("It shares GPU 1 of n1 with job b.")
    assert "It shares" not in explain_job(state, a_plan(stops=("b",)), "a")
    assert "It shares" not in explain_job(state, a_plan(slots={"b": some_slots("n1", 2)}), "a")
    whole = replace(state, nodes={"n1": a_node("n1")})
    assert "It shares" not in explain_job(whole, a_plan(), "a")


def test_the_explanation_says_why_a_shared_link_has_no_order() -> None:
    """No gate runs, a job does not ask the gate, or the gate has a reason not to order the link."""
    nodes = [a_node("n1", gpus=2), a_node("n2", gpus=2)]
    held = {"a": some_slots("n1", 0) + some_slots("n2", 0), "b": some_slots("n1", 1) + some_slots("n2", 1)}
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, held=held)
    known = GatedJob(ranked_by_hours=1.0)
    link = GatedLink(jobs=(), is_ordered=False, why="they never send at once")
    for gate, why in (
        (None, "no gate runs"),
        (GateView(links={}, jobs={}), "a and b do not ask the gate"),
        (GateView(links={}, jobs={"a": known}), "b does not ask the gate"),
        (GateView(links={}, jobs={"a": known, "b": known}), "they do not send through it"),
        (GateView(links={"n1": link, "n2": link}, jobs={"a": known, "b": known}), link.why),
    ):
        said = explain_job(replace(state, gate=gate), a_plan(), "a")
        assert said.endswith(f"It shares the link of n1, n2 with job b; neither sends first: {why}.")
    partly = explain_job(state, a_plan(link_order={"n1": ("a", "b"), "n2": ("b",)}), "a")
    assert "It shares the link of n1 with job b; it sends first, because less of it is left" in partly
    assert partly.endswith("It shares the link of n2 with job b; neither sends first: no gate runs.")


def test_the_explanation_lists_everything_that_is_planned_for_the_job() -> None:
    """A start, a head start or lent GPUs, an end, and a note; notes on other jobs are left out."""
    state = a_state(a_job("a"), nodes=[a_node("n1")])
    plan = a_plan(
        widths=gpus(a=2),
        slots={"a": some_slots("n1", 0, 1)},
        intended=gpus(a=4),
        ends={"a": "hangs"},
        held=(Held(what="job a", code="loop"), Held(what="job b", code="loop")),
    )
    said = explain_job(state, plan, "a")
    assert "It starts now on n1 (2 GPUs)." in said
    assert "It starts narrow and gets 4 x gpu once there is room; the early work outweighs" in said
    assert "It hangs, and is ended." in said
    assert said.count("Held back: ") == 1
    lent = explain_job(state, a_plan(widths=gpus(a=2), intended=gpus(a=1)), "a")
    assert "1 x gpu are planned for it; the rest would be idle on its nodes" in lent
