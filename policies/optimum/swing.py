"""The distribution of the GPUs held under fixed widths: mean, standard deviation and quantiles.

With Poisson arrivals the jobs at each (class, plan, phase) are independent Poisson numbers with mean
lambda x fraction x hours, whatever the distribution of sizes, so the GPUs held are compound Poisson:

    mean = sum k lambda T        variance = sum k^2 lambda T

The distribution is computed from its generating function exp(sum m_k (z^k - 1)) by one Fourier transform over
a window of counts around the mean.

    symbol   here        meaning
    k        gpus        width
    m_k      mean_jobs   mean number of jobs that hold k GPUs

Cost: O(n log n) for n about 24 standard deviations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from policies.errors import InvalidProblem
from policies.model import Problem
from policies.optimum.solution import Solution
from policies.speedup import Floats

TAIL = 12.0
"""Standard deviations to each side of the mean that the window covers; the tails are below 1e-12."""
MOST_COUNTS = 2**24
"""Most counts in the window: no cloud has more GPUs, so a larger load is an error in sizes or rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """The distribution of the GPUs of one type held over time.

    `probability[i]` is the share of time for which exactly `least_gpus + i` are held. `mean_jobs` is the mean
    number of jobs by width.
    """

    gpu_type: str
    mean_gpus: float
    sd_gpus: float
    mean_jobs: Mapping[int, float]
    probability: Floats
    least_gpus: int = 0

    def quantile(self, share: float) -> int:
        """Return the least number of GPUs that suffices for `share` of the time."""
        return self.least_gpus + int(np.searchsorted(np.cumsum(self.probability), share * (1.0 - 1e-12)))

    def at_rates_times(self, factor: float) -> Swing:
        """Return the distribution if all jobs come `factor` times as often, at the same widths."""
        return _swing(self.gpu_type, {gpus: factor * mean for gpus, mean in self.mean_jobs.items()})

    def shared_waste_gpus(self, gpus_per_node: int) -> float:
        """Return the mean idle GPUs if jobs were packed onto the fewest nodes at every moment."""
        held = self.least_gpus + np.arange(len(self.probability))
        return float(self.probability @ (-held % gpus_per_node))

    def unshared_waste_gpus(self, gpus_per_node: int) -> float:
        """Return the mean idle GPUs if no two jobs ever shared a node."""
        return sum(m * (-k % gpus_per_node) for k, m in self.mean_jobs.items())


def swings(problem: Problem, solution: Solution) -> tuple[Swing, ...]:
    """Return the distribution for each GPU type that a solution at whole widths uses, in problem order.

    Raises:
        InvalidProblem: when the window of counts would be larger than `MOST_COUNTS`.
    """
    jobs: dict[str, dict[int, float]] = {}
    for job_class, answer in zip(problem.classes, solution.classes, strict=True):
        for plan in answer.plans:
            for step in plan.steps:
                at = jobs.setdefault(step.gpu_type, {})
                held = job_class.arrivals_per_hour * plan.job_fraction * step.hours
                at[int(step.gpus)] = at.get(int(step.gpus), 0.0) + held
    return tuple(_swing(gpu.name, jobs[gpu.name]) for gpu in problem.gpu_types if gpu.name in jobs)


def _swing(gpu_type: str, mean_jobs: Mapping[int, float]) -> Swing:
    """Return the compound Poisson distribution of the GPUs held."""
    widths = np.array(list(mean_jobs))
    means = np.array(list(mean_jobs.values()))
    mean = float(widths @ means)
    sd = float(np.sqrt(widths.astype(float) ** 2 @ means))
    least = max(0, int(mean - TAIL * sd))
    # The tail of a compound Poisson variable: add a few of the widest jobs to the normal range.
    most = mean + TAIL * sd + TAIL * float(widths.max()) + 1.0
    if most - least > MOST_COUNTS:
        raise InvalidProblem(
            f"{mean:.3g} GPUs of type {gpu_type} would be held on average: check sizes and arrivals"
        )
    size = 1 << int(np.ceil(np.log2(most - least)))
    # The transform counts modulo `size`, and only one count of each residue is inside the window.
    jumps = np.zeros(size)
    np.add.at(jumps, widths % size, means)
    transform = np.exp(np.fft.rfft(jumps) - means.sum())
    probability = np.roll(np.maximum(np.fft.irfft(transform, size), 0.0), -(least % size))
    return Swing(
        gpu_type=gpu_type,
        mean_gpus=mean,
        sd_gpus=sd,
        mean_jobs=mean_jobs,
        probability=probability / probability.sum(),
        least_gpus=least,
    )
