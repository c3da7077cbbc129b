"""The time of a tick with 10,000 queued jobs, 1,000 running ones and 2,000 nodes.

Three moments: a full fleet at the cap on instances, the same with a twentieth of the nodes idle, and all
nodes idle at once (the tick after a long outage). Each is measured at full size and, as the baseline, at a
tenth of it: the ratio shows how time grows. The policy, the placement, the rules against flapping, the hard
caps and the diff are all in `decide()`; `run_once()` is `decide()` and the records in memory, in a world that
does every action at once. Last is the time to predict the end of each of the 11,000 jobs, as `boa status` and
`explain` do.

    python benchmarks/tick.py [--quick] [--nodes 5000]

With more than 2,000 nodes the numbers of running and queued jobs grow in proportion.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from boa_daemon.daemon.service.finish_forecast import JobEstimate, forecast_finishes
from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import Ideal, a_class, a_job, a_node, a_problem, a_state, an_instance_type
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.facts.limits import Caps, Steady
from boa_daemon.tick.facts.state import ClusterState, Rules
from policies.model import Budget, GpuSlot, JobClass
from policies.protocols import Allocator
from policies.registry import PolicyOptions, Site, build_policy, find_placer
from policies.speedup import Amdahl

GPUS = 4
TARGET_SECONDS = 0.2
"""For `decide()` at every moment, at the default size."""
NOW = 1_000_000.0


def classes_for(nodes: int) -> tuple[JobClass, ...]:
    """Return six classes that load 60 % of a fleet."""
    rate = 0.6 * nodes * GPUS / (6 * 16.0)
    return tuple(
        a_class(
            f"c{n}",
            sizes=(4.0, 8.0, 4.0),
            curve=Amdahl(parallel_fraction=0.90 + 0.015 * n, max_gpus=16),
            arrivals_per_hour=rate,
            rescale_hours=0.02,
        )
        for n in range(6)
    )


def a_policy(name: str, *, nodes: int) -> Allocator:
    """Return a policy whose budget pays for the fleet."""
    budget = Budget(amount=float(nodes * GPUS))
    site = Site(
        problem=a_problem(*classes_for(nodes), budget=budget),
        budget=budget,
        instance_types={"gpu": an_instance_type(gpus=GPUS)},
    )
    return build_policy(name, site, PolicyOptions()).allocator


def a_fleet(policy: Allocator, *, nodes: int, running: int, queued: int, idle: float) -> ClusterState:
    """Return running jobs at the policy's widths, a queue of jobs, and some idle nodes."""
    jobs = [
        a_job(
            f"j{n}",
            class_name=f"c{n % 6}",
            arrived_at=float(n),
            remaining_gpu_hours=16.0 * (1.0 - (n % 20) / 100.0) if n < running else 16.0,
            draw=(n % 89) / 89.0,
        )
        for n in range(running + queued)
    ]
    fleet = [a_node(f"n{n}", launched_at=NOW - 7200.0 - n, gpus=GPUS) for n in range(nodes)]
    busy = round(nodes * (1.0 - idle))
    free = [GpuSlot(node.id, index) for node in fleet[:busy] for index in range(GPUS)][::-1]
    widths = policy.allocate(jobs[:running], now=NOW).widths
    held = {}
    for job in jobs[:running]:
        width = widths.get(job.id)
        if width is not None and width.gpus <= len(free):
            held[job.id] = tuple(free.pop() for _ in range(width.gpus))
    state = a_state(*jobs, nodes=fleet, held=held, now=NOW)
    return replace(state, books_opened_at=NOW - 3600.0)


def rules_for(nodes: int) -> Rules:
    """Return the daemon's rules."""
    return Rules(
        instance_types={"gpu": an_instance_type(gpus=GPUS)},
        max_nodes=nodes,
        caps=Caps(usd_per_day=1e6, usd_per_month=1e7, instances=nodes),
        steady=Steady(),
    )


def timed(do: Callable[[], object], *, repeats: int) -> tuple[float, float]:
    """Return the median seconds of processor time and of wall time; shared cores lengthen the latter."""
    spans = []
    for _ in range(repeats):
        began = time.process_time(), time.perf_counter()
        do()
        spans.append((time.process_time() - began[0], time.perf_counter() - began[1]))
    return median(cpu for cpu, _ in spans), median(wall for _, wall in spans)


def a_moment(name: str, *, nodes: int, idle: float) -> tuple[ClusterState, Allocator, Rules]:
    """Return a state, the policy and the rules for this many nodes."""
    running = nodes // 2 if idle < 1.0 else 0
    allocator = a_policy(name, nodes=nodes)
    state = a_fleet(allocator, nodes=nodes, running=running, queued=5 * nodes, idle=idle)
    return state, allocator, rules_for(nodes)


def deciding(state: ClusterState, allocator: Allocator, rules: Rules) -> Callable[[], object]:
    """Return a function that calls decide()."""
    placer = find_placer("lwf")
    return lambda: decide(state, allocator=allocator, placer=placer, rules=rules)


def running_once(state: ClusterState, allocator: Allocator, rules: Rules) -> Callable[[], object]:
    """Return a function that calls run_once() in a new world that does every action at once."""

    def do() -> object:
        world = Ideal(state)
        ports = Ports(clock=world.clock, cloud=world, jobs=world, engine=world, store=MemoryStore())
        controller = Controller(allocator=allocator, placer=find_placer("lwf"), rules=rules, ports=ports)
        return controller.run_once()

    return do


def saying_the_ends(nodes: int) -> Callable[[], object]:
    """Return a function that calls finishes() for all jobs of a full fleet; sizes are uncertain by half."""
    state, allocator, rules = a_moment("boa", nodes=nodes, idle=0.0)
    plan = decide(state, allocator=allocator, placer=find_placer("lwf"), rules=rules).plan
    classes = {one.name: one for one in classes_for(nodes)}
    known = {
        name: JobEstimate(job_class=classes[job.job.class_name], size_gpu_hours=16.0, spread=0.5)
        for name, job in state.jobs.items()
    }
    return lambda: forecast_finishes(state, plan, known, boot_hours=0.1)


def main() -> None:
    """Print a row for each policy and moment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the size")
    parser.add_argument("--nodes", type=int, default=2000)
    words = parser.parse_args()
    nodes = words.nodes // 10 if words.quick else words.nodes
    print("policy     moment     actions  decide (wall)      run_once (wall)    a tenth   ratio")
    worst = 0.0
    for name in ("boa", "boa-paced"):
        for moment, idle in (("full", 0.0), ("1/20 idle", 0.05), ("all idle", 1.0)):
            state, allocator, rules = a_moment(name, nodes=nodes, idle=idle)
            placer = find_placer("lwf")
            actions = len(decide(state, allocator=allocator, placer=placer, rules=rules).actions)
            decided = timed(deciding(state, allocator, rules), repeats=5)
            whole = timed(running_once(state, allocator, rules), repeats=3)
            tenth, _ = timed(deciding(*a_moment(name, nodes=nodes // 10, idle=idle)), repeats=9)
            worst = max(worst, decided[0])
            print(
                f"{name:10} {moment:9} {actions:8d}  {decided[0]:5.3f} s ({decided[1]:5.2f} s)  "
                f"{whole[0]:5.3f} s ({whole[1]:5.2f} s)  {tenth:7.4f} s {decided[0] / tenth:6.1f}"
            )
    ends, tenth = (timed(saying_the_ends(many), repeats=3)[0] for many in (nodes, nodes // 10))
    print(f"the end of each of {5.5 * nodes:.0f} jobs {ends:.3f} s, of a tenth {tenth:.4f} s")
    verdict = "met" if worst <= TARGET_SECONDS else "missed"
    print(f"worst decide() {worst:.3f} s of processor time, target {TARGET_SECONDS:g} s: {verdict}")


if __name__ == "__main__":
    main()
