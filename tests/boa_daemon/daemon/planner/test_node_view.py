"""Nodes as the daemon sees them: nodes that the engine cannot use, replacements, and network tiers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends import simulated
from boa_daemon.cli.common.daemon_status import _print_instances
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.codec import loads
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused, Unknown
from boa_daemon.tick.facts.state import NodeState

START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


class Deaf:
    """A runner that cannot prepare the first `deaf` nodes it meets."""

    def __init__(self, inner: Any, deaf: int) -> None:
        self.inner, self.deaf, self.met = inner, deaf, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def prepare(self, nodes: Any) -> dict[str, Accepted | Refused | Unknown]:
        """Accept all nodes but the first ones met."""
        self.met += [node.id for node in nodes if node.id not in self.met]
        lost = Unknown(reason="its agent does not answer")
        return {node.id: lost if node.id in self.met[: self.deaf] else Accepted() for node in nodes}


def test_a_tick_neither_decodes_nor_copies_a_node_that_has_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record holds the same object after a further tick, and still says when the node was seen last."""
    decoded = list[str]()

    def noting(text: str) -> Any:
        decoded.append(text)
        return loads(text)

    monkeypatch.setattr(simulated, "loads", noting)
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS)
    try:
        play.service.submit([job_content(hours=1.0)], user="ann")
        for _ in range(4):
            play.daemon.tick()
            clock.instant += 30.0
        [before], texts = play.storage.queue.instances.values(), list(decoded)
        play.daemon.tick()
        [after] = play.storage.queue.instances.values()
    finally:
        play.close()
    assert texts
    assert decoded == texts
    assert after.node is before.node
    assert after.last_seen_at == before.last_seen_at + 30.0


def test_a_node_that_cannot_be_prepared_is_replaced_after_half_an_hour(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then it counts as booting, so that no second node is rented; then one replacement is rented."""
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS, wrap_runner=lambda inner: Deaf(inner, 1))
    try:
        (job,) = play.service.submit([job_content(hours=1.0)], user="ann")["jobs"]
        with caplog.at_level(logging.WARNING, logger="boa.daemon"):
            while clock.instant < START + 4 * 3600.0:
                play.daemon.tick()
                assert not play.daemon.standing.fault
                clock.instant += 30.0
        assert play.service.job(job)["status"] == "finished"
        nodes = sorted(
            (row["launched_at"], row["ended_at"]) for row in play.service.instances(ended=True)["instances"]
        )
    finally:
        play.close()
    said = [record.message for record in caplog.records if "goes back" in record.message]
    assert len(said) == 1
    assert "its agent does not answer" in said[0]
    (first_from, first_until), (second_from, second_until) = nodes
    assert 1800.0 < first_until - first_from < 1900.0
    assert first_until - 60.0 <= second_from <= first_until + 60.0
    assert second_until < second_from + 2 * 3600.0


def test_the_reason_why_a_running_node_cannot_be_used_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Status, explanation, list of instances and log name the reason; the log names it once."""
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS, wrap_runner=lambda inner: Deaf(inner, 1))
    try:
        (job,) = play.service.submit([job_content(hours=1.0)], user="ann")["jobs"]
        with caplog.at_level(logging.WARNING, logger="boa.daemon"):
            while clock.instant < START + 600.0:
                play.daemon.tick()
                clock.instant += 15.0
        [row] = play.service.instances()["instances"]
        said = [*play.service.status()["notes"], play.service.explain(job)["text"], row["note"]]
    finally:
        play.close()
    logged = [record.message for record in caplog.records if "cannot be used yet" in record.message]
    assert all("its agent does not answer" in each for each in said)
    assert len(said) == 3
    assert len(logged) == 1
    assert "has run for 30 s" in logged[0]


class Unfit(Deaf):
    """A runner that refuses the first nodes because their GPUs are faulty."""

    def prepare(self, nodes: Any) -> dict[str, Accepted | Refused | Unknown]:
        """Refuse the first nodes met."""
        found = super().prepare(nodes)
        refused = Refused(reason="GPU 1 has fallen off the bus", kind="bad-request")
        return {name: each if isinstance(each, Accepted) else refused for name, each in found.items()}


def test_a_node_with_faulty_gpus_is_given_back_within_two_minutes(tmp_path: Path) -> None:
    """The job has no failure and finishes on the next node."""
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS, wrap_runner=lambda inner: Unfit(inner, 1))
    try:
        (job,) = play.service.submit([job_content(hours=0.5)], user="ann")["jobs"]
        while clock.instant < START + 2 * 3600.0:
            play.daemon.tick()
            clock.instant += 30.0
        row = play.service.job(job)
        first, *_ = sorted(
            play.service.instances(ended=True)["instances"], key=lambda each: each["launched_at"]
        )
    finally:
        play.close()
    assert (row["status"], row["failures"]) == ("finished", 0)
    assert first["ended_at"] - first["launched_at"] <= 120.0


class LikeAws:
    """A cloud that reports the GPU type of the catalogue and has no capacity for some instance types."""

    def __init__(self, inner: Any, gone: Sequence[str]) -> None:
        self.inner, self.gone = inner, gone

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def nodes(self) -> Sequence[NodeState]:
        """Return the nodes, each with the GPU type of the catalogue."""
        return [
            replace(node, instance_type=replace(node.instance_type, gpu_type="t4"))
            for node in self.inner.nodes()
        ]

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Refuse instance types without capacity."""
        if action.instance_type.name in self.gone:
            return Refused(reason="none left", kind="no-capacity")
        answer: Launched | Refused | Unknown = self.inner.launch(action)
        return answer


@pytest.mark.parametrize(("gone", "rented"), [((), ["g4dn.xlarge"]), (("g4dn.xlarge",), ["g4dn.12xlarge"])])
def test_a_job_runs_on_its_planned_instance_type_or_on_the_next_best(
    tmp_path: Path, gone: Sequence[str], rented: list[str]
) -> None:
    """The cloud reports the same GPU type for both instance types; one node is rented and used to the end."""
    path, clock = tmp_path / "classes.yaml", ManualClock(START)
    path.write_text(
        "gpu_types: {t4: {instance_types: [g4dn.12xlarge, g4dn.xlarge]}}\n"
        "classes: [{name: c, arrivals_per_hour: 0.1, phases: [{size_gpu_hours: 1, speedup: "
        "{placements: {1x1: 1.0, 1x4: 3.0}}}]}]\n",
        encoding="utf-8",
    )
    words = {**SETTINGS, "workload": {"classes": str(path)}}
    words["cloud"] = {**words["cloud"], "instance_types": ["g4dn.12xlarge", "g4dn.xlarge"]}
    play = DaemonInAFolder(tmp_path, clock, words, wrap_cloud=lambda inner: LikeAws(inner, gone))
    try:
        (job,) = play.service.submit([job_content(**{"class": "c"}, hours=1.0)], user="ann")["jobs"]
        while clock.instant < START + 1.5 * 3600.0:
            play.daemon.tick()
            assert not play.daemon.standing.fault
            clock.instant += 30.0
        assert play.service.job(job)["status"] == "finished"
        nodes = play.service.instances(ended=True)["instances"]
    finally:
        play.close()
    assert [node["instance_type"] for node in nodes] == rented


def test_the_network_tiers_of_a_node_are_stored_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`boa instances` shows a column for them once they are known, and they survive a restart."""
    clock = ManualClock(START)
    play = DaemonInAFolder(tmp_path, clock, SETTINGS)
    try:
        play.service.submit([job_content(hours=1.0)], user="ann")
        for _ in range(3):
            play.daemon.tick()
            clock.instant += 30.0
        (node,) = play.service.instances()["instances"]
        _print_instances(play.service.instances())
        assert "under" not in capsys.readouterr().out

        listed = play.daemon.fleet._cloud.nodes

        def placed() -> list[NodeState]:
            return [replace(each, tiers=("nn-1", "nn-2")) for each in listed()]

        play.daemon.fleet._cloud.nodes = placed  # type: ignore[method-assign]
        play.daemon.tick()
        _print_instances(play.service.instances())
        said = capsys.readouterr().out
    finally:
        play.close()
    assert "under" in said
    assert "nn-2" in said
    again = DaemonInAFolder(tmp_path, clock, SETTINGS)
    try:
        (kept,) = again.service.instances()["instances"]
    finally:
        again.close()
    assert (kept["id"], kept["tiers"]) == (node["id"], ["nn-1", "nn-2"])


def test_a_node_of_a_removed_instance_type_is_given_back_after_its_job(tmp_path: Path) -> None:
    """An instance type that is no longer in the settings does not make ticks fail."""
    clock, words = ManualClock(START), {**SETTINGS, "cloud": {"instance_types": ["g5.xlarge"]}}
    play = DaemonInAFolder(tmp_path, clock, words)
    try:
        (job,) = play.service.submit([job_content(hours=0.5)], user="ann")["jobs"]
        while play.service.job(job)["status"] != "running":
            play.daemon.tick()
            clock.instant += 30.0
    finally:
        play.close()
    play = DaemonInAFolder(tmp_path, clock, {**words, "cloud": {"instance_types": ["g4dn.xlarge"]}})
    try:
        for _ in range(200):
            play.daemon.tick()
            assert not play.daemon.standing.fault
            clock.instant += 30.0
        assert play.service.job(job)["status"] == "finished"
        assert not play.service.instances()["instances"]
    finally:
        play.close()
