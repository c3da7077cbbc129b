"""Whether a daemon runs a gate, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon import gate_endpoint as module
from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.gate_endpoint import gate_endpoint, job_door, open_gate
from boa_daemon.daemon.planner import Planner
from boa_daemon.errors import InputError
from boa_daemon.learning.policy_record import PolicyRecord
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.codec import dumps, loads
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


def test_by_default_there_is_a_gate_where_jobs_can_share_a_card(tmp_path: Path) -> None:
    """Nobody has to ask for it, and the engine gets a door to it."""
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
def test_where_it_cannot_matter_there_is_none_and_the_status_says_why(
    sections: dict[str, Any], machines: dict[str, Any], why: str, tmp_path: Path
) -> None:
    """No thread, no socket, no door."""
    site = gate_endpoint(settings(**sections), SOCKET, machines)
    assert why in site.why_off
    assert (site.addresses, site.door) == ((), None)
    assert open_gate(settings(**sections), site, tmp_path) is None
    assert job_door(settings(**sections), site, tmp_path) is None


def test_always_on_means_that_nobody_asks_whether_it_can_matter() -> None:
    """Nodes of one GPU, and a gate all the same."""
    assert gate_endpoint(settings(gate={"always_on": True}), SOCKET, NARROW).addresses


def test_a_named_uplink_is_shared_by_nodes_of_one_gpu_too() -> None:
    """Then there is something to order."""
    assert gate_endpoint(settings(gate={"uplinks": {"core": ["*"]}}), SOCKET, NARROW).why_off == ""


@pytest.mark.parametrize("engine", ["ssm", "ray"])
def test_jobs_elsewhere_find_it_on_the_private_address(engine: str) -> None:
    """The port of the security group, unless the settings name another."""
    section = {"name": engine}
    assert listens(settings(engine=section))[-1] == "tcp:10.0.3.7:7411"
    assert listens(settings(engine=section, gate={"listen": "head:99"}))[-1] == "tcp:head:99"


def test_without_a_private_address_jobs_elsewhere_run_ungated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop outside the cluster's network: no error, and the status says what to set."""
    monkeypatch.setattr(module, "own_address", lambda: "")
    site = gate_endpoint(settings(engine={"name": "ssm"}), SOCKET, WIDE)
    assert site.addresses == ()
    assert "set [gate] listen" in site.why_off


def test_a_path_too_long_for_the_kernel_is_no_reason_to_fail() -> None:
    """The daemon's own socket may just fit where the gate's, a letter longer, does not."""
    long = Path("/" + "x" * 98 + "/boa.sock")
    assert "too long" in gate_endpoint(settings(), long, WIDE).why_off
    assert listens(settings(gate={"listen": "head:99"}), long) == ["tcp:head:99"]


def test_an_address_that_is_none_is_refused() -> None:
    """With the key and the value."""
    with pytest.raises(InputError, match=r"\[gate\] listen.*'tcp:here'"):
        gate_endpoint(settings(gate={"listen": "here"}), SOCKET, WIDE)


def test_kappa_reaches_the_placer_and_the_record() -> None:
    """It is written down with the policy, so a replay places as the daemon did."""
    record = Planner(settings(workload={"kappa": 4})).record(())
    again = PolicyRecord.of(loads(dumps(record.document)))
    assert (record.kappa, again.kappa, again.hash) == (4.0, 4.0, record.hash)
    assert record.build()[1] == LeastWorkloadFirst(kappa=4.0)
    assert "kappa" not in Planner(settings()).record(()).document
