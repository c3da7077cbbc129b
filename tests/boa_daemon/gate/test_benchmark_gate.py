"""The gate of demo and benchmarks: a token for each job, and the plan of what each has left."""

from __future__ import annotations

import pytest

from boa_daemon.gate import benchmark_gate
from boa_daemon.gate.benchmark_gate import DEFAULT, open_benchmark_gate
from boa_daemon.gate.thread import GateThread
from boa_daemon.job.gate.address import GateAddress
from policies.links.ada_srsf import DEFAULT_LINK_POLICY
from policies.links.contention import Link

LINK = Link(latency_seconds=0.5, seconds_per_byte=1e-6, contention_seconds_per_byte=0.0)
JOB = {"forward_seconds": 1.0, "backward_seconds": 2.0, "message_bytes": 1e6, "iterations": 10}


@pytest.mark.parametrize(
    ("policy", "found", "is_always_on"), [(DEFAULT, DEFAULT_LINK_POLICY, False), ("srsf-1", "srsf-1", True)]
)
def test_a_named_policy_orders_everything_and_the_default_where_it_pays(
    monkeypatch: pytest.MonkeyPatch, policy: str, found: str, is_always_on: bool
) -> None:
    """Each job has an address of its own, with a token that the gate accepts, and its work of both ranks."""
    gates: list[GateThread] = []
    plans: list[dict[str, float]] = []

    class Noted(GateThread):
        def __enter__(self) -> GateThread:
            gates.append(self)
            return super().__enter__()

        def take_plan(self, remaining_gpu_seconds: dict[str, float], *_: object) -> None:
            plans.append(remaining_gpu_seconds)

    monkeypatch.setattr(benchmark_gate, "GateThread", Noted)
    jobs = [{"job": "a", **JOB}, {"job": "b", **JOB, "uplinks": ["u0"]}]
    with open_benchmark_gate(policy, LINK, jobs, bucket_bytes=5e6) as addresses:
        settings = gates[0].server.settings
        assert (settings.policy, settings.is_always_on) == (found, is_always_on)
        assert settings.fills_idle_cards is not is_always_on
        assert plans == [{"a": 90.0, "b": 90.0}]
        first, second = (GateAddress.parse(address) for address in addresses)
        assert (first.uplinks, second.uplinks) == ((), ("u0",))
        assert first.token_file != second.token_file
