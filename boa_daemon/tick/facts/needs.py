"""When a stage has something to do: the facts without which it changes nothing, said by the stage itself.

`@only_with("terms", "teams")` above a stage says that it changes nothing unless jobs have terms or there are
teams. `decide()` skips it otherwise; most ticks of most sites have few of these facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.state import ClusterState, Rules
from policies.links.gpu_kinds import siblings
from policies.memo import LatestMemo

Stage: TypeAlias = Callable[[ClusterState, Draft], Draft]
Fact: TypeAlias = Literal[
    "terms", "claims", "teams", "market", "limits", "steady", "pool", "not-ready", "links", "machines"
]


def only_with(*facts: Fact) -> Callable[[Stage], Stage]:
    """Say of a stage that it changes nothing unless one of these facts holds."""

    def say(stage: Stage) -> Stage:
        vars(stage)["only_with"] = frozenset(facts)
        return stage

    return say


def needs_of(stage: Stage) -> frozenset[Fact] | None:
    """Return the facts of which a stage needs one; None if it may always have something to do."""
    needs: frozenset[Fact] | None = vars(stage).get("only_with")
    return needs


def facts_of(state: ClusterState, rules: Rules) -> tuple[Fact, ...]:
    """Return which facts hold. Cost: O(1) but for nodes that end."""
    facts = _facts_of_rules(rules)
    if state.judged_jobs:
        facts += ("terms",)
    if state.claims:
        facts += ("claims",)
    if state.teams:
        facts += ("teams",)
    if state.offers or state.cooldowns:
        facts += ("market",)
    if [node for node in state.passing_nodes if node.phase == "stopped"]:
        facts += ("pool",)
    if state.not_ready:
        facts += ("not-ready",)
    if state.gate is not None:
        facts += ("links",)
    return facts


def _of_rules(rules: Rules) -> tuple[Fact, ...]:
    """Return the facts that follow from the rules alone."""
    holds: dict[Fact, bool] = {
        "limits": rules.max_nodes is not None or rules.caps is not None,
        "steady": rules.steady is not None,
        "pool": rules.warm_pool is not None,
        "links": rules.orders_links,
        "machines": bool(siblings(rules.instance_types)),
    }
    return tuple(fact for fact, is_so in holds.items() if is_so)


_facts_of_rules = LatestMemo(_of_rules)
