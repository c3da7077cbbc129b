"""The gate's status and its view for a tick say the same of jobs and cards, in a fixed order."""

from __future__ import annotations

import json
import math

import pytest

from boa_daemon.gate.broker import Broker
from boa_daemon.gate.status import status_of, view_of
from boa_daemon.gate.types import GateSettings, NicVerdict, SendRequest
from policies.links import adadual
from policies.links.contention import Link

LINK = Link(latency_seconds=0.0, seconds_per_byte=1e-6, contention_seconds_per_byte=2e-7)


def a_gate() -> Broker:
    """Return a gate with a job that sends, one that waits, and one that computes."""
    gate = Broker(GateSettings(link=LINK, policy="srsf-1", is_always_on=True, fits_link=False))
    for job, gpus, weight in (("c", 1, 1.0), ("a", 1, 1.0), ("b", 2, 4.0)):
        gate.join(job, nics=frozenset("BA"), gpus=gpus, weight=weight, now=0.0)
    ask = SendRequest(
        id=1,
        ready_bytes=1e6,
        message_bytes=1e6,
        iteration_bytes=1e6,
        compute_seconds=3.0,
        exposed_seconds=1.0,
    )
    gate.ask("a", ask, 7.0)
    gate.settle(7.0)
    gate.ask("b", SendRequest(id=1, ready_bytes=1e6, message_bytes=1e6), 8.0)
    gate.settle(8.0)
    return gate


def test_each_job_sends_waits_or_computes() -> None:
    """Jobs and cards are in the order of their names; the status is plain JSON."""
    status = status_of(a_gate(), 3600.0)
    assert json.loads(json.dumps(status)) == status
    assert [(row["job"], row["state"]) for row in status["jobs"]] == [
        ("a", "sending"),
        ("b", "waiting"),
        ("c", "computing"),
    ]
    assert [(row["nic"], row["jobs"], row["sending"]) for row in status["nics"]] == [("A", 3, 1), ("B", 3, 1)]
    assert [row["nics"] for row in status["jobs"]] == [["A", "B"]] * 3
    assert status["jobs"][0]["exposed_fraction"] == pytest.approx(0.25)
    assert status["jobs"][2]["mean_wait_seconds"] == 0.0


def test_a_gate_without_buckets_says_null_and_not_infinity() -> None:
    """JSON has no infinity."""
    gate = a_gate()
    assert gate.bucket_bytes == math.inf
    status = status_of(gate, 0.0)
    assert status["bucket_bytes"] is None
    assert status["link"]["contention_seconds_per_byte"] == 2e-7
    assert status["adadual_threshold"] == adadual.threshold(1e-6, 2e-7)


def test_the_wait_of_a_job_is_the_mean_over_its_grants() -> None:
    """Five seconds over two grants."""
    gate = a_gate()
    gate.seats["a"].waited_seconds, gate.seats["a"].grants = 5.0, 2
    assert status_of(gate, 0.0)["jobs"][0]["mean_wait_seconds"] == 2.5


def test_a_tick_sees_the_jobs_of_a_card_by_what_is_left_over_weight() -> None:
    """In hours: two GPUs for an hour over a weight of four are half of one."""
    gate = a_gate()
    gate.nics["A"].verdict = NicVerdict(nic="A", is_on=True, why="it pays", jobs=3, gain_fraction=0.2)
    gate.nics["B"].verdict = None
    gate.seats["c"].joined_at = 1800.0
    view = view_of(gate, 3600.0)
    assert {job: found.ranked_by_hours for job, found in view.jobs.items()} == {"a": 1.0, "b": 0.5, "c": 0.5}
    assert view.links["A"].jobs == ("b", "c", "a")
    assert (view.links["A"].is_ordered, view.links["A"].why, view.links["A"].gain_fraction) == (
        True,
        "it pays",
        0.2,
    )
    assert (view.links["B"].is_ordered, view.links["B"].why) == (False, "not judged yet")
