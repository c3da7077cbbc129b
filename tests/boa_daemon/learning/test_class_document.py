"""`learning/class_document.py`: a class as stated, as planned and as measured."""

from __future__ import annotations

import math
from typing import Any

import pytest

from boa_daemon.learning.beliefs import ClassBelief, PlannedFigures
from boa_daemon.learning.class_document import Z95, class_document
from boa_daemon.learning.link_estimates import LinkEstimate
from boa_daemon.learning.speedups import CurveEstimate, WidthEstimate
from boa_daemon.testing import a_class
from policies.online.estimates import Belief
from policies.speedup import Table

STATED = a_class(sizes=(4.0,), arrivals_per_hour=2.0, curve=Table(gpus=(2, 4, 6), speeds=(2.0, 3.0, 3.6)))
BELIEF = ClassBelief(
    name="c", rate=Belief(mean=3.0, low=1.0, high=5.0), size=Belief(mean=8.0, low=6.0, high=10.0),
    stated_per_hour=2.0, stated_gpu_hours=4.0, arrivals=7, ended=5, cut=1, newest_at=90.0,
)  # fmt: skip


def document(**changes: Any) -> dict[str, Any]:
    """Return the document of the class at instant 100."""
    how: dict[str, Any] = {
        "belief": None,
        "planned": None,
        "curves": [],
        "is_rate_stated": True,
        "now": 100.0,
    }
    how |= changes
    return class_document(STATED, how.pop("belief"), how.pop("planned"), how.pop("curves"), **how)


def test_without_data_the_plan_is_what_was_stated() -> None:
    """Nothing is estimated, and no age is known."""
    found = document()
    assert found["arrivals_per_hour"] == {
        "stated": 2.0, "planned": 2.0, "estimate": None, "low": None, "high": None, "jobs": 0,
    }  # fmt: skip
    assert found["size_gpu_hours"] == {
        "stated": 4.0, "planned": 4.0, "estimate": None, "low": None, "high": None, "ended": 0, "cut_off": 0,
    }  # fmt: skip
    assert (found["newest_at"], found["age_seconds"], "sending" in found, "needs" in found) == (
        None,
        None,
        False,
        False,
    )
    assert document(is_rate_stated=False)["arrivals_per_hour"]["stated"] is None


def test_estimates_stand_beside_what_is_planned_by() -> None:
    """The planned size is the stated one times its factor; data are as old as the newest of them."""
    found = document(belief=BELIEF, planned=PlannedFigures(per_hour=2.5, size_factor=1.5))
    assert found["arrivals_per_hour"] == {
        "stated": 2.0, "planned": 2.5, "estimate": 3.0, "low": 1.0, "high": 5.0, "jobs": 7,
    }  # fmt: skip
    assert found["size_gpu_hours"] == {
        "stated": 4.0, "planned": 6.0, "estimate": 8.0, "low": 6.0, "high": 10.0, "ended": 5, "cut_off": 1,
    }  # fmt: skip
    assert [document(belief=BELIEF, now=now)["age_seconds"] for now in (100.0, 80.0)] == [10.0, 0.0]


def test_sending_is_told_in_seconds_for_each_second_of_computing() -> None:
    """The stated share times what was measured."""
    link = LinkEstimate(stated_share=0.5, factor=2.0, low=1.0, high=4.0, machines=("m",))
    found = document(link=link, needs={"gpu_memory_gb": 40.0})
    assert found["sending"] == {"stated": 0.5, "estimate": 1.0, "low": 0.5, "high": 2.0, "machines": ["m"]}
    assert found["needs"] == {"gpu_memory_gb": 40.0}


def test_speeds_are_told_at_powers_of_two_and_at_the_widest() -> None:
    """Over the narrowest width, which has the speed-up one."""
    rows = document()["speedups"]
    assert [(row["gpus"], row["stated"], row["stated_speed"]) for row in rows] == [
        (2, 1.0, 2.0),
        (4, 1.5, 3.0),
        (6, pytest.approx(1.8), 3.6),
    ]
    assert all(row["estimate"] is row["low"] is row["high"] is None for row in rows)
    assert not any(row["is_extrapolated"] or row["measurements"] for row in rows)


def test_measured_speeds_have_their_interval_and_what_is_behind_them() -> None:
    """The narrowest has none; a width that nobody tried follows from the others."""
    widths = tuple(
        WidthEstimate(
            gpus=gpus, samples_per_second=10.0 * gpus, speedup=speedup, spread=0.1,
            measured_seconds=60.0 * count, measurements=count,
        )
        for gpus, speedup, count in ((2, 1.0, 3), (4, 1.9, 2), (6, 2.5, 0))
    )  # fmt: skip
    curve = CurveEstimate(class_name="c", gpu_type="gpu", widths=widths, covariance=((0.0,) * 3,) * 3)
    first, second, third = document(curves=[curve])["speedups"]
    assert (first["estimate"], first["low"], first["high"]) == (1.0, 1.0, 1.0)
    assert second["low"] == pytest.approx(1.9 * math.exp(-0.1 * Z95))
    assert second["high"] == pytest.approx(1.9 * math.exp(0.1 * Z95))
    assert (second["samples_per_second"], second["measured_seconds"], second["measurements"]) == (
        40.0,
        120.0,
        2,
    )
    assert [row["is_extrapolated"] for row in (first, second, third)] == [False, False, True]
    other = CurveEstimate(class_name="d", gpu_type="gpu", widths=widths, covariance=((0.0,) * 3,) * 3)
    assert document(curves=[other])["speedups"] == document()["speedups"]
