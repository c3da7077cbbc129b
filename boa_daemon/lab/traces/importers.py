"""Importers of public traces by name, and the options that each accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.lab.traces.acme import import_acme
from boa_daemon.lab.traces.gavel import import_gavel
from boa_daemon.lab.traces.helios import import_helios
from boa_daemon.lab.traces.itp import import_itp
from boa_daemon.lab.traces.philly import import_philly
from boa_daemon.lab.traces.pollux import import_pollux
from boa_daemon.lab.traces.sacct import import_sacct
from boa_daemon.lab.traces.shockwave import import_shockwave
from boa_daemon.lab.traces.sia import import_sia
from boa_daemon.traces.workload import Options, Workload
from policies import plugins

Importer: TypeAlias = Callable[[Path, Options], Workload]


class SourceName(StrEnum):
    """Name of a public source of traces."""

    pollux = "pollux"
    sia = "sia"
    philly = "philly"
    helios = "helios"
    itp = "itp"
    gavel = "gavel"
    shockwave = "shockwave"
    sacct = "sacct"
    acme = "acme"


@dataclass(frozen=True, slots=True)
class _Source:
    """An importer, and which of the options that only some importers have it accepts."""

    importer: Importer
    accepts: frozenset[str]


SOURCES: Mapping[SourceName, _Source] = {
    SourceName.pollux: _Source(import_pollux, frozenset({"apps"})),
    SourceName.sia: _Source(import_sia, frozenset({"apps"})),
    SourceName.philly: _Source(import_philly, frozenset({"profiles", "seed"})),
    SourceName.helios: _Source(import_helios, frozenset({"profiles", "seed"})),
    SourceName.itp: _Source(import_itp, frozenset({"profiles"})),
    SourceName.gavel: _Source(import_gavel, frozenset()),
    SourceName.shockwave: _Source(import_shockwave, frozenset({"profiles"})),
    SourceName.acme: _Source(import_acme, frozenset({"profiles", "seed", "time_zone"})),
    SourceName.sacct: _Source(import_sacct, frozenset({"profiles", "seed", "time_zone"})),
}
_PARTIAL = ("apps", "profiles", "seed", "time_zone")


def import_source(name: str, source: Path, options: Options) -> Workload:
    """Return the workload of a public source.

    Raises:
        InputError: when a file is missing, damaged or ambiguous, or an option does not apply.
    """
    if name not in SOURCES:
        return _of_plugin(name)(source, options)
    chosen = SOURCES[SourceName(name)]
    for option in _PARTIAL:
        if getattr(options, option) is not None and option not in chosen.accepts:
            others = ", ".join(other for other, entry in SOURCES.items() if option in entry.accepts)
            raise InputError(
                f"--{option.replace('_', '-')} does not apply to --from {name}", hint=f"It is for {others}"
            )
    if options.seed is not None and options.profiles is None:
        raise InputError("--seed draws from --profiles, which was not given")
    return chosen.importer(source, options)


def source_names() -> tuple[str, ...]:
    """Return the names of all sources, those of plug-ins last."""
    return (*(name.value for name in SourceName), *plugins.names("boa.traces"))


def _of_plugin(name: str) -> Importer:
    """Return the importer of a plug-in.

    Raises:
        InputError: when no plug-in has that name.
    """
    found: Importer | None = plugins.load("boa.traces", name)
    if found is None:
        known = source_names()
        hint = did_you_mean(name, known) or f"Known: {', '.join(known)}"
        raise InputError(f"--from {name!r} is not a trace format", hint=hint)
    return found
