"""What a port is at the least: a cloud that says no more than it must, orders of runs, launches in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import pytest

from boa_daemon.testing import an_instance_type
from boa_daemon.tick.actions import LaunchNodes
from boa_daemon.tick.offers import RefusalKind
from boa_daemon.tick.ports import WARNING_SECONDS, JobSpec, OpenLaunch, Provider, Refused, RunPhase, RunReport
from policies.errors import InvalidProblem


class Plain(Provider):
    """A cloud of no nodes, which is never looked after."""

    def nodes(self) -> Sequence[object]:  # type: ignore[override]
        """Return none."""
        return ()

    def offers(self) -> Sequence[object]:  # type: ignore[override]
        """Return none."""
        return ()

    def launch(self, action: object) -> object:  # type: ignore[override]
        """Launch nothing."""

    def terminate(self, actions: object) -> Mapping[str, object]:  # type: ignore[override]
        """End nothing."""
        return {}


def report(phase: RunPhase) -> RunReport:
    """Return what is known of a generation."""
    return RunReport(job="a", generation=1, phase=phase)


def test_a_cloud_that_needs_no_care_has_nothing_to_say() -> None:
    """Nothing is remembered, renewed, swept or rehearsed, and everything is ours."""
    cloud = Plain()
    for found in (
        cloud.remember([]),
        cloud.listen(lambda: None),
        cloud.renew([]),
        cloud.refresh(),
        cloud.close(),
    ):
        assert found is None  # type: ignore[func-returns-value]
    assert (cloud.elsewhere(), cloud.sweep(), cloud.ages(), cloud.rehearse_end("n")) == ("", {}, {}, None)


def test_a_run_is_over_at_its_end() -> None:
    """Whether it stopped, finished or failed."""
    over = {phase for phase in get_args(RunPhase) if report(phase).is_over}
    assert over == {"stopped", "finished", "failed"}


@pytest.mark.parametrize("order", [{"job": "", "run": "x"}, {"job": "a", "run": " "}])
def test_an_order_needs_an_id_and_a_command(order: dict[str, str]) -> None:
    """A blank command runs nothing."""
    with pytest.raises(InvalidProblem, match="needs an id and a command to run"):
        JobSpec(name="n", class_name="c", **order)  # type: ignore[arg-type]


def test_nodes_in_flight_are_those_that_no_listing_has_shown() -> None:
    """By the names of the answer; made-up ones where it was lost, as many as are missing."""
    launch = LaunchNodes(id="x", instance_type=an_instance_type(), count=3, reason="")
    lost = OpenLaunch(action=launch, at=0.0, seen=frozenset({"n1"}))
    answered = OpenLaunch(action=launch, at=0.0, nodes=("n1", "n2"), seen=frozenset({"n1"}))
    assert (lost.unseen, answered.unseen) == (("x/1", "x/2"), ("n2",))


@pytest.mark.parametrize(
    ("kind", "scopes", "is_gang", "closed"),
    [
        ("no-capacity", (), False, ("gpu-x4//on-demand",)),
        ("no-capacity", (), True, ("gpu-x4//on-demand/2",)),
        ("quota", (), True, ("gpu-x4//on-demand",)),
        ("no-capacity", ("*", "gpu-x4//on-demand"), True, ("*", "gpu-x4//on-demand/2")),
        ("quota", ("*/*/spot",), True, ("*/*/spot",)),
    ],
)
def test_a_refusal_closes_what_was_asked_for_or_what_it_names(
    kind: RefusalKind, scopes: tuple[str, ...], is_gang: bool, closed: tuple[str, ...]
) -> None:
    """Three nodes together that were not to be had close orders of two and more, not of one."""
    launch = LaunchNodes(id="x", instance_type=an_instance_type(), count=3, is_gang=is_gang, reason="")
    assert Refused(reason="no", kind=kind, scopes=scopes).scopes_of(launch) == closed


def test_an_order_without_an_id_goes_by_its_name_in_the_error() -> None:
    """Else by its id; its times and sizes are more than nothing."""
    with pytest.raises(InvalidProblem, match="job 'n' needs"):
        JobSpec(job="", name="n", class_name="c", run="x")
    with pytest.raises(InvalidProblem, match="job 'a' needs"):
        JobSpec(job="a", name="n", class_name="c", run="")
    for field in ("stop_grace_seconds", "log_bytes"):
        with pytest.raises(InvalidProblem, match=f"{field} of a must"):
            JobSpec(job="a", name="n", class_name="c", run="x", **{field: 0})  # type: ignore[arg-type]


def test_a_cloud_says_nothing_special_of_itself_and_warns_two_minutes_ahead() -> None:
    """It rents spot, is elsewhere, and does not say how long its nodes boot or how large their disks are."""
    cloud = Plain()
    assert (cloud.boot_seconds, cloud.root_volume_gib, cloud.rents_spot) == (None, None, True)
    assert (cloud.is_this_machine, cloud.standing(), WARNING_SECONDS) == (False, (), 120.0)
