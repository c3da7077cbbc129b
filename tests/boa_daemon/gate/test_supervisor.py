"""One gate is kept alive: a dead one is started anew and told the newest plan, and no fault stops a tick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boa_daemon.gate import supervisor
from boa_daemon.gate.supervisor import GateSupervisor
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.testing import a_job, a_node, a_state, some_slots
from policies.links.contention import ETHERNET_10G

STATE = a_state(
    a_job("one"),
    a_job("wide"),
    nodes=[a_node("n1"), a_node("n2")],
    held={"one": some_slots("n1", 0, 1), "wide": (*some_slots("n1", 2), *some_slots("n2", 0))},
)
ROW = {"exposed_fraction": 0.1, "gain_fraction": 0.2, "mean_wait_seconds": 0.3, "grants": 7}


class FakeGate:
    """A gate that a test kills and silences."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.is_alive, self.asking = True, ["wide"]

    def __enter__(self) -> FakeGate:
        return self

    def close(self) -> None:
        self.told.append("close")

    def is_listening(self) -> bool:
        return self.is_alive

    def view(self, *, patience_seconds: float) -> Any:
        return "a view"

    def status(self, *, patience_seconds: float) -> dict[str, Any] | None:
        if not self.is_alive:
            return None
        jobs = [{"job": job, **ROW} for job in self.asking]
        nics = [{"is_on": True}, {"is_on": False}]
        return {"jobs": jobs, "nics": nics, "counts": {"grants": 9}, "refusals": {"flood": 1}}


class Stage:
    """A supervisor whose gates are fakes, or whose start fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gates: list[FakeGate] = []
        self.fault: Exception | None = None
        monkeypatch.setattr(supervisor, "start_gate", self.start)
        monkeypatch.setattr(
            supervisor, "tell_plan", lambda gate, state: gate.told.append(f"plan {state.tick}")
        )
        settings = GateSettings(link=ETHERNET_10G)
        self.supervisor = GateSupervisor(settings, Path("nowhere"), GateAddress(path="/run/gate.sock"))

    def start(self, *_: object) -> FakeGate:
        if self.fault is not None:
            raise self.fault
        self.gates.append(FakeGate())
        return self.gates[-1]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_a_gate_that_listens_is_left_alone_and_a_dead_one_replaced(stage: Stage) -> None:
    """The new one gets the newest plan at once."""
    stage.supervisor.keep()
    stage.supervisor.follow(STATE)
    stage.supervisor.keep()
    assert stage.supervisor.starts == 1
    stage.gates[0].is_alive = False
    stage.supervisor.keep()
    assert (stage.supervisor.starts, len(stage.gates)) == (2, 2)
    assert stage.gates[0].told == ["plan 1", "close"]
    assert stage.gates[1].told == ["plan 1"]


@pytest.mark.parametrize("fault", [OSError("address in use"), ValueError("no such host")])
def test_a_gate_that_cannot_start_is_a_fault_in_the_status_until_it_can(
    stage: Stage, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once; jobs that span nodes send without asking meanwhile."""
    stage.fault = fault
    for _ in range(3):
        stage.supervisor.keep()
    stage.supervisor.follow(STATE)
    status = stage.supervisor.status()
    assert (status["is_up"], status["fault"], status["starts"]) == (False, str(fault), 0)
    assert status["ungated"] == ["wide"]
    assert stage.supervisor.look() is None
    assert len(caplog.records) == 1
    stage.fault = None
    stage.supervisor.keep()
    assert stage.supervisor.status()["fault"] == ""


def test_the_status_names_the_jobs_that_span_nodes_and_do_not_ask(stage: Stage) -> None:
    """A job on one node has nobody to ask for."""
    stage.supervisor.keep()
    stage.supervisor.follow(STATE)
    assert stage.supervisor.look() == "a view"
    status = stage.supervisor.status()
    assert (status["ungated"], status["jobs"], status["nics"], status["nics_ordered"]) == ([], 1, 2, 1)
    assert status["measured"] == {"wide": {key: ROW[key] for key in list(ROW)[:3]}}
    assert (status["grants"], status["refusals"]) == (9, {"flood": 1})
    stage.gates[0].asking = []
    assert stage.supervisor.status()["ungated"] == ["wide"]


def test_a_gate_that_does_not_answer_is_up_and_says_nothing(stage: Stage) -> None:
    """Which jobs ask it is not known then."""
    stage.supervisor.keep()
    stage.supervisor.follow(STATE)
    stage.gates[0].is_alive = False
    status = stage.supervisor.status()
    assert status["is_up"]
    assert "ungated" not in status
    assert "jobs" not in status


def test_a_closed_gate_is_closed_once(stage: Stage) -> None:
    """Closing without one does nothing."""
    stage.supervisor.close()
    stage.supervisor.keep()
    stage.supervisor.close()
    stage.supervisor.close()
    assert stage.gates[0].told == ["close"]
