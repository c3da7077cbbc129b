"""The best order of messages, found by trying all orders, as a reference for the gate's order.

    python benchmarks/gate_best.py [--draws N]

A few jobs share their cards. Each iteration computes and then sends one message in pieces, one at a time on
the link. The best order pays one latency per message, and knows all jobs and all iterations from the start.
The gate knows only what was asked so far, pays for its questions, and runs on the model of
`benchmarks/gate_model.py`.

The search covers every order in which the link never idles for longer than a piece would take, by progress of
the jobs. Of two ways to the same progress, a way that is nowhere later replaces the other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gate_model import LINK, Running, run
from boa_daemon.cli.common.output import a_table
from boa_daemon.gate.types import GateSettings

PIECE_BYTES = 1_500_000.0
CARDS = frozenset({"h0", "h1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """A job of a small case."""

    arrived_at: float
    compute_seconds: float
    message_bytes: float
    iterations: int

    @property
    def pieces(self) -> list[float]:
        """Seconds on the link, piece by piece."""
        sizes = []
        left = self.message_bytes
        while left > 1.0:
            sizes.append(min(PIECE_BYTES, left))
            left -= sizes[-1]
        return [size * LINK.seconds_per_byte for size in sizes]

    @property
    def ready_after_seconds(self) -> float:
        """Seconds from the end of an iteration until the next message can be on a free link."""
        return self.compute_seconds + LINK.latency_seconds


def draw(seed: int) -> list[Small]:
    """Return a small case: two or three jobs of a few iterations."""
    found = np.random.default_rng(seed)
    return [
        Small(
            arrived_at=float(found.uniform(0.0, 0.3)),
            compute_seconds=float(found.uniform(0.02, 0.15)),
            message_bytes=float(found.uniform(0.5e6, 4.5e6)),
            iterations=int(found.integers(2, 6)),
        )
        for _ in range(int(found.integers(2, 4)))
    ]


def best_mean_seconds(jobs: Sequence[Small]) -> float:
    """Return the least mean time from arrival to end over all orders of the pieces."""
    pieces = [job.pieces * job.iterations for job in jobs]
    lengths = [len(job.pieces) for job in jobs]
    # By progress: when the link is free, when each job's next piece is ready, total time of ended jobs.
    layer: dict[tuple[int, ...], list[tuple[float, ...]]] = {
        (0,) * len(jobs): [(0.0, *(job.arrived_at + job.ready_after_seconds for job in jobs), 0.0)]
    }
    best = float("inf")
    for _ in range(sum(len(some) for some in pieces)):
        following: dict[tuple[int, ...], list[tuple[float, ...]]] = {}
        for progress, ways in layer.items():
            for way in ways:
                free, cost, ready = way[0], way[-1], way[1:-1]
                open_jobs = [n for n, done in enumerate(progress) if done < len(pieces[n])]
                starts = {n: max(free, ready[n]) for n in open_jobs}
                soonest = min(starts[n] + pieces[n][progress[n]] for n in open_jobs)
                for n in open_jobs:
                    if starts[n] >= soonest:
                        continue
                    end = starts[n] + pieces[n][progress[n]]
                    after = [*ready]
                    done = progress[n] + 1
                    after[n] = end + (jobs[n].ready_after_seconds if done % lengths[n] == 0 else 0.0)
                    ended = end - jobs[n].arrived_at if done == len(pieces[n]) else 0.0
                    after[n] = 0.0 if ended else after[n]
                    step = (*progress[:n], done, *progress[n + 1 :])
                    _keep(following.setdefault(step, []), (end, *after, cost + ended))
        layer = following
    best = min(way[-1] for ways in layer.values() for way in ways)
    return best / len(jobs)


def _keep(ways: list[tuple[float, ...]], new: tuple[float, ...]) -> None:
    """Add a way unless another is nowhere later; remove the ways that are nowhere earlier than it."""
    if any(all(a <= b for a, b in zip(old, new, strict=True)) for old in ways):
        return
    ways[:] = [old for old in ways if not all(b <= a for a, b in zip(old, new, strict=True))]
    ways.append(new)


def gate_mean_seconds(
    jobs: Sequence[Small], *, ask_seconds: float, settings: GateSettings | None = None
) -> float:
    """Return the mean time under the gate's order, with the daemon's settings by default."""
    running = [
        Running(
            name=f"j{n}",
            cards=CARDS,
            compute_seconds=job.compute_seconds,
            message_bytes=job.message_bytes,
            left=job.iterations,
            at=job.arrived_at + job.compute_seconds,
            arrived_at=job.arrived_at,
        )
        for n, job in enumerate(jobs)
    ]
    settings = settings or GateSettings(link=LINK, bucket_bytes=PIECE_BYTES, fits_link=False)
    return run(running, settings, ask_seconds=ask_seconds)


def main() -> None:
    """Print the gate's distance from the best order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    table = a_table(f"{draws} cases of two or three jobs", "a question takes", "mean", "p95", "worst")
    cases = [draw(seed) for seed in range(draws)]
    best = np.array([best_mean_seconds(jobs) for jobs in cases])
    for ask_seconds in (0.0, 0.001, 0.002):
        ratios = np.array([gate_mean_seconds(jobs, ask_seconds=ask_seconds) for jobs in cases]) / best
        table.add_row(
            f"{ask_seconds * 1e3:g} ms",
            f"{ratios.mean():.3f}",
            f"{np.percentile(ratios, 95):.3f}",
            f"{ratios.max():.3f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
