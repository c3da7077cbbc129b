"""The mean-field model of link sharing against the iteration-level simulator."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from boa_daemon.lab.network.case import read_case
from boa_daemon.lab.network.simulate import simulate
from policies.links.contention import ETHERNET_10G
from policies.links.link_share import network_share, slowdowns
from policies.model import AllReduce

MODELS = (
    AllReduce(message_bytes=526.4e6, compute_seconds=0.090),
    AllReduce(message_bytes=99.2e6, compute_seconds=0.062),
    AllReduce(message_bytes=103.0e6, compute_seconds=0.087),
    AllReduce(message_bytes=251.8e6, compute_seconds=0.079),
)
"""The four models of the paper: VGG-16, ResNet-50, Inception-v3, LSTM-PTB."""


def _jobs(seed: int) -> list[tuple[AllReduce, int]]:
    """Return two or three jobs that share two servers: (message and compute time, iterations)."""
    draw = random.Random(seed)
    return [(draw.choice(MODELS), draw.randint(300, 900)) for _ in range(draw.choice((2, 2, 3)))]


def _simulated(jobs: list[tuple[AllReduce, int]], link_policy: str, folder: Path) -> float:
    """Mean completion time in the iteration-level simulator, seconds."""
    case = {
        "servers": 2,
        "gpus_per_server": len(jobs),
        "gpu_memory_bytes": 34e9,
        "shared_gpus": False,
        "link": {
            "latency_seconds": ETHERNET_10G.latency_seconds,
            "seconds_per_byte": ETHERNET_10G.seconds_per_byte,
            "contention_seconds_per_byte": ETHERNET_10G.contention_seconds_per_byte,
        },
        "placer": "lwf",
        "kappa": 1,
        "link_policy": link_policy,
        "jobs": [
            {
                "id": str(number),
                "gpus": 2,
                "iterations": iterations,
                "forward_seconds": 0.4 * need.compute_seconds,
                "backward_seconds": 0.6 * need.compute_seconds,
                "message_bytes": need.message_bytes,
                "memory_bytes": 0,
                "arrived_at_seconds": 0.0,
            }
            for number, (need, iterations) in enumerate(jobs)
        ],
        "placement": {str(number): [[0, number], [1, number]] for number in range(len(jobs))},
    }
    file = folder / "case.json"
    file.write_text(json.dumps(case), encoding="utf-8")
    return float(simulate(read_case(file), engine="python").jct.mean())


def _mean_field(jobs: list[tuple[AllReduce, int]], *, in_order: bool) -> float:
    """Mean completion time by the averages, seconds: factors hold until the next job ends."""
    link = ETHERNET_10G
    shares = {str(number): network_share(link, need) for number, (need, _) in enumerate(jobs)}
    left = {
        str(number): iterations * (need.compute_seconds + link.seconds(need.message_bytes))
        for number, (need, iterations) in enumerate(jobs)
    }
    now, ended = 0.0, []
    while left:
        ranked = sorted(left, key=lambda job: left[job])
        factors = slowdowns(
            dict.fromkeys(ranked, (0, 1)),
            shares,
            crowding=link.contention_seconds_per_byte / link.seconds_per_byte,
            in_order=in_order,
        )
        step = min(left[job] * factors[job] for job in left)
        now += step
        left = {job: seconds - step / factors[job] for job, seconds in left.items()}
        ended += [now for seconds in left.values() if seconds < 1e-9]
        left = {job: seconds for job, seconds in left.items() if seconds >= 1e-9}
    return sum(ended) / len(ended)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("link_policy", "in_order", "tolerance"), [("ada-srsf-buckets", True, 0.05), ("srsf-2", False, 0.10)]
)
def test_averages_agree_with_every_iteration(
    seed: int, link_policy: str, in_order: bool, tolerance: float, tmp_path: Path
) -> None:
    """Mean completion times agree within 5 % where jobs send in order and 10 % where messages overlap."""
    jobs = _jobs(seed)

    assert _mean_field(jobs, in_order=in_order) == pytest.approx(
        _simulated(jobs, link_policy, tmp_path), rel=tolerance
    )
