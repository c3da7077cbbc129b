"""Why a job has its width and its node, or why it waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.errors import InputError
from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decision import decide
from boa_daemon.tick.explain import explain_job
from boa_daemon.tick.offers import Cooldown
from boa_daemon.tick.reasons import WAITING
from boa_daemon.tick.state import ClusterState, GatedJob, GateView, JobTerms, Rules
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
