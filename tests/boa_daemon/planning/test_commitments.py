"""Advice on commitments: the cheapest offers, three loads, warnings, and a backtest on another load."""

from __future__ import annotations

import numpy as np
import pytest

from boa_daemon.inputs.commitments_file import CommitmentTerms
from boa_daemon.planning.commitments import LoadInterval, advise, backtests, choices
from boa_daemon.traces.reader import Trace, TraceJob
from policies.model import InstanceType, JobClass, Phase
from policies.optimum.commitments import LoadDistribution
from policies.speedup import Table

A = InstanceType(name="p4d.24xlarge", gpu_type="a100", gpus=8, usd_per_hour=16.0)
B = InstanceType(name="g4dn.12xlarge", gpu_type="t4", gpus=4, usd_per_hour=4.0)


def terms(
    name: str, discount: float, *, kind: str = "family", years: int = 1, scope: str = "p4d"
) -> CommitmentTerms:
    """Return terms with one discount."""
    return CommitmentTerms(name=name, kind=kind, discounts={scope: discount}, term_years=years)  # type: ignore[arg-type]


def steady(*gpus: float) -> LoadDistribution:
    """Return a load of equally long hours of one GPU type."""
    return LoadDistribution(
        gpu_types=("a100",), gpus=np.array(gpus)[:, None], share=np.full(len(gpus), 1.0 / len(gpus))
    )


def test_the_cheapest_offer_of_each_scope_is_kept() -> None:
    """A reservation competes with the plan of its family; a compute plan covers both families."""
    both = CommitmentTerms(name="both", kind="compute", discounts={"p4d": 0.2, "g4dn": 0.2}, term_years=1)
    offers = [
        terms("dear", 0.1),
        terms("cheap", 0.4),
        terms("whole", 0.3, kind="reserved", scope="p4d.24xlarge"),
        both,
    ]

    assert [found.name for found, _ in choices(offers, [A, B])] == ["cheap", "both"]


def test_a_steady_load_is_committed_completely() -> None:
    """A discount of 30 % saves 30 %, and the commitment has paid after 70 % of the term."""
    (advice,) = advise(steady(8.0).times, LoadInterval(low=1.0, high=1.0), [A], [terms("x", 0.3)])

    assert advice.lines[0].gpus == pytest.approx(8.0)
    assert advice.likely.saved_fraction == pytest.approx(0.3)
    assert advice.paid_after_months == pytest.approx(12.0 * 0.7)
    assert (advice.lines[0].break_even_use, advice.lines[0].used_fraction) == pytest.approx((0.7, 1.0))
    assert advice.warnings == ()


def test_a_load_that_may_halve_gives_a_warning() -> None:
    """At half the load 11.2 USD are paid for 8 USD of use."""
    (advice,) = advise(steady(8.0).times, LoadInterval(low=0.5, high=1.5), [A], [terms("x", 0.3)])

    assert advice.low.advised == pytest.approx(8 * 2.0 * 0.7)
    assert advice.low.on_demand == pytest.approx(4 * 2.0)
    assert advice.high.advised == pytest.approx(8 * 2.0 * 0.7 + 4 * 2.0)
    assert "costs $2,336 a month more than on demand" in advice.warnings[0]


def test_a_load_that_may_vanish_gives_a_warning() -> None:
    """The whole commitment is lost then."""
    (advice,) = advise(steady(8.0).times, LoadInterval(low=0.0, high=2.0), [A], [terms("x", 0.3)])

    assert "at 0% of the likely load, which its interval allows, it costs $8,176" in advice.warnings[0]


def test_a_small_discount_gives_a_warning_about_the_term() -> None:
    """5 % pay only if the load lasts 11.4 of 12 months."""
    (advice,) = advise(steady(8.0).times, LoadInterval(low=1.0, high=1.0), [A], [terms("x", 0.05)])

    assert "before month 11.4 of 12" in advice.warnings[0]


def test_terms_of_one_and_three_years_are_advised_separately() -> None:
    """An offer for a family without load is left out."""
    found = advise(
        steady(4.0, 8.0).times,
        LoadInterval(low=0.9, high=1.1),
        [A],
        [terms("three", 0.6, years=3), terms("one", 0.3), terms("other", 0.9, scope="g4dn")],
    )

    assert [(a.term_years, [line.terms.name for line in a.lines]) for a in found] == [
        (1, ["one"]),
        (3, ["three"]),
    ]


def test_a_backtest_prices_the_advice_on_another_load() -> None:
    """The advice for 8 GPUs loses on a load of 4; the advice for 4 saves all that is possible."""
    (proof,) = backtests(steady(8.0), steady(4.0), [A], [terms("x", 0.3)])

    assert (proof.on_demand, proof.advised, proof.best) == pytest.approx((8.0, 11.2, 5.6))
    assert proof.share_of_best == pytest.approx((8.0 - 11.2) / (8.0 - 5.6))
    assert proof.sentence.startswith(
        "costs 40.0% more than on demand in the rest, where the best in hindsight"
    )
    (same,) = backtests(steady(4.0), steady(4.0), [A], [terms("x", 0.3)])
    assert same.share_of_best == pytest.approx(1.0)
    assert same.sentence == "saves 30.0% of the bill in the rest: 100% of what the best in hindsight saves"


def test_a_backtest_without_possible_savings_has_no_share() -> None:
    """If the best commitment in hindsight is none, the share of its saving is None."""
    (lost,) = backtests(steady(8.0), steady(8.0, *[0.0] * 9), [A], [terms("x", 0.3)])
    (nothing,) = backtests(steady(8.0, *[0.0] * 9), steady(8.0, *[0.0] * 9), [A], [terms("x", 0.3)])

    assert (lost.share_of_best, nothing.share_of_best) == (None, None)
    assert lost.saved_fraction == pytest.approx(1.0 - 11.2 / 1.6)
    assert "saves 0.0%: it bets that the load stays the same" in lost.sentence
    assert nothing.sentence == "saves 0.0% of the bill in the rest, where nothing could be saved"
    assert lost.to_document()["share_of_best_saving"] is None


def test_the_load_interval_of_a_trace_is_that_of_a_compound_sum() -> None:
    """100 equal jobs give 1.96 / sqrt(100); one job of ten times the size widens the interval."""
    job_class = JobClass(
        name="c",
        arrivals_per_hour=1.0,
        phases=(Phase(size_gpu_hours=2.0, speedups={"a100": Table(gpus=(1,), speeds=(1.0,))}),),
    )
    jobs = [TraceJob(f"j{n}", float(n), "c") for n in range(100)]
    alike = LoadInterval.of_trace(Trace(tuple(jobs)), [job_class])
    mixed = LoadInterval.of_trace(Trace((*jobs, TraceJob("big", 100.0, "c", 10.0))), [job_class])

    assert (alike.low, alike.high) == pytest.approx((1.0 - 0.196, 1.0 + 0.196))
    assert mixed.high == pytest.approx(1.0 + 1.96 * 200**0.5 / 110)


def test_weeks_of_different_load_widen_the_interval() -> None:
    """Six unequal weeks use Student's t; six equal weeks or only three use the interval of the jobs."""
    job_class = JobClass(
        name="c",
        arrivals_per_hour=1.0,
        phases=(Phase(size_gpu_hours=2.0, speedups={"a100": Table(gpus=(1,), speeds=(1.0,))}),),
    )

    def interval(*weeks: int) -> LoadInterval:
        times = [168.0 * (week + n / jobs) for week, jobs in enumerate(weeks) for n in range(jobs)]
        times.append(168.0 * len(weeks))
        return LoadInterval.of_trace(
            Trace(tuple(TraceJob(f"j{n}", 3600.0 * at, "c") for n, at in enumerate(times))), [job_class]
        )

    half = 2.5706 * np.std([1500, 500] * 3, ddof=1) / 1000.0 / 6**0.5
    assert interval(1500, 500, 1500, 500, 1500, 500).high - 1.0 == pytest.approx(half, rel=1e-3)
    assert interval(*[1000] * 6).high - 1.0 == pytest.approx(1.96 / 6001**0.5)
    assert interval(1500, 500, 1500).high - 1.0 == pytest.approx(1.96 / 3501**0.5)
