"""Outcomes as Markdown: one function per block of the results page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import numpy as np
from scenarios import CAP_PARTS, HEADLINE, SHORT, TUNED
from work import DAEMON, LEARNT, TRUTH, WRONG, AtCap, Outcome

from boa_daemon.comparing.cells import CellResult
from boa_daemon.comparing.comparison_summary import Ratio, ratio_of
from policies.registry import PolicyKind, find_policy

_NAMES = {DAEMON: "**the daemon** (`boa-paced`)", TUNED: "the plan tuned on the trace (`boa`)"}
LEAD = 0.95
"""The goal at a cap: the daemon's mean JCT over the best rival's."""
DISTANCE = 1.15
"""The goal for the mean JCT over the bound with boots."""


def said(ratio: Ratio | None) -> str:
    """Return a ratio with its interval, or a dash for none."""
    if ratio is None:
        return "-"
    low = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    return f"{ratio.mean:.2f}{low}"


def hours_of(row: CellResult) -> float:
    """Return the mean JCT at the daemon's spend, or that of the run if every setting spends more."""
    return row.equal_spend_mean_jct_hours or row.mean_jct_hours


def ratio_between(slower: str, faster: str, runs: Sequence[Sequence[CellResult]]) -> Ratio | None:
    """Return the paired ratio of two policies over their common traces and seeds, or None without any."""
    pairs = []
    for rows in runs:
        by = {(row.policy, row.seed): hours_of(row) for row in rows}
        seeds = {seed for policy, seed in by if policy == slower} & {s for p, s in by if p == faster}
        pairs += [by[slower, seed] / by[faster, seed] for seed in sorted(seeds)]
    return ratio_of(pairs) if pairs else None


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _by_column(outcomes: Sequence[Outcome]) -> list[tuple[str, list[Outcome]]]:
    """Return the outcomes by the column of their scenario, in order."""
    return [(name, list(own)) for name, own in groupby(outcomes, key=lambda o: o.scenario.column)]


def _by_group(outcomes: Sequence[Outcome]) -> list[tuple[str, list[Outcome]]]:
    """Return the outcomes by their table, in order."""
    return [(name, list(own)) for name, own in groupby(outcomes, key=lambda o: o.scenario.group)]


def _own(outcomes: Sequence[Outcome], told: str = LEARNT) -> list[CellResult]:
    """Return the daemon's rows."""
    return [row for outcome in outcomes for row in outcome.told.get(told, [])]


def _runs(outcomes: Sequence[Outcome]) -> list[list[CellResult]]:
    """Return the rows trace by trace."""
    return [outcome.rows for outcome in outcomes]


def _minutes(rows: Sequence[CellResult]) -> str:
    """Return the mean of the mean JCTs."""
    return f"{60.0 * np.mean([row.mean_jct_hours for row in rows]):.1f} min" if rows else "error"


def _over(rows: Sequence[CellResult], bound: Callable[[CellResult], float | None]) -> str:
    """Return the mean JCT over a bound, or a dash without a bound."""
    pairs = [(row.mean_jct_hours, bound(row)) for row in rows]
    if not pairs or any(value is None for _, value in pairs):
        return "-"
    return said(ratio_of([hours / value for hours, value in pairs if value is not None]))


def _plain_bound(row: CellResult) -> float | None:
    """Return the bound for GPUs that are rented one by one."""
    return row.lower_bound_mean_jct_hours


def _bound_with_boots(row: CellResult) -> float | None:
    """Return the bound for whole nodes that boot."""
    return row.lower_bound_with_boots_mean_jct_hours


def rivals(outcomes: Sequence[Outcome]) -> str:
    """Return the tables of ratios, one per group: a row per rival, a column per scenario."""
    parts = []
    for group, own in _by_group(outcomes):
        columns = _by_column(own)
        policies = list(dict.fromkeys(p for _, found in columns for p in found[0].scenario.rivals))
        rows: list[list[str]] = [
            [_NAMES[DAEMON], *(_minutes(_own(found)) for _, found in columns)],
            ["its spend, x load", *(_spend(found) for _, found in columns)],
            ["its mean JCT, x bound", *(_over(_own(found), _plain_bound) for _, found in columns)],
        ]
        if any(_over(_own(found), _bound_with_boots) != "-" for _, found in columns):
            rows.append(
                ["x bound with boots", *(_over(_own(found), _bound_with_boots) for _, found in columns)]
            )
        rows += [
            [_NAMES.get(policy, f"`{policy}`"), *(_cell(policy, found) for _, found in columns)]
            for policy in policies
        ]
        parts.append(f"### {group}\n\n" + _table(["", *(name for name, _ in columns)], rows))
    return "\n\n".join(parts)


def _spend(outcomes: Sequence[Outcome]) -> str:
    """Return the daemon's spend over the load."""
    spent = [row.mean_usd_per_hour / outcome.load for outcome in outcomes for row in _own([outcome])]
    return f"{np.mean(spent):.2f}" if spent else "error"


def _cell(policy: str, outcomes: Sequence[Outcome]) -> str:
    """Return a rival's ratio, and how many of its runs could only spend more than the daemon, if any."""
    if policy not in outcomes[0].scenario.rivals:
        return ""
    mine = [row for outcome in outcomes for row in outcome.rows if row.policy == policy]
    wanted = sum(outcome.scenario.seeds for outcome in outcomes)
    notes = []
    dearer = sum(row.equal_spend_mean_jct_hours is None for row in mine)
    if dearer:
        notes.append(f"dearer on {dearer} of {len(mine)}")
    if len(mine) < wanted:
        notes.append(f"error on {wanted - len(mine)} of {wanted}")
    return ", ".join([said(ratio_between(policy, DAEMON, _runs(outcomes))), *notes])


def beliefs(outcomes: Sequence[Outcome]) -> str:
    """Return the effect of beliefs: the daemon by what it was told, and the tuned plan at its spend."""
    head = [
        "workload",
        "learnt",
        LEARNT + ", spend",
        TRUTH,
        "spend",
        WRONG,
        "spend",
        "the tuned plan, same money",
    ]
    rows = []
    for outcome_group, found in groupby(outcomes, key=lambda o: o.scenario.name):
        own = list(found)
        cells = [outcome_group]
        for told in (LEARNT, TRUTH, WRONG):
            mine = _own(own, told)
            cells += [
                _minutes(mine),
                f"{np.mean([r.mean_usd_per_hour / r.budget for r in mine]):.2f}" if mine else "-",
            ]
        ratio = ratio_between(TUNED, DAEMON, _runs(own))
        rows.append([*cells, "-" if ratio is None else f"x {said(ratio)}"])
    return _table(head, rows)


def elasticity(outcomes: Sequence[Outcome]) -> str:
    """Return the shares of elasticity and of optimisation in the distance to the best fixed fleet."""
    rows = []
    for name, found in groupby(outcomes, key=lambda o: o.scenario.name):
        runs = _runs(list(found))
        fleet, rule = (_best(kind, runs) for kind in ("fleet", "rule"))
        if fleet is None or rule is None:
            continue
        rows.append(
            [
                name,
                f"`{fleet}`",
                said(ratio_between(fleet, DAEMON, runs)),
                f"`{rule}`",
                said(ratio_between(fleet, rule, runs)),
                said(ratio_between(rule, DAEMON, runs)),
            ]
        )
    head = ["workload", "best fleet", "over the daemon", "best rule", "elasticity", "optimisation"]
    return _table(head, rows)


def _best(kind: PolicyKind | None, runs: Sequence[Sequence[CellResult]]) -> str | None:
    """Return the rival of a kind (None: any kind) with the least mean JCT at equal spend."""
    policies = {row.policy for rows in runs for row in rows} - {DAEMON, TUNED}
    found = {
        policy: ratio.mean
        for policy in sorted(policies)
        if (kind is None or find_policy(policy).kind == kind)
        and (ratio := ratio_between(policy, DAEMON, runs)) is not None
    }
    return min(found, key=lambda policy: found[policy]) if found else None


def hours(outcomes: Sequence[Outcome]) -> str:
    """Return the uses of the GPU-hours that the daemon and the tuned plan rent."""
    rows = []
    for name, found in groupby(outcomes, key=lambda o: o.scenario.name):
        own = list(found)
        for policy in (DAEMON, TUNED):
            mine = [row for outcome in own for row in outcome.rows if row.policy == policy]
            if not mine:
                continue
            rented = np.array([row.gpu_hours_rented for row in mine])
            parts = [
                np.mean(np.array([getattr(row, f"gpu_hours_{part}") for row in mine]) / rented)
                for part in ("used", "overhead", "booting", "idle")
            ]
            rows.append(
                [
                    name,
                    f"`{policy}`",
                    *(f"{100.0 * part:.1f} %" for part in parts),
                    _minutes(mine),
                    _over(mine, _plain_bound),
                    _over(mine, _bound_with_boots),
                ]
            )
    head = ["workload", "", "works", "starts", "boots", "idle", "mean JCT", "x bound", "x bound with boots"]
    return _table(head, rows)


def caps(outcomes: Sequence[Outcome]) -> str:
    """Return the table at caps: the daemon beside the best rival and each rival, at equal spend."""
    head = [
        "workload", "budget", "cap", "spend, x load", "mean", "p95", "best rival", "its mean", "its p95",
        "the daemon over it", "`pollux`", "`srpt`", "tuned plan",
    ]  # fmt: skip
    rows = []
    for outcome, at in _at_caps(outcomes):
        own = next((row for row in at.rows if row.policy == DAEMON), None)
        if own is None:
            rows.append([outcome.scenario.name, f"{at.factor:g} x load", f"{at.part:g}", *["error"] * 10])
            continue
        best = _best(None, [at.rows])
        rival = next((row for row in at.rows if row.policy == best), own)
        rows.append(
            [
                outcome.scenario.name,
                f"{at.factor:g} x load",
                f"{own.max_nodes} nodes ({at.part:g})",
                f"{own.mean_usd_per_hour / outcome.load:.2f}",
                _minutes([own]),
                f"{60.0 * own.p95_jct_hours:.0f} min",
                f"`{best}`",
                f"{60.0 * hours_of(rival):.1f} min",
                f"{60.0 * rival.p95_jct_hours:.0f} min",
                f"{own.mean_jct_hours / hours_of(rival):.2f}",
                *(said(ratio_between(policy, DAEMON, [at.rows])) for policy in ("pollux", "srpt", TUNED)),
            ]
        )
    return _table(head, rows)


def _at_caps(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, AtCap]]:
    """Return every cap that was run."""
    return [(outcome, at) for outcome in outcomes for at in outcome.caps]


def goals(outcomes: Sequence[Outcome]) -> str:
    """Return the goals, and the worst miss of each."""
    rows = [_capped_goal(outcomes), _tail_goal(outcomes), _money_goal(outcomes)]
    for told, bound, limit, what in (
        (LEARNT, _bound_with_boots, DISTANCE, "the daemon within 1.15 of the bound with boots"),
        (LEARNT, _plain_bound, 1.25, "the daemon within 1.25 of the bound without boots"),
    ):
        found = {
            outcome.scenario.name: max(row.mean_jct_hours / value for row, value in pairs)
            for outcome in outcomes
            if (pairs := [(r, v) for r in _own([outcome], told) if (v := bound(r)) is not None])
        }
        rows.append(_goal(what, found, limit))
    nearest = {
        outcome.scenario.name: min(over_bound)
        for outcome in outcomes
        if (over_bound := [hours_of(r) / _bound_of(r, outcome) for r in outcome.rows if _is_held(r, outcome)])
    }
    rows.append(_goal("the bound with boots within 1.10 of the best run of any policy", nearest, 1.10))
    tuned = {
        name: 1.0 / ratio.mean
        for name, own in groupby(outcomes, key=lambda o: o.scenario.name)
        if (ratio := ratio_between(TUNED, DAEMON, _runs(list(own)))) is not None
    }
    rows.append(_goal("the daemon within 1.03 of the tuned plan, same money", tuned, 1.03))
    return _table(["aim", "held", "worst", "where"], rows)


def _bound_of(row: CellResult, outcome: Outcome) -> float:
    """Return the bound with boots for the daemon's spend on a seed, or infinity without a bound."""
    own = next(r for r in _own([outcome]) if r.seed == row.seed)
    return own.lower_bound_with_boots_mean_jct_hours or math.inf


def _is_held(row: CellResult, outcome: Outcome) -> bool:
    """Return whether a run spent no more than the daemon on its seed and that spend has a bound."""
    return row.equal_spend_mean_jct_hours is not None and math.isfinite(_bound_of(row, outcome))


def _goal(what: str, found: dict[str, float], limit: float) -> list[str]:
    """Return the row of a goal that figures stay below a limit."""
    if not found:
        return [what, "not measured", "", ""]
    worst = max(found, key=lambda name: found[name])
    held = sum(value <= limit for value in found.values())
    return [what, f"{held} of {len(found)}", f"{found[worst]:.2f}", worst]


def _capped_goal(outcomes: Sequence[Outcome]) -> list[str]:
    """Return how often the daemon is ahead of the best rival at a cap."""
    found = {}
    for outcome, at in _at_caps(outcomes):
        best = _best(None, [at.rows])
        ratio = None if best is None else ratio_between(DAEMON, best, [at.rows])
        if ratio is not None:
            found[_cap_name(outcome, at)] = ratio.mean
    return _goal(f"at a cap, mean JCT at most {LEAD:g} of the best rival's", found, LEAD)


def _tail_goal(outcomes: Sequence[Outcome]) -> list[str]:
    """Return how often the daemon's p95 at a cap is no worse than that of the rival with the least mean."""
    found = {}
    for outcome, at in _at_caps(outcomes):
        by = {row.policy: row for row in at.rows}
        best = _best(None, [at.rows])
        if DAEMON in by and best is not None:
            found[_cap_name(outcome, at)] = by[DAEMON].p95_jct_hours / by[best].p95_jct_hours
    return _goal("at a cap, p95 no worse than that rival's", found, 1.0)


def _money_goal(outcomes: Sequence[Outcome]) -> list[str]:
    """Return how often more money at the same cap waits longer, and how often more nodes do."""
    found = {}
    for outcome in outcomes:
        by = {(at.part, at.factor): row for at in outcome.caps for row in at.rows if row.policy == DAEMON}
        for (part, factor), row in by.items():
            for (other_part, other_factor), more in by.items():
                if (
                    part <= other_part
                    and factor <= other_factor
                    and (part, factor) != (other_part, other_factor)
                ):
                    steps = f"{part:g}, {factor:g} x to {other_part:g}, {other_factor:g} x"
                    name = f"{outcome.scenario.name}: {steps}"
                    found[name] = more.mean_jct_hours / row.mean_jct_hours
    return _goal("more money or nodes never wait longer", found, 1.0)


def _cap_name(outcome: Outcome, at: AtCap) -> str:
    """Return the name of a cap."""
    return f"{outcome.scenario.name}, {at.part:g} of the nodes, {at.factor:g} x load"


def short(outcomes: Sequence[Outcome]) -> str:
    """Return the page's first lines: the range of each rival's ratio over the workloads."""
    by_name = [(name, _runs(list(own))) for name, own in groupby(outcomes, key=lambda o: o.scenario.name)]
    lines = []
    for policies, words in (
        ((TUNED,), "**The same plan tuned on the very trace**, which no daemon can do"),
        (("pollux-autoscale",), "**Pollux's autoscaler**, as strong as we can make it"),
        (("pollux",), "**Pollux on its best fixed fleet**"),
        (("srpt",), "**Shortest remaining first** with the best fixed widths on its best fixed fleet"),
        (("a-srpt", "dally"), "**The A-SRPT-like and the Dally-like rival**, widths as good"),
        (("efficiency", "equal-width"), "**The simple rules**, one tuned efficiency or width for all"),
    ):
        found = [
            ratio.mean
            for _, runs in by_name
            for policy in policies
            if (ratio := ratio_between(policy, DAEMON, runs)) is not None
        ]
        if found:
            lines.append(f"- {words}: {min(found):.2f} to {max(found):.2f} times the daemon's mean JCT.")
    at_cap = _capped_goal(outcomes)
    if at_cap[1] != "not measured":
        lines.append(
            f"- **At a cap on nodes** the daemon is at {LEAD:g} of the best rival or better at "
            f"{at_cap[1]} caps; at worst at {at_cap[2]} ({at_cap[3]})."
        )
    return "\n".join(lines)


def readme(outcomes: Sequence[Outcome]) -> str:
    """Return the README's paragraph about BOA's gain, from the 85 short jobs."""
    runs = _runs([outcome for outcome in outcomes if outcome.scenario.name == HEADLINE])
    own = _own([outcome for outcome in outcomes if outcome.scenario.name == HEADLINE])
    words = {
        "efficiency": "the best single parallel efficiency",
        "equal-width": "one width for all",
        "pollux-autoscale": "a Pollux-style autoscaler as strong as we can make it",
        "pollux": "Pollux on its best fixed fleet",
        "srpt": "shortest-remaining-first with the best fixed widths",
        TUNED: "the same plan tuned on the very trace, which no daemon can do",
    }
    found = [
        f"{name} {ratio.mean:.2f}"
        for policy, name in words.items()
        if (ratio := ratio_between(policy, DAEMON, runs)) is not None
    ]
    return (
        f"For the same money, boots of 180 s and idle nodes included, {SHORT}, the daemon's own policy with "
        f"beliefs learnt while it runs takes {_minutes(own)}; for each of its minutes: {', '.join(found)}."
    )


def failures(outcomes: Sequence[Outcome]) -> str:
    """Return the cells that ended in an error."""
    found = [failure for outcome in outcomes for failure in outcome.failures]
    if not found:
        return "No cell ended in an error, and no run of any policy beats its bound."
    rows = [[failure.what, failure.words.replace("|", "/")] for failure in found]
    return f"{len(found)} cells ended in an error:\n\n" + _table(["cell", "what was said"], rows)


CAPS_NOTE = (
    f"Caps are {', '.join(f'{part:g}' for part in CAP_PARTS)} of the most nodes that the tuned plan holds "
    "without one."
)
