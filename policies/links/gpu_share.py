"""The slowdown of jobs that share a GPU: one job computes while another sends, and they wait for each other.

An iteration takes t seconds of a GPU and c seconds of a link (see `link_share`). The model assumes that the
GPU serves its jobs in equal parts, as its time slices do, and so does the link: a closed queueing network,
which mean value analysis solves. With m equal jobs that share GPU and link, an iteration takes T_m seconds:

    R_s(n) = d_s (1 + q_s(n - 1))      T_n = sum over s of R_s(n)      q_s(n) = n R_s(n) / T_n

Two jobs that never send take 2 t. Two that send half of the time take 1.5 (t + c); if they did not wait for
each other's messages, it would be 1.25 (t + c). For unequal jobs, with links treated separately, an iteration
of job i on a GPU with the other jobs S takes  t (1 + sum over j in S of b_j)  seconds of the GPU, where
b_j = g_j / (g_j + s_j)  is the fraction of time that j is on the GPU in the absence of i. This is the arrival
theorem, which is exact for such networks, for any distribution of t and c.

    symbol   here        meaning
    d_s      demands     seconds of an iteration on the GPU, and on the link, for a job alone
    q_s      queue       mean number of jobs at station s
    s_j      sending     seconds of sending per second of computing, contention on links included
    g_i      stretch     seconds on the GPU per second of computing

Sources: Reiser and Lavenberg, J. ACM 27(2), 1980 (mean value analysis); Baskett, Chandy, Muntz and Palacios,
J. ACM 22(2), 1975 (equal parts and delays: the answer depends on the means alone). Not modelled: costs
between kernels of two jobs beyond taking turns (caches, switches), and that all GPUs of a job wait for the
last one.
Cost: O(m) for equal jobs; O(m 2^m) for unequal jobs on one GPU, where m is two or three.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from policies.model import JobId

Gpu = TypeVar("Gpu", bound=Hashable)


@lru_cache(maxsize=4096)
def shared_iteration_seconds(jobs: int, demands: tuple[float, ...]) -> float:
    """Return T_m, the seconds of an iteration of each of `jobs` equal jobs; `demands` is by station."""
    queue, total = [0.0] * len(demands), 0.0
    for present in range(1, jobs + 1):
        each = [seconds * (1.0 + waiting) for seconds, waiting in zip(demands, queue, strict=True)]
        total = sum(each)
        queue = [present * seconds / total for seconds in each]
    return total


def gpu_slowdowns(
    gpus_of: Mapping[JobId, Sequence[Gpu]], sending: Mapping[JobId, float]
) -> dict[JobId, float]:
    """Return by job the seconds on its GPUs per second of computing: 1 alone, more on shared ones.

    `gpus_of` are the GPUs of each job. A job has the slowdown of its slowest GPU, because all its GPUs wait
    for that one. `sending` is each job's seconds of sending per second of computing.
    """
    on: dict[Gpu, list[JobId]] = {}
    for job, gpus in gpus_of.items():
        for gpu in gpus:
            on.setdefault(gpu, []).append(job)
    found = dict.fromkeys(gpus_of, 1.0)
    for together in {tuple(jobs) for jobs in on.values() if len(jobs) > 1}:
        for job in together:
            others = tuple(other for other in together if other != job)
            found[job] = max(found[job], 1.0 + sum(_busy(other, others, sending) for other in others))
    return found


def _busy(job: JobId, present: Sequence[JobId], sending: Mapping[JobId, float]) -> float:
    """Return b_j, the fraction of time that a job is on a GPU that it shares with the jobs `present`."""
    others = tuple(other for other in present if other != job)
    stretch = 1.0 + sum(_busy(other, others, sending) for other in others)
    return stretch / (stretch + sending[job])
