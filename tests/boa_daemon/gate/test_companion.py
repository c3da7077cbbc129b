"""`boa_daemon.gate.companion`: the gate's interface for the daemon and its engines."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from boa_daemon.gate.companion import JobDoor, start_gate, takes_uplink, tell_plan
from boa_daemon.gate.supervisor import GateSupervisor
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.client import GateClient
from boa_daemon.job.gate.token import issue_token, write_token
from boa_daemon.job.inject import FOLDER
from boa_daemon.testing import a_job, a_node, a_state, some_slots

from .conftest import LINK, until


def test_a_job_connects_to_the_daemons_gate_and_is_ranked_by_its_plan(tmp_path: Path) -> None:
    """The hook's folder precedes the job's own PYTHONPATH."""
    door = JobDoor(tmp_path, GateAddress(path=str(tmp_path / "gate.sock")))
    with start_gate(GateSettings(link=LINK), tmp_path) as gate:
        tell_plan(gate, a_state(a_job("j1", remaining_gpu_hours=1.5)))
        address = a_pass(door, tmp_path)
        client = GateClient(address, job="j1", nics=["n1", "n2"], token=address.read_token())
        until(lambda: client.is_connected)
        (row,) = gate.status()["jobs"]
        client.close()

    assert row["remaining_gpu_seconds"] == 1.5 * 3600.0
    environment = door.hooked({"PYTHONPATH": "mine"})
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(FOLDER), "mine"]
    elsewhere = door.hooked({}, library="/lib/boa")["PYTHONPATH"]
    assert elsewhere == "/lib/boa/boa_daemon/job/inject/site"


@pytest.mark.parametrize(
    ("nodes", "behind", "is_taken"),
    [
        (["a-1", "b-1"], ["a-*"], True),
        (["a-1", "a-2"], ["a-*"], False),
        (["b-1", "b-2"], ["a-*"], False),
        (["a-1", "a-2"], ["*"], True),
        (["a-1"], ["*"], False),
    ],
)
def test_a_job_takes_an_uplink_if_its_nodes_are_on_both_sides(
    nodes: list[str], behind: list[str], is_taken: bool
) -> None:
    """The pattern `*` stands for a link that joins all nodes."""
    assert takes_uplink(nodes, behind) == is_taken
    with tempfile.TemporaryDirectory() as folder:
        door = JobDoor(Path(folder), GateAddress(path="/g"), uplinks={"up": behind})
        given = door.admit("j1", 1, nodes, token_file="/t")
    assert GateAddress.parse(given.address).uplinks == (("up",) if is_taken else ())


def a_pass(door: JobDoor, folder: Path, *, generation: int = 1) -> GateAddress:
    """Return a job's address of the gate, as an engine writes it."""
    file = folder / f"gate-{generation}.token"
    given = door.admit("j1", generation, ["n1", "n2"], token_file=str(file))
    write_token(file, given.token)
    return GateAddress.parse(given.address)


def a_kept_gate(folder: Path) -> GateSupervisor:
    return GateSupervisor(GateSettings(link=LINK), folder, GateAddress(path=str(folder / "gate.sock")))


@pytest.mark.parametrize("death", ["its loop stops", "its socket is removed"])
def test_a_gate_that_died_is_restarted_with_the_plan(tmp_path: Path, death: str) -> None:
    """A job reconnects by itself and is ranked as before."""
    door = JobDoor(tmp_path, GateAddress(path=str(tmp_path / "gate.sock")))
    kept = a_kept_gate(tmp_path)
    kept.keep()
    kept.follow(a_state(a_job("j1", remaining_gpu_hours=1.5)))
    address = a_pass(door, tmp_path)
    client = GateClient(address, job="j1", nics=["n1", "n2"], token=address.read_token())
    try:
        until(lambda: client.is_connected)
        kept.keep()
        assert kept.status()["starts"] == 1

        assert kept.gate is not None
        if death == "its loop stops":
            kept.gate._loop.call_soon_threadsafe(kept.gate._loop.stop)
            kept.gate._thread.join()
            assert "jobs" not in kept.status()
        else:
            Path(kept.addresses[0].path).unlink()
        kept.keep()
        # The next message is sent at once, because the connection is lost; then the client reconnects.
        assert client.ask(1e6, 1e6).fence == 0
        until(lambda: kept.status().get("jobs") == 1)
        assert kept.status()["starts"] == 2
        (row,) = kept.gate.status()["jobs"]
        assert row["remaining_gpu_seconds"] == 1.5 * 3600.0
    finally:
        client.close()
        kept.close()
    assert not kept.status()["is_up"]


def test_a_gate_that_cannot_start_is_only_a_fault_in_the_status(tmp_path: Path) -> None:
    """While another gate has the socket, the status shows a fault; later the gate starts."""
    first, second = a_kept_gate(tmp_path), a_kept_gate(tmp_path)
    first.keep()
    second.keep()
    assert "another gate listens" in second.status()["fault"]
    assert not second.status()["is_up"]

    first.close()
    second.keep()
    assert (second.status()["fault"], second.status()["starts"]) == ("", 1)
    second.close()


def test_the_view_for_a_tick_has_links_jobs_and_ungated_jobs(tmp_path: Path) -> None:
    """Links list their jobs by remaining work.

    The status lists jobs over several nodes without a connection.
    """
    kept = a_kept_gate(tmp_path)
    kept.keep()
    state = a_state(
        *(a_job(name, remaining_gpu_hours=hours) for name, hours in (("a", 3.0), ("b", 1.0), ("c", 2.0))),
        nodes=[a_node("n1", gpus=4), a_node("n2", gpus=4)],
        held={name: some_slots("n1", i) + some_slots("n2", i) for i, name in enumerate("abc")},
    )
    kept.follow(state)
    secret = (tmp_path / "gate.secret").read_text().strip()
    clients = [
        GateClient(
            replace(kept.addresses[0], generation=state.jobs[job].generation),
            job=job,
            nics=["n1", "n2"],
            token=issue_token(secret, job=job, generation=state.jobs[job].generation),
        )
        for job in "ab"
    ]
    try:
        until(lambda: kept.status().get("jobs") == 2)
        view = kept.look()
        assert view is not None
        assert {name: link.jobs for name, link in view.links.items()} == {"n1": ("b", "a"), "n2": ("b", "a")}
        assert {job: seen.ranked_by_hours for job, seen in view.jobs.items()} == {"a": 3.0, "b": 1.0}
        assert view.links["n1"].is_ordered
        assert "learning" in view.links["n1"].why
        assert kept.status()["ungated"] == ["c"]
    finally:
        for client in clients:
            client.close()
        kept.close()
    assert kept.look() is None
    assert kept.status()["ungated"] == ["a", "b", "c"]
