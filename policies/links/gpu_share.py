"""What jobs lose that share a GPU: one computes while the other sends, and both wait where they meet.

An iteration takes t seconds of a GPU and c seconds of a link (see `link_share`). The GPU is taken to serve
the jobs on it in equal parts, as its time slices do, and so is the link: a closed queueing network, which
mean value analysis solves. Of m equal jobs that share all they use, each iteration takes T_m seconds:

    R_s(n) = d_s (1 + q_s(n - 1))      T_n = sum over s of R_s(n)      q_s(n) = n R_s(n) / T_n

Two that never send take 2 t; two that send half of the time 1.5 (t + c); without a wait for each other's
messages that would be 1.25 (t + c). For unlike jobs, where the links are looked at by themselves, job i on a
GPU with the others S takes  t (1 + sum over j in S of b_j)  of it,  b_j = g_j / (g_j + s_j)  being the part
of its time that j is on the GPU when i is not there: the arrival theorem, which is exact for such networks,
whatever the spread of t and c.

    symbol   here        meaning
    d_s      demands     seconds that an iteration takes of the GPU, and of the link, alone
    q_s      queue       jobs there on average
    s_j      sending     seconds of sending per second of computing, as the links leave it
    g_i      stretch     seconds on the GPU per second of computing

Sources: Reiser and Lavenberg, J. ACM 27(2), 1980 (mean value analysis); Baskett, Chandy, Muntz and Palacios,
J. ACM 22(2), 1975 (equal parts and delays: the answer depends on the means alone). Not in it: what kernels of
two jobs cost each other beyond taking turns (caches, switches), and that all GPUs of a job wait for the last.
Cost: O(m) for equal jobs; O(m 2^m) for unlike ones on one GPU, m being two or three.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from policies.model import JobId

Gpu = TypeVar("Gpu", bound=Hashable)


@lru_cache(maxsize=4096)
def shared_iteration_seconds(jobs: int, demands: tuple[float, ...]) -> float:
    """Return the seconds of an iteration of each of so many equal jobs, by the seconds of each station."""
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

    `gpus_of` names the GPUs of each job; those of a job all wait for the one that is shared the most.
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
    """Return the part of its time that a job is on a GPU that it shares with those present."""
    others = tuple(other for other in present if other != job)
    stretch = 1.0 + sum(_busy(other, others, sending) for other in others)
    return stretch / (stretch + sending[job])
