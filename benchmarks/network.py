"""The speed of the network simulator and of the placer.

    python benchmarks/network.py           a minute on one core
    python benchmarks/network.py --quick   a quarter of that

Events per second of the full-size paper workload, compiled and in plain Python from the same source, in the
same run; ten times the jobs on ten times the servers, and ten times the iterations; LWF on 10,000 GPUs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from boa_daemon.lab.network.compiled import compiled_run
from boa_daemon.lab.network.model import Cluster, Experiment, NetworkJob
from boa_daemon.lab.network.simulate import KernelName, simulate
from policies.links.ada_srsf import link_policy
from policies.links.contention import ETHERNET_10G
from policies.model import InstanceType, Node, Width
from policies.placement.lwf import LeastWorkloadFirst
from policies.placement.packing import ClusterPacking

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from paper_jobs import PAPER_CLUSTER, paper_jobs


def timed(
    title: str, engine: KernelName, jobs: tuple[NetworkJob, ...], cluster: Cluster, policy: str
) -> float:
    """Run once, print one line, and return the seconds per event."""
    experiment = Experiment(cluster=cluster, jobs=jobs, link_policy=link_policy(policy, ETHERNET_10G))
    began = time.perf_counter()
    events = simulate(experiment, engine=engine).events
    seconds = time.perf_counter() - began
    print(f"{title:44}{engine:10}{policy:18}{events:12,} events{seconds:9.2f} s{events / seconds:14,.0f}/s")
    return seconds / events


def simulator(*, quick: bool) -> None:
    """Time the paper's workload, plain and compiled, and ten times its size."""
    small = paper_jobs(1, scale=0.02)
    timed("160 jobs, a fiftieth of the iterations", "python", small, PAPER_CLUSTER, "srsf-1")
    if compiled_run() is None:
        print("numba is not installed: no compiled runs")
        return
    began = time.perf_counter()
    timed("the same, first call: compile or load", "compiled", small, PAPER_CLUSTER, "srsf-1")
    timed("the same again", "compiled", small, PAPER_CLUSTER, "srsf-1")
    print(f"  compiling or loading took {time.perf_counter() - began:.1f} s")
    full = paper_jobs(1)
    once = {
        policy: timed("160 jobs, full size", "compiled", full, PAPER_CLUSTER, policy)
        for policy in ("srsf-1", "ada-srsf", "ada-srsf-buckets", "srsf-preemptive")
    }
    if quick:
        return
    timed("160 jobs, full size", "python", full, PAPER_CLUSTER, "srsf-1")
    wide = replace(PAPER_CLUSTER, servers=10 * PAPER_CLUSTER.servers)
    longer = tuple(replace(job, iterations=10 * job.iterations) for job in full)
    for policy in ("srsf-1", "ada-srsf-buckets"):
        for title, jobs, cluster in (
            ("1600 jobs on 640 GPUs", paper_jobs(1, copies=10), wide),
            ("160 jobs, ten times the iterations", longer, PAPER_CLUSTER),
            ("1600 jobs on 64 GPUs", paper_jobs(1, copies=10), PAPER_CLUSTER),
        ):
            each = timed(title, "compiled", jobs, cluster, policy)
            print(f"  the time per event is {each / once[policy]:.2f} times that of 160 jobs")


def placer() -> None:
    """Time LWF on 1,250 nodes of 8 GPUs and 2,000 jobs."""
    kind = InstanceType(name="p4d.24xlarge", gpu_type="a100", gpus=8, usd_per_hour=21.96)
    nodes = [Node(id=f"i-{number:05d}", instance_type=kind, is_ready=True) for number in range(1250)]
    rng = np.random.default_rng(0)
    drawn = rng.choice([1, 2, 4, 8, 16, 32], p=[0.42, 0.15, 0.15, 0.18, 0.07, 0.03], size=2000)
    widths = {f"job-{number}": Width("a100", int(gpus)) for number, gpus in enumerate(drawn)}
    policy = LeastWorkloadFirst()
    placement = policy.place(widths, nodes=nodes, held={})
    taken = sum(len(slots) for slots in placement.slots.values())
    print(f"\nLWF, 10,000 GPUs, 2,000 jobs: {len(placement.slots):,} placed on {taken:,} GPUs")
    _print_best("from scratch", lambda: policy.place(widths, nodes=nodes, held={}), times=10)
    _print_best(
        "a tick where nothing changes",
        lambda: policy.place(widths, nodes=nodes, held=placement.slots),
        times=10,
    )
    packing = ClusterPacking(nodes)
    for job, slots in list(placement.slots.items())[:1500]:
        packing.hold(job, slots)
    for gpus in (1, 8, 64, 256):

        def add_and_remove(gpus: int = gpus) -> None:
            packing.add("new", Width("a100", gpus))
            packing.remove("new")

        _print_best(f"one more job of {gpus} GPUs, and away again", add_and_remove, times=50)


def _print_best(title: str, action: Callable[[], object], *, times: int) -> None:
    """Print the median and the worst time of an action."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    print(
        f"  {title:44}{np.median(seconds) * 1e3:9.3f} ms in the median, {max(seconds) * 1e3:.3f} ms at worst"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="leave out the long runs")
    placer()
    simulator(quick=parser.parse_args().quick)
