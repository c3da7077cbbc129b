"""A measured phase: its amount of work, and its speed at each width on each machine.

    steps: 90000
    step_seconds: {a100: {1: 0.42, 2: 0.23, 4: 0.12, 8: 0.066}}

Work can be in steps, samples, tokens or epochs (`RATES` lists the keys of each), and a CSV file can hold the
measurements (`boa_daemon.inputs.measurements`). The first type's narrowest width is the reference of the
phase: its work is in hours on that width, and speeds are ratios of seconds. Only measured widths are used,
unless `extrapolate_to` names a wider one. Widths beyond the measured ones take the time of the line
a + b / k, a >= 0, through the last three measured widths; plans mark them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boa_daemon.errors import did_you_mean
from boa_daemon.inputs.document_file import Document, KeyPath
from boa_daemon.inputs.measurements import read_measurements
from boa_daemon.inputs.schema import LEAST, MOST, a_kind, spoken
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import InstanceType
from policies.speedup import MAX_GPUS, SpeedupCurve, Table

RATES: Mapping[str, str] = {
    "step_seconds": "steps",
    "steps_per_second": "steps",
    "samples_per_second": "samples",
    "tokens_per_second": "tokens",
    "epoch_seconds": "epochs",
}
"""Keys of measured speeds, and the unit of work of each."""
AMOUNTS = tuple(dict.fromkeys(RATES.values()))
LAST = 3
"""Number of measured widths, the widest ones, through which the extrapolating line goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPhase:
    """Work in GPU-hours of the reference, and the curve of each type.

    `extrapolated` are the widths of each type that were not measured; `spread` is the largest relative
    difference between repeated measurements and their mean.
    """

    size_gpu_hours: float
    curves: Mapping[str, SpeedupCurve]
    extrapolated: Mapping[str, frozenset[int]]
    spread: float = 0.0


def measured_work(
    amount: float,
    rate: str,
    raw: object,
    machines: Mapping[str, InstanceType],
    *,
    extrapolate_to: int | None,
    class_name: str,
    document: Document,
    at: KeyPath,
) -> MeasuredPhase:
    """Return the phase of an amount of work, from the measurements in `raw` at path `at`.

    A type is named as in `gpu_types`, or by its instance type; with one type, `raw` can map widths directly.

    Raises:
        InputError: when a name, a width or a time is invalid, with file and line.
    """
    spread = 0.0
    if isinstance(raw, str):
        raw, spread = read_measurements(Path(document.name).parent / raw, rate, class_name)
    if not isinstance(raw, Mapping) or not raw:
        problem = f"{spoken(at, document.content)} must map widths to {_what(rate)}; got {a_kind(raw)}"
        hint = f"Write {{{next(iter(machines))}: {{1: 0.42, 2: 0.23}}}}, or the name of a CSV file"
        raise document.error(problem, at=at, hint=hint)
    names = {machine.name: name for name, machine in machines.items()} | {name: name for name in machines}
    if all(str(key).isdigit() for key in raw) and len(machines) == 1:
        seconds = {next(iter(machines)): _seconds(raw, rate, document, at)}
    else:
        seconds = {}
        for name, times in raw.items():
            if name not in names:
                problem = f"{spoken(at, document.content)}: {str(name)!r} is no GPU type of gpu_types"
                raise document.error(problem, at=(*at, str(name)), hint=_known(str(name), list(names)))
            if names[name] in seconds:
                problem = f"{spoken(at, document.content)} names GPU type {names[name]!r} twice"
                raise document.error(problem, at=(*at, str(name)))
            seconds[names[name]] = _seconds(times, rate, document, (*at, name))
    first = next(iter(seconds.values()))
    reference = first[min(first)]
    beyond = {name: _beyond(times, extrapolate_to) for name, times in seconds.items()}
    curves: dict[str, SpeedupCurve] = {}
    for name, times in seconds.items():
        whole = {**times, **beyond[name]}
        curves[name] = Table(gpus=tuple(whole), speeds=tuple(reference / whole[width] for width in whole))
    return MeasuredPhase(
        size_gpu_hours=amount * reference / SECONDS_PER_HOUR,
        curves=curves,
        extrapolated={name: frozenset(wider) for name, wider in beyond.items() if wider},
        spread=spread,
    )


def _beyond(seconds: Mapping[int, float], most: int | None) -> dict[int, float]:
    """Return the seconds at extrapolated widths, each twice the one before, up to `most`."""
    widest = max(seconds)
    if most is None or len(seconds) < 2:
        return {}
    widths = np.array(sorted(seconds)[-LAST:], dtype=float)
    times = np.array([seconds[int(width)] for width in widths])
    # The line goes through the widest measured width, so that the curve does not jump there.
    parts = 1.0 / widths - 1.0 / widths[-1]
    slope = float(parts @ (times - times[-1]) / (parts @ parts))
    slope = min(max(slope, 0.0), float(times[-1] * widths[-1]))
    found, width = {}, widest
    while width < most:
        width = min(2 * width, most)
        found[width] = float(times[-1] + slope * (1.0 / width - 1.0 / widest))
    return found


def _known(name: str, names: Sequence[str]) -> str:
    """Return a hint for an unknown name."""
    return did_you_mean(name, names) or f"Known: {', '.join(names)}"


def _what(rate: str) -> str:
    """Return the unit of a rate's numbers."""
    return "seconds" if rate.endswith("_seconds") else rate.replace("_", " ")


def _seconds(raw: object, rate: str, document: Document, at: KeyPath) -> dict[int, float]:
    """Return the seconds per unit of work by width, narrowest first."""
    if not isinstance(raw, Mapping) or not raw:
        problem = f"{spoken(at, document.content)} must map widths to {_what(rate)}; got {a_kind(raw)}"
        raise document.error(problem, at=at, hint="Write {1: 0.42, 2: 0.23}")
    found = {}
    for key, value in raw.items():
        if isinstance(key, bool) or not str(key).isdigit() or not 1 <= int(key) <= MAX_GPUS:
            problem = f"widths are whole GPUs, from 1 to {MAX_GPUS}; got {a_kind(key)}"
            raise document.error(f"{spoken(at, document.content)}: {problem}", at=(*at, str(key)))
        if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
            what = "a step at {} GPUs must take a number of seconds, more than zero"
            if not rate.endswith("_seconds"):
                what = f"{_what(rate)} at {{}} GPUs must be a number, more than zero"
            problem = f"{what.format(key)}; got {a_kind(value)}"
            raise document.error(f"{spoken(at, document.content)}: {problem}", at=(*at, str(key)))
        found[int(key)] = float(value) if rate.endswith("_seconds") else 1.0 / float(value)
    return dict(sorted(found.items()))
