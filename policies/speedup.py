"""Speed-up curves: how fast a job runs on k GPUs, relative to one GPU of the reference type.

    curve     formula                                                   source
    table     as measured, at the listed widths only                    a profile
    Amdahl    v / ((1 - p) + p / k)                                     Amdahl 1967
    power     v k^a                                                     Berg et al. 2018
    USL       v k / (1 + sigma (k - 1) + kappa k (k - 1))               Gunther 2007

    symbol       here                meaning
    k            gpus                GPUs given to the job, k >= 1
    v            speed               speed of one GPU of this type relative to the reference
    p            parallel_fraction   part of the work that splits over GPUs, 0..1
    a            exponent            elasticity of speed, 0..1
    sigma        contention          serialisation, 0..1
    kappa        crosstalk           pairwise coherency cost, >= 0

Every curve is a frozen value; `speed_at` is vectorised over widths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from policies.errors import InvalidProblem

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

MAX_GPUS = 1_000_000
"""The widest curve allowed: a typo should not allocate a terabyte of options."""


class SpeedupCurve(Protocol):
    """How fast a job runs at a width."""

    @property
    def min_gpus(self) -> int:
        """The narrowest width allowed, GPUs."""
        ...

    @property
    def max_gpus(self) -> int:
        """The widest width allowed, GPUs."""
        ...

    def whole_widths(self) -> Ints:
        """Return the whole widths that may be used, ascending, shape (widths,)."""
        ...

    def speed_at(self, gpus: ArrayLike) -> Floats:
        """Return the speed at each width, relative to one reference GPU, same shape as `gpus`."""
        ...


def _check_number(
    name: str, value: float, *, least: float, most: float = math.inf, open_least: bool = False
) -> None:
    """Raise `InvalidProblem` unless `value` is a finite number in the range."""
    if not math.isfinite(value) or value < least or value > most or (open_least and value == least):
        low = f"more than {least:g}" if open_least else f"at least {least:g}"
        high = "" if math.isinf(most) else f" and at most {most:g}"
        raise InvalidProblem(f"{name} must be a finite number, {low}{high}; got {value!r}")


def _check_range(min_gpus: int, max_gpus: int) -> None:
    """Raise `InvalidProblem` unless 1 <= min_gpus <= max_gpus <= MAX_GPUS, both whole."""
    for name, value in (("min_gpus", min_gpus), ("max_gpus", max_gpus)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidProblem(f"{name} must be a whole number of GPUs; got {value!r}")
    if not 1 <= min_gpus <= max_gpus:
        raise InvalidProblem(f"min_gpus must be from 1 to max_gpus ({max_gpus}); got {min_gpus}")
    if max_gpus > MAX_GPUS:
        raise InvalidProblem(f"max_gpus must be at most {MAX_GPUS}; got {max_gpus}")


@lru_cache(maxsize=128)
def _as_array(widths: tuple[int, ...]) -> Ints:
    """Return widths as an array that cannot be written; the tables of a problem mostly list the same ones."""
    found = np.array(widths, dtype=np.int64)
    found.setflags(write=False)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Measured speeds at the listed widths; no other width may be used."""

    gpus: tuple[int, ...]
    speeds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.gpus:
            raise InvalidProblem("a speed-up table needs at least one width; got an empty table")
        if len(self.gpus) != len(self.speeds):
            raise InvalidProblem(f"{len(self.gpus)} widths but {len(self.speeds)} speeds in a speed-up table")
        for before, after in zip(self.gpus, self.gpus[1:], strict=False):
            if after <= before:
                raise InvalidProblem(f"widths of a speed-up table must rise; got {before} then {after}")
        _check_range(self.gpus[0], self.gpus[-1])
        for width, speed in zip(self.gpus, self.speeds, strict=True):
            if isinstance(width, bool) or not isinstance(width, int):
                raise InvalidProblem(f"widths of a speed-up table must be whole GPUs; got {width!r}")
            if not (math.isfinite(speed) and speed > 0):
                raise InvalidProblem(f"speed at {width} GPUs must be a positive finite number; got {speed!r}")

    @property
    def min_gpus(self) -> int:
        """The narrowest width of the table."""
        return self.gpus[0]

    @property
    def max_gpus(self) -> int:
        """The widest width of the table."""
        return self.gpus[-1]

    def whole_widths(self) -> Ints:
        """Return the widths of the table; not to be written."""
        return _as_array(self.gpus)

    def speed_at(self, gpus: ArrayLike) -> Floats:
        """Return the speed at each width: as measured, and linear between measured widths."""
        return np.asarray(np.interp(np.asarray(gpus, dtype=float), self.gpus, self.speeds))

    def envelope(self) -> tuple[Floats, Floats]:
        """Return (widths, speeds) of the concave envelope as arrays (see `corners`)."""
        widths, speeds = self.corners()
        return np.array(widths, dtype=float), np.array(speeds)

    def corners(self) -> tuple[list[int], list[float]]:
        """Return (widths, speeds) of the concave envelope from the best speed per GPU to the top speed.

        A point on a chord is reached by time-sharing the widths at its ends, so this is the curve of the
        continuous version (docs/explanation/model.md). Cost: O(widths).
        """
        per_gpu = [speed / width for width, speed in zip(self.gpus, self.speeds, strict=True)]
        start = len(per_gpu) - 1 - per_gpu[::-1].index(max(per_gpu))
        widths, speeds, slopes = [self.gpus[start]], [self.speeds[start]], [math.inf]
        for width, speed in zip(self.gpus[start + 1 :], self.speeds[start + 1 :], strict=True):
            if speed <= speeds[-1]:
                continue
            slope = (speed - speeds[-1]) / (width - widths[-1])
            while slope >= slopes[-1]:
                del widths[-1], speeds[-1], slopes[-1]
                slope = (speed - speeds[-1]) / (width - widths[-1])
            widths.append(width)
            speeds.append(speed)
            slopes.append(slope)
        return widths, speeds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Formula:
    """Base of the curves with a formula: the speed of one GPU, and every whole width of a range."""

    speed: float = 1.0
    max_gpus: int = 64
    min_gpus: int = 1

    def _check_common(self) -> None:
        """Raise `InvalidProblem` unless speed and range are right; called after a curve's own checks."""
        _check_number("speed", self.speed, least=0.0, open_least=True)
        _check_range(self.min_gpus, self.max_gpus)

    def whole_widths(self) -> Ints:
        """Return every whole width from `min_gpus` to `max_gpus`."""
        return np.arange(self.min_gpus, self.max_gpus + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amdahl(_Formula):
    """A serial part that no GPU shortens: v / ((1 - p) + p / k)."""

    parallel_fraction: float

    def __post_init__(self) -> None:
        _check_number("parallel_fraction", self.parallel_fraction, least=0.0, most=1.0)
        self._check_common()

    def speed_at(self, gpus: ArrayLike) -> Floats:
        """Return v / ((1 - p) + p / k)."""
        k = np.asarray(gpus, dtype=float)
        return np.asarray(self.speed / ((1.0 - self.parallel_fraction) + self.parallel_fraction / k))


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw(_Formula):
    """Constant elasticity: v k^a."""

    exponent: float

    def __post_init__(self) -> None:
        _check_number("exponent", self.exponent, least=0.0, most=1.0)
        self._check_common()

    def speed_at(self, gpus: ArrayLike) -> Floats:
        """Return v k^a."""
        return np.asarray(self.speed * np.asarray(gpus, dtype=float) ** self.exponent)


@dataclass(frozen=True, slots=True, kw_only=True)
class UniversalScalability(_Formula):
    """Gunther's law; the speed may fall at large widths: v k / (1 + sigma (k - 1) + kappa k (k - 1))."""

    contention: float
    crosstalk: float

    def __post_init__(self) -> None:
        _check_number("contention", self.contention, least=0.0, most=1.0)
        _check_number("crosstalk", self.crosstalk, least=0.0)
        self._check_common()

    def speed_at(self, gpus: ArrayLike) -> Floats:
        """Return v k / (1 + sigma (k - 1) + kappa k (k - 1))."""
        k = np.asarray(gpus, dtype=float)
        return np.asarray(
            self.speed * k / (1.0 + self.contention * (k - 1.0) + self.crosstalk * k * (k - 1.0))
        )


def whole_speeds(curve: SpeedupCurve) -> Floats:
    """Return the speed at each whole width that may be used; those of a table need no interpolation."""
    if isinstance(curve, Table):
        return np.array(curve.speeds, dtype=float)
    return curve.speed_at(curve.whole_widths())
