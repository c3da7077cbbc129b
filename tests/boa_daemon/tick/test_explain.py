"""Why a job has its width and its node, or why it waits."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from boa_daemon.errors import InputError
from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.explain import explain_job
from boa_daemon.tick.limits import Held
from boa_daemon.tick.offers import Cooldown, RefusalKind
from boa_daemon.tick.reasons import WAITING
from boa_daemon.tick.retries import GivenUp
from boa_daemon.tick.state import ClusterState, GatedJob, GateView, JobTerms, Plan, Rules, WaitReason
from policies.model import Width
from policies.placement.first_fit import FirstFit


def explained(state: ClusterState, wishes: Wishes, job: str = "a", site: Rules | None = None) -> str:
    """Return the explanation under first fit on four-GPU nodes."""
    plan = decide(state, allocator=wishes, placer=FirstFit(), rules=site or rules()).plan
    return explain_job(state, plan, job)


def test_a_running_job_says_what_it_holds_and_why() -> None:
    """Class, age, phase, width and nodes with the GPUs used on each."""
    state = a_state(a_job("a", phase=3), nodes=[a_node("n1")], held={"a": some_slots("n1", 0, 1)}, now=1800.0)
    assert explained(state, Wishes(widths={"a": 2})) == (
        "Job a of class c arrived 30.0 min ago and is in phase 4; it holds 2 x gpu on n1 (2 GPUs). "
        "Planned are 2 x gpu: the policy's width for its class and phase."
    )


def test_a_policy_that_gives_reasons_is_quoted() -> None:
    """Reasons of the allocation come first-hand."""
    state = a_state(a_job("a"))
    plan = decide(state, allocator=Wishes(widths={"a": 2}), placer=FirstFit(), rules=rules()).plan
    plan = replace(plan, reasons={"a": "an hour is worth 2.50 USD"})

    assert "Planned are 2 x gpu: an hour is worth 2.50 USD." in explain_job(state, plan, "a")


def test_a_waiting_job_says_how_many_gpus_are_free_booting_and_asked_for() -> None:
    """Ten GPUs: two free, one node booting, one more asked for."""
    state = a_state(
        a_job("b"),
        a_job("a"),
        nodes=[a_node("n1"), a_node("n2", phase="requested")],
        held={"b": some_slots("n1", 0, 1)},
    )
    assert explained(state, Wishes(widths={"a": 10, "b": 2})).endswith(
        f"It waits: {WAITING['nodes-to-come']}. "
        "Of its 10 GPUs 2 are free; nodes booting: 1, asked for now: 1."
    )


@pytest.mark.parametrize(
    ("wishes", "changes", "site", "says"),
    [
        (
            Wishes(widths={"a": 4}),
            {"cooldowns": {"gpu-x4": Cooldown(until=60.0)}},
            rules(),
            f"{WAITING['out-of-stock']}; it is asked again in 60 s",
        ),
        (Wishes(widths={"a": 4}), {}, rules(max_nodes=0), f"{WAITING['node-limit']} (0 held)"),
        (Wishes(widths={"a": 4}, nodes={"gpu-x4": 1}), {}, rules(), WAITING["fleet-full"]),
        (Wishes(widths={}, nodes={"gpu-x4": 1}), {}, rules(), "earlier jobs have them all"),
    ],
)
def test_every_reason_to_wait_has_a_sentence(
    wishes: Wishes, changes: dict[str, object], site: Rules, says: str
) -> None:
    """Stock, limit, full fleet, not admitted."""
    assert says in explained(a_state(a_job("a"), **changes), wishes, site=site)


def test_an_unknown_job_is_an_error_with_a_suggestion() -> None:
    """A typo names the closest job."""
    with pytest.raises(InputError, match="Did you mean 'train-1'"):
        explained(a_state(a_job("train-1")), Wishes(widths={}), job="train-2")


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        (1, "1 step to ends without a checkpoint; it is to do it again"),
        (7, "7 steps to ends without a checkpoint; it is to do them again"),
    ],
)
def test_what_was_lost_is_said(lost: int, says: str) -> None:
    """Steps that no checkpoint has, and how it failed."""
    state = a_state(a_job("a"))
    job = replace(state.jobs["a"], lost_steps=lost, terms=JobTerms(failures=1, last_end="signal 9"))
    said = explained(replace(state, jobs={"a": job}), Wishes(widths={}))
    assert f"It lost {says}." in said
    assert "It failed once so far; how it ended last: signal 9." in said


def test_what_ordering_saves_is_said_and_links_of_others_are_not() -> None:
    """A job measured its messages and gains from the order; a link where it does not send is left out."""
    nodes = [a_node("n1", gpus=2), a_node("n2", gpus=2)]
    held = {"a": some_slots("n1", 0) + some_slots("n2", 0), "b": some_slots("n1", 1) + some_slots("n2", 1)}
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, held=held)
    for gain, says in (
        (0.125, "its time by -12.5%."),
        (-0.125, "its time by +12.5%."),
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
ONLY_OF_HOLDERS = ("keeps its GPUs", "works on", "told to stop", "let go", "goes on", "under it")
ONLY_OF_WAITERS = ("holds no GPUs", "It waits", "it waits", "rests", "given up", "It starts now", "held back")


def seen(*, holds: bool, unplanned: bool = False, is_stopping: bool = False, **terms: Any) -> ClusterState:
    """Return a state with job a on two GPUs of n1, or on none, beside job b, which waits."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held={"a": ON_TWO} if holds else {})
    job = replace(state.jobs["a"], is_stopping=is_stopping, terms=JobTerms(**terms))
    others = {"b": state.jobs["b"]}
    if unplanned:
        return replace(state, jobs=others, unplanned={"a": job})
    return replace(state, jobs={"a": job, **others})


def a_plan(
    waits: WaitReason | None = None, *, gpus: int | None = None, slots: Any = None, **changes: Any
) -> Plan:
    """Return a plan that gives job a so many GPUs, now or once it need not wait."""
    return Plan(
        widths={} if gpus is None else {"a": Width("gpu", gpus)},
        slots={} if slots is None else {"a": slots},
        waiting={} if waits is None else {"a": waits},
        **changes,
    )


STATES: dict[str, tuple[ClusterState, Plan, str, str]] = {
    "unplanned, waits": (
        seen(holds=False, unplanned=True),
        a_plan(),
        "unplanned",
        "the last one lacks its class: it waits until there is one that has it.",
    ),
    "unplanned, given up": (
        seen(holds=False, unplanned=True),
        a_plan(given_up={"a": GivenUp(code="max-usd", reason="max_usd reached")}),
        "given-up",
        "It is given up: max_usd reached.",
    ),
    "unplanned, runs": (
        seen(holds=True, unplanned=True),
        a_plan(),
        "running",
        "the last one lacks its class: it keeps its GPUs, and starts nowhere else.",
    ),
    "unplanned, told to stop": (
        seen(holds=True, unplanned=True),
        a_plan(stops=("a",)),
        "running",
        "it starts nowhere once it has let go. It is told to stop now.",
    ),
    "unplanned, stopping": (
        seen(holds=True, unplanned=True, is_stopping=True),
        a_plan(),
        "running",
        "it starts nowhere once it has let go. It was told to stop, and holds its GPUs until it has.",
    ),
    "unplanned, hangs": (
        seen(holds=True, unplanned=True),
        a_plan(ends={"a": "made no step for 900 s"}),
        "running",
        "It made no step for 900 s, and is ended.",
    ),
    "runs": (seen(holds=True), a_plan(gpus=2), "running", "Planned are 2 x gpu"),
    "runs, waits for more": (
        seen(holds=True),
        a_plan("nodes-to-come", gpus=4),
        "nodes-to-come",
        "It works on where it is, and waits for that width: "
        f"{WAITING['nodes-to-come']}. Of its 4 GPUs it holds 2, and 2 more are free",
    ),
    "runs, moves now": (
        seen(holds=True),
        a_plan(gpus=4, slots=some_slots("n1", 0, 1, 2, 3)),
        "running",
        "It is told to stop now. Once it has let go it starts on n1 (4 GPUs).",
    ),
    "runs, told to stop for the budget": (
        seen(holds=True),
        a_plan("budget", stops=("a",)),
        "budget",
        f"It is to wait: {WAITING['budget']}.",
    ),
    "runs, told to stop for a team's cap": (
        seen(holds=True),
        a_plan(
            "team-day-cap", gpus=2, stops=("a",), held=(Held(what="job a", code="team-day-cap"),)
        ),
        "team-day-cap",
        "It is to wait: job a: what its team may spend today (UTC) leaves no room for it.",
    ),
    "runs, put off": (
        seen(holds=True),
        a_plan(gpus=4, held=(Held(what="job a", code="not-ready"),)),
        "running",
        "it works on where it is",
    ),
    "runs, node forced": (
        seen(holds=True),
        a_plan("cap-day", gpus=2, stops=("a",), forced=("n1",)),
        "cap-day",
        "It is told to stop now. Node n1 is given back under it.",
    ),
    "stopping": (
        seen(holds=True, is_stopping=True),
        a_plan("nodes-to-come", gpus=4),
        "nodes-to-come",
        "It was told to stop, and holds its GPUs until it has. It is to wait",
    ),
    "starts": (seen(holds=False), a_plan(gpus=2, slots=ON_TWO), "starting", "It starts now on n1 (2 GPUs)."),
    "put off": (
        seen(holds=False),
        a_plan(gpus=2, held=(Held(what="job a", code="not-free"),)),
        "gpus-to-fall-free",
        "it waits a moment",
    ),
    "not planned": (seen(holds=False), a_plan(), "not-planned", "The policy gives it no GPUs now"),
    "rests": (
        seen(holds=False), a_plan("resting"), "resting", "It rests for 0 s more before it is tried again.",
    ),
    "after a job that is unplanned": (
        replace(
            seen(holds=False, waits_for="b"), unplanned={"b": seen(holds=False).jobs["b"]},
            jobs={"a": seen(holds=False, waits_for="b").jobs["a"]},
        ),
        a_plan("after"),
        "after",
        "It waits for job b, which waits itself (after).",
    ),
    "left out": (seen(holds=False), a_plan("cap-hour"), "cap-hour", f"It waits: {WAITING['cap-hour']}."),
}  # fmt: skip


@pytest.mark.parametrize("case", STATES)
def test_nothing_is_said_that_is_not_true_of_a_jobs_state(case: str) -> None:
    """Who holds nothing keeps, stops and leaves nothing; who holds GPUs does not wait, and starts later."""
    state, plan, code, says = STATES[case]
    said, holds = explain_job(state, plan, "a"), state.all_jobs["a"].is_running

    assert says in said
    assert not [words for words in (ONLY_OF_WAITERS if holds else ONLY_OF_HOLDERS) if words in said]
    assert Decision(state=state, plan=plan, actions=()).reason("a", holds_gpus=holds) == code


def test_what_has_changed_since_the_last_look_is_not_told_as_it_was() -> None:
    """A job that has ended since does not start now, one that has started runs, an unseen one is new."""
    ran = Decision(state=seen(holds=True), plan=a_plan(gpus=2), actions=())
    assert ran.reason("a", holds_gpus=False) == "new"
    waited = Decision(state=seen(holds=False), plan=a_plan(gpus=2, slots=ON_TWO), actions=())
    assert waited.reason("a", holds_gpus=True) == "running"
    assert waited.reason("c", holds_gpus=False) == "new"


@pytest.mark.parametrize(
    ("kind", "until", "says"),
    [("no-capacity", 90.0, "asked again in 90 s"), ("quota", inf, "quota is used up. Of")],
)
def test_the_next_question_is_about_the_machine_that_a_job_waits_for(
    kind: RefusalKind, until: float, says: str
) -> None:
    """Another type's refusal ends sooner and says nothing of this one; one without an end has none."""
    rests = {"gpu-x4": Cooldown(until=until, kind=kind), "other-x8": Cooldown(until=10.0)}
    assert says in explained(a_state(a_job("a"), cooldowns=rests), Wishes(widths={"a": 4}))


def test_a_job_whose_node_is_gone_is_explained_all_the_same() -> None:
    """It holds GPUs of a node that no listing shows any more, and of another."""
    held = {"a": some_slots("n1", 0) + some_slots("n2", 0)}
    state = a_state(a_job("a"), nodes=[a_node("n1"), a_node("n2")], held=held)
    state = replace(state, nodes={"n1": state.nodes["n1"]})

    assert "It is on 2 nodes because" in explain_job(state, a_plan(gpus=2), "a")
