"""The best real width of one phase on one type, for many multipliers at once.

For a multiplier mu each term minimises its Lagrangian  (w + mu c k) (X / s(k) + d)  over its widths:

    term      condition for the best k                                       solved by
    fixed     -                                                              nothing to choose
    rational  2 mu c X kappa k^3 + (w X kappa + mu c (X (sigma - kappa) + d)) k^2 = w X (1 - sigma)
                                                                             root of a cubic; sqrt if no kappa
    power     (1 - a) mu c X k + d mu c k^(a+1) = a w X                      closed form if d = 0, else Newton
    chord     s = sqrt( (X / d) (w beta / (mu c) - alpha) ),  s = alpha + beta k   closed form

    symbol         meaning
    w, c           weight of the class; price per GPU-hour
    X              size of the phase over the speed of one GPU, hours
    d              start-up hours, billed at the width (first phase only)
    sigma, kappa   contention and crosstalk; Amdahl is sigma = 1 - p, kappa = 0
    a              exponent of a power law
    alpha, beta    a chord of a table's concave envelope

Derivations: docs/explanation/model.md. Each Lagrangian falls and then rises (the left sides above rise in k),
so a stationary point outside the range means that the nearer end is best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from policies.speedup import Floats, Ints


class TermFamily(Protocol):
    """A family of terms of one kind."""

    @property
    def term(self) -> Ints:
        """Position of each term of the family in the list of all terms, shape (terms,)."""
        ...

    def best(self, multiplier: Floats) -> tuple[Floats, Floats]:
        """Return (gpus, hours per job) that minimise the Lagrangian, each (multipliers, terms)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTerms:
    """Terms without a choice: a width of a table, or a whole-job plan."""

    term: Ints
    gpus: Floats
    hours: Floats

    def best(self, multiplier: Floats) -> tuple[Floats, Floats]:
        """Return the same widths and hours for every multiplier."""
        shape = (len(multiplier), len(self.term))
        return np.broadcast_to(self.gpus, shape), np.broadcast_to(self.hours, shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class RationalTerms:
    """Amdahl and USL curves."""

    term: Ints
    weight: Floats
    price: Floats
    size: Floats
    startup: Floats
    contention: Floats
    crosstalk: Floats
    least: Floats
    most: Floats

    def best(self, multiplier: Floats) -> tuple[Floats, Floats]:
        """Return (gpus, hours) at the stationary width of each term, clipped to its range."""
        paid = multiplier[:, None] * self.price
        cubic = 2.0 * paid * self.size * self.crosstalk
        square = self.weight * self.size * self.crosstalk + paid * (
            self.size * (self.contention - self.crosstalk) + self.startup
        )
        free = np.broadcast_to(self.weight * self.size * (1.0 - self.contention), square.shape)
        k = np.clip(_positive_root(cubic, square, free), self.least, self.most)
        return k, self.size * (
            (1.0 - self.contention) / k + (self.contention - self.crosstalk) + self.crosstalk * k
        ) + self.startup


def _positive_root(cubic: Floats, square: Floats, free: Floats) -> Floats:
    """Return the positive root of cubic k^3 + square k^2 = free; inf where the left side is zero.

    Newton's method on q = 1/k, where f(q) = free q^3 - square q - cubic is convex for q > 0, so the iterates
    fall monotonically to the root from a start right of it.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        plain = np.sqrt(free / square)
        if not cubic.any():
            return np.where(free > 0.0, np.where(square > 0.0, plain, np.inf), 0.0)
        # Start at this sum, where f is not negative: right of the root.
        q = np.cbrt(cubic / free) + np.sqrt(np.maximum(square, 0.0) / free)
        for _ in range(60):  # pragma: no branch  It converges long before.
            step = (free * q**3 - square * q - cubic) / (3.0 * free * q**2 - square)
            q = q - np.where(np.isfinite(step), step, 0.0)
            if not (np.abs(step) > 1e-15 * q).any():
                break
        return np.where(free > 0.0, np.where(q > 0.0, 1.0 / q, np.inf), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTerms:
    """Power laws."""

    term: Ints
    weight: Floats
    price: Floats
    size: Floats
    startup: Floats
    exponent: Floats
    least: Floats
    most: Floats

    def best(self, multiplier: Floats) -> tuple[Floats, Floats]:
        """Return (gpus, hours) at the stationary width of each term, clipped to its range."""
        paid = multiplier[:, None] * self.price
        wanted = np.broadcast_to(self.exponent * self.weight * self.size, paid.shape)
        linear = (1.0 - self.exponent) * paid * self.size
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            k = np.where(wanted > 0.0, np.where(linear > 0.0, wanted / linear, np.inf), 0.0)
            late = self.startup * paid
            if late.any():
                k = self._with_startup(k, linear, late, wanted)
        k = np.clip(k, self.least, self.most)
        return k, self.size * k**-self.exponent + self.startup

    def _with_startup(self, k: Floats, linear: Floats, late: Floats, wanted: Floats) -> Floats:
        """Return the root of linear k + late k^(a+1) = wanted, by Newton from above (the left is convex)."""
        above = (wanted / late) ** (1.0 / (1.0 + self.exponent))
        k = np.fmin(k, above)
        for _ in range(60):  # pragma: no branch  It converges long before.
            tail = late * k**self.exponent
            step = (linear * k + tail * k - wanted) / (linear + (1.0 + self.exponent) * tail)
            k = k - np.where(np.isfinite(step), step, 0.0)
            if not (np.abs(step) > 1e-15 * k).any():
                break
        return k


@dataclass(frozen=True, slots=True, kw_only=True)
class ChordTerms:
    """Chords s = alpha + beta k of a table's envelope, in a first phase with a start-up."""

    term: Ints
    weight: Floats
    price: Floats
    size: Floats
    startup: Floats
    alpha: Floats
    beta: Floats
    least: Floats
    most: Floats

    def best(self, multiplier: Floats) -> tuple[Floats, Floats]:
        """Return (gpus, hours) at the stationary width of each term, clipped to its range."""
        with np.errstate(divide="ignore", over="ignore"):
            gain = self.weight * self.beta / (multiplier[:, None] * self.price) - self.alpha
        speed = np.sqrt(np.maximum(self.size / self.startup * gain, 0.0))
        k = np.clip((speed - self.alpha) / self.beta, self.least, self.most)
        return k, self.size / (self.alpha + self.beta * k) + self.startup
