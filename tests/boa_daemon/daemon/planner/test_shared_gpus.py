"""Shared GPUs: several places per GPU, in settings, plans, engine and nodes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.planner.shared_gpus import planned_machine, start_on_gpus, with_whole_gpus
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.setting_layers import load_aws_settings
from boa_daemon.errors import InputError
from boa_daemon.store.records import InstanceRecord
from boa_daemon.testing import ManualClock, a_node, an_instance_type
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.actions import StartJob
from policies.model import GpuSlot, InstanceType, Width

START = 1_900_000_000.0
CLASSES = """
gpu_types: {t4: {instance_type: g4dn.12xlarge}}
classes:
  - name: c
    arrivals_per_hour: 1
    shares_gpu: true
    needs: {gpu_memory_gb: 6}
    network: {message_bytes: 5.0e8, compute_seconds: 0.1}
    phases: [{size_gpu_hours: 8, speedup: {table: {8: 2.0}}}]
"""
SHARED = "t4@g4dn.12xlarge/2"


def words(tmp_path: Path, text: str = CLASSES, **cloud: Any) -> dict[str, dict[str, Any]]:
    """Return settings with two places on each of the four T4 GPUs of a machine."""
    path = tmp_path / "classes.yaml"
    path.write_text(text, encoding="utf-8")
    return {
        "budget": {"usd_per_hour": 100.0, "usd_per_day_cap": 5000.0},
        "workload": {"classes": str(path)},
        "cloud": {"instance_types": ["g4dn.12xlarge"], "gpu_places": {"g4dn.12xlarge": 2}, **cloud},
    }


def planner(tmp_path: Path, text: str = CLASSES, **cloud: Any) -> Planner:
    """Return the planner for these settings."""
    return Planner(Settings.model_validate(words(tmp_path, text, **cloud)))


def test_a_place_is_planned_as_a_gpu_with_its_share_of_the_price(tmp_path: Path) -> None:
    """Eight places cost as much as the node with four GPUs, and a job on places is up to twice as slow."""
    found = planner(tmp_path)
    (machine,) = found.machines.values()
    assert (machine.gpu_type, machine.gpus, machine.whole_gpus, machine.name) == (
        SHARED, 8, 4, "g4dn.12xlarge",
    )  # fmt: skip
    whole = planner(tmp_path, gpu_places={})
    assert machine.usd_per_hour == whole.machines["t4"].usd_per_hour
    slower = whole.speed("c", 0, Width("t4", 8)) / found.speed("c", 0, Width(SHARED, 8))
    assert 1.0 < slower < 2.0
    assert list(whole.machines) == ["t4"]


def test_a_class_uses_shared_gpus_only_if_it_permits_them_and_fits(tmp_path: Path) -> None:
    """A 16 GB GPU holds two jobs of 6 GB but not of 9 GB, and a class must state its memory."""
    closed = CLASSES.replace("    shares_gpu: true\n", "")
    with pytest.raises(InputError, match="no class"):
        planner(tmp_path, closed)
    with pytest.raises(InputError, match="no class"):
        planner(tmp_path, CLASSES.replace("gpu_memory_gb: 6", "gpu_memory_gb: 9"))
    with pytest.raises(InputError, match="how much of their memory"):
        planner(tmp_path, CLASSES.replace("    needs: {gpu_memory_gb: 6}\n", ""))
    beside = planner(tmp_path, closed, instance_types=["g4dn.12xlarge", "g4dn.metal"])
    assert SHARED not in beside.classes["c"].phases[0].speedups


@pytest.mark.parametrize(
    ("places", "said"),
    [({"g5.xlarge": 2}, "not rented"), ({"g4dn.12xlarge": 1}, "2 to 8"), ({"g4dn.12xlarge": 9}, "2 to 8")],
)
def test_invalid_gpu_places_are_refused(tmp_path: Path, places: dict[str, int], said: str) -> None:
    """The instance type must be one of the settings, with 2 to 8 places per GPU."""
    with pytest.raises(InputError, match=said):
        planner(tmp_path, gpu_places=places)


def test_shared_gpus_are_refused_when_no_class_permits_them() -> None:
    """The default class does not share its GPUs."""
    cloud = {"instance_types": ["g4dn.12xlarge"], "gpu_places": {"g4dn.12xlarge": 2}}
    with pytest.raises(InputError, match="no class says"):
        Planner(Settings.model_validate({"cloud": cloud}))


class Watched:
    """A runner that records the starts."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.started = inner, list[StartJob]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def start(self, action: StartJob) -> Any:
        """Record the start."""
        self.started.append(action)
        return self.inner.start(action)


def test_two_jobs_share_the_gpus_of_the_same_nodes(tmp_path: Path) -> None:
    """Each GPU of the two nodes has both jobs; both finish after the setting is removed."""
    clock, given = ManualClock(START), words(tmp_path)
    watched: list[Watched] = []

    def watch(inner: Any) -> Watched:
        watched.append(Watched(inner))
        return watched[-1]

    play = DaemonInAFolder(tmp_path, clock, given, wrap_runner=watch)
    try:
        jobs = play.service.submit(
            [job_content(**{"class": "c"}, hours=2.0, max_gpus=8) for _ in range(2)], user="ann"
        )["jobs"]
        for _ in range(30):
            play.daemon.tick()
            assert not play.daemon.standing.fault
            clock.instant += 30.0
        nodes = play.service.instances()["instances"]
        assert [(node["gpus"], node["jobs"]) for node in nodes] == [(8, sorted(jobs))] * 2
        starts = {start.job: start for start in watched[0].started}
        users = Counter((slot.node, slot.index) for start in starts.values() for slot in start.slots)
        assert set(users.values()) == {2}
        assert {gpu for _, gpu in users} == {0, 1, 2, 3}
        assert all(start.places_per_gpu == 2 for start in starts.values())
        said = play.service.explain(jobs[0])["text"]
        assert f"with job {jobs[1]}" in said
        assert "It shares GPU" in said
        booked = [play.service.job(job)["usd"] for job in jobs]
        assert booked[0] == pytest.approx(booked[1], rel=0.01)
    finally:
        play.close()

    given["cloud"] = {**given["cloud"], "gpu_places": {}}
    play = DaemonInAFolder(tmp_path, clock, given)
    try:
        for _ in range(1000):
            play.daemon.tick()
            assert not play.daemon.standing.fault
            clock.instant += 30.0
            if all(play.service.job(job)["status"] == "finished" for job in jobs):
                break
        assert [play.service.job(job)["status"] for job in jobs] == ["finished"] * 2
    finally:
        play.close()


def test_engines_get_gpu_indices_and_clouds_get_whole_machines() -> None:
    """Place 5 of a node with four GPUs is on GPU 1; machines without places are unchanged."""
    shared = InstanceType(name="m", gpu_type="t4@m/2", gpus=8, usd_per_hour=4.0, places_per_gpu=2)
    start = StartJob(
        id="a", job="j", generation=1, width=Width("t4@m/2", 2),
        slots=(GpuSlot("n", 5), GpuSlot("n", 2)), reason="",
    )  # fmt: skip
    found = start_on_gpus(start, {"n": InstanceRecord(node=a_node("n", kind=shared))})
    assert (found.slots, found.places_per_gpu) == ((GpuSlot("n", 1), GpuSlot("n", 2)), 2)
    plain = an_instance_type()
    assert start_on_gpus(start, {"n": InstanceRecord(node=a_node("n", kind=plain))}) is start
    assert with_whole_gpus(plain) is plain
    whole = with_whole_gpus(shared)
    assert (whole.gpus, whole.places_per_gpu) == (4, 1)


def test_a_node_keeps_its_number_of_places() -> None:
    """A change of the setting applies to new nodes only."""
    whole = InstanceType(name="m", gpu_type="t4", gpus=4, usd_per_hour=4.0)
    shared = InstanceType(name="m", gpu_type="t4@m/2", gpus=8, usd_per_hour=4.0, places_per_gpu=2)
    new = {"name": "m", "kind": "t4@m/2", "planned": shared}
    assert planned_machine(whole, **new, known=None) == shared
    assert planned_machine(whole, **new, known=whole) == whole
    assert planned_machine(shared, **new, known=shared) == shared, (
        "as the books have one that no listing shows"
    )
    assert planned_machine(whole, name="m", kind="t4", planned=whole, known=shared) == shared
    assert planned_machine(whole, name="m", kind="t4", planned=None, known=shared) == shared


def test_aws_commands_accept_settings_that_only_the_daemon_reads(tmp_path: Path) -> None:
    """`boa up` and `boa iam` read the same file as the daemon."""
    path = tmp_path / "boa.toml"
    path.write_text(
        '[cloud]\nprovider = "aws"\nregion = "eu-west-1"\ncommitments = "c.yaml"\nblocks = "b.yaml"\n'
        'gpu_places = {"g4dn.12xlarge" = 2}\nboot_seconds = 5.0\nstart_seconds = 5.0\nstock = 3\n',
        encoding="utf-8",
    )
    assert load_aws_settings(path).region == "eu-west-1"
