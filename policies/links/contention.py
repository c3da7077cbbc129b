"""Contention on a shared link: each of k messages gets 1/k of the bandwidth, less a penalty for contention.

Source: Wang, Shi, Wang, Chu, arXiv 2002.10105, section on communication contention. An all-reduce of M bytes
that shares the link from start to end, with k messages in flight (itself included), takes

    T(k, M) = a + k b M + (k - 1) eta M

so it sends one byte per ``k b + (k - 1) eta`` seconds. A message over several servers has the pace of its
most crowded server, and paces change whenever a message starts or ends there.

    symbol   here                          meaning
    a        latency_seconds               fixed time of a message, whatever its size
    b        seconds_per_byte              time of a byte on an idle link
    eta      contention_seconds_per_byte   extra time per byte and per further message
    k        messages_at_once              messages on the most crowded link, >= 1
    M        message_bytes                 size of the message

Cost: `paces` is linear in the number of (message, server) pairs; `fit_link` repeats a weighted least-squares
fit until it converges, linear in the samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from policies.errors import InvalidProblem
from policies.model import check_positive

Key = TypeVar("Key", bound=Hashable)
Floats: TypeAlias = NDArray[np.float64]

_HUBER_CUT = 1.345
"""Relative residuals beyond this many robust standard deviations lose weight (95 % efficient, Huber 1964)."""
_MAX_ROUNDS = 100
_SAMPLES_AT_LEAST = 4


def pace(seconds_per_byte: float, contention_seconds_per_byte: float, messages_at_once: int) -> float:
    """Return the seconds per byte of each of k messages that share a link: k b + (k - 1) eta."""
    return messages_at_once * seconds_per_byte + (messages_at_once - 1) * contention_seconds_per_byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The three constants of a server's network card. Measure them: they depend on transport and fabric."""

    latency_seconds: float
    seconds_per_byte: float
    contention_seconds_per_byte: float

    def __post_init__(self) -> None:
        for name, value, zero in (
            ("latency_seconds", self.latency_seconds, True),
            ("seconds_per_byte", self.seconds_per_byte, False),
            ("contention_seconds_per_byte", self.contention_seconds_per_byte, True),
        ):
            check_positive(f"{name} of a link", value, zero=zero)

    @classmethod
    def of_gigabits(cls, gigabits_per_second: float) -> Link:
        """Return a link of that speed with the proportions of the paper's 10 Gbit/s Ethernet.

        b and eta scale with one over the speed; the latency stays.
        """
        if not (math.isfinite(gigabits_per_second) and gigabits_per_second > 0):
            raise InvalidProblem(f"a link needs a speed above zero; got {gigabits_per_second!r} Gbit/s")
        slower = 10.0 / gigabits_per_second
        return cls(
            latency_seconds=ETHERNET_10G.latency_seconds,
            seconds_per_byte=ETHERNET_10G.seconds_per_byte * slower,
            contention_seconds_per_byte=ETHERNET_10G.contention_seconds_per_byte * slower,
        )

    def pace(self, messages_at_once: int) -> float:
        """Return the seconds per byte of each of `messages_at_once` messages."""
        return pace(self.seconds_per_byte, self.contention_seconds_per_byte, messages_at_once)

    def seconds(self, message_bytes: float, *, messages_at_once: int = 1) -> float:
        """Return T(k, M): the time of a message with the same number of messages at once throughout."""
        return self.latency_seconds + message_bytes * self.pace(messages_at_once)


ETHERNET_10G = Link(latency_seconds=6.69e-4, seconds_per_byte=8.56e-10, contention_seconds_per_byte=2.35e-10)
"""The paper's 10 Gbit/s Ethernet: 0.856 ms and 0.235 ms per million bytes."""


def crowds(servers_of: Mapping[Key, Collection[Hashable]]) -> dict[Key, int]:
    """Return k of each message in flight: the number of messages on its most crowded server."""
    load = Counter(server for servers in servers_of.values() for server in set(servers))
    return {key: max((load[server] for server in servers), default=1) for key, servers in servers_of.items()}


def paces(link: Link, servers_of: Mapping[Key, Collection[Hashable]]) -> dict[Key, float]:
    """Return the current seconds per byte of each message in flight."""
    return {key: link.pace(k) for key, k in crowds(servers_of).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSample:
    """One measured all-reduce: messages at once throughout, bytes, and seconds."""

    messages_at_once: int
    message_bytes: float
    seconds: float

    def __post_init__(self) -> None:
        if self.messages_at_once < 1:
            raise InvalidProblem(f"messages_at_once must be 1 or more; got {self.messages_at_once}")
        for name, value in (("message_bytes", self.message_bytes), ("seconds", self.seconds)):
            check_positive(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantEstimate:
    """An estimate of a constant with its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFit:
    """The measured constants of a link, and how well the model fits the samples.

    `median_relative_error` is the median of |measured - model| / model. `at_bound` names the constants that
    were set to zero because their best fit is negative.
    """

    latency_seconds: ConstantEstimate
    seconds_per_byte: ConstantEstimate
    contention_seconds_per_byte: ConstantEstimate
    confidence: float
    samples: int
    median_relative_error: float
    at_bound: tuple[str, ...] = ()

    @property
    def link(self) -> Link:
        """The fitted link."""
        return Link(
            latency_seconds=self.latency_seconds.value,
            seconds_per_byte=self.seconds_per_byte.value,
            contention_seconds_per_byte=self.contention_seconds_per_byte.value,
        )

    @property
    def adadual_threshold(self) -> float:
        """AdaDUAL's threshold b / (2 (b + eta)): two messages overlap if their ratio of sizes is below it."""
        both = self.seconds_per_byte.value + self.contention_seconds_per_byte.value
        return self.seconds_per_byte.value / (2.0 * both)


_NAMES = ("latency_seconds", "seconds_per_byte", "contention_seconds_per_byte")


def fit_link(samples: Sequence[LinkSample], *, confidence: float = 0.95) -> LinkFit:
    """Fit the constants of a link to samples, with confidence intervals.

    Residuals are relative to the model, because long messages vary more than short ones. Huber's weights
    limit the effect of outliers. Intervals use the sandwich covariance with a leverage correction (HC3) and
    Student's t.

    Raises:
        InvalidProblem: when the samples cannot tell the constants apart, or larger messages take no longer.
    """
    if not 0.0 < confidence < 1.0:
        raise InvalidProblem(f"confidence must lie between 0 and 1; got {confidence!r}")
    crowd = np.array([sample.messages_at_once for sample in samples], dtype=float)
    size = np.array([sample.message_bytes for sample in samples], dtype=float)
    seconds = np.array([sample.seconds for sample in samples], dtype=float)
    _check_identifiable(crowd, size)
    design = np.column_stack([np.ones_like(size), crowd * size, (crowd - 1.0) * size])
    free = np.ones(3, dtype=bool)
    values, spread = _fit_robust(design, seconds, free)
    errors = np.sqrt(np.diag(spread))
    centre = values.copy()
    for index in (0, 2):
        if values[index] < 0.0:
            free[index] = False
            values, _ = _fit_robust(design, seconds, free)
    if values[1] <= 0.0:
        raise InvalidProblem(
            "in the samples larger messages take no longer: the fitted seconds_per_byte is "
            f"{values[1]:.3g}. Check the units of message_bytes and seconds"
        )
    half = float(scipy.special.stdtrit(len(samples) - 3, 0.5 + confidence / 2.0)) * errors
    estimates = [
        ConstantEstimate(
            value=max(0.0, float(v)), low=max(0.0, float(c - h)), high=max(float(v), float(c + h), 0.0)
        )
        for v, c, h in zip(values, centre, half, strict=True)
    ]
    model = design @ values
    return LinkFit(
        latency_seconds=estimates[0],
        seconds_per_byte=estimates[1],
        contention_seconds_per_byte=estimates[2],
        confidence=confidence,
        samples=len(samples),
        median_relative_error=float(np.median(np.abs(seconds - model) / model)),
        at_bound=tuple(name for name, is_free in zip(_NAMES, free, strict=True) if not is_free),
    )


def _check_identifiable(crowd: Floats, size: Floats) -> None:
    """Raise `InvalidProblem` unless the samples can tell a, b and eta apart."""
    if len(size) < _SAMPLES_AT_LEAST:
        raise InvalidProblem(
            f"{len(size)} samples cannot give three constants and an interval; measure 4 or more"
        )
    if len(np.unique(size)) < 2:
        raise InvalidProblem(
            f"every sample has message_bytes {size[0]:g}: latency and bandwidth cannot be told apart. "
            "Measure at least two sizes"
        )
    if len(np.unique(crowd)) < 2:
        raise InvalidProblem(
            f"every sample has messages_at_once {crowd[0]:g}: contention cannot be told from bandwidth. "
            "Measure alone and with at least two messages at once"
        )
    scaled = np.column_stack(
        [np.ones_like(size), crowd * size / size.max(), (crowd - 1.0) * size / size.max()]
    )
    if np.linalg.matrix_rank(scaled) < 3:
        raise InvalidProblem(
            "the samples lie on one line: latency, bandwidth and contention cannot be told apart. "
            "Measure two sizes, each alone and with several messages at once"
        )


def _fit_robust(design: Floats, seconds: Floats, free: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return (values, covariance) of a fit to the columns in `free`; the other columns get zeros."""
    columns = design[:, free]
    unit = np.abs(columns).max(axis=0)
    columns = columns / unit
    model, relative = seconds, np.zeros_like(seconds)
    weight = np.ones_like(seconds)
    answer = np.zeros(columns.shape[1])
    for _ in range(_MAX_ROUNDS):
        root = np.sqrt(weight) / model
        before, answer = answer, np.linalg.lstsq(columns * root[:, None], seconds * root, rcond=None)[0]
        model = np.maximum(columns @ answer, 1e-3 * seconds)
        relative = (seconds - columns @ answer) / model
        weight = _huber_weights(relative)
        if np.allclose(answer, before, rtol=1e-10, atol=0.0):
            break
    rows = columns / model[:, None]
    # The curvature of Huber's loss is one inside the cut and zero outside.
    inside = (weight == 1.0).astype(float)
    bread = np.linalg.pinv(rows.T @ (rows * inside[:, None]))
    leverage = np.clip(np.einsum("ij,jk,ik->i", rows, bread, rows) * inside, 0.0, 0.99)
    score = rows * (weight * relative / (1.0 - leverage))[:, None]
    values, covariance = np.zeros(3), np.zeros((3, 3))
    values[free] = answer / unit
    covariance[np.ix_(free, free)] = bread @ (score.T @ score) @ bread / np.outer(unit, unit)
    return values, covariance


def _huber_weights(relative: Floats) -> Floats:
    """Return Huber's weights: 1 for ordinary residuals, and cut / residual for outliers."""
    scale = 1.4826 * float(np.median(np.abs(relative)))
    if scale <= 1e-12:
        return np.ones_like(relative)
    return np.minimum(1.0, _HUBER_CUT * scale / np.maximum(np.abs(relative), 1e-300))
