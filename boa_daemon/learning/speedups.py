"""Estimate the speed-up of a class from the reports of its jobs: smoothed, with its uncertainty.

For each class and GPU type the logarithm of the speed is a function of x = log2(width): the stated curve plus
a deviation of unknown level that drifts from octave to octave. Measurements are deviations with noise.
Everything is Gaussian, so the posterior is a small linear system: regression with a Brownian kernel. Nothing
forces the curve to rise, so a width that was measured slower than a narrower one stays slower.

    symbol    here              meaning
    x         log2(width)       octaves
    tau       WANDER            how far a curve strays from the stated one per octave, in logarithms
    sigma     NOISE             spread of a measurement of a minute, in logarithms
    phi, M    gradient_noise, batch    statistical efficiency (phi + M0) / (phi + M)   (Pollux 2021)

Speeds count useful samples: if a job reports its gradient noise, a sample in a batch M teaches as much as one
in the smallest measured batch M0, times that efficiency.

The value of trying a width: a job holds k GPUs, nu hours are what the money for a GPU-hour saves elsewhere, w
is the job's weight, and rho is the speed at k' GPUs over that at k, with the belief log rho ~ N(m, s^2). An
hour at k costs A = w + nu k; the same work at k' costs B / rho with B = w + nu k'. If rho were known, the
cheaper width would be used. So knowing it saves on average, for each hour at k,

    V = E[max(A - B / rho, 0)] - max(A - B E[1 / rho], 0)
    E[max(A - B / rho, 0)] = A Phi(d) - B e^(s^2/2 - m) Phi(d - s),    d = (m - log(B / A)) / s

as in the price of a put option (Black and Scholes 1973); a speed above a linear one counts as linear. This
holds for a stated curve that may be wrong; with a correct one there is nothing to learn. The probability p
that the curve is wrong follows from the widths measured so far, by any job: N(0, S) of their deviations with
tau = 0.4 against tau = 0.05, and prior odds that all curves of the file share. A width is tried if p V x
(hours of the class to come while the measurement is valid) exceeds the two restarts, the boot and the slower
work of the trial.

Cost: O(widths^3), with at most a few dozen widths.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import NDArray

from policies.fast_dataclasses import fast_init
from policies.model import JobClass, Phase, Width, check_positive
from policies.speedup import SpeedupCurve, Table

Floats = NDArray[np.float64]

WANDER, RIGHT = 0.4, 0.05
"""tau of a stated curve that may be wrong, and of one that is about right. With the first, a true 3.15 is
within the 95 % interval of a stated 1.3, two octaves up; intervals always use it."""
NOISE = 0.10
DOUBTED = 2.0
"""The weight of `NOISE`, as a number of measurements."""
FLOOR = 0.01
"""The least spread of a measurement: the same code differs by a percent from day to day."""
HALF_LIFE_SECONDS = 7 * 24 * 3600.0
"""A week-old measurement counts half: code, data and drivers change."""
UNKNOWN_LEVEL = 10.0
SHARED_STEPS = 10

MOST_WIDTHS = 256
"""Curves with more widths than this are corrected at powers of two only."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSample:
    """A stretch of work of one job at one width: the samples done, and the seconds taken.

    `batch` is the samples of one step; `gradient_noise` is the noise scale in samples, if reported.
    """

    class_name: str
    gpu_type: str
    gpus: int
    samples: float
    seconds: float
    at: float
    batch: float | None = None
    gradient_noise: float | None = None

    def __post_init__(self) -> None:
        for name in ("gpus", "samples", "seconds"):
            check_positive(f"{name} of a speed sample", getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthEstimate:
    """The belief about one width: useful samples per second, and their uncertainty.

    `speedup` is relative to the narrowest width of the curve, `spread` is the standard deviation of its
    logarithm: 0.05 means plus or minus five percent. `measured_seconds` is 0 if only the stated curve and the
    neighbours contribute.
    """

    gpus: int
    samples_per_second: float
    speedup: float
    spread: float
    measured_seconds: float
    measurements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveEstimate:
    """The speed-up of a class on a GPU type, as measured so far."""

    class_name: str
    gpu_type: str
    widths: tuple[WidthEstimate, ...]
    covariance: tuple[tuple[float, ...], ...]
    """Covariance of the logarithms of the speeds, width by width."""
    log_odds: float = 0.0
    """Log odds, from the measurements, that the stated curve is wrong rather than about right."""
    doubt: float = 0.5
    """The probability that the stated curve is wrong."""

    def ratio(self, gpus: int, base: int) -> tuple[float, float]:
        """Return (mean, standard deviation) of the logarithm of the speed at `gpus` over that at `base`."""
        numbers = {width.gpus: number for number, width in enumerate(self.widths)}
        of, to = numbers[gpus], numbers[base]
        speeds = [self.widths[number].samples_per_second for number in (of, to)]
        both = self.covariance[of][of] + self.covariance[to][to] - 2.0 * self.covariance[of][to]
        return math.log(speeds[0] / speeds[1]), math.sqrt(max(both, 0.0))

    def at(self, gpus: int) -> WidthEstimate:
        """Return the estimate of a width.

        Raises:
            KeyError: when the class does not run at that width.
        """
        for width in self.widths:
            if width.gpus == gpus:
                return width
        raise KeyError(gpus)

    @property
    def is_monotone(self) -> bool:
        """Whether more GPUs are never slower."""
        speeds = [width.samples_per_second for width in self.widths]
        return all(wide >= narrow for narrow, wide in pairwise(speeds))


def statistical_efficiency(*, gradient_noise: float, batch: float, base_batch: float) -> float:
    """Return how much a sample of a batch teaches, relative to one of the base batch: 1 at the base."""
    return (gradient_noise + base_batch) / (gradient_noise + batch)


def estimate_curve(
    samples: Iterable[SpeedSample], stated: SpeedupCurve, *, class_name: str, gpu_type: str, now: float
) -> CurveEstimate | None:
    """Return the posterior of a class's speed at each stated width; None before the first measurement.

    `stated` is the prior: its shape, not its level. Samples of other classes and types are ignored.
    """
    ours = [s for s in samples if s.class_name == class_name and s.gpu_type == gpu_type]
    if not ours:
        return None
    measured = sorted({sample.gpus for sample in ours})
    widths = sorted({*_menu(stated), *measured})
    prior = np.log(np.maximum(stated.speed_at(np.array(widths)), 1e-12))
    means, noise, seconds, counts = _measurements(ours, measured, now)
    rows = [widths.index(width) for width in measured]
    x = np.log2(np.array(widths, dtype=float))
    covariance = _wandering(x + 1.0, WANDER)
    off = means - prior[rows]
    mean, _ = _posterior(covariance, rows, off, noise[0])
    _, posterior = _posterior(covariance, rows, off, noise[1])
    wrong, right = (_log_density(off, _wandering(x[rows], wander), noise[0]) for wander in (WANDER, RIGHT))
    log_speed = prior + mean
    # Of log s(k) - log s(narrowest): the level, which both share, drops out.
    spread = np.sqrt(np.maximum(np.diag(posterior) + posterior[0, 0] - 2.0 * posterior[0], 0.0))
    return CurveEstimate(
        class_name=class_name,
        gpu_type=gpu_type,
        widths=tuple(
            WidthEstimate(
                gpus=width,
                samples_per_second=float(np.exp(log_speed[at])),
                speedup=float(np.exp(log_speed[at] - log_speed[0])),
                spread=float(spread[at]) if at else float(np.sqrt(max(posterior[0, 0], 0.0))),
                measured_seconds=seconds.get(width, 0.0),
                measurements=counts.get(width, 0),
            )
            for at, width in enumerate(widths)
        ),
        covariance=tuple(tuple(map(float, row)) for row in posterior),
        log_odds=wrong - right,
        doubt=float(scipy.special.expit(wrong - right)),
    )


def _menu(stated: SpeedupCurve) -> list[int]:
    """Return the widths to estimate: all of a table, or powers of two and the ends of a formula."""
    whole = [int(width) for width in stated.whole_widths()]
    if isinstance(stated, Table) or len(whole) <= 2:
        return whole
    powers = {1 << at for at in range(whole[-1].bit_length())}
    return sorted({whole[0], whole[-1], *(powers & set(whole))})


def _wandering(octaves: Floats, wander: float) -> Floats:
    """Return the covariance of deviations of unknown level that drift by `wander` per octave."""
    return UNKNOWN_LEVEL**2 + wander**2 * np.minimum.outer(octaves, octaves)


def _posterior(
    covariance: Floats, rows: Sequence[int], deviations: Floats, noise: Floats
) -> tuple[Floats, Floats]:
    """Return mean and covariance of all deviations, given some of them with noise."""
    seen = covariance[np.ix_(rows, rows)] + np.diag(noise**2)
    gain = np.linalg.solve(seen, covariance[rows]).T
    return gain @ deviations, covariance - gain @ covariance[rows]


def _log_density(deviations: Floats, covariance: Floats, noise: Floats) -> float:
    """Return the log density of N(0, covariance + noise) at the deviations, up to a constant."""
    whole = covariance + np.diag(noise**2)
    _, log_determinant = np.linalg.slogdet(whole)
    return -0.5 * float(deviations @ np.linalg.solve(whole, deviations) + log_determinant)


def _measurements(
    samples: Sequence[SpeedSample], widths: Sequence[int], now: float
) -> tuple[Floats, Floats, dict[int, float], dict[int, int]]:
    """Return (mean log speed, its likeliest noise and its noise for intervals) per width; seconds; counts."""
    batches = [sample.batch for sample in samples if sample.batch]
    base = min(batches, default=0.0)
    means, noise, seconds, counts = [], [], {}, {}
    excess, freedom = DOUBTED, DOUBTED
    for width in widths:
        ours = [sample for sample in samples if sample.gpus == width]
        weights = np.array([s.seconds * 0.5 ** ((now - s.at) / HALF_LIFE_SECONDS) for s in ours])
        weights = np.maximum(weights, 1e-9)
        logs = np.log([_useful_per_second(sample, base) for sample in ours])
        mean = float(np.average(logs, weights=weights))
        scatter = float(np.average((logs - mean) ** 2, weights=weights)) if len(ours) > 2 else 0.0
        effective = float(weights.sum() ** 2 / (weights**2).sum())
        by_time = NOISE**2 / (float(weights.sum()) / 60.0)
        means.append(mean)
        noise.append((by_time, scatter / effective))
        expected = np.array([FLOOR**2 + NOISE**2 / (s.seconds / 60.0) for s in ours])
        excess += float(((logs - mean) ** 2 / expected).sum())
        freedom += len(ours) - 1.0
        seconds[width], counts[width] = float(sum(s.seconds for s in ours)), len(ours)
    # The noise is estimated from all widths together: Student's t instead of the normal distribution.
    factor = max(excess / freedom, 1.0)
    spreads = np.sqrt([FLOOR**2 + max(factor * by_time, own) for by_time, own in noise])
    wider = float(scipy.special.stdtrit(freedom, 0.975) / scipy.special.ndtri(0.975))
    return np.array(means), np.array([spreads, wider * spreads]), seconds, counts


def _useful_per_second(sample: SpeedSample, base_batch: float) -> float:
    """Return useful samples per second, weighted by statistical efficiency."""
    rate = sample.samples / sample.seconds
    if sample.gradient_noise is None or sample.batch is None:
        return rate
    return rate * statistical_efficiency(
        gradient_noise=sample.gradient_noise, batch=sample.batch, base_batch=base_batch
    )


def over_first_phase(job_class: JobClass, phase: int, width: Width) -> float:
    """Return a phase's stated speed at a width over that of the first phase, which `measured_class` corrects.

    Samples of a later phase are divided by it: how much better a class scales late in its life is stated
    phase by phase, and is not an error of the stated curve.
    """
    first, now = (job_class.phases[n].speedups.get(width.gpu_type) for n in (0, phase))
    if first is None or now is None or first is now:
        return 1.0
    return float(now.speed_at(width.gpus)) / float(first.speed_at(width.gpus))


def measured_class(
    job_class: JobClass, curves: Collection[CurveEstimate], *, base: JobClass | None = None
) -> JobClass:
    """Return the class with measured speeds instead of stated ones, on the measured GPU types.

    Each phase keeps its own shape and is corrected, width by width, by the error of the class. Speeds stay
    relative to the reference GPU: on each type the narrowest measured width keeps its stated speed. So
    measurements of one type do not move another's, and sizes in GPU-hours stay the same. `base` is the class
    that was measured, if this one is a variant of it with fewer widths; the variant keeps its own widths.
    """
    base = base or job_class
    ours = {curve.gpu_type: curve for curve in curves if curve.class_name == base.name}
    if not ours:
        return job_class
    stated = base.phases[0].speedups
    phases = tuple(
        Phase(
            size_gpu_hours=phase.size_gpu_hours,
            speedups={
                name: _corrected(curve, stated[name], ours[name])
                if name in ours and name in stated
                else curve
                for name, curve in phase.speedups.items()
            },
        )
        for phase in job_class.phases
    )
    return replace(job_class, phases=phases)


def _corrected(curve: SpeedupCurve, stated: SpeedupCurve, found: CurveEstimate) -> Table:
    """Return a phase's curve times the ratio of measurement to statement, at each of its widths.

    Between the estimated widths the logarithm of the ratio is interpolated.
    """
    estimated = np.array([width.gpus for width in found.widths], dtype=float)
    speeds = np.array([width.samples_per_second for width in found.widths])
    anchor = next((at for at, width in enumerate(found.widths) if width.measurements), 0)
    off = np.log(speeds / speeds[anchor]) - np.log(stated.speed_at(estimated))
    off += np.log(float(stated.speed_at(estimated[anchor])))
    widths = curve.whole_widths()
    if len(widths) > MOST_WIDTHS:
        widths = np.array(_menu(curve), dtype=np.int64)
    corrected = curve.speed_at(widths) * np.exp(np.interp(np.log2(widths), np.log2(estimated), off))
    return Table(gpus=tuple(map(int, widths)), speeds=tuple(map(float, corrected)))


def explain_curve(curve: CurveEstimate) -> str:
    """Return the curve, the samples and the confidence as a sentence."""
    narrowest = curve.widths[0]
    total = sum(width.measured_seconds for width in curve.widths)
    points = ", ".join(
        f"{width.gpus}: {width.speedup:.2f} ±{width.spread:.0%}"
        f"{'' if width.measurements else ' (not measured)'}"
        for width in curve.widths[1:]
    )
    shape = "" if curve.is_monotone else "; more GPUs are not always faster"
    return (
        f"Class {curve.class_name} on {curve.gpu_type}, from {total:,.0f} s of measured work: "
        f"{narrowest.samples_per_second:,.4g} useful samples/s on {narrowest.gpus} "
        f"±{narrowest.spread:.0%}; speed-up {points or 'not known at other widths'}{shape}."
    )


def estimate_all(
    samples: Sequence[SpeedSample], classes: Iterable[JobClass], *, now: float
) -> Mapping[tuple[str, str], CurveEstimate]:
    """Return the estimate of each measured class and GPU type, with the doubt about each stated curve."""
    found = {}
    for job_class in classes:
        for gpu_type, stated in job_class.phases[0].speedups.items():
            curve = estimate_curve(samples, stated, class_name=job_class.name, gpu_type=gpu_type, now=now)
            if curve is not None:
                found[job_class.name, gpu_type] = curve
    return doubted(found)


def doubted(curves: Mapping[tuple[str, str], CurveEstimate]) -> dict[tuple[str, str], CurveEstimate]:
    """Return curves whose doubts share a prior: the unknown fraction of wrong curves in the file.

    That fraction has a flat prior and is estimated by expectation maximisation, from the curves with several
    measured widths.
    """
    log_odds = np.array([curve.log_odds for curve in curves.values()])
    several = [sum(1 for width in curve.widths if width.measurements) > 1 for curve in curves.values()]
    said = np.array(several, dtype=bool)
    part = 0.5
    for _ in range(SHARED_STEPS):
        doubts = scipy.special.expit(log_odds + math.log(part / (1.0 - part)))
        part = (1.0 + float(doubts[said].sum())) / (2.0 + float(said.sum()))
    doubts = scipy.special.expit(log_odds + math.log(part / (1.0 - part)))
    return {
        key: replace(curve, doubt=float(doubt))
        for (key, curve), doubt in zip(curves.items(), doubts, strict=True)
    }
