"""Less room than planned: the least loss per GPU is cut first, the largest last, and nobody starves."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.model import JobId, Width
from policies.online.narrowing import Choice, narrowed


def choices(weight: float, most: int, *, exponent: float = 1.0) -> list[Choice]:
    """Return the widths 1 to `most` of a job that takes weight / k^exponent hours on k GPUs."""
    return [
        Choice(width=Width("gpu", k), size=float(k), hours=weight / k**exponent) for k in range(1, most + 1)
    ]


def gpus_of(found: dict[JobId, Width]) -> dict[JobId, int]:
    """Return the GPUs of each job."""
    return {job: width.gpus for job, width in found.items()}


def test_with_room_for_all_nobody_is_cut() -> None:
    """The planned widths stay."""
    assert gpus_of(narrowed({"a": choices(1.0, 4), "b": choices(9.0, 8)}, 12.0)) == {"a": 4, "b": 8}


def test_two_classes_share_as_the_closed_form_says() -> None:
    """Hours w / k: the least sum has k as the square root of w. Weights 1 and 9 share 24 as 6 and 18."""
    found = narrowed({"a": choices(1.0, 20), "b": choices(9.0, 20)}, 24.0)

    assert gpus_of(found) == {"a": 6, "b": 18}


def test_where_even_the_narrowest_do_not_fit_everybody_gets_that() -> None:
    """Who waits is decided elsewhere."""
    assert gpus_of(narrowed({"a": choices(1.0, 4), "b": choices(2.0, 4)}, 1.0)) == {"a": 1, "b": 1}


def test_a_width_that_is_no_faster_than_a_narrower_one_is_never_given() -> None:
    """Eight GPUs at the speed of four: the job has four even where there is room."""
    slow = [Choice(width=Width("gpu", k), size=float(k), hours=h) for k, h in ((2, 4.0), (4, 2.0), (8, 2.0))]

    assert gpus_of(narrowed({"a": slow}, 8.0)) == {"a": 4}


@st.composite
def jobs(draw: st.DrawFn) -> dict[JobId, list[Choice]]:
    """Draw up to four jobs with any falling hours at up to five widths."""
    found: dict[JobId, list[Choice]] = {}
    for name in "abcd"[: draw(st.integers(1, 4))]:
        sizes = sorted(draw(st.sets(st.integers(1, 12), min_size=1, max_size=5)))
        hours = sorted(draw(st.lists(st.floats(0.01, 100.0), min_size=len(sizes), max_size=len(sizes))))[::-1]
        found[name] = [
            Choice(width=Width("gpu", k), size=float(k), hours=h) for k, h in zip(sizes, hours, strict=True)
        ]
    return found


@given(jobs=jobs(), room=st.integers(1, 48))
def test_it_fits_nobody_starves_and_the_largest_loss_per_gpu_is_cut_last(
    jobs: dict[JobId, list[Choice]], room: int
) -> None:
    """Every job keeps at least its narrowest width; no step that was cut lost more than one that stays."""
    found = narrowed(jobs, float(room))
    least = sum(min(one.size for one in options) for options in jobs.values())
    assert found.keys() == jobs.keys()
    assert sum(width.gpus for width in found.values()) <= max(room, least)
    kept, cut = [], []
    for job, options in jobs.items():
        at = next(one for one in options if one.width == found[job])
        wider = [(at.hours - one.hours) / (one.size - at.size) for one in options if one.size > at.size]
        narrower = [(one.hours - at.hours) / (at.size - one.size) for one in options if one.size < at.size]
        cut += [max(wider)] if wider else []
        kept += [min(narrower)] if narrower else []
    if sum(width.gpus for width in found.values()) == room and cut and kept:
        assert max(cut) <= min(kept) * (1.0 + 1e-9) + 1e-12


@given(jobs=jobs(), room=st.integers(1, 48))
def test_no_other_widths_of_the_same_room_wait_less(jobs: dict[JobId, list[Choice]], room: int) -> None:
    """Against all combinations: what is chosen is the least for the room that it takes."""
    found = narrowed(jobs, float(room))
    taken = sum(width.gpus for width in found.values())
    hours = sum(one.hours for job, options in jobs.items() for one in options if one.width == found[job])
    best = min(
        sum(one.hours for one in chosen)
        for chosen in itertools.product(*jobs.values())
        if sum(one.size for one in chosen) <= taken
    )

    assert hours == pytest.approx(best)
