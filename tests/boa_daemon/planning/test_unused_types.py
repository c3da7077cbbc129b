"""The reasons why a plan does not use a GPU type, against a calculation by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.planning.budget_plan import budget_plan
from boa_daemon.planning.unused_types import UnusedFor, UnusedType, unused_by_calendar
from policies.model import Budget, InstanceType
from policies.optimum.calendar import CalendarJob, InstanceOption, calendar_jobs
from policies.optimum.job_list import ListedJob

FILE = """
gpu_types:
  fast: {usd_per_gpu_hour: 2.0, gpus_per_instance: 1}
  dear: {usd_per_gpu_hour: 3.4, gpus_per_instance: 1}
  slow: {usd_per_gpu_hour: 0.5, gpus_per_instance: 1}
  other: {usd_per_gpu_hour: 1.0, gpus_per_instance: 1}
classes:
- name: c
  arrivals_per_hour: 1.0
  phases:
  - size_gpu_hours: 6.0
    speedup: {fast: {table: {1: 2.0, 2: 4.0}}, dear: {table: {1: 1.0}}, slow: {table: {1: 0.5}}}
"""


def reasons(budget: float, folder: Path) -> dict[str, UnusedType]:
    """Return the types that a plan does not use."""
    path = folder / "p.yaml"
    path.write_text(FILE)
    plan = budget_plan(load_problem(path), Budget(amount=budget), "integer-mixed")
    return {one.gpu_type: one for one in plan.unused}


def test_dearer_and_slower_types_are_named_with_their_factor(tmp_path: Path) -> None:
    """6 hours of work cost 6 dollars on fast, 3.4 x 6 on dear and 0.5 x 12 on slow."""
    found = reasons(7.0, tmp_path)

    assert found["dear"].times_dearer == pytest.approx(3.4 * 6.0 / 6.0)
    assert found["dear"].sentence == "dear is unused: it costs 3.4 times as much per unit of work."
    assert found["slow"].times_slower == pytest.approx((6.0 / 0.5) / (6.0 / 4.0))
    assert "it costs no more per unit of work, but is 8.0 times slower" in found["slow"].sentence
    assert "none of these jobs has a speed on it" in found["other"].sentence


def test_a_used_type_is_not_named(tmp_path: Path) -> None:
    """At a budget of 100 USD/hour the plan uses `fast`."""
    assert "fast" not in reasons(100.0, tmp_path)


def test_a_calendar_compares_the_options_of_its_jobs(tmp_path: Path) -> None:
    """Boots are included."""
    path = tmp_path / "p.yaml"
    path.write_text(FILE)
    file = load_problem(path)
    listed = [ListedJob(id="a", class_name="c")]
    jobs = calendar_jobs(file.problem, listed, file.instance_types, boot_hours=1.0)
    found = {one.gpu_type: one for one in unused_by_calendar(file.instance_types, jobs, {"fast"})}

    assert found["dear"].times_dearer == pytest.approx(3.4 * 7.0 / (2.0 * 4.0))


def test_a_calendar_without_jobs_names_no_unused_type() -> None:
    """Prices are not the reason in this case."""
    machine = InstanceType(name="m", gpu_type="a", gpus=1, usd_per_hour=1.0)

    assert unused_by_calendar({"a": machine}, [], set()) == ()


def test_an_equal_type_is_said_to_be_no_cheaper_and_no_faster() -> None:
    """Both types have the same hours and dollars."""
    options = tuple(
        InstanceOption(gpu_type=name, instances=1, gpus=1, hours=1.0, usd=1.0) for name in ("a", "b")
    )
    job = CalendarJob(job=ListedJob(id="j", class_name="c"), options=options)
    machine = InstanceType(name="m", gpu_type="a", gpus=1, usd_per_hour=1.0)
    (found,) = unused_by_calendar({"a": machine, "b": machine}, [job], {"a"})

    assert found.sentence == "b is unused: it does the work no cheaper and no faster."


@pytest.mark.parametrize(
    ("dearer", "slower", "said"),
    [
        (
            0.8,
            1.0,
            "costs 0.80 times as much per unit of work at its cheapest, but other widths pay more here",
        ),
        (
            0.8,
            0.5,
            "costs 0.80 times as much per unit of work at its cheapest, but other widths pay more here",
        ),
        (0.8, 2.0, "costs 0.80 times as much per unit of work, but is 2.0 times slower"),
        (1.0, 1.0, "does the work no cheaper and no faster"),
        (1.2, 0.5, "costs 1.2 times as much per unit of work"),
    ],
)
def test_a_type_that_is_cheaper_is_not_said_to_be_no_cheaper(dearer: float, slower: float, said: str) -> None:
    """The least dollars and the least hours are of different widths, so a cheaper type may be unused."""
    assert UnusedFor(name="c", times_dearer=dearer, times_slower=slower).verdict == said
