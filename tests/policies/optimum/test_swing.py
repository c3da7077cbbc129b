"""The swing of GPUs in use: a compound Poisson, against closed forms, a direct sum and a simulation."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from policies.errors import InvalidProblem
from policies.model import GpuType, JobClass, Phase, Problem
from policies.optimum.boa import solve
from policies.optimum.swing import Swing, swings
from policies.speedup import Table


def held_by(*classes: tuple[float, float, int]) -> Swing:
    """Return the swing of classes of (jobs per hour, hours, width), each with that width alone."""
    problem = Problem(
        classes=tuple(
            JobClass(
                name=f"c{number}",
                arrivals_per_hour=rate,
                phases=(Phase(size_gpu_hours=hours, speedups={"gpu": Table(gpus=(width,), speeds=(1.0,))}),),
            )
            for number, (rate, hours, width) in enumerate(classes)
        ),
        gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=1.0),),
    )
    (swing,) = swings(problem, solve(problem, 1e22))
    return swing


def test_jobs_on_one_gpu_are_poisson() -> None:
    """At width 1 the GPUs in use are the jobs present, which are Poisson with mean lambda T."""
    swing = held_by((3.0, 2.0, 1))

    counts = swing.least_gpus + np.arange(len(swing.probability))
    assert swing.probability == pytest.approx(scipy.stats.poisson(3.0 * 2.0).pmf(counts), abs=1e-12)
    assert swing.quantile(0.99) == scipy.stats.poisson(3.0 * 2.0).ppf(0.99)


def test_mean_and_variance_are_those_of_a_compound_poisson_sum() -> None:
    """The mean is the sum of k lambda T, and the variance the sum of k^2 lambda T."""
    swing = held_by((2.0, 1.5, 4), (0.5, 3.0, 16))

    assert swing.mean_gpus == pytest.approx(4 * 2.0 * 1.5 + 16 * 0.5 * 3.0)
    assert swing.sd_gpus**2 == pytest.approx(4**2 * 2.0 * 1.5 + 16**2 * 0.5 * 3.0)
    counts = swing.least_gpus + np.arange(len(swing.probability))
    assert swing.probability @ counts == pytest.approx(swing.mean_gpus)
    assert swing.probability @ (counts - swing.mean_gpus) ** 2 == pytest.approx(swing.sd_gpus**2)


def test_the_distribution_is_that_of_panjers_recursion() -> None:
    """p(g) = sum over k of (k m_k / g) p(g - k), from p(0) = exp(-sum m)."""
    swing = held_by((2.0, 0.5, 2), (1.0, 0.7, 3), (0.2, 1.0, 8))
    means = {2: 2.0 * 0.5, 3: 1.0 * 0.7, 8: 0.2 * 1.0}
    direct = [np.exp(-sum(means.values()))]
    for gpus in range(1, 60):
        direct.append(sum(k * m / gpus * direct[gpus - k] for k, m in means.items() if k <= gpus))

    assert swing.least_gpus == 0
    assert swing.probability[:60] == pytest.approx(np.array(direct), abs=1e-12)


def test_the_quantile_is_that_of_a_simulated_cluster() -> None:
    """The cluster is 400,000 draws of independent Poisson numbers of jobs; shares are within 0.2 %."""
    swing = held_by((2.0, 1.5, 4), (0.5, 3.0, 16), (5.0, 0.2, 1))
    rng = np.random.default_rng(7)
    seen = sum(k * rng.poisson(m, size=400_000) for k, m in swing.mean_jobs.items())

    for share in (0.5, 0.9, 0.99):
        quota = swing.quantile(share)
        assert np.mean(seen <= quota) >= share - 0.002
        assert np.mean(seen <= quota - 1) < share + 0.002


def test_waste_is_that_of_a_simulated_cluster() -> None:
    """Jobs share nodes of 8 GPUs with perfect packing, or each job has nodes of its own."""
    swing = held_by((2.0, 1.5, 4), (0.5, 3.0, 12), (5.0, 0.2, 1))
    rng = np.random.default_rng(8)
    jobs = {k: rng.poisson(m, size=400_000) for k, m in swing.mean_jobs.items()}
    held = sum(k * n for k, n in jobs.items())
    rented_alone = sum(-(-k // 8) * 8 * n for k, n in jobs.items())

    assert swing.shared_waste_gpus(8) == pytest.approx(np.mean(-(-held // 8) * 8 - held), rel=0.01)
    assert swing.unshared_waste_gpus(8) == pytest.approx(np.mean(rented_alone - held), rel=0.01)
    assert swing.shared_waste_gpus(1) == swing.unshared_waste_gpus(1) == 0.0


@settings(max_examples=sampled(40))
@given(
    classes=st.lists(
        st.tuples(st.floats(0.01, 50.0), st.floats(0.01, 20.0), st.integers(1, 64)), min_size=1, max_size=4
    )
)
def test_quantiles_rise_with_their_share_and_waste_with_isolation(
    classes: list[tuple[float, float, int]],
) -> None:
    """Probabilities add up to one."""
    swing = held_by(*classes)

    quantiles = [swing.quantile(share) for share in (0.01, 0.5, 0.9, 0.99, 0.999)]
    assert quantiles == sorted(quantiles)
    assert swing.probability.sum() == pytest.approx(1.0)
    assert swing.shared_waste_gpus(8) <= swing.unshared_waste_gpus(8) + 1e-9


def test_a_large_cluster_needs_memory_for_24_standard_deviations() -> None:
    """Ten million jobs on one GPU each have the quantile of the normal distribution."""
    swing = held_by((1e6, 10.0, 1))

    assert len(swing.probability) <= 2 * 24 * np.sqrt(1e7) + 100
    assert swing.quantile(0.99) == pytest.approx(1e7 + 2.3263 * np.sqrt(1e7), abs=2.0)


def test_an_impossible_number_of_gpus_is_refused() -> None:
    """The error tells the user to check the units of sizes and arrivals."""
    with pytest.raises(InvalidProblem, match="check sizes and arrivals"):
        held_by((1e9, 1e9, 64))


def test_swings_list_the_used_types_in_the_order_of_the_problem() -> None:
    """A mixed phase holds GPUs of both its widths."""
    table = Table(gpus=(1, 2), speeds=(1.0, 1.5))
    problem = Problem(
        classes=(
            JobClass(name="b", phases=(Phase(size_gpu_hours=2.0, speedups={"y": table}),)),
            JobClass(name="a", phases=(Phase(size_gpu_hours=1.0, speedups={"x": table, "z": table}),)),
        ),
        gpu_types=tuple(GpuType(name=n, usd_per_gpu_hour=p) for n, p in (("x", 1.0), ("y", 1.0), ("z", 9.0))),
    )
    solution = solve(problem, 3.2)
    found = swings(problem, solution)

    assert [swing.gpu_type for swing in found] == ["x", "y"]
    assert sum(swing.mean_gpus for swing in found) == pytest.approx(solution.mean_spend)
