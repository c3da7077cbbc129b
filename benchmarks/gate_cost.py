"""The cost of the gate: round trip of a question, and training beside an idle, a dead and a slow gate."""

from __future__ import annotations

import contextlib
import math
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from boa_daemon.gate.benchmark_gate import SECRET
from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.types import GateSettings
from boa_daemon.gate.virtual_hosts import VirtualHosts, WorkerGroup, run_jobs, start_worker_groups
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.client import GateClient
from boa_daemon.job.gate.token import issue_token
from policies.links.contention import Link

LINK = Link.of_gigabits(10.0)
CROWDS = (4, 16, 64, 256)
QUESTION_EVERY_SECONDS = 0.1
"""A job of 100 ms iterations asks ten times a second; with few jobs each asks more often."""
LEAST_QUESTIONS_PER_SECOND = 500
BLOCK = 20
"""Iterations averaged before hiccups are trimmed, because few iterations carry the gate's cost."""


def measure_round_trips(*, quick: bool) -> list[dict[str, Any]]:
    """Return the time from question to grant on free cards, by number of jobs.

    The gate and all clients share this machine, the clients one process; each client asks at its own rate.
    """
    rows = []
    for jobs in CROWDS[:2] if quick else CROWDS:
        for over in ("unix", "tcp"):
            with tempfile.TemporaryDirectory() as folder:
                address = f"unix:{folder}/gate.sock" if over == "unix" else f"tcp:127.0.0.1:{_free_port()}"
                script = f"from benchmarks.gate_cost import serve; serve({address!r})"
                gate = subprocess.Popen(
                    [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
                assert gate.stdin is not None
                assert gate.stdout is not None
                try:
                    gate.stdout.readline()
                    to = replace(GateAddress.parse(address), answer_seconds=1.0)
                    rows.append({"over": over, **_ask_all(to, jobs, 2.0 if quick else 10.0)})
                finally:
                    gate.stdin.close()
                    gate.wait()
                    gate.stdout.close()
    return rows


def _free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(address: str) -> None:
    """Run a gate that is always on until standard input ends; print a line once it listens."""
    settings = GateSettings(link=LINK, is_always_on=True, fits_link=False)
    with GateThread(settings, SECRET, GateAddress.parse(address)):
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        sys.stdin.read()


def _ask_all(address: GateAddress, jobs: int, seconds: float) -> dict[str, Any]:
    """Return the round trips of this many jobs; each pair of jobs shares two cards."""
    clients = [
        GateClient(
            address,
            job=f"j{n}",
            nics=[f"n{n // 2 * 2}", f"n{n // 2 * 2 + 1}"],
            token=issue_token(SECRET, job=f"j{n}"),
        )
        for n in range(jobs)
    ]
    trips: list[list[float]] = [[] for _ in clients]
    until = time.monotonic() + 30.0
    while not all(client.is_connected for client in clients) and time.monotonic() < until:
        time.sleep(0.02)
    stop_at = time.monotonic() + seconds
    every = min(QUESTION_EVERY_SECONDS, jobs / LEAST_QUESTIONS_PER_SECOND)

    def ask(number: int) -> None:
        client = clients[number]
        draw = np.random.default_rng(number)
        time.sleep(float(draw.uniform(0.0, every)))
        while time.monotonic() < stop_at:
            began = time.perf_counter()
            go = client.ask(25e6, 25e6)
            if go.why == "granted":
                trips[number].append(time.perf_counter() - began)
            client.done(go.fence, 0.02)
            time.sleep(float(draw.exponential(every)))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    every = np.concatenate([np.array(trip) for trip in trips])
    return {
        "jobs": jobs,
        "questions": len(every),
        "p50_ms": float(np.percentile(every, 50) * 1e3),
        "p99_ms": float(np.percentile(every, 99) * 1e3),
        "asks_per_second": len(every) / seconds,
    }


def measure_overhead(pairs: int, *, quick: bool, states: Sequence[str] = ()) -> dict[str, Any]:
    """Return the slowdown of an unshared job beside a gate, by state of the gate, in pairs.

    `lost_fraction` is the part of the run that the job itself counts as lost to the gate.
    """
    job = {
        "job": "j0",
        "message_bytes": 1_000_000,
        "forward_seconds": 0.01,
        "backward_seconds": 0.02,
        "iterations": 2 + BLOCK * (1 if quick else 10),
    }
    names = list(states or STATES)
    longer: dict[str, list[float]] = {name: [] for name in names}
    lost: dict[str, list[float]] = {name: [] for name in names}
    with VirtualHosts(2, megabits=200.0) as hosts:
        crews = start_worker_groups(hosts, [(0, 1)])
        try:
            _steady(crews, job)
            for pair in range(pairs):
                # Measure before and after, so that a slow drift of the machine cancels out.
                before, _ = _steady(crews, job)
                found = {}
                for name in np.random.default_rng(pair).permutation(names).tolist():
                    with STATES[name]() as address:
                        found[name], part = _steady(crews, {**job, "gate": address})
                        lost[name].append(part)
                after, _ = _steady(crews, job)
                for name, value in found.items():
                    longer[name].append(2.0 * value / (before + after) - 1.0)
        finally:
            for crew in crews:
                crew.stop()
    return {name: {**_interval(longer[name]), "lost_fraction": float(np.mean(lost[name]))} for name in names}


def _steady(crews: list[WorkerGroup], job: dict[str, Any]) -> tuple[float, float]:
    """Return the mean iteration of a run, and the part of the run lost to the gate.

    Blocks with a hiccup of the machine are trimmed. Trimming single iterations would hide a gate that makes
    every tenth iteration wait.
    """
    answer = run_jobs(crews, [job])[0]
    times = answer["iteration_seconds"]
    settled = np.array(times[2:])
    blocks = settled[: len(settled) // BLOCK * BLOCK].reshape(-1, BLOCK).mean(axis=1)
    return float(stats.trim_mean(blocks, 0.2)), answer.get("lost_seconds", 0.0) / sum(times)


def _interval(values: list[float]) -> dict[str, float]:
    """Return a mean and its 95 % interval."""
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    mean = float(np.mean(values))
    return {
        "mean": mean,
        "low": mean - half,
        "high": mean + half,
        "median": float(np.median(values)),
        "pairs": len(values),
    }


@contextlib.contextmanager
def _token_and_socket() -> Iterator[tuple[str, str]]:
    """Yield a path for a socket, and the address of a gate there."""
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder, "j0.token")
        token.write_text(issue_token(SECRET, job="j0"), encoding="utf-8")
        yield f"{folder}/gate.sock", f"unix:{folder}/gate.sock?token_file={token}"


@contextlib.contextmanager
def _idle() -> Iterator[str]:
    """Yield the address of a gate to which no other job sends."""
    with (
        _token_and_socket() as (path, address),
        GateThread(GateSettings(link=LINK), SECRET, GateAddress(path=path)),
    ):
        yield address


@contextlib.contextmanager
def _dead() -> Iterator[str]:
    """Yield an address at which no process listens."""
    with _token_and_socket() as (_, address):
        yield address


@contextlib.contextmanager
def _mute() -> Iterator[str]:
    """Yield the address of a gate that accepts connections and then never answers, like a stopped process."""
    settings = GateSettings(link=LINK, is_always_on=True)
    with _token_and_socket() as (path, address), GateThread(settings, SECRET, GateAddress(path=path)) as gate:
        gate.server.settle = lambda: None  # type: ignore[method-assign]
        gate.server.say_wait = lambda job: None  # type: ignore[method-assign,misc]
        yield address


@contextlib.contextmanager
def _black_hole() -> Iterator[str]:
    """Yield a socket that takes connections and never answers."""
    with _token_and_socket() as (path, address), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        yield address


STATES = {
    "idle gate, unshared link": _idle,
    "no gate there": _dead,
    "gate that never answers": _mute,
    "gate that never greets": _black_hole,
}
