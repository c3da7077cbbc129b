"""The table of policies and placers by name, and the parsing of policy options."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module

from policies import plugins
from policies.builders import BOA, BOA_PACED, best_effort, shortfall_of_site
from policies.errors import BrokenPlugin, InvalidProblem, UnknownPolicy
from policies.online.best_effort import Account
from policies.online.pacing import PERIOD_MONTHS
from policies.placement.first_fit import FirstFit
from policies.placement.lwf import AnyFree, LeastWorkloadFirst
from policies.protocols import Placer
from policies.site import (
    BuiltPolicy,
    PolicyEntry,
    PolicyKind,
    PolicyOptions,
    Site,
    closest,
)

__all__ = [
    "DEFAULT_POLICY",
    "PLACERS",
    "POLICIES",
    "BuiltPolicy",
    "PolicyEntry",
    "PolicyKind",
    "PolicyOptions",
    "Site",
    "build_policy",
    "find_placer",
    "find_policy",
    "parse_options",
    "shortfall_of_site",
]

_RIVALS: Mapping[str, str] = {
    "equal-width": "baselines:EQUAL_WIDTH",
    "efficiency": "baselines:EFFICIENCY",
    "greedy-marginal": "greedy:GREEDY_MARGINAL",
    "boa-authors": "boa_authors:BOA_AUTHORS",
    "asked": "requested_widths:ASKED",
    "asked-hold": "requested_widths:ASKED_HOLD",
    "pollux-autoscale": "pollux:POLLUX_AUTOSCALE",
    "pollux": "pollux:POLLUX",
    "tiresias": "tiresias:TIRESIAS",
    "static-fifo": "baselines:STATIC_FIFO",
    "static-srsf": "baselines:STATIC_SRSF",
    "srpt": "fixed_widths:SRPT",
    "elastic-srpt": "elastic_srpt:ELASTIC_SRPT",
    "gittins": "gittins:GITTINS",
    "a-srpt": "a_srpt:A_SRPT",
    "dally": "dally:DALLY",
    "static-equal": "baselines:STATIC_EQUAL",
}
"""The entry of each rival as `module:name` in `policies.rivals`, imported when it is asked for."""


class _Policies(Mapping[str, PolicyEntry]):
    """BOA's own policies, and the rivals, each loaded on first use as a plug-in is."""

    def __init__(self, own: Sequence[PolicyEntry], rivals: Mapping[str, str]) -> None:
        self._entries = {entry.name: entry for entry in own}
        self._names = (*self._entries, *rivals)

    def __getitem__(self, name: str) -> PolicyEntry:
        if name not in self._entries:
            module, _, entry = _RIVALS[name].partition(":")
            self._entries[name] = getattr(import_module(f"policies.rivals.{module}"), entry)
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


POLICIES: Mapping[str, PolicyEntry] = _Policies((BOA, BOA_PACED), _RIVALS)
"""Every built-in policy, in the order in which tables show them."""

DEFAULT_KAPPA = 1.0
DEFAULT_POLICY = "boa-paced"
"""The default policy of daemons and simulations."""
PLACERS: Mapping[str, Callable[[float], Placer]] = {
    "first-fit": lambda _kappa: FirstFit(),
    "list-scheduling": lambda _kappa: LeastWorkloadFirst(kappa=math.inf),
    "lwf": lambda kappa: LeastWorkloadFirst(kappa=kappa),
    "random": lambda _kappa: AnyFree(),
}
"""Constructors of placers by name; they take kappa, which only `lwf` uses."""


def find_policy(name: str) -> PolicyEntry:
    """Return the entry of a policy, built in or of a plug-in.

    Raises:
        UnknownPolicy: when there is none of that name.
        BrokenPlugin: when the plug-in is not a `PolicyEntry` or cannot be loaded.
    """
    found = POLICIES.get(name) or plugins.load("boa.policies", name)
    if found is None:
        known = frozenset((*POLICIES, *plugins.names("boa.policies")))
        raise UnknownPolicy(f"no policy {name!r}. {closest(name, known)}")
    if not isinstance(found, PolicyEntry):
        raise BrokenPlugin(f"policy {name!r} of a plug-in is no PolicyEntry but {type(found).__name__}")
    return found


def find_placer(name: str, *, kappa: float = DEFAULT_KAPPA) -> Placer:
    """Return a placer by name; `kappa` is the widest job that `lwf` spreads over nodes.

    Raises:
        UnknownPolicy: when there is none of that name.
    """
    make: Callable[[float], Placer] | None = PLACERS.get(name) or plugins.load("boa.placers", name)
    if make is None:
        known = frozenset((*PLACERS, *plugins.names("boa.placers")))
        raise UnknownPolicy(f"no placer {name!r}. {closest(name, known)}")
    return make(kappa)


def parse_options(entry: PolicyEntry, settings: Mapping[str, str]) -> PolicyOptions:
    """Parse ``key=value`` settings into options of a policy.

    Raises:
        InvalidProblem: when the policy has no such option, or the value is not a number in its range.
    """
    values: dict[str, str | int | float] = {}
    for key, text in settings.items():
        if key not in entry.options:
            raise InvalidProblem(f"policy {entry.name} has no option {key!r}. {closest(key, entry.options)}")
        values[key] = _READERS.get(key, _whole)(key, text)
    return PolicyOptions(**values)  # type: ignore[arg-type]


def build_policy(
    name: str, site: Site, options: PolicyOptions | None = None, *, account: Account | None = None
) -> BuiltPolicy:
    """Build a policy by name for a site; with an `account`, build the best-effort policy instead.

    Best effort replaces any policy if the budget is below the least that runs every job.

    Raises:
        UnknownPolicy: when there is none of that name.
        InfeasibleBudget: when the budget cannot run every job.
    """
    options = options or PolicyOptions()
    if account is not None:
        return best_effort(site, options, account)
    return find_policy(name).build(site, options)


def _whole(key: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidProblem(f"option {key} must be a positive whole number; got {text!r}")
    return int(text)


def _fraction(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise InvalidProblem(f"option {key} must be a number from 0 to 1; got {text!r}")
    return value


def _hours(key: str, text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not (math.isfinite(hours) and hours > 0.0):
        raise InvalidProblem(f"option {key} must be a positive number of hours; got {text!r}")
    return hours


def _period(key: str, text: str) -> str:
    if text not in PERIOD_MONTHS:
        raise InvalidProblem(f"option {key} must be one of {', '.join(PERIOD_MONTHS)}; got {text!r}")
    return text


_READERS: Mapping[str, Callable[[str, str], str | int | float]] = {
    "gpu_type": lambda _key, text: text,
    "efficiency": _fraction,
    "share": _fraction,
    "utility": _fraction,
    "window_hours": _hours,
    "tolerance": _fraction,
    "period": _period,
}
"""Parsers of the options that are not counts."""
