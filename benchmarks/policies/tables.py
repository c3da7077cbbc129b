"""Outcomes as Markdown: ratios for the same money, and what they are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from work import Outcome

from boa_daemon.compare.cells import REFERENCE, Row
from boa_daemon.compare.summary import Ratio, ratio_of
from policies.registry import find_policy


def show(outcomes: Sequence[Outcome]) -> None:
    """Print one scenario as Markdown: BOA against the bound and its budget, then the rivals."""
    rows = [row for outcome in outcomes for row in outcome.rows]
    own = [row for row in rows if row.policy == REFERENCE]
    over = ratio_of([row.mean_jct_hours / row.lower_bound_mean_jct_hours for row in own])
    spent = np.mean([row.mean_usd_per_hour / row.budget for row in own])
    print(f"\n### {outcomes[0].scenario}\n")
    print(
        f"BOA: mean JCT {60.0 * np.mean([row.mean_jct_hours for row in own]):.1f} min, {said(over)} times "
        f"the bound, {spent:.1%} of the budget spent; {len(own)} runs, "
        f"{sum(outcome.seconds for outcome in outcomes):.0f} s.\n"
    )
    print("| rival | ratio, same money | spent, of BOA's | runs at equal spend |\n|---|---|---|---|")
    for policy in dict.fromkeys(row.policy for row in rows if row.policy != REFERENCE):
        mine = [row for row in rows if row.policy == policy]
        money = np.mean([row.mean_usd_per_hour / row.target_usd_per_hour for row in mine])
        equal = sum(row.at_equal_spend for row in mine)
        dearer = sum(row.equal_spend_mean_jct_hours is None for row in mine)
        note = f"; {dearer} can only spend more" if dearer else ""
        ratio = ratio_between(policy, REFERENCE, outcomes)
        print(f"| {policy} | {said(ratio)} | {money:.3f} | {equal} of {len(mine)}{note} |")
    best = {
        kind: min(
            (policy for policy in {row.policy for row in rows} if find_policy(policy).kind == kind),
            key=lambda policy: ratio_between(policy, REFERENCE, outcomes).mean,
            default=None,
        )
        for kind in ("fleet", "rule")
    }
    fleet, rule = best["fleet"], best["rule"]
    if fleet is not None and rule is not None:
        print(
            f"\nThe best fixed fleet ({fleet}) over BOA: {said(ratio_between(fleet, REFERENCE, outcomes))} = "
            f"elasticity ({fleet} over {rule}) {said(ratio_between(fleet, rule, outcomes))} x optimisation "
            f"({rule} over BOA) {said(ratio_between(rule, REFERENCE, outcomes))}.",
            flush=True,
        )


def said(ratio: Ratio) -> str:
    """Return a ratio with its interval."""
    low = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    return f"{ratio.mean:.2f}{low}"


def hours_of(row: Row) -> float:
    """Return the mean JCT for BOA's money; that of the run where every setting spends more."""
    return row.equal_spend_mean_jct_hours or row.mean_jct_hours


def ratio_between(slower: str, faster: str, outcomes: Sequence[Outcome]) -> Ratio:
    """Return the paired ratio of two policies over all traces and seeds."""
    pairs = []
    for outcome in outcomes:
        by = {(row.policy, row.seed): hours_of(row) for row in outcome.rows}
        pairs += [by[slower, seed] / by[faster, seed] for policy, seed in by if policy == REFERENCE]
    return ratio_of(pairs)
