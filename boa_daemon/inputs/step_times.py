"""A phase as people measure it: how many steps, and the seconds of one at each width and machine.

    steps: 90000
    step_seconds: {a100: {1: 0.42, 2: 0.23, 4: 0.12, 8: 0.066}}

The first type's narrowest width becomes the reference of the phase: its work is in hours on that width, and
speeds are ratios of seconds. Only measured widths may be used: nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boa_daemon.errors import did_you_mean
from boa_daemon.inputs.schema import LEAST, MOST, a_kind, spoken
from boa_daemon.inputs.yaml_file import At, Document
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import InstanceType
from policies.speedup import MAX_GPUS, SpeedupCurve, Table


def work_of_steps(
    steps: float, raw: object, machines: Mapping[str, InstanceType], *, document: Document, at: At
) -> tuple[float, dict[str, SpeedupCurve]]:
    """Return the work, GPU-hours of the reference, and the curves of each type; `at` is where `raw` stands.

    A type is named as in `gpu_types`, or by its instance type; with one type the widths may stand alone.

    Raises:
        InputError: when a name, a width or a time means nothing, with file and line.
    """
    if not isinstance(raw, Mapping) or not raw:
        problem = f"{spoken(at, document.content)} must map widths to seconds; got {a_kind(raw)}"
        raise document.error(problem, at=at, hint=f"Write {{{next(iter(machines))}: {{1: 0.42, 2: 0.23}}}}")
    names = {machine.name: name for name, machine in machines.items()} | {name: name for name in machines}
    if all(str(key).isdigit() for key in raw) and len(machines) == 1:
        seconds = {next(iter(machines)): _seconds(raw, document, at)}
    else:
        seconds = {}
        for name, times in raw.items():
            if name not in names:
                problem = f"{spoken(at, document.content)}: {str(name)!r} is no GPU type of gpu_types"
                raise document.error(problem, at=(*at, str(name)), hint=_known(str(name), list(names)))
            if names[name] in seconds:
                problem = f"{spoken(at, document.content)} names GPU type {names[name]!r} twice"
                raise document.error(problem, at=(*at, str(name)))
            seconds[names[name]] = _seconds(times, document, (*at, name))
    first = next(iter(seconds.values()))
    reference = first[min(first)]
    curves: dict[str, SpeedupCurve] = {
        name: Table(gpus=tuple(times), speeds=tuple(reference / times[width] for width in times))
        for name, times in seconds.items()
    }
    return steps * reference / SECONDS_PER_HOUR, curves


def _known(name: str, names: Sequence[str]) -> str:
    """Return what may be written in place of an unknown name."""
    return did_you_mean(name, names) or f"Known: {', '.join(names)}"


def _seconds(raw: object, document: Document, at: At) -> dict[int, float]:
    """Return the seconds of a step by width, the narrowest first."""
    if not isinstance(raw, Mapping) or not raw:
        problem = f"{spoken(at, document.content)} must map widths to seconds; got {a_kind(raw)}"
        raise document.error(problem, at=at, hint="Write {1: 0.42, 2: 0.23}")
    found = {}
    for key, value in raw.items():
        if isinstance(key, bool) or not str(key).isdigit() or not 1 <= int(key) <= MAX_GPUS:
            problem = f"widths are whole GPUs, from 1 to {MAX_GPUS}; got {a_kind(key)}"
            raise document.error(f"{spoken(at, document.content)}: {problem}", at=(*at, str(key)))
        if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
            problem = (
                f"a step at {key} GPUs must take a number of seconds, more than zero; got {a_kind(value)}"
            )
            raise document.error(f"{spoken(at, document.content)}: {problem}", at=(*at, str(key)))
        found[int(key)] = float(value)
    return dict(sorted(found.items()))
