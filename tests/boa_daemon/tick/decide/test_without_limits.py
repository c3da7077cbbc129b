"""Each limit that is named is lifted: the job starts or gets wider, or what holds it next is said."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from capped_sites import FAST, NOW, SLOW, CappedSite, a_capped_site
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.testing import a_job, a_state
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.offers import Cooldown, RefusalKind
from boa_daemon.tick.facts.reasons import WAIT_REASON_TEXTS, WaitReason
from boa_daemon.tick.facts.state import ClusterState, JobTerms, Rules
from boa_daemon.tick.facts.team_money import TeamMoney
from policies.placement.first_fit import FirstFit

Lift = Callable[[ClusterState, Rules], tuple[ClusterState, Rules]]
HOURLY, DAILY = "the ceiling on dollars per hour", "the cap on dollars per day"
NODES, TEAM = "the limit on nodes is reached", "the team's cap for today"


def _caps(state: ClusterState, rules: Rules, **none: None) -> tuple[ClusterState, Rules]:
    caps = rules.caps
    for name in none:
        caps = None if caps is None else replace(caps, **{name: None})  # type: ignore[arg-type]
    return state, replace(rules, caps=caps)


def _nodes(state: ClusterState, rules: Rules) -> tuple[ClusterState, Rules]:
    return _caps(state, replace(rules, max_nodes=None), instances=None)


def _asked(kind: RefusalKind) -> Lift:
    def lift(state: ClusterState, rules: Rules) -> tuple[ClusterState, Rules]:
        left = {scope: rest for scope, rest in state.cooldowns.items() if rest.kind != kind}
        offers = state.offers
        if kind == "quota":
            offers = tuple(replace(offer, nodes_left=None) for offer in offers)
        return replace(state, cooldowns=left, offers=offers), rules

    return lift


def _prices(state: ClusterState, rules: Rules) -> tuple[ClusterState, Rules]:
    dollars = {kind.name: kind.usd_per_hour for kind in (SLOW, FAST)}
    offers = tuple(
        replace(offer, usd_per_hour=offer.usd_per_hour or dollars[offer.instance_type])
        for offer in state.offers
    )
    return replace(state, offers=offers), rules


def _teams(**none: None) -> Lift:
    return lambda state, rules: (
        replace(
            state,
            teams={name: replace(one, **none) for name, one in state.teams.items()},  # type: ignore[arg-type]
        ),
        rules,
    )


LIFTS: Mapping[str, Lift] = {
    "cap-hour": lambda state, rules: _caps(state, rules, usd_per_hour=None),
    "cap-day": lambda state, rules: _caps(state, rules, usd_per_day=None),
    "cap-month": lambda state, rules: _caps(state, rules, usd_per_month=None),
    "cap-instances": _nodes,
    "node-limit": _nodes,
    "quota": _asked("quota"),
    "out-of-stock": _asked("no-capacity"),
    "denied": _asked("denied"),
    "throttled": _asked("throttled"),
    "bad-request": _asked("bad-request"),
    "no-price": _prices,
    "user-day-cap": lambda state, rules: (replace(state, users={}), rules),
    "team-day-cap": _teams(day_cap_usd=None),
    "team-month-cap": _teams(month_cap_usd=None),
    "team-share": _teams(ahead_usd=None),
}
HOLDING = {*LIFTS, "budget"}
TEXTS = {text: code for code, text in WAIT_REASON_TEXTS.items() if code in HOLDING}


def lifted(site: CappedSite, codes: list[str]) -> Decision:
    """Return the decision of the site without these limits."""
    state, rules = site.decision.state, site.rules
    for code in codes:
        state, rules = LIFTS[code](state, rules)
    return site.decided(state, rules)


@settings(max_examples=sampled(80), deadline=None)
@given(st.integers(0, 2**32))
def test_without_all_that_is_named_a_job_waits_for_no_limit(seed: int) -> None:
    """The limit of the reason and those of the last sentence are enough, and none of them is too many."""
    site = a_capped_site(seed)
    plan = site.decision.plan
    for name, code in plan.jobs.waiting.items():
        if code not in LIFTS or site.decision.state.all_jobs[name].is_stopping:
            continue
        said = site.decision.explain(name)
        _, found, more = said.partition("Without what it waits for alone it would still wait: ")
        named: list[str] = [code]
        for text in more.removesuffix(".").split("; and without that as well: ") if found else ():
            assert lifted(site, named).plan.jobs.waiting.get(name) == TEXTS[text], said
            named.append(TEXTS[text])
        if named[-1] != "budget":
            assert lifted(site, named).plan.jobs.waiting.get(name) not in HOLDING, said


@settings(max_examples=sampled(80), deadline=None)
@given(st.integers(0, 2**32))
def test_without_a_limit_that_narrows_a_job_it_is_wider_or_the_next_one_is_named(seed: int) -> None:
    """A named limit is no excuse: without it the width grows, or the sentence goes on."""
    site = a_capped_site(seed)
    plan = site.decision.plan
    for name, width in plan.jobs.widths.items():
        cap = next((cap for cap in plan.room_caps if f"{cap.name} cannot" in plan.jobs.reasons[name]), None)
        of = re.search(r"of which (\d+ x \S+) for this one", plan.jobs.reasons[name])
        if cap is None or of is None or of[1] == str(width) or cap.code not in LIFTS:
            continue
        after = lifted(site, [cap.code]).plan
        wider = after.jobs.widths.get(name)
        others = [one for one in after.room_caps if f"{one.name} cannot" in after.jobs.reasons.get(name, "")]
        if wider == width and others and others[0].code != cap.code:
            last = site.decision.explain(name).partition("Without that limit alone it would be no wider: ")[2]
            assert last.startswith(others[0].name), last


@pytest.mark.parametrize(
    ("caps", "most", "team", "names"),
    [
        ({}, None, False, []),
        ({"usd_per_hour": 1.0}, None, False, [HOURLY]),
        ({"usd_per_day": 0.5}, None, False, [DAILY]),
        ({"usd_per_hour": 1.0, "usd_per_day": 0.5}, None, False, [HOURLY, DAILY]),
        ({"usd_per_day": 0.5, "usd_per_month": 0.5}, None, False, [DAILY, "the cap on dollars per month"]),
        ({"usd_per_day": 0.5}, None, True, [TEAM, DAILY]),
        ({"usd_per_hour": 1.0, "usd_per_day": 0.5}, None, True, [TEAM, HOURLY, DAILY]),
    ],
)
def test_every_limit_of_a_pair_is_said(
    caps: dict[str, float], most: int | None, team: bool, names: list[str]
) -> None:
    """A job that two or three limits hold names them all, in the order in which they hold it."""
    site = a_capped_site(3)
    class_name = next(iter(site.decision.state.jobs.values())).job.class_name
    state = a_state(a_job("a", class_name=class_name), nodes=(), held={}, now=NOW)
    state = replace(state, books_opened_at=NOW)
    if team:
        job = replace(state.jobs["a"], terms=JobTerms(team="red"))
        spent = TeamMoney(day_cap_usd=1.0, spent_today_usd=2.0)
        state = replace(state, jobs={"a": job}, teams={"red": spent})
    rules = replace(site.rules, caps=Caps(**caps) if caps else None, max_nodes=most, steady=None)  # type: ignore[arg-type]
    said = decide(state, allocator=site.policy.allocator, placer=FirstFit(), rules=rules).explain("a")

    last = said.partition("Without what it waits for alone it would still wait: ")[2]
    assert [name for name in names if name in said] == names
    assert [name for name in names[1:] if name in last] == names[1:]
    assert bool(last) is (len(names) > 1)


def test_a_refusal_of_wide_orders_is_not_called_a_quota() -> None:
    """Two nodes at once are throttled and one is not: the limit is what the cloud accepts now."""
    kinds: dict[RefusalKind, WaitReason | str] = {
        "throttled": "what the cloud accepts now of",
        "no-capacity": "the cloud's stock of",
        "quota": "the account's quota of",
    }
    site = next(one for one in map(a_capped_site, range(50)) if not one.decision.state.offers)
    name = next(iter(site.rules.instance_types.values())).name
    for kind, words in kinds.items():
        rest = Cooldown(until=NOW + 200.0, kind=kind)
        state = replace(site.decision.state, cooldowns={f"{name}/*/*/2": rest})
        caps = site.decided(state, site.rules).plan.room_caps
        assert any(cap.name.startswith(f"{words} {name}") for cap in caps), (kind, caps)
