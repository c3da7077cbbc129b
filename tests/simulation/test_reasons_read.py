"""An independent reader checks what is said of each job against the state, under every kind of limit."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

import boa_daemon.tick
from boa_daemon.testing import a_class, a_job, a_node, a_problem, a_state, an_instance_type
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.explain.runner_up import Alternatives, WidthLimits, width_choice
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.offers import Cooldown, Offer
from boa_daemon.tick.facts.reasons import WAIT_REASON_TEXTS
from boa_daemon.tick.facts.state import ClusterState, Due, JobTerms, Rules, UserMoney
from boa_daemon.tick.facts.team_money import TeamMoney
from boa_daemon.tick.room.service_order import places_in_queue
from policies.model import Budget, GpuSlot, JobId, Width
from policies.online.width_comparison import compare_widths
from policies.placement.first_fit import FirstFit
from policies.registry import PolicyOptions, Site, build_policy
from policies.speedup import Amdahl

KIND = an_instance_type(gpus=4)
CLASSES = [
    a_class(
        f"c{n}",
        sizes=(4.0,),
        curve=Amdahl(parallel_fraction=0.9 + 0.03 * n, max_gpus=16),
        arrivals_per_hour=4.0,
    )
    for n in range(3)
]
BUDGET = Budget(amount=200.0)
SITE = Site(problem=a_problem(*CLASSES, budget=BUDGET), budget=BUDGET, instance_types={"gpu": KIND})
POLICY = build_policy("boa-paced", SITE, PolicyOptions()).allocator
NOW = 1_000_000.0
HOURS = tuple((Width("gpu", gpus), 6.0 / gpus) for gpus in (1, 2, 4, 8))
LIMITS = (
    "none",
    "max_instances",
    "cap-hour",
    "cap-day",
    "cap-month",
    "quota",
    "stock",
    "user",
    "team",
    "ordered",
    "max_usd",
    "rigid",
    "date",
)


@st.composite
def decisions(draw: st.DrawFn) -> tuple[str, int, Decision]:
    """Return a limit, its size in nodes, and the decision under it about random jobs on random nodes."""
    limit, most = draw(st.sampled_from(LIMITS)), draw(st.integers(1, 4))
    count = draw(st.integers(1, 7))
    nodes = [
        a_node(f"n{n}", gpus=4, kind=KIND, launched_at=NOW - 900.0) for n in range(draw(st.integers(0, most)))
    ]
    free = [GpuSlot(node.id, index) for node in nodes for index in range(4)]
    held: dict[JobId, tuple[GpuSlot, ...]] = {}
    jobs = []
    for n in range(count):
        jobs.append(
            a_job(
                f"j{n}",
                class_name=f"c{n % 3}",
                arrived_at=NOW - 10.0 * (count - n),
                remaining_gpu_hours=draw(st.floats(0.2, 4.0)),
                draw=draw(st.floats(0.0, 0.99)),
            )
        )
        width = draw(st.sampled_from((0, 0, 1, 2, 4)))
        if width and width <= len(free):
            held[f"j{n}"], free = tuple(free[:width]), free[width:]
    state = a_state(*jobs, nodes=nodes, held=held, now=NOW)
    return (
        limit,
        most,
        decide(limited(state, limit, most), allocator=POLICY, placer=FirstFit(), rules=site(limit, most)),
    )


def site(limit: str, most: int) -> Rules:
    """Return the rules with one limit of `most` nodes, or their price."""
    caps = {
        "cap-hour": Caps(usd_per_hour=most * KIND.usd_per_hour),
        "cap-day": Caps(usd_per_day=most * KIND.usd_per_hour),
        "cap-month": Caps(usd_per_month=most * KIND.usd_per_hour),
    }
    return Rules(
        instance_types={"gpu": KIND},
        max_nodes=most if limit == "max_instances" else None,
        caps=caps.get(limit),
    )


def limited(state: ClusterState, limit: str, most: int) -> ClusterState:
    """Return the state under a limit that is not in the rules."""
    if limit == "quota":
        left = max(most - len(state.nodes), 0)
        return replace(state, offers=(Offer(instance_type=KIND.name, usd_per_hour=1.0, nodes_left=left),))
    if limit == "stock":
        return replace(state, cooldowns={KIND.name: Cooldown(until=NOW + 60.0)})
    terms = {
        "user": JobTerms(user="eve"),
        "team": JobTerms(team="red"),
        "ordered": JobTerms(ordered_gpus=2),
        "max_usd": JobTerms(money_ends_at=NOW - 1.0),
        "date": JobTerms(
            due=Due(at=NOW + 7200.0, hours=tuple((Width("gpu", n), 6.0 / n) for n in (1, 2, 4, 8)))
        ),
    }
    jobs = dict(state.jobs)
    first = jobs["j0"]
    if limit in terms:
        jobs["j0"] = replace(first, terms=terms[limit])
    if limit == "rigid":
        jobs["j0"] = replace(first, is_rigid=True)
    users = {"eve": UserMoney(cap_usd=1.0, spent_usd=2.0)} if limit == "user" else {}
    teams = {"red": TeamMoney(day_cap_usd=1.0, spent_today_usd=2.0)} if limit == "team" else {}
    return replace(state, jobs=jobs, users=users, teams=teams)


NAMES = {
    "max_instances": "max_instances",
    "cap-hour": "/hour",
    "quota": "quota",
    "stock": "stock",
}
"""What a sentence must say where one of these limits changes a width."""


@settings(max_examples=sampled(400), deadline=None)
@given(decisions())
def test_every_sentence_is_true_of_the_state_and_the_plan(found: tuple[str, int, Decision]) -> None:
    """Widths said are widths given, places are places, and the limit that binds is named."""
    limit, _, decision = found
    state, plan = decision.state, decision.plan
    places = places_in_queue(state, plan)
    assert sorted(places.values()) == list(range(1, len(places) + 1))
    alone = POLICY.allocate([job.job for job in state.jobs.values()], now=NOW).widths
    for name, job in state.jobs.items():
        said = decision.explain(name)
        first, width = said.split(". ")[0], plan.jobs.widths.get(name)
        for gpus in re.findall(r"Planned are (\d+) x gpu", said):
            assert width is not None
            assert int(gpus) == width.gpus
        if job.slots:
            assert f"{job.job.width}" in first or "stops" in first or "hangs" in first, first
        elif name in plan.jobs.slots:
            assert f"starts now on {width}" in first
        elif name in places:
            assert "alone in the queue" in first or f"number {places[name]} of {len(places)}" in first
        if width is not None and width != alone[name] and limit in NAMES and name not in plan.jobs.intended:
            assert NAMES[limit] in plan.jobs.reasons[name], (limit, plan.jobs.reasons[name])
        code = plan.jobs.waiting.get(name)
        if code is not None and not job.slots and name not in plan.jobs.given_up:
            assert WAIT_REASON_TEXTS[code] in said or any(note.code == code for note in plan.held), said
    assert "order of arrival" not in " ".join(decision.explain(name) for name in state.jobs).replace(
        "not by order of arrival", ""
    )


@settings(max_examples=sampled(400), deadline=None)
@given(decisions())
def test_the_runner_up_is_possible_under_the_same_limits_or_the_limit_is_named(
    found: tuple[str, int, Decision],
) -> None:
    """A width that costs less than the chosen one is only named with what forbids it."""
    limit, most, decision = found
    state, plan = decision.state, decision.plan
    prices = plan.node_prices
    placed = {name for name in plan.jobs.widths if state.jobs[name].slots or name in plan.jobs.slots}
    gpus = sum(plan.jobs.widths[name].gpus for name in placed)
    weighed = Alternatives.of(state, plan).jobs
    for name, one in weighed.items():
        after = gpus - (plan.jobs.widths[name].gpus if name in placed else 0) + one.other.gpus
        if limit in ("max_instances", "cap-hour", "quota") and one.other.gpus > plan.jobs.widths[name].gpus:
            assert -(-after // 4) <= max(most, len(state.nodes)), (name, one)
        if limit == "ordered" and name == "j0":
            assert one.other.gpus == 2
    for name in plan.jobs.widths:
        choice = width_choice(state, plan, name)
        if choice is None:
            continue
        assert choice.chosen == str(plan.jobs.widths[name])
        every = compare_widths(
            [state.jobs[name].job],
            {name: plan.jobs.widths[name]},
            prices.columns,
            multiplier=prices.multiplier,
        )[name]
        limits = WidthLimits.of(state, plan)
        cheaper = every.other_cost < choice.cost * (1.0 - 1e-9)
        if cheaper and limits.forbidding(state.jobs[name].job, every.other):
            assert choice.forbidden_by
            assert str(every.other) in choice.sentence
            assert choice.forbidden_by in choice.sentence
        if choice.is_best:
            job = state.jobs[name].job
            for other in prices.columns["c0"].widths:
                one = compare_widths([job], {name: other}, prices.columns, multiplier=prices.multiplier)
                if name in one and limits.allow(job, other):
                    assert one[name].cost >= choice.cost * (1.0 - 1e-9), (name, other)


@settings(max_examples=sampled(400), deadline=None)
@given(decisions())
def test_a_reason_never_outlives_its_width(found: tuple[str, int, Decision]) -> None:
    """Where the plan's width is not the policy's, its reason is not the policy's either."""
    _, _, decision = found
    state, plan = decision.state, decision.plan
    aside = {
        name
        for name, code in plan.jobs.waiting.items()
        if code in ("user-day-cap", "team-day-cap", "given-up")
    }
    jobs = [job.job for name, job in state.jobs.items() if name not in aside]
    own = POLICY.allocate(jobs, now=NOW, money=None)
    for name, width in plan.jobs.widths.items():
        if name in own.widths and own.widths[name] != width:
            assert plan.jobs.reasons[name] != own.reasons[name]


STAGES = sorted(Path(boa_daemon.tick.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("file", STAGES, ids=lambda file: file.stem)
def test_no_module_of_the_tick_changes_a_width_without_its_reason(file: Path) -> None:
    """Who names `widths` in a call, or as a field to replace, names `reasons` beside it."""
    for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if call.func.id not in ("replace", "field_replacer", "Plan", "Allocation"):
            continue
        named = {word.arg for word in call.keywords} | {
            word.value for word in call.args if isinstance(word, ast.Constant)
        }
        if call.func.id in ("replace", "field_replacer") and "widths" in named:
            assert "reasons" in named, f"{file.name}:{call.lineno}"


@pytest.mark.parametrize("file", STAGES, ids=lambda file: file.stem)
def test_columns_of_a_plans_jobs_that_depend_on_each_other_change_by_methods_of_the_table(file: Path) -> None:
    """Only the module of the table itself replaces widths, reasons, slots, stops, waits and ends."""
    if file.name == "plan.py":
        return
    alone = {"intended", "dates", "unpaid", "given_up"}
    for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        what = ast.unparse(call.args[0])
        if ast.unparse(call.func) == "replace" and (what.endswith("jobs") or ".jobs." in what):
            assert {word.arg for word in call.keywords} <= alone, f"{file.name}:{call.lineno}"
        assert (ast.unparse(call.func), what) != ("field_replacer", "PlannedJobs"), (
            f"{file.name}:{call.lineno}"
        )
