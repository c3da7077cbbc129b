"""Runs on machines whose GPUs have several places each: the places that jobs hold at every tick."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.sim.world_settings import Faults, WorldSettings
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.traces.reader import Trace, TraceJob
from policies.links.gpu_kinds import on_machines
from policies.model import AllReduce, Budget, GpuType, InstanceType, JobClass, Phase, Problem
from policies.registry import PolicyOptions
from policies.speedup import Table

WHOLE = InstanceType(name="m", gpu_type="gpu", gpus=4, usd_per_hour=4.0)
PLACES = 3
SHARED = replace(WHOLE, name="m@places", gpu_type="gpu@m/3", gpus=4 * PLACES, places_per_gpu=PLACES)
WIDE = Table(gpus=(5, 6, 8), speeds=(3.6, 4.2, 5.2))


def settings(policy: str, placer: str, seed: int) -> SimulationSettings:
    """Return 40 jobs of two classes, of which one may share, on either machine; nodes fail."""
    kinds = {kind.gpu_type: kind for kind in (WHOLE, SHARED)}
    need = AllReduce(message_bytes=2e8, compute_seconds=0.1)
    classes = tuple(
        on_machines(
            JobClass(
                name=name,
                phases=(Phase(size_gpu_hours=1.0, speedups={"gpu": WIDE}),),
                rescale_hours=0.01,
                arrivals_per_hour=5.0,
                network=need,
                may_share=name == "open",
            ),
            kinds,
            {"gpu": WHOLE},
        )
        for name in ("open", "alone")
    )
    jobs = tuple(
        TraceJob(f"j{n}", 200.0 * n, "alone" if (n * 7 + seed) % 3 == 0 else "open", 0.3 + (n * 5 + seed) % 4)
        for n in range(40)
    )
    prices = tuple(GpuType(name=kind, usd_per_gpu_hour=one.usd_per_gpu_hour) for kind, one in kinds.items())
    return SimulationSettings(
        trace=Trace(jobs),
        problem=Problem(classes=classes, gpu_types=prices),
        instance_types=kinds,
        budget=Budget(amount=12.0),
        policy=policy,
        placer=placer,
        best_effort=True,
        max_nodes=5,
        options=PolicyOptions(),
        world=WorldSettings(faults=Faults(mean_node_failure_hours=6.0)),
        seed=seed,
    )


@pytest.mark.parametrize("placer", ["lwf", "first-fit", "random"])
@pytest.mark.parametrize("policy", ["boa", "boa-paced"])
def test_no_gpu_has_more_jobs_than_places_and_no_job_two_places_on_one(policy: str, placer: str) -> None:
    """No place is held twice, jobs that may not share have their GPUs alone, and all jobs finish."""
    shared = 0
    alone = {f"j{n}" for n in range(40) if (n * 7 + 1) % 3 == 0}

    def look(decision: Decision) -> None:
        nonlocal shared
        state = decision.state
        places = Counter((slot.node, slot.index) for job in state.jobs.values() for slot in job.slots)
        assert set(places.values()) <= {1}
        for node in state.nodes.values():
            kind = node.instance_type
            for gpu in range(kind.whole_gpus):
                on = [job for at, job in enumerate(node.gpus) if at % kind.whole_gpus == gpu and job]
                assert len(set(on)) == len(on) <= kind.places_per_gpu
                assert len(on) < 2 or alone.isdisjoint(on)
                shared += len(on) > 1
        for job, slots in decision.plan.jobs.slots.items():
            kinds = {slot.node: state.nodes[slot.node].instance_type for slot in slots}
            gpus = {(slot.node, slot.index % kinds[slot.node].whole_gpus) for slot in slots}
            assert len(gpus) == len(slots), job

    result = simulate(settings(policy, placer, seed=1), look)
    assert result.finished == 40
    assert shared > 0
