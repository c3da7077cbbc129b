"""Plug-ins of other packages, found by their entry points and loaded when they are named.

    group               an entry is
    boa.policies        a `policies.site.PolicyEntry`
    boa.placers         a function of kappa that returns a `policies.protocols.Placer`
    boa.traces          a function of a path and `Options` that returns a `Workload`
    boa.clouds          a function of settings, folder, clock and ledger id that returns a `Provider`
    boa.engines         a function of settings, folder, door and cloud that returns a `Runner`
    boa.notifiers       a function of an address and a sentence

BOA's own parts win over an entry of the same name. Cost: one scan of the installed packages per group.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeAlias, get_args

from policies.errors import BrokenPlugin

PluginGroup: TypeAlias = Literal[
    "boa.policies", "boa.placers", "boa.traces", "boa.clouds", "boa.engines", "boa.notifiers"
]


GROUPS: tuple[PluginGroup, ...] = get_args(PluginGroup)


@cache
def _found(group: PluginGroup) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=group)}


def names(group: PluginGroup) -> tuple[str, ...]:
    """Return the names of the plug-ins in a group, sorted."""
    return tuple(sorted(_found(group)))


@cache
def load(group: PluginGroup, name: str) -> Any:
    """Load and return a plug-in; None if no package adds one of that name.

    Raises:
        BrokenPlugin: when the package that adds it cannot be imported.
    """
    entry = _found(group).get(name)
    if entry is None:
        return None
    try:
        return entry.load()
    except Exception as error:
        package = "a package" if entry.dist is None else entry.dist.name
        raise BrokenPlugin(
            f"{name!r} of {group}, which {package} adds as {entry.value}, cannot be loaded: "
            f"{type(error).__name__}: {error}. Update that package, or remove it"
        ) from error
