"""Starts in background threads: a slow SSM, the order of a job's orders, and lost starts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest
from engine_bench import Bench

from boa_daemon.engines import ssm_starts
from boa_daemon.engines.ssm import SsmEngine, SsmSettings
from boa_daemon.engines.ssm_runs import BEGIN_SECONDS
from boa_daemon.engines.ssm_scripts import HEALTH, READY
from boa_daemon.store.leader import LedElsewhere
from boa_daemon.testing import ManualClock, a_node
from boa_daemon.tick.facts.ports import Accepted, Refused, Unknown

FIT = f'{HEALTH}{{"faults": []}}\n{READY}'
SOON_SECONDS = 120.0


@dataclass
class SlowSsm:
    """SSM that answers after `may_answer` is set; `gone` are nodes that SSM does not know."""

    may_answer: Event = field(default_factory=Event)
    gone: set[str] = field(default_factory=set)
    asked: int = 0
    sent: list[tuple[str, str]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def send_command(self, **request: Any) -> Mapping[str, Any]:
        with self.lock:
            self.asked += 1
        assert self.may_answer.wait(SOON_SECONDS)
        if self.gone & set(request["InstanceIds"]):
            raise ValueError("InvalidInstanceId")
        with self.lock:
            self.sent += [(node, request["Comment"]) for node in request["InstanceIds"]]
        return {"Command": {"CommandId": "c"}}

    def get_command_invocation(self, **_request: Any) -> Mapping[str, Any]:
        return {"Status": "Success", "StandardOutputContent": FIT}

    def receive_message(self, **_request: Any) -> Mapping[str, Any]:
        return {}

    def list_objects_v2(self, **_request: Any) -> Mapping[str, Any]:
        return {}

    def put_object(self, **_request: Any) -> Mapping[str, Any]:
        return {}


class Stage:
    """An engine with threads on a slow SSM; a second engine knows only the state on disk."""

    def __init__(self, folder: Path) -> None:
        self.ssm, self.clock, self.folder = SlowSsm(), ManualClock(0.0), folder
        self.bench = Bench(engine=self.engine(), workdir=folder, nodes=("i-1", "i-2"))

    def engine(self) -> SsmEngine:
        settings = SsmSettings(queue_url="q", uri="s3://b/jobs", state_file=self.folder / "s" / "ssm.json")
        return SsmEngine(
            self.ssm, self.ssm, self.ssm, settings,  # type: ignore[arg-type]
            address_of=lambda _n: "10.0.0.1", now=self.clock.now, starts_at_once=4,
        )  # fmt: skip

    def started(self, *, nodes: int = 2) -> Bench:
        self.bench.admit("torchrun train.py", workdir=".")
        self.bench.start(nodes, nodes=nodes)
        return self.bench

    def settles(self, *, sent: int) -> None:
        """Wait until `sent` commands were sent and no start is under way."""
        until = time.monotonic() + SOON_SECONDS
        while not self.is_harvested() or len(self.ssm.sent) < sent:
            assert time.monotonic() < until, self.ssm.sent
            time.sleep(0.005)

    def is_harvested(self) -> bool:
        self.bench.engine.poll()
        return all(known.run is None or known.run.order is None for known in self.jobs().values())

    def jobs(self) -> Mapping[str, Any]:
        jobs: Mapping[str, Any] = self.bench.engine._jobs  # type: ignore[attr-defined]
        return jobs

    def kinds(self, node: str) -> list[str]:
        return [comment.removeprefix("boa: ") for name, comment in self.ssm.sent if name == node]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(ssm_starts, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(ssm_starts, "END_WAIT_SECONDS", 0.01)
    found = Stage(tmp_path)
    yield found
    found.ssm.may_answer.set()


def test_a_start_is_accepted_at_once_and_asks_all_nodes_in_parallel(stage: Stage) -> None:
    """The job is starting while SSM does not answer."""
    bench = stage.started()
    assert bench.report().phase == "starting"
    until = time.monotonic() + SOON_SECONDS
    while stage.ssm.asked < 2 and time.monotonic() < until:
        time.sleep(0.005)
    assert (stage.ssm.asked, stage.ssm.sent) == (2, [])
    stage.ssm.may_answer.set()
    stage.settles(sent=2)
    assert sorted(stage.ssm.sent) == [("i-1", "boa: start a unit"), ("i-2", "boa: start a unit")]
    assert bench.report().phase == "starting"


@pytest.mark.parametrize(("orders", "last"), [("s", "stop"), ("k", "end"), ("sk", "end"), ("ks", "end")])
def test_orders_during_a_start_are_sent_after_it(stage: Stage, orders: str, last: str) -> None:
    """A stop before the start would find no unit; a stop does not undo a kill."""
    bench = stage.started()
    for order in orders:
        stop = bench.stop_order()
        answer = bench.engine.stop(stop) if order == "s" else bench.engine.kill(stop.job, stop.generation)
        assert answer == Accepted()
    assert bench.report().phase in ("starting", "stopping")
    stage.ssm.may_answer.set()
    stage.settles(sent=2)
    stage.clock.instant += BEGIN_SECONDS
    stage.settles(sent=4)
    assert stage.kinds("i-1") == stage.kinds("i-2") == ["start a unit", f"{last} a unit"]


def test_a_start_refused_in_the_background_ends_the_jobs_other_units(stage: Stage) -> None:
    """The job is reported as stopped without run time, and its next generation can start."""
    stage.ssm.gone = {"i-2"}
    bench = stage.started()
    stage.ssm.may_answer.set()
    stage.settles(sent=2)
    report = bench.report()
    assert (report.phase, report.seconds, report.cause) == ("stopped", 0.0, None)
    assert "InvalidInstanceId" in report.evidence
    assert stage.kinds("i-1") == ["start a unit", "end a unit"]
    stage.ssm.gone = set()
    bench.start(2, nodes=2)
    stage.settles(sent=4)
    assert bench.report().generation == 2


def test_a_start_is_on_disk_only_once_all_nodes_got_it(stage: Stage) -> None:
    """A daemon that restarts during a start does not know the generation."""
    stage.started()
    again = stage.engine()
    assert again.reattach() == {}
    stage.ssm.may_answer.set()
    stage.settles(sent=2)
    later = stage.engine()
    assert {job: report.generation for job, report in later.reattach().items()} == {"a": 1}


def test_a_second_start_of_a_job_is_refused_during_the_first(stage: Stage) -> None:
    """A repeated order for the first generation is accepted and sends nothing more."""
    bench = stage.started()
    assert isinstance(bench.engine.start(bench.order(2, nodes=2, generation=2)), Refused)
    assert bench.engine.start(bench.order(2, nodes=2, generation=1)) == Accepted()
    stage.ssm.may_answer.set()
    stage.settles(sent=2)
    assert len(stage.ssm.sent) == 2


def test_a_daemon_that_no_longer_leads_sends_no_start(stage: Stage) -> None:
    """The job's evidence gives the reason."""

    def deposed() -> None:
        raise LedElsewhere("another one leads")

    stage.bench.engine.starts.may_act = deposed  # type: ignore[attr-defined]
    stage.ssm.may_answer.set()
    bench = stage.started()
    stage.settles(sent=0)
    assert stage.ssm.asked == 0
    assert "another one leads" in bench.report().evidence


def test_preparing_a_slow_node_does_not_wait_and_asks_only_once(stage: Stage) -> None:
    """A later call accepts the node after SSM has answered."""
    engine, nodes = stage.bench.engine, [a_node("i-1"), a_node("i-2")]
    for _ in range(3):
        assert all(isinstance(answer, Unknown) for answer in engine.prepare(nodes).values())
    assert stage.ssm.asked == 2
    stage.ssm.may_answer.set()
    until = time.monotonic() + SOON_SECONDS
    while not all(isinstance(answer, Accepted) for answer in engine.prepare(nodes).values()):
        assert time.monotonic() < until
    assert stage.ssm.asked == 2
