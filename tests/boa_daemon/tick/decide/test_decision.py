"""`decide()` is pure: a state comes in, a plan and its actions come out."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, some_slots, states
from boa_daemon.tick import stages
from boa_daemon.tick.decide import decision, diff
from boa_daemon.tick.decide.decision import STAGES, Stage, decide
from boa_daemon.tick.explain import explain
from boa_daemon.tick.facts import placeable_nodes
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import Caps, Steady
from boa_daemon.tick.facts.needs import facts_of, needs_of
from boa_daemon.tick.facts.offers import Cooldown
from boa_daemon.tick.facts.retries import Failure
from boa_daemon.tick.facts.state import ClusterState, JobTerms, WarmPool
from boa_daemon.tick.facts.team_money import TeamMoney
from boa_daemon.tick.money import cap_projection, caps
from boa_daemon.tick.money.caps import within_instances
from boa_daemon.tick.room import launches
from policies.placement.first_fit import FirstFit


@given(case=states())
def test_the_same_state_gives_the_same_decision(case: tuple[ClusterState, Wishes]) -> None:
    """So a recorded tick can be replayed."""
    state, wishes = case
    first = decide(state, allocator=wishes, placer=FirstFit(), rules=rules())

    assert decide(state, allocator=wishes, placer=FirstFit(), rules=rules()) == first


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_a_stage_is_a_module_that_says_what_it_may_change(stage: Stage) -> None:
    """It has one public function, named like the module, and the module's docstring begins with "May"."""
    module = inspect.getmodule(stage)
    assert module is not None
    functions = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]

    assert functions == [stage.__name__] == [module.__name__.rsplit(".", 1)[-1]]
    assert (module.__doc__ or "").startswith("May ")


def test_every_module_in_stages_is_listed_exactly_once() -> None:
    """No module of `stages/` is missing from `STAGES`, and none is listed twice."""
    found = pkgutil.walk_packages(stages.__path__, f"{stages.__name__}.")
    modules = sorted(module.name.rpartition(".")[2] for module in found if not module.ispkg)

    assert sorted(stage.__name__ for stage in STAGES) == modules


@given(case=states())
def test_a_stage_with_nothing_to_do_returns_the_same_draft(case: tuple[ClusterState, Wishes]) -> None:
    """This holds without node prices, ceilings, caps and rules against flapping."""
    state, wishes = case
    draft = Draft(rules=rules(), allocator=wishes, placer=FirstFit())
    handed_on = set()
    for stage in STAGES:
        after = stage(state, draft)
        if after is draft:
            handed_on.add(stage.__name__)
        draft = after

    assert handed_on >= {
        "keep_still",
        "afford",
        "narrow",
        "leave_lent",
        "call_back",
        "keep_fleet",
        "start_early",
        "empty_nodes",
        "use_spare",
        "keep_spend_ceiling",
        "break_loops",
        "keep_caps",
        "order_links",
    }


@pytest.mark.parametrize(
    "module",
    [
        cap_projection,
        caps,
        decision,
        diff,
        explain,
        launches,
        placeable_nodes,
        *(inspect.getmodule(stage) for stage in STAGES),
    ],
)
def test_the_pure_modules_import_no_clock_randomness_files_or_network(module: object) -> None:
    """`time`, `random`, `numpy`, `os`, `socket` and similar modules are not imported."""
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"time", "datetime", "random", "numpy", "os", "io", "socket", "pathlib"}


def test_a_decision_has_an_explanation_and_a_wake_up() -> None:
    """The wake-up is the plan's."""
    state = a_state(a_job("a"), nodes=[a_node("n1", idle_since=0.0), a_node("n2", idle_since=5.0)], now=10.0)

    decision = decide(state, allocator=Wishes(widths={"a": 1}), placer=FirstFit(), rules=rules())

    assert decision.wake_at == 65.0
    assert "It starts now on n1 (1 GPU)" in decision.explain("a")


def test_a_policy_that_decides_in_rounds_gets_a_wake_up_for_its_next_round() -> None:
    """A round starts at the last change of the memory; an earlier wake-up wins; no jobs, no round."""
    every = replace(rules(), round_seconds=60.0)
    running = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0)}, now=100.0)
    wishes = Wishes(widths={"a": 1})

    def wakes_at(state: ClusterState) -> float | None:
        return decide(state, allocator=wishes, placer=FirstFit(), rules=every).wake_at

    assert wakes_at(running) == 160.0
    assert wakes_at(replace(running, memory=((3.0,), 90.0))) == 150.0
    assert wakes_at(a_state(nodes=[a_node("n1", idle_since=95.0)], now=100.0)) == 155.0


TERMS = (
    JobTerms(),
    JobTerms(not_before=2000.0),
    JobTerms(ordered_gpus=2),
    JobTerms(failed=(Failure(at=990.0, step=0),), failures=1),
    JobTerms(hours_end_at=900.0),
    JobTerms(waits_for="j0", awaited_end="cancelled"),
    JobTerms(team="red"),
)


@given(
    case=states(),
    terms=st.lists(st.sampled_from(TERMS), min_size=6, max_size=6),
    site=st.sampled_from(
        (
            {},
            {"max_nodes": 2},
            {"caps": Caps(usd_per_hour=5.0)},
            {"steady": Steady()},
            {"warm_pool": WarmPool(nodes=2)},
            {"orders_links": True},
        )
    ),
    seen=st.sets(st.sampled_from(("a stopped node", "a cool-down", "jobs that are not ready", "a team"))),
)
def test_stages_that_are_skipped_would_have_changed_nothing(
    case: tuple[ClusterState, Wishes],
    terms: list[JobTerms],
    site: dict[str, Any],
    seen: set[str],
) -> None:
    """Each of them hands on the same draft, with terms, teams, limits, cool-downs, stopped and late nodes."""
    state, wishes = case
    jobs = {name: replace(job, terms=terms[n]) for n, (name, job) in enumerate(state.jobs.items())}
    nodes = {**state.nodes}
    if "a stopped node" in seen:
        nodes["stopped"] = replace(a_node("stopped"), phase="stopped", idle_since=None)
    state = replace(
        state,
        jobs=jobs,
        nodes=nodes,
        cooldowns={"gpu-x4": Cooldown(until=1100.0)} if "a cool-down" in seen else {},
        not_ready=frozenset(jobs) if "jobs that are not ready" in seen else frozenset(),
        teams={"red": TeamMoney(day_cap_usd=1.0, spent_today_usd=2.0)} if "a team" in seen else {},
    )
    draft = Draft(rules=within_instances(rules(**site)), allocator=wishes, placer=FirstFit())
    idle = decision._idle_stages[facts_of(state, draft.rules)]
    for stage in STAGES:
        after = stage(state, draft)
        if stage in idle:
            assert after is draft, stage.__name__
        draft = after


def test_most_stages_of_a_plain_tick_are_skipped_and_each_fact_brings_some_back() -> None:
    """Fifteen stages need a fact; every fact is needed by a stage."""
    state, site = a_state(a_job("a"), nodes=[a_node("n1")]), rules()
    assert facts_of(state, site) == ()
    needs = [found for stage in STAGES if (found := needs_of(stage)) is not None]
    assert len(decision._idle_stages[()]) == len(needs) == 15
    for fact in frozenset[Any]().union(*needs):
        assert decision._idle_stages[fact,] < decision._idle_stages[()]
