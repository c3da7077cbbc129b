"""Classes with wrong stated speed-ups, and what a learning policy measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from load_scenarios import SCENARIOS, a_trace_of

from boa_daemon.sim.learning_policy import LearningPolicy
from boa_daemon.sim.wiring import SimulationSettings, prepare, site_of
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import Budget, GpuType, InstanceType, JobClass, Phase, Problem
from policies.speedup import Table

NODE = InstanceType(name="gpu-x1", gpu_type="gpu", gpus=1, usd_per_hour=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A class with its true and its stated speed-up, by GPUs."""

    name: str
    true: Mapping[int, float]
    stated: Mapping[int, float]
    size_gpu_hours: float = 0.5
    per_hour: float = 20.0

    @property
    def wrong(self) -> list[int]:
        """The widths whose stated speed-up is wrong."""
        return [gpus for gpus, speed in self.true.items() if speed != self.stated[gpus]]

    def problem(self, curve: Mapping[int, float]) -> Problem:
        """Return the problem with this curve."""
        speedup = Table(gpus=tuple(curve), speeds=tuple(curve.values()))
        job_class = JobClass(
            name="c",
            phases=(Phase(size_gpu_hours=self.size_gpu_hours, speedups={"gpu": speedup}),),
            arrivals_per_hour=self.per_hour,
            startup_hours=30.0 / SECONDS_PER_HOUR,
            rescale_hours=30.0 / SECONDS_PER_HOUR,
        )
        return Problem(classes=(job_class,), gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=1.0),))


CASES = (
    Case(name="too low", true={1: 1.0, 2: 1.9, 4: 3.15}, stated={1: 1.0, 2: 1.15, 4: 1.3}),
    Case(
        name="too high",
        true={1: 1.0, 2: 1.3, 4: 1.6, 8: 1.8},
        stated={1: 1.0, 2: 1.95, 4: 3.8, 8: 7.2},
    ),
    Case(
        name="a dip",
        true={1: 1.0, 2: 1.9, 4: 1.5, 8: 6.0},
        stated={1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0},
    ),
    Case(name="right", true={1: 1.0, 2: 1.9, 4: 3.15, 8: 5.0}, stated={1: 1.0, 2: 1.9, 4: 3.15, 8: 5.0}),
)


@dataclass(slots=True, kw_only=True)
class Found:
    """The figures of a run, and by width the work done when its speed was first measured."""

    work_gpu_hours: dict[int, float] = field(default_factory=dict)
    speedups: dict[int, float] = field(default_factory=dict)
    gpu_hours: float = 0.0
    wasted_gpu_hours: float = 0.0
    jct_minutes: float = 0.0
    usd_per_hour: float = 0.0


def a_run(
    case: Case, *, budget: float, seed: int, hours: float, fraction: float, knows: bool = False
) -> Found:
    """Run the paced policy with learning; `knows` gives the policy the true curve at the start."""
    truth = case.problem(case.true)
    settings = SimulationSettings(
        trace=a_trace_of(SCENARIOS[0], truth.classes, hours=hours, seed=seed),
        problem=truth,
        instance_types={"gpu": NODE},
        budget=Budget(amount=budget),
        policy="boa-paced",
        seed=seed,
    )
    run = prepare(settings)
    stated = replace(settings, problem=truth if knows else case.problem(case.stated))
    jobs = run.world.jobs
    taught = LearningPolicy(settings.policy, site_of(stated), settings.options, jobs=jobs, seed=seed)
    taught.learning.tries.fraction = fraction
    found = Found()

    def look(decision: Decision) -> None:
        taught.watch(decision)
        curve = taught.classes.curves.get(("c", "gpu"))
        for width in () if curve is None else curve.widths:
            if width.measurements and width.gpus not in found.work_gpu_hours:
                samples = taught.learning.learner.samples
                worked = sum(one.seconds * one.gpus for one in samples)
                found.work_gpu_hours[width.gpus] = worked / SECONDS_PER_HOUR

    result = replace(run, controller=replace(run.controller, allocator=taught)).finish(look)
    curve = taught.classes.curves.get(("c", "gpu"))
    found.speedups = {} if curve is None else {width.gpus: width.speedup for width in curve.widths}
    found.gpu_hours = (
        sum(one.seconds * one.gpus for one in taught.learning.learner.samples) / SECONDS_PER_HOUR
    )
    found.wasted_gpu_hours = taught.learning.tries.wasted_gpu_seconds / SECONDS_PER_HOUR
    found.jct_minutes, found.usd_per_hour = 60.0 * result.mean_jct_hours, result.mean_usd_per_hour
    return found
