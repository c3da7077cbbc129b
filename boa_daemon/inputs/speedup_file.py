"""The `speedup` of a phase: one form, or one for each GPU type.

    {table: {1: 1.0, 2: 1.72}}                                    these widths only
    {amdahl: {parallel_fraction, speed, max_gpus, min_gpus}}
    {power: {exponent, speed, max_gpus, min_gpus}}
    {usl: {contention, crosstalk, speed, max_gpus, min_gpus}}

Tables are read by hand, not by pydantic: a large file has half a million entries, a microsecond each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from boa_daemon.errors import InputError, MissingPrice, did_you_mean
from boa_daemon.inputs.document_file import Document, KeyPath
from boa_daemon.inputs.schema import (
    LEAST,
    MOST,
    Fraction,
    Gpus,
    NotNegative,
    Positive,
    Strict,
    a_kind,
    checked,
    spoken,
)
from policies.errors import InvalidProblem
from policies.kinds import kind_of
from policies.speedup import (
    MAX_GPUS,
    Amdahl,
    PowerLaw,
    SpeedupCurve,
    Table,
    UniversalScalability,
)

FORMS = ("table", "amdahl", "power", "usl")

_SPEED: Any = Field(default=1.0, description="speed of one GPU of this type relative to the reference")
_MAX_GPUS: Any = Field(default=64, description="the widest width, GPUs; default 64")
_MIN_GPUS: Any = Field(default=1, description="the narrowest width, GPUs; default 1")


class _Amdahl(Strict):
    parallel_fraction: Fraction = Field(description="the part of the work that splits over GPUs, 0 to 1")
    speed: Positive = _SPEED
    max_gpus: Gpus = _MAX_GPUS
    min_gpus: Gpus = _MIN_GPUS


class _Power(Strict):
    exponent: Fraction = Field(description="elasticity of speed, 0 to 1")
    speed: Positive = _SPEED
    max_gpus: Gpus = _MAX_GPUS
    min_gpus: Gpus = _MIN_GPUS


class _Usl(Strict):
    contention: Fraction = Field(description="serialisation, 0 to 1")
    crosstalk: NotNegative = Field(description="cost of each pair of GPUs, 0 or more")
    speed: Positive = _SPEED
    max_gpus: Gpus = _MAX_GPUS
    min_gpus: Gpus = _MIN_GPUS


def read_speedups(
    raw: object, gpu_types: Sequence[str], *, document: Document, at: KeyPath
) -> dict[str, SpeedupCurve]:
    """Return the curve for each GPU type that a phase may use; `at` is the path of `raw`.

    Raises:
        InputError: when a curve is malformed, with file and line.
        MissingPrice: when a curve is for a GPU type that is not in `gpu_types`.
    """
    if not isinstance(raw, Mapping) or not raw:
        problem = f"{spoken(at, document.content)} must be one of {', '.join(FORMS)}; got {a_kind(raw)}"
        raise document.error(problem, at=at)
    if not any(key in FORMS for key in raw):
        if all(str(key).isdigit() for key in raw):
            raise document.error(
                f"{spoken(at, document.content)} lists widths without saying what they are",
                at=at,
                hint=_as_table(raw, gpu_types),
            )
        for name, form in raw.items():
            if (
                name in gpu_types
                and isinstance(form, Mapping)
                and form
                and all(str(k).isdigit() for k in form)
            ):
                raise document.error(
                    f"{spoken((*at, str(name)), document.content)} lists widths without saying what they are",
                    at=(*at, str(name)),
                    hint=_as_table(form, ()),
                )
        for name in raw:
            if name not in gpu_types:
                raise _unpriced(name, gpu_types, document, (*at, str(name)))
        return {name: _curve(form, document, (*at, name)) for name, form in raw.items()}
    if len({kind_of(name).card for name in gpu_types}) > 1:
        problem = f"{spoken(at, document.content)} must name a GPU type: {', '.join(gpu_types)}"
        raise document.error(problem, at=at, hint=f"Write speedup: {{{gpu_types[0]}: {{...}}}}")
    return {gpu_types[0]: _curve(raw, document, at)}


def _as_table(raw: Mapping[object, object], gpu_types: Sequence[str]) -> str:
    """Return a hint that shows how to write widths as a table."""
    entries = ", ".join(f"{key}: {value}" for key, value in list(raw.items())[:3])
    table = f"{{table: {{{entries}{', ...' if len(raw) > 3 else ''}}}}}"
    return f"Write {table}" if len(gpu_types) < 2 else f"Write {{{gpu_types[0]}: {table}}}"


def limited(
    curves: Mapping[str, SpeedupCurve],
    *,
    min_gpus: int | None,
    max_gpus: int | None,
    batch: int | None = None,
) -> dict[str, SpeedupCurve]:
    """Return the curves at widths from `min_gpus` to `max_gpus`, without types that have none left.

    With `batch`, only widths that divide it remain.
    """
    least, most = min_gpus or 1, max_gpus or MAX_GPUS
    kept = {name: _limited(curve, least, most) for name, curve in curves.items()}
    found = {name: curve for name, curve in kept.items() if curve is not None}
    split = {name: _splitting(curve, batch) for name, curve in found.items()} if batch else found
    return {name: curve for name, curve in split.items() if curve is not None}


def _splitting(curve: SpeedupCurve, batch: int) -> SpeedupCurve | None:
    """Return a curve at the widths that split a batch evenly, or None if there are none."""
    widths = [int(width) for width in curve.whole_widths()]
    even = [width for width in widths if batch % width == 0]
    if even == widths:
        return curve
    speeds = [float(speed) for speed in curve.speed_at(even)]
    return Table(gpus=tuple(even), speeds=tuple(speeds)) if even else None


def _limited(curve: SpeedupCurve, least: int, most: int) -> SpeedupCurve | None:
    """Return a curve limited to a range of widths, or None if none is left."""
    if isinstance(curve, Table):
        pairs = [
            (width, speed)
            for width, speed in zip(curve.gpus, curve.speeds, strict=True)
            if least <= width <= most
        ]
        return Table(gpus=tuple(w for w, _ in pairs), speeds=tuple(s for _, s in pairs)) if pairs else None
    least, most = max(least, curve.min_gpus), min(most, curve.max_gpus)
    if least > most or not isinstance(curve, Amdahl | PowerLaw | UniversalScalability):
        return None
    return replace(curve, min_gpus=least, max_gpus=most)


def _unpriced(name: object, gpu_types: Sequence[str], document: Document, at: KeyPath) -> InputError:
    """Return the error for a curve whose name is neither a priced GPU type nor a form."""
    problem = f"{spoken(at[:-1], document.content)}: GPU type {str(name)!r} has a speed-up but no price"
    hint = did_you_mean(str(name), [*gpu_types, *FORMS])
    return document.error(problem, at=at, hint=hint, kind=MissingPrice)


def _curve(raw: object, document: Document, at: KeyPath) -> SpeedupCurve:
    """Return the curve in one form."""
    if not isinstance(raw, Mapping) or len(raw) != 1:
        got = " and ".join(map(str, raw)) if isinstance(raw, Mapping) and raw else a_kind(raw)
        where, forms = spoken(at, document.content), ", ".join(FORMS)
        raise document.error(f"{where} must be exactly one of {forms}; got {got}", at=at)
    ((form, values),) = raw.items()
    here: KeyPath = (*at, str(form))
    if form not in FORMS:
        hint = did_you_mean(str(form), FORMS)
        problem = f"unknown form {str(form)!r} in {spoken(at, document.content)}"
        raise document.error(problem, at=here, hint=hint)
    try:
        if form == "table":
            return _table(values, document, here)
        if form == "amdahl":
            return Amdahl(**checked(_Amdahl, values, document=document, at=here).model_dump())
        if form == "power":
            return PowerLaw(**checked(_Power, values, document=document, at=here).model_dump())
        return UniversalScalability(**checked(_Usl, values, document=document, at=here).model_dump())
    except InvalidProblem as invalid:
        raise document.error(f"{spoken(here, document.content)}: {invalid}", at=here) from None


def _table(raw: object, document: Document, at: KeyPath) -> Table:
    """Return a table with its widths in ascending order."""
    if not isinstance(raw, Mapping) or not raw:
        problem = f"{spoken(at, document.content)} must map widths to speeds; got {a_kind(raw)}"
        raise document.error(problem, at=at, hint="Write {1: 1.0, 2: 1.9}")
    pairs = []
    for key, speed in raw.items():
        width = key if type(key) is int else _width(key)
        if not 1 <= width <= MAX_GPUS:
            problem = f"widths are whole GPUs, from 1 to {MAX_GPUS}; got {a_kind(key)}"
            raise document.error(f"{spoken(at, document.content)}: {problem}", at=(*at, str(key)))
        if not (type(speed) is float or type(speed) is int) or not LEAST <= speed <= MOST:
            wanted = f"a number from {LEAST:g} to {MOST:g}, more than zero"
            problem = f"the speed at {width} GPUs must be {wanted}; got {a_kind(speed)}"
            raise document.error(f"{spoken(at, document.content)}: {problem}", at=(*at, str(key)))
        pairs.append((width, speed))
    pairs.sort()
    return Table(
        gpus=tuple([width for width, _ in pairs]), speeds=tuple([float(speed) for _, speed in pairs])
    )


def _width(key: object) -> int:
    """Return the width in a text key (JSON and TOML have only text keys), or 0 if it is none."""
    return int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10 else 0
