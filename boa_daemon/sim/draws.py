"""Random outcomes of nodes, launch requests and jobs.

Each node and each generation of a job has its own seed, and requests share one, so an extra draw for one does
not change the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

from boa_daemon.sim.world_settings import Boot, WorldSettings, of_type
from boa_daemon.tick.facts.offers import Market
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import InstanceType, JobId, NodeId

RequestDraw: TypeAlias = Literal["heard", "throttled", "lost", "lost-but-done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDraw:
    """The outcomes of a node, in seconds from its launch; infinity is never.

    `speed` is the node's relative speed. It is taken back after `taken_back_seconds`, announced or not, and
    breaks after `breaks_seconds`.
    """

    boot_seconds: float
    boots: bool = True
    speed: float = 1.0
    breaks_seconds: float = math.inf
    taken_back_seconds: float = math.inf
    is_announced: bool = True


class Draws:
    """Draw the outcomes of nodes, requests and jobs."""

    def __init__(self, world: WorldSettings, *, boot_seconds: float, seed: int) -> None:
        self._world, self._seed = world, seed
        self._plain = NodeDraw(boot_seconds=boot_seconds)
        self._constant = Boot.constant(boot_seconds)
        faults = world.faults
        self._is_plain = (
            not world.boots
            and world.spot is None
            and not (faults.boot_failure_fraction or faults.slow_node_fraction)
            and math.isinf(faults.mean_node_failure_hours)
        )
        self._requests = Random(f"{seed}/requests")
        self._is_heard = not (faults.lost_answer_fraction or faults.throttled_fraction)

    def of_node(self, node: NodeId, kind: InstanceType, market: Market) -> NodeDraw:
        """Return the outcomes of a node."""
        if self._is_plain:
            return self._plain
        world, rng = self._world, Random(f"{self._seed}/node/{node}")
        boot = of_type(world.boots, kind.name, kind.gpu_type) or self._constant
        faults, spot = world.faults, world.spot if market == "spot" else None
        boot_seconds = boot.draw(rng)
        chances = [rng.random() for _ in range(3)]
        breaks, taken_back = rng.expovariate(1.0), rng.expovariate(1.0)
        return NodeDraw(
            boot_seconds=boot_seconds,
            boots=chances[0] >= faults.boot_failure_fraction,
            speed=faults.slow_speed if chances[1] < faults.slow_node_fraction else 1.0,
            breaks_seconds=breaks * faults.mean_node_failure_hours * SECONDS_PER_HOUR,
            taken_back_seconds=math.inf
            if spot is None
            else taken_back * spot.mean_interruption_hours * SECONDS_PER_HOUR,
            is_announced=spot is not None and chances[2] >= spot.unannounced_fraction,
        )

    def of_request(self) -> RequestDraw:
        """Return the outcome of a request to the cloud; half of the lost ones were carried out."""
        if self._is_heard:
            return "heard"
        faults, chance = self._world.faults, self._requests.random()
        if chance < faults.lost_answer_fraction:
            return "lost" if chance < 0.5 * faults.lost_answer_fraction else "lost-but-done"
        return "throttled" if chance < faults.lost_answer_fraction + faults.throttled_fraction else "heard"

    def granted(self, count: int) -> int:
        """Return how many of `count` nodes a request gets; some requests are granted only in part."""
        fraction = self._world.faults.short_grant_fraction
        if count < 2 or fraction == 0.0 or self._requests.random() >= fraction:
            return count
        return self._requests.randrange(1, count)

    def job_runs_seconds(self, job: JobId, generation: int) -> float:
        """Return how long a generation of a job runs until it fails."""
        mean_hours = self._world.faults.mean_job_failure_hours
        if math.isinf(mean_hours):
            return math.inf
        rng = Random(f"{self._seed}/job/{job}/{generation}")
        return rng.expovariate(1.0) * mean_hours * SECONDS_PER_HOUR
