"""The tables of EC2's refusals and of the states of instances, as lines for the reference pages.

python benchmarks/aws_tables.py          # prints them; makes no calls
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from boa_daemon.backends.aws.client.errors import meaning_of
from boa_daemon.backends.aws.client.refusal_codes import BY_CODE, BY_MEANING, RefusalRule, rule_of
from boa_daemon.backends.aws.instances.node_states import NODE_STATES

SCOPES: Mapping[str, str] = {
    "offer": "type, zone, market",
    "reservation": "the reservation",
    "subnet": "the subnet; with all subnets of it, the zone",
    "zone": "the zone",
    "type in zone": "the type in the zone",
    "type": "the type",
    "image": "all types with the image",
    "market": "the market",
    "quota": "all types of the quota",
    "region": "everything",
    "order": "this order",
}


def refusal_lines() -> list[str]:
    """Return the table of refusals: codes with one row together, in the order of the code's table."""
    rows: dict[RefusalRule, list[str]] = {}
    for code in BY_CODE:
        rows.setdefault(rule_of(code, meaning_of(code, 400), ""), []).append(f"`{code}`")
    return [
        "| code | closes | others at once | rests | asked anew | what cures it |",
        "|---|---|---|---|---|---|",
        *(_line(rule, codes) for rule, codes in rows.items()),
    ]


def class_lines() -> list[str]:
    """Return the rows for codes that no row names, by their class."""
    return [
        "| class | closes | others at once | rests | asked anew | what cures it |",
        "|---|---|---|---|---|---|",
        *(_line(rule, [meaning]) for meaning, rule in BY_MEANING.items()),
    ]


def state_lines() -> list[str]:
    """Return the table of the states of instances."""
    rows = [
        f"| {rule.state} | {rule.wanted} | {rule.done} | {_deadline(rule.seconds)} | {rule.costs} "
        f"| {rule.told} |"
        for rule in NODE_STATES.values()
    ]
    return [
        "| state in EC2 | what we wanted | what is done | by when | costs from then on | who is told |",
        "|---|---|---|---|---|---|",
        *rows,
    ]


def _deadline(seconds: float | None) -> str:
    return "at once" if seconds is None else f"{seconds:g} s" if seconds < 120 else f"{seconds / 60:g} min"


def _line(rule: RefusalRule, names: Iterable[str]) -> str:
    others = "yes" if rule.tries_others else "no"
    return (
        f"| {', '.join(names)} | {SCOPES[rule.scope]} | {others} | {_rest(rule)} | {rule.stale or '-'} "
        f"| {rule.advice} |"
    )


def _rest(rule: RefusalRule) -> str:
    if rule.answer == "unknown":
        return "until it is known"
    if rule.rest_seconds is None:
        return "3 to 30 min"
    seconds = rule.rest_seconds
    return (
        f"{seconds:g} s"
        if seconds < 120
        else f"{seconds / 60:g} min"
        if seconds < 7200
        else (f"{seconds / 3600:g} h")
    )


def main() -> None:
    """Print the tables."""
    for lines in (refusal_lines(), class_lines(), state_lines()):
        print("\n".join(lines), end="\n\n")


if __name__ == "__main__":
    main()
