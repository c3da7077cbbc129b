"""Gate endpoint: whether the daemon runs a gate, and on which addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.loop import gate_endpoint as module
from boa_daemon.daemon.loop.gate_endpoint import gate_endpoint, job_door, open_gate
from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.learning.policy_record import PolicyRecord
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.codec import dumps, loads
from policies.placement.lwf import LeastWorkloadFirst

SOCKET = Path("/run/boa/boa.sock")
WIDE = {"gpu": an_instance_type(gpus=4)}
NARROW = {"gpu": an_instance_type(gpus=1)}


def settings(**sections: Any) -> Settings:
    return Settings.model_validate(sections)


@pytest.fixture(autouse=True)
def private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "own_address", lambda: "10.0.3.7")


def listens(given: Settings, socket: Path = SOCKET) -> list[str]:
    return [str(address) for address in gate_endpoint(given, socket, WIDE).addresses]


def test_the_gate_is_on_by_default_where_jobs_can_share_a_network_card(tmp_path: Path) -> None:
    """Default settings give a gate on a Unix socket and a door to it for the engine."""
    site = gate_endpoint(settings(), SOCKET, WIDE)
    assert (listens(settings()), site.why_off) == (["unix:/run/boa/gate.sock"], "")
    assert open_gate(settings(), site, tmp_path) is not None
    assert job_door(settings(), site, tmp_path) is not None


@pytest.mark.parametrize(
    ("sections", "machines", "why"),
    [
        ({}, NARROW, "no two jobs share a card"),
        ({"gate": {"enabled": False}}, WIDE, "enabled is false"),
        ({"budget": {"max_instances": 1}}, WIDE, "at most one node"),
        ({"daemon": {"observe": True}}, WIDE, "only observes"),
    ],
)
def test_the_gate_is_off_where_it_has_no_effect_and_the_reason_is_given(
    sections: dict[str, Any], machines: dict[str, Any], why: str, tmp_path: Path
) -> None:
    """A gate that is off has no address, no door and no server."""
    site = gate_endpoint(settings(**sections), SOCKET, machines)
    assert why in site.why_off
    assert (site.addresses, site.door) == ((), None)
    assert open_gate(settings(**sections), site, tmp_path) is None
    assert job_door(settings(**sections), site, tmp_path) is None


def test_always_on_starts_the_gate_even_on_nodes_of_one_gpu() -> None:
    """With `always_on`, nodes of one GPU have a gate too."""
    assert gate_endpoint(settings(gate={"always_on": True}), SOCKET, NARROW).addresses


def test_a_named_uplink_turns_the_gate_on_for_nodes_of_one_gpu() -> None:
    """Nodes of one GPU share the uplink, so the gate has messages to order."""
    assert gate_endpoint(settings(gate={"uplinks": {"core": ["*"]}}), SOCKET, NARROW).why_off == ""


@pytest.mark.parametrize("engine", ["ssm", "ray"])
def test_jobs_on_other_machines_reach_the_gate_at_the_private_address(engine: str) -> None:
    """The port is 7411 unless `[gate] listen` names another address."""
    section = {"name": engine}
    assert listens(settings(engine=section))[-1] == "tcp:10.0.3.7:7411"
    assert listens(settings(engine=section, gate={"listen": "head:99"}))[-1] == "tcp:head:99"


def test_without_a_private_address_the_gate_is_off_for_jobs_on_other_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reason names the setting to change, and no error is raised."""
    monkeypatch.setattr(module, "own_address", lambda: "")
    site = gate_endpoint(settings(engine={"name": "ssm"}), SOCKET, WIDE)
    assert site.addresses == ()
    assert "set [gate] listen" in site.why_off


def test_a_socket_path_that_is_too_long_turns_only_the_socket_off() -> None:
    """The reason says that the path is too long, and a TCP address of `[gate] listen` is still used."""
    long = Path("/" + "x" * 98 + "/boa.sock")
    assert "too long" in gate_endpoint(settings(), long, WIDE).why_off
    assert listens(settings(gate={"listen": "head:99"}), long) == ["tcp:head:99"]


def test_an_invalid_gate_address_is_refused() -> None:
    """The error names the setting and the value."""
    with pytest.raises(InputError, match=r"\[gate\] listen.*'tcp:here'"):
        gate_endpoint(settings(gate={"listen": "here"}), SOCKET, WIDE)


def test_kappa_is_used_by_the_placer_and_recorded_with_the_policy() -> None:
    """A replay from the record places with the same `kappa`; a default `kappa` is not recorded."""
    record = Planner(settings(workload={"kappa": 4})).record(())
    again = PolicyRecord.of(loads(dumps(record.document)))
    assert (record.kappa, again.kappa, again.hash) == (4.0, 4.0, record.hash)
    assert record.build()[1] == LeastWorkloadFirst(kappa=4.0)
    assert "kappa" not in Planner(settings()).record(()).document
