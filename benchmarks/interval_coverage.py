"""How often the true value lies in the 95 % intervals that BOA states: rates, sizes, speeds and speed-ups.

    python benchmarks/interval_coverage.py [--draws 2000] [--only rates | sizes | speeds]

Rates: hourly streams, one job at a time or in bursts of geometric size; the true rate is drawn from the
prior, or the stated rate is wrong by a factor of four. Sizes: of a number of ended jobs, some of them cut
off. Speeds: of a number of stretches of work at two of five widths, with the noise that the model assumes and
with up to three times that noise; speed-ups are those of all widths over the narrowest. For rates and sizes
also the median of the interval's upper end over its lower end.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

import numpy as np

from boa_daemon.learning.speedups import NOISE, WANDER, SpeedSample, estimate_curve
from policies.online.estimates import (
    DOUBT,
    SPREAD,
    ArrivalCounts,
    Belief,
    SizeSums,
    estimate_rate,
    estimate_size,
)
from policies.speedup import Floats, Table

MINUTES = 60
NEVER = 1e12
PRIOR = 2.0
Draw = Callable[[np.random.Generator], tuple[float, Belief]]


def a_stream(
    rng: np.random.Generator, per_hour: float, *, hours: int, burst: float, stated: float, half_life: float
) -> Belief:
    """Return the belief of a rate after some hours of jobs that arrive in bursts."""
    sizes = rng.geometric(1.0 / burst, rng.poisson(per_hour / burst * hours))
    minutes = np.zeros(hours * MINUTES)
    np.add.at(minutes, rng.integers(0, hours * MINUTES, len(sizes)), sizes)
    by_hour = minutes.reshape(hours, MINUTES)
    counts = ArrivalCounts(
        jobs=by_hour.sum(axis=1),
        squares=(by_hour**2).sum(axis=1),
        ages=np.arange(hours)[::-1] + 0.5,
        hours=np.ones(hours),
    )
    return estimate_rate(stated, counts, prior_jobs=PRIOR, half_life_hours=half_life)


def a_rate(*, hours: int, burst: float = 1.0, off: float | None = None, half_life: float = NEVER) -> Draw:
    """Return a function that draws a rate: from the prior around 6 jobs/hour, or 6 if `off` is given."""

    def draw(rng: np.random.Generator) -> tuple[float, Belief]:
        truth = float(rng.gamma(PRIOR, 6.0 / PRIOR)) if off is None else 6.0
        stated = 6.0 * (off or 1.0)
        return truth, a_stream(rng, truth, hours=hours, burst=burst, stated=stated, half_life=half_life)

    return draw


def a_size(
    *, jobs: int, spread: float | None = None, off: float = 1.0, is_cut: bool = False, is_log: bool = False
) -> Draw:
    """Return a function that draws a mean size: from the prior, or `off` times the stated size."""

    def draw(rng: np.random.Generator) -> tuple[float, Belief]:
        truth = float(rng.lognormal(0.0, SPREAD / np.sqrt(PRIOR))) if spread is None else off
        shape = float(rng.lognormal(-2.0 * np.log(SPREAD), DOUBT)) if spread is None else spread**-2.0
        if is_log:
            sigma = float(np.sqrt(np.log1p(1.0 / shape)))
            sizes: Floats = truth * rng.lognormal(-0.5 * sigma**2, sigma, jobs)
        else:
            sizes = np.maximum(rng.gamma(shape, truth / shape, jobs), 1e-9 * truth)
        limits = truth * rng.lognormal(0.2, 0.5, jobs) if is_cut else np.full(jobs, np.inf)
        cut = sizes > limits
        return truth, estimate_size(SizeSums.of(sizes[~cut]), limits[cut], prior_jobs=PRIOR)

    return draw


WIDTHS, STATED = (1, 2, 4, 8, 16), (1.0, 1.8, 3.2, 5.6, 9.0)


def speeds(
    rng: np.random.Generator, *, stretches: int, seconds: float, noise: float
) -> Iterable[tuple[str, float, Belief]]:
    """Yield (name, truth, belief) of the speeds and speed-ups of a curve with the model's deviations."""
    truth = np.array(STATED) * np.exp(np.cumsum([0.0, *rng.normal(0.0, WANDER, len(WIDTHS) - 1)]))
    measured = (0, 2)
    samples = [
        SpeedSample(
            class_name="c",
            gpu_type="gpu",
            gpus=WIDTHS[at],
            samples=float(truth[at] * seconds * np.exp(rng.normal(0.0, noise / np.sqrt(seconds / 60.0)))),
            seconds=seconds,
            at=0.0,
        )
        for at in measured
        for _ in range(stretches)
    ]
    curve = estimate_curve(
        samples, Table(gpus=WIDTHS, speeds=STATED), class_name="c", gpu_type="gpu", now=0.0
    )
    assert curve is not None
    for at, width in enumerate(curve.widths):
        spread = float(np.sqrt(curve.covariance[at][at]))
        what = "measured" if at in measured else "not measured"
        yield what, float(truth[at]), _around(width.samples_per_second, spread)
        if at:
            yield "speed-ups", float(truth[at] / truth[0]), _around(width.speedup, width.spread)


def _around(mean: float, spread: float) -> Belief:
    """Return the belief whose logarithm is normal."""
    reach = float(np.exp(1.96 * spread))
    return Belief(mean=mean, low=mean / reach, high=mean * reach)


def held(draw: Draw, *, draws: int, seed: int = 0) -> tuple[float, float]:
    """Return (share of draws with the truth in the interval, median of upper over lower end)."""
    rng = np.random.default_rng(seed)
    found = [draw(rng) for _ in range(draws)]
    inside = [belief.low <= truth <= belief.high for truth, belief in found]
    return float(np.mean(inside)), float(np.median([belief.high / belief.low for _, belief in found]))


RATES = {
    f"{hours} h, bursts of {burst:g}, {label}": a_rate(hours=hours, burst=burst, off=off)
    for hours in (3, 12, 48, 200)
    for burst, off, label in (
        (1.0, None, "from the prior"),
        (4.0, None, "from the prior"),
        (10.0, None, "from the prior"),
        (1.0, 4.0, "stated 4 x too high"),
        (1.0, 0.25, "stated 4 x too low"),
    )
} | {
    "200 h, forgotten by half in 24 h": a_rate(hours=200, half_life=24.0),
    "200 h, forgotten by half in 24 h, bursts of 4": a_rate(hours=200, half_life=24.0, burst=4.0),
}
SIZES = {
    f"{jobs} jobs, {label}{', some cut off' if is_cut else ''}": a_size(jobs=jobs, is_cut=is_cut, **more)
    for jobs in (1, 4, 15, 60)
    for is_cut in (False, True)
    for label, more in (
        ("from the prior", {}),
        ("spread 0.5, as stated", {"spread": 0.5}),
        ("spread 0.5, 4 x the stated", {"spread": 0.5, "off": 4.0}),
        ("spread 1, as stated", {"spread": 1.0}),
        ("spread 1, half the stated", {"spread": 1.0, "off": 0.5}),
        ("spread 1, 4 x the stated", {"spread": 1.0, "off": 4.0}),
        ("spread 2, as stated", {"spread": 2.0}),
        ("spread 2, 4 x the stated", {"spread": 2.0, "off": 4.0}),
        ("log-normal, spread 0.8", {"spread": 0.8, "is_log": True}),
        ("log-normal, spread 2", {"spread": 2.0, "is_log": True}),
    )
}
SPEEDS = tuple(
    (stretches, seconds, noise)
    for stretches in (1, 2, 5, 20)
    for seconds in (60.0, 600.0)
    for noise in (NOISE, 2.0 * NOISE, 3.0 * NOISE)
)


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", choices=("rates", "sizes", "speeds"))
    words = parser.parse_args()
    for what, cases, draws in (("rates", RATES, words.draws), ("sizes", SIZES, words.draws // 5)):
        if words.only in (None, what):
            print(f"{what}: truth in the 95 % interval, upper over lower end ({draws} draws)")
            for name, draw in cases.items():
                part, width = held(draw, draws=draws)
                print(f"  {name:60s} {100.0 * part:5.1f} %  {width:7.2f}", flush=True)
    if words.only in (None, "speeds"):
        print(f"speeds: measured, not measured, speed-ups ({words.draws // 2} draws)")
        for stretches, seconds, noise in SPEEDS:
            rng = np.random.default_rng(1)
            inside: dict[str, list[bool]] = {}
            for _ in range(words.draws // 2):
                for kind, truth, belief in speeds(rng, stretches=stretches, seconds=seconds, noise=noise):
                    inside.setdefault(kind, []).append(belief.low <= truth <= belief.high)
            parts = "  ".join(f"{100.0 * float(np.mean(hits)):5.1f} %" for hits in inside.values())
            print(f"  {stretches} of {seconds:.0f} s, noise {noise / NOISE:g} x     {parts}", flush=True)


if __name__ == "__main__":
    main()
