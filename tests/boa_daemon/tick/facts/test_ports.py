"""Ports: the defaults of a cloud, the checks of an order for a run, and launches in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import pytest

from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.offers import RefusalKind
from boa_daemon.tick.facts.ports import (
    WARNING_SECONDS,
    JobSpec,
    OpenLaunch,
    Provider,
    Refused,
    RunPhase,
    RunReport,
)
from policies.errors import InvalidProblem


class Plain(Provider):
    """A cloud without nodes that keeps all defaults."""

    def nodes(self) -> Sequence[object]:  # type: ignore[override]
        """Return no nodes."""
        return ()

    def offers(self) -> Sequence[object]:  # type: ignore[override]
        """Return no offers."""
        return ()

    def launch(self, action: object) -> object:  # type: ignore[override]
        """Launch nothing."""

    def terminate(self, actions: object) -> Mapping[str, object]:  # type: ignore[override]
        """End nothing."""
        return {}


def report(phase: RunPhase) -> RunReport:
    """Return a report about a run in this phase."""
    return RunReport(job="a", generation=1, phase=phase)


def test_the_optional_methods_of_a_cloud_do_nothing_by_default() -> None:
    """They return None or something empty."""
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


def test_a_run_is_over_if_it_stopped_finished_or_failed() -> None:
    """No other phase is over."""
    over = {phase for phase in get_args(RunPhase) if report(phase).is_over}
    assert over == {"stopped", "finished", "failed"}


@pytest.mark.parametrize("order", [{"job": "", "run": "x"}, {"job": "a", "run": " "}])
def test_a_job_spec_needs_an_id_and_a_command(order: dict[str, str]) -> None:
    """A blank command is an error."""
    with pytest.raises(InvalidProblem, match="needs an id and a command to run"):
        JobSpec(name="n", class_name="c", **order)  # type: ignore[arg-type]


def test_nodes_in_flight_are_those_that_are_not_listed_yet() -> None:
    """They have the ids of the answer; if it was lost, made-up ids for as many as are missing."""
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
def test_a_refusal_closes_the_requested_offer_or_the_scopes_that_it_names(
    kind: RefusalKind, scopes: tuple[str, ...], is_gang: bool, closed: tuple[str, ...]
) -> None:
    """A gang of three without capacity closes orders of two and more, not of one."""
    launch = LaunchNodes(id="x", instance_type=an_instance_type(), count=3, is_gang=is_gang, reason="")
    assert Refused(reason="no", kind=kind, scopes=scopes).scopes_of(launch) == closed


def test_the_error_of_a_job_spec_names_its_id_or_else_its_name() -> None:
    """Grace time and log size must be above zero."""
    with pytest.raises(InvalidProblem, match="job 'n' needs"):
        JobSpec(job="", name="n", class_name="c", run="x")
    with pytest.raises(InvalidProblem, match="job 'a' needs"):
        JobSpec(job="a", name="n", class_name="c", run="")
    for field in ("stop_grace_seconds", "log_bytes"):
        with pytest.raises(InvalidProblem, match=f"{field} of a must"):
            JobSpec(job="a", name="n", class_name="c", run="x", **{field: 0})  # type: ignore[arg-type]


def test_the_default_properties_of_a_cloud_are_those_of_a_remote_spot_cloud() -> None:
    """Its boot time and disk size are unknown, and it warns two minutes ahead."""
    cloud = Plain()
    assert (cloud.boot_seconds, cloud.root_volume_gib, cloud.rents_spot) == (None, None, True)
    assert (cloud.is_this_machine, cloud.standing(), WARNING_SECONDS) == (False, (), 120.0)
