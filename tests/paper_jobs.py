"""The workload of the paper's experiment: 160 jobs on 16 servers of 4 GPUs, modelled on a Microsoft trace.

Source: Wang, Shi, Wang, Chu, arXiv 2002.10105, and the authors' public simulator. Widths are fixed. The model
is uniform over four, iterations are uniform on 1000 to 6000, arrivals on 1 to 1200 s. `scale` multiplies
iterations and the arrival window, so times scale with it; ratios hardly change.
"""

from __future__ import annotations

import numpy as np

from boa_daemon.lab.network.model import Cluster, NetworkJob

PAPER_CLUSTER = Cluster(servers=16, gpus_per_server=4, gpu_memory_bytes=32768e6)
"""64 V100 with 32768 MB each, a network card per server."""

JOBS_OF_WIDTH = {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}

MODELS = (
    ("VGG-16", 526.4e6, 0.036, 0.054, 4527e6),
    ("ResNet-50", 99.2e6, 0.025, 0.037, 3213e6),
    ("Inception-v3", 103.0e6, 0.035, 0.052, 3291e6),
    ("LSTM-PTB", 251.8e6, 0.032, 0.047, 2751e6),
)
"""Name, message bytes, forward seconds, backward seconds, GPU memory bytes."""


def paper_jobs(seed: int, *, scale: float = 1.0, copies: int = 1) -> tuple[NetworkJob, ...]:
    """Return one draw of the workload with `copies` times as many jobs, ordered by width."""
    rng = np.random.default_rng(seed)
    widths = [width for width, jobs in JOBS_OF_WIDTH.items() for _ in range(jobs * copies)]
    least, most = round(1000 * scale), round(6000 * scale)
    jobs = []
    for number, width in enumerate(widths):
        name, message, forward, backward, memory = MODELS[int(rng.integers(len(MODELS)))]
        jobs.append(
            NetworkJob(
                id=f"{number}-{name}",
                gpus=width,
                iterations=int(rng.integers(least, most + 1)),
                forward_seconds=forward,
                backward_seconds=backward,
                message_bytes=message,
                memory_bytes=memory,
                arrived_at_seconds=float(rng.uniform(1.0, 1200.0)) * scale,
            )
        )
    return tuple(jobs)
