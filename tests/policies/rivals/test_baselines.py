"""Baselines: the widths that each policy gives, and the GPUs that it leaves free."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unnamed import by_place, hurried, unnamed

import policies.rivals
from boa_daemon.testing import a_class, a_job, an_instance_type
from policies.errors import InvalidProblem
from policies.model import Job, Width
from policies.registry import POLICIES
from policies.rivals.baselines import (
    EfficiencyThreshold,
    EqualShare,
    EqualWidth,
    StaticFifo,
    StaticSrsf,
    equal_width_averages,
)
from policies.rivals.width_menu import FixedFleet, WidthMenu
from policies.speedup import Table

JOBS = st.lists(st.floats(0, 100), max_size=12).map(
    lambda arrivals: [a_job(f"j{n}", arrived_at=at) for n, at in enumerate(arrivals)]
)


def a_menu(*classes: object) -> WidthMenu:
    """Return a menu for the classes, or for one class of 1, 2 and 4 GPUs."""
    known = classes or (a_class(),)
    return WidthMenu(classes={c.name: c for c in known}, gpu_type="gpu")  # type: ignore[attr-defined]


def a_fleet(nodes: int) -> FixedFleet:
    """Return nodes of four GPUs."""
    return FixedFleet(instance_type=an_instance_type(), nodes=nodes)


@pytest.mark.parametrize(("limit", "gpus"), [(1, 1), (2, 2), (3, 2), (4, 4), (100, 4)])
def test_the_widest_allowed_width_within_a_limit_is_chosen(limit: int, gpus: int) -> None:
    """A table of 1, 2 and 4 snaps 3 down to 2."""
    assert a_menu().fastest_within("c", 0, limit) == Width("gpu", gpus)


def test_no_job_gets_a_width_that_is_slower_than_a_narrower_one() -> None:
    """Where 8 GPUs are slower than 4, a limit of 8 gives 4."""
    slower = a_class(curve=Table(gpus=(1, 4, 8), speeds=(1.0, 3.0, 2.0)))

    assert a_menu(slower).fastest_within("c", 0, 8) == Width("gpu", 4)


def test_a_limit_below_every_allowed_width_gives_the_narrowest() -> None:
    """A job that needs two GPUs gets two, whatever the limit."""
    wide = a_class(curve=Table(gpus=(2, 4), speeds=(2.0, 3.0)))

    assert a_menu(wide).fastest_within("c", 0, 1) == Width("gpu", 2)


def test_a_class_that_does_not_run_on_the_type_is_refused() -> None:
    """A menu is for one GPU type on which everything runs."""
    with pytest.raises(InvalidProblem, match="does not run on gpu"):
        a_menu(a_class(gpu_type="other"))


def test_a_fleet_has_a_node() -> None:
    """A fleet without nodes is refused."""
    with pytest.raises(InvalidProblem, match="at least one node"):
        a_fleet(0)


def test_equal_width_gives_all_jobs_one_width_and_fixes_no_nodes() -> None:
    """Three jobs get two GPUs each."""
    jobs = [a_job(name) for name in "abc"]

    allocation = EqualWidth(menu=a_menu(), gpus_per_job=2).allocate(jobs, now=0.0)

    assert allocation.widths == dict.fromkeys("abc", Width("gpu", 2))
    assert allocation.nodes is None


def test_first_come_first_served_lets_no_job_overtake() -> None:
    """On 4 GPUs the oldest job runs; the next job of 4 waits, and so does the small one behind it."""
    menu = a_menu(a_class(), a_class("small", curve=Table(gpus=(1,), speeds=(1.0,))))
    jobs = [
        a_job("third", arrived_at=3.0, class_name="small"),
        a_job("second", arrived_at=2.0),
        a_job("first", arrived_at=1.0),
    ]

    allocation = StaticFifo(menu=menu, fleet=a_fleet(1), gpus_per_job=4).allocate(jobs, now=9.0)

    assert allocation.widths == {"first": Width("gpu", 4)}
    assert allocation.nodes == {"gpu-x4": 1}


@given(jobs=JOBS, nodes=st.integers(1, 3), limit=st.integers(1, 6))
def test_widths_on_a_fixed_fleet_add_up_to_at_most_its_gpus(jobs: list[Job], nodes: int, limit: int) -> None:
    """At least one job runs."""
    fleet = a_fleet(nodes)
    for policy in (
        StaticFifo(menu=a_menu(), fleet=fleet, gpus_per_job=limit),
        EqualShare(menu=a_menu(), fleet=fleet),
    ):
        widths = policy.allocate(jobs, now=0.0).widths
        assert sum(width.gpus for width in widths.values()) <= fleet.gpus
        assert bool(widths) == bool(jobs)


@pytest.mark.parametrize(("jobs", "gpus"), [(1, 4), (2, 4), (3, 2), (4, 2), (5, 1), (8, 1)])
def test_equal_shares_are_equal(jobs: int, gpus: int) -> None:
    """Eight GPUs over n jobs: each gets the fastest width within 8 // n."""
    present = [a_job(f"j{n}") for n in range(jobs)]

    widths = EqualShare(menu=a_menu(), fleet=a_fleet(2)).allocate(present, now=0.0).widths

    assert set(widths.values()) == {Width("gpu", gpus)}
    assert len(widths) == jobs


def test_more_jobs_than_gpus_serve_the_oldest() -> None:
    """Of five jobs on four GPUs the youngest waits."""
    jobs = [a_job(f"j{n}", arrived_at=float(-n)) for n in range(5)]

    widths = EqualShare(menu=a_menu(), fleet=a_fleet(1)).allocate(jobs, now=0.0).widths

    assert set(widths) == {"j1", "j2", "j3", "j4"}


def test_the_planned_averages_of_a_limit_follow_littles_law() -> None:
    """GPUs held are arrivals per hour x hours x width: 2 x (3.6 / 1.8 + 0.5) x 2."""
    menu = a_menu(a_class(sizes=[3.6], arrivals_per_hour=2.0, startup_hours=0.5))

    promise = equal_width_averages(menu, gpus_per_job=2)

    assert promise.mean_jct_hours == pytest.approx(3.6 / 1.8 + 0.5)
    assert promise.gpus == pytest.approx(2.0 * (3.6 / 1.8 + 0.5) * 2)


def test_a_change_of_width_between_phases_costs_a_rescale() -> None:
    """The second phase allows only one GPU and pays the rescale at its own width."""
    job_class = a_class(sizes=[1.8, 1.0], rescale_hours=0.25)
    second = a_class(sizes=[1.0], curve=Table(gpus=(1,), speeds=(1.0,))).phases[0]
    mixed = type(job_class)(
        name="c", phases=(job_class.phases[0], second), arrivals_per_hour=1.0, rescale_hours=0.25
    )

    promise = equal_width_averages(a_menu(mixed), gpus_per_job=2)

    assert promise.mean_jct_hours == pytest.approx(1.0 + 0.25 + 1.0)
    assert promise.gpus == pytest.approx(1.0 * 2 + 1.25 * 1)


def test_the_job_with_the_least_service_left_over_weight_goes_first() -> None:
    """Two short jobs run, and the long one is stopped, unless its weight is large."""
    menu = a_menu()
    jobs = [
        a_job("long", arrived_at=0.0, remaining_gpu_hours=9.0),
        a_job("short", arrived_at=1.0, remaining_gpu_hours=1.0),
        a_job("shorter", arrived_at=2.0, remaining_gpu_hours=0.5),
    ]
    policy = StaticSrsf.within(menu=menu, fleet=a_fleet(1), gpus_per_job=2)

    assert set(policy.allocate(jobs, now=9.0).widths) == {"short", "shorter"}
    heavy = [replace(jobs[0], weight=20.0), *jobs[1:]]
    assert set(policy.allocate(heavy, now=9.0).widths) == {"long", "shorter"}


def test_service_is_gpu_hours_phase_by_phase() -> None:
    """At two GPUs (speed 1.8) an hour of work takes 2 / 1.8; a phase that allows one GPU takes 1."""
    first = a_class(sizes=[3.0, 1.0])
    mixed = replace(
        first, phases=(*first.phases, a_class(sizes=[2.0], curve=Table(gpus=(1,), speeds=(1.0,))).phases[0])
    )
    policy = StaticSrsf.within(menu=a_menu(mixed), fleet=a_fleet(1), gpus_per_job=2)

    fresh = a_job("a", remaining_gpu_hours=6.0)
    later = a_job("b", phase=1, scale=2.0, remaining_gpu_hours=0.5 + 2.0 * 2.0)
    assert policy.service_of(fresh) == pytest.approx(4.0 * 2.0 / 1.8 + 2.0)
    assert policy.service_of(later) == pytest.approx(0.5 * 2.0 / 1.8 + 2.0 * 2.0)


CURVES = st.lists(st.floats(0.2, 12.0), min_size=1, max_size=6).map(
    lambda speeds: Table(gpus=tuple(range(1, len(speeds) + 1)), speeds=tuple(speeds))
)


@given(curve=CURVES, second=st.floats(0.1, 4.0), efficiency=st.floats(0.0, 1.0))
def test_the_efficiency_rule_agrees_with_brute_force(curve: Table, second: float, efficiency: float) -> None:
    """The rule takes the fastest width with T(1) / (k T(k)) >= e; overheads do not count as work."""
    job_class = a_class(sizes=[1.0, second], curve=curve, startup_hours=0.3, rescale_hours=0.1)
    rule = EfficiencyThreshold(menu=a_menu(job_class), efficiency=efficiency)

    work = {k: (1.0 + second) / float(curve.speed_at(k)) for k in curve.gpus}
    allowed = [k for k in curve.gpus if k == 1 or work[1] / (k * work[k]) >= efficiency * (1.0 + 1e-9)]
    chosen = rule.widths_of("c")
    assert len(set(chosen)) == 1
    width = chosen[0].gpus
    assert width == 1 or work[1] / (width * work[width]) >= efficiency * (1.0 - 1e-9)
    assert work[width] <= min(work[k] for k in allowed) * (1.0 + 1e-9)


def test_every_job_keeps_one_width_for_life() -> None:
    """At efficiency 0.75 four GPUs (speed 3.0) are just allowed, in every phase."""
    job_class = a_class(sizes=[1.0, 1.0])
    rule = EfficiencyThreshold(menu=a_menu(job_class), efficiency=0.75)
    jobs = [a_job("a"), a_job("b", phase=1, scale=7.0)]

    assert rule.allocate(jobs, now=0.0).widths == dict.fromkeys("ab", Width("gpu", 4))
    assert rule.allocate(jobs, now=0.0).nodes is None


def test_phases_without_a_common_width_have_joint_rungs() -> None:
    """One phase allows 1 and 2 GPUs, the other 4 and 8: the rungs are (1, 4), (2, 4) and (2, 8)."""
    one = a_class(sizes=[1.0], curve=Table(gpus=(1, 2), speeds=(1.0, 1.8)))
    two = a_class(sizes=[1.0], curve=Table(gpus=(4, 8), speeds=(3.0, 5.0)))
    menu = a_menu(replace(one, phases=one.phases + two.phases))

    rungs = [[width.gpus for width in widths] for widths in menu.ladders["c"].widths]
    assert rungs == [[1, 4], [2, 4], [2, 8]]


@pytest.mark.parametrize("efficiency", [-0.1, 1.1, float("nan")])
def test_an_efficiency_is_a_fraction(efficiency: float) -> None:
    """The value is from 0 to 1."""
    with pytest.raises(InvalidProblem, match="from 0 to 1"):
        EfficiencyThreshold(menu=a_menu(), efficiency=efficiency)


@given(jobs=JOBS, nodes=st.integers(1, 3), limit=st.integers(1, 6))
def test_shortest_first_fits_the_fleet_and_leaves_no_job_that_fits(
    jobs: list[Job], nodes: int, limit: int
) -> None:
    """No waiting job fits in the GPUs that are left."""
    policy = StaticSrsf.within(menu=a_menu(), fleet=a_fleet(nodes), gpus_per_job=limit)
    widths = policy.allocate(jobs, now=0.0).widths

    left = policy.fleet.gpus - sum(width.gpus for width in widths.values())
    assert left >= 0
    waiting = [job for job in jobs if job.id not in widths]
    assert all(policy.width_of(job).gpus > left for job in waiting)


@pytest.mark.parametrize("share", [-0.01, 1.01, float("nan")])
def test_a_share_of_jobs_is_a_fraction(share: float) -> None:
    """The value is from 0 to 1."""
    for rule in (EqualWidth, EfficiencyThreshold):
        knob = {"gpus_per_job": 1} if rule is EqualWidth else {"efficiency": 0.5}
        with pytest.raises(InvalidProblem, match="a share of jobs is a number from 0 to 1"):
            rule(menu=a_menu(), share=share, **knob)  # type: ignore[arg-type]


def test_a_share_of_the_jobs_by_their_draws_follows_the_next_setting() -> None:
    """The next setting is the next wider limit with an effect, or the next lower threshold."""
    jobs = [a_job("low", draw=0.29), a_job("high", draw=0.3)]

    def gpus(rule: EqualWidth | EfficiencyThreshold) -> list[int]:
        return [width.gpus for width in rule.allocate(jobs, now=0.0).widths.values()]

    for limit, expected in ((1, [2, 1]), (2, [4, 2]), (3, [4, 2]), (4, [4, 4])):
        assert gpus(EqualWidth(menu=a_menu(), gpus_per_job=limit, share=0.3)) == expected
    first, second, last = a_menu().thresholds
    for efficiency, expected in (
        (first, [2, 1]),
        (second, [4, 2]),
        (0.8, [4, 2]),
        (last, [4, 4]),
        (0.0, [4, 4]),
    ):
        assert gpus(EfficiencyThreshold(menu=a_menu(), efficiency=efficiency, share=0.3)) == expected
    assert (first, second, last) == pytest.approx((1.0, 0.9, 0.75))


def test_only_these_defaults_are_not_empty() -> None:
    """In all of `policies.rivals`: values from papers, or tuned ones."""
    assert unnamed(policies.rivals) == {
        "RequestedWidths.efficiency": 0.65,
        "Dally.round_seconds": 60.0,
        "EqualShare.min_gpus": 1,
        "GoodputShares.round_seconds": 60.0,
        "GoodputShares.utility": 0.5,
        "Tiresias.round_seconds": 60.0,
        "Tiresias.threshold_gpu_hours": 16.0,
    }
    assert by_place(policies.rivals) == []


def test_these_properties_are_cached() -> None:
    """The list covers all of `policies.rivals`."""
    assert hurried(policies.rivals) == dict.fromkeys(
        [
            "ElasticSrpt._rungs",
            "RequestedWidths.rungs",
            "GoodputShares._options",
            "StaticSrsf.services",
            "Tiresias._prices",
            "WidthMenu._fastest",
            "WidthMenu.ladders",
            "WidthMenu.limits",
            "WidthMenu.thresholds",
        ],
        "kept",
    )


FLEET = "gpu_type nodes"


@pytest.mark.parametrize(
    ("name", "kind", "options", "says"),
    [
        ("a-srpt", "fleet", FLEET, "reads_progress"),
        ("asked", "rule", "efficiency gpu_type", "is_job_by_job"),
        ("asked-hold", "rule", "efficiency gpu_type", "is_job_by_job"),
        ("boa-authors", "heuristic", "gpu_type", "is_job_by_job"),
        ("dally", "fleet", FLEET, "reads_progress"),
        ("efficiency", "rule", "efficiency gpu_type share", "is_job_by_job"),
        ("equal-width", "rule", "gpu_type gpus_per_job share", "is_job_by_job"),
        ("greedy-marginal", "heuristic", "gpu_type", "is_job_by_job"),
        ("pollux", "fleet", FLEET, ""),
        ("pollux-autoscale", "autoscaler", "gpu_type utility", ""),
        ("srpt", "fleet", FLEET, "reads_progress"),
        ("static-equal", "fleet", FLEET, ""),
        ("static-fifo", "fleet", "gpu_type gpus_per_job nodes", ""),
        ("static-srsf", "fleet", "gpu_type gpus_per_job nodes", "reads_progress"),
        ("tiresias", "fleet", FLEET, "reads_progress"),
    ],
)
def test_each_rival_has_its_kind_its_options_and_its_flags(
    name: str, kind: str, options: str, says: str
) -> None:
    """The flags say whether the policy decides job by job, and whether it reads progress."""
    entry = POLICIES[name]
    assert (entry.name, entry.kind, " ".join(sorted(entry.options))) == (name, kind, options)
    assert (entry.is_job_by_job, entry.reads_progress) == (says == "is_job_by_job", says == "reads_progress")
