"""The gate's own broker on a model of the links: the gain of ordering, filling and switching off.

    python benchmarks/gate_model.py [--draws N]

Jobs and hosts are those of `benchmarks/gate.py`, drawn alike, but the links are a fluid: messages on a card
share it evenly, and a message over several cards moves at the pace of the most crowded one. The broker is the
gate's own, asked and answered bucket by bucket, with a fixed time per question. So the effect of a changed
rule is seen in a minute, without root; `benchmarks/gate.py` adds real traffic.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gate import BEHIND_UPLINK, CASES, UPLINK, bucket_bytes, draw_jobs
from boa_daemon.cli.common.output import a_table
from boa_daemon.gate.broker import Broker
from boa_daemon.gate.types import GateSettings, SendRequest
from policies.links.ada_srsf import Message
from policies.links.contention import Link
from policies.links.nic_filling import relative_speeds

LINK = Link(latency_seconds=0.001, seconds_per_byte=8.0 / 195e6, contention_seconds_per_byte=0.0)
ASK_SECONDS = 0.0016
REACHES_GATE = 0.2
"""The part of a question's time that it takes to the gate; the rest is the answer's way to all ranks."""
CASES_HERE = {
    **CASES,
    "pentagon": [(n, (n + 1) % 5) for n in range(5)] * 2,
    # The triangles share no card, so they do not affect each other.
    "three triangles": [(3 * n + one, 3 * n + (one + 1) % 3) for n in range(3) for one in range(3)] * 2,
}
WAYS: dict[str, dict[str, Any] | None] = {
    "no gate": None,
    "srsf-1": {"policy": "srsf-1", "is_always_on": True},
    "buckets": {"policy": "ada-srsf-buckets", "is_always_on": True, "fills_idle_cards": False},
    "buckets, filling": {"policy": "ada-srsf-buckets", "is_always_on": True},
    "default": {"policy": "ada-srsf-buckets"},
}


@dataclass(slots=True)
class Running:
    """A job of the model: its present activity, and until when or for how many bytes it lasts."""

    name: str
    cards: frozenset[str]
    compute_seconds: float
    message_bytes: float
    left: int
    at: float
    doing: str = "computing"
    to_send: float = 0.0
    in_piece: float = 0.0
    fence: int = 0
    free: int = 0
    asked_at: float = 0.0
    ready_at: float = 0.0
    began_at: float = 0.0
    piece_bytes: float = 0.0
    exposed: float | None = None
    ended_at: float = math.inf
    arrived_at: float | None = None
    timed: float | None = None


def run(jobs: list[Running], settings: GateSettings | None, *, ask_seconds: float = ASK_SECONDS) -> float:
    """Return the mean time from a job's arrival to its completion."""
    arrived = {job.name: job.at if job.arrived_at is None else job.arrived_at for job in jobs}
    broker = None if settings is None else Broker(settings)
    if broker is not None:
        # Like the daemon's plan, which the gate uses until a job has measured an iteration.
        broker.take_plan({job.name: 2.0 * job.left * _alone_seconds(job) for job in jobs})
    now, number, joined = 0.0, 0, set[str]()
    while any(job.left for job in jobs):
        flying = [job for job in jobs if job.doing == "sending"]
        pace = dict(
            zip(
                (job.name for job in flying),
                relative_speeds(
                    [
                        Message(job=j.name, servers=frozenset(j.cards), bytes_left=1.0, service_seconds=1.0)
                        for j in flying
                    ],
                    crowding=0.0,
                ),
                strict=True,
            )
        )
        instants = [job.at for job in jobs if job.left and job.doing in ("computing", "asking", "latent")]
        instants += [now + job.in_piece * LINK.seconds_per_byte / pace[job.name] for job in flying]
        wake = None if broker is None else broker.next_wake(now)
        judge = [] if broker is None or settings is None else [broker.looks_again_at]
        then = max(now, min([*instants, *([] if wake is None else [wake]), *judge]))
        for job in flying:
            job.in_piece -= (then - now) * pace[job.name] / LINK.seconds_per_byte
        now = then
        for job in jobs:
            if not job.left:
                continue
            if job.doing == "sending" and job.in_piece <= 1e-3:
                job.to_send -= job.piece_bytes
                if job.to_send <= 1.0:
                    _give_back(broker, job, now)
                    job.exposed = now - job.ready_at
                    job.left -= 1
                    job.free = max(0, job.free - 1)
                    job.doing, job.at = "computing", now + job.compute_seconds
                    if not job.left:
                        job.ended_at = now
                        if broker is not None:
                            broker.leave(job.name, now)
                else:
                    # The end of this piece and the question for the next one travel together.
                    job.doing, job.at = "asking", now + REACHES_GATE * ask_seconds
                    job.timed = now - job.began_at
            elif job.doing == "latent" and job.at <= now:
                job.doing = "sending"
            elif job.doing == "computing" and job.at <= now:
                job.to_send, job.ready_at = job.message_bytes, now
                job.timed = None
                if broker is None or job.free:
                    _send(job, job.message_bytes, now)
                else:
                    if job.name not in joined:
                        joined.add(job.name)
                        broker.join(job.name, nics=job.cards, gpus=2, weight=1.0, now=now)
                    job.doing, job.at = "asking", now + REACHES_GATE * ask_seconds
            elif job.doing == "asking" and job.at <= now:
                assert broker is not None
                _give_back(broker, job, now)
                number += 1
                job.doing = "waiting"
                broker.ask(
                    job.name,
                    SendRequest(
                        id=number,
                        ready_bytes=job.to_send,
                        message_bytes=job.to_send,
                        iteration_bytes=job.message_bytes,
                        iterations_left=float(job.left),
                        compute_seconds=job.compute_seconds if job.exposed is not None else None,
                        exposed_seconds=job.exposed,
                        round_trip_seconds=ask_seconds,
                    ),
                    now,
                )
        if broker is not None:
            by_name = {job.name: job for job in jobs}
            for grant in broker.settle(now):
                job = by_name[grant.job]
                job.fence, job.free = grant.fence, grant.free_iterations
                size = job.to_send if job.free or not grant.fence else min(grant.bytes, job.to_send)
                _send(job, size, now, after=(1.0 - REACHES_GATE) * ask_seconds)
    return float(np.mean([job.ended_at - arrived[job.name] for job in jobs]))


def _alone_seconds(job: Running) -> float:
    """Return the seconds of an iteration without other jobs."""
    return job.compute_seconds + LINK.seconds(job.message_bytes)


def _give_back(broker: Broker | None, job: Running, now: float) -> None:
    """Tell the gate that a piece has been sent."""
    if broker is not None and job.fence:
        broker.done(job.name, job.fence, now - job.began_at if job.timed is None else job.timed, now)
        job.fence = 0


def _send(job: Running, size: float, now: float, *, after: float = 0.0) -> None:
    """Let a job send a piece: its ranks get the grant, and after the latency the piece is on the cards."""
    job.piece_bytes = job.in_piece = size
    job.began_at, job.timed = now, None
    job.doing, job.at = "latent", now + after + LINK.latency_seconds


def a_case(case: str, seed: int) -> list[Running]:
    """Return the jobs of one draw on the hosts of a case."""
    pairs = CASES_HERE[case]
    return [
        Running(
            name=job["job"],
            # A slow uplink is the only bottleneck of the jobs behind it.
            cards=frozenset([UPLINK] if case in BEHIND_UPLINK else [f"h{host}" for host in hosts]),
            compute_seconds=job["forward_seconds"] + job["backward_seconds"],
            message_bytes=float(job["message_bytes"]),
            left=job["iterations"],
            at=job["arrived_at_seconds"] + job["forward_seconds"] + job["backward_seconds"],
            arrived_at=job["arrived_at_seconds"],
        )
        for job, hosts in zip(draw_jobs(seed, len(pairs), quick=False), pairs, strict=True)
    ]


def main() -> None:
    """Print mean times relative to no gate, paired by draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=40)
    draws = parser.parse_args().draws
    size = bucket_bytes(LINK)
    for case, seats in CASES_HERE.items():
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for seed in range(draws):
            for way, options in WAYS.items():
                settings = (
                    None
                    if options is None
                    else GateSettings(
                        link=LINK, bucket_bytes=size, fits_link=False, patience_seconds=60.0, **options
                    )
                )
                found[way].append(run(a_case(case, seed), settings))
        table = a_table(f"{case}: {len(seats)} jobs, {draws} draws", "gate", "to no gate, 95 %")
        base = np.array(found["no gate"])
        for way, times in found.items():
            ratios = np.array(times) / base
            half = float(stats.t.ppf(0.975, draws - 1)) * float(ratios.std(ddof=1)) / math.sqrt(draws)
            table.add_row(
                way, f"{ratios.mean():.3f} [{ratios.mean() - half:.3f}, {ratios.mean() + half:.3f}]"
            )
        Console().print(table)


if __name__ == "__main__":
    main()
