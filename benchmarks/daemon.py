"""The daemon under load: 10,000 jobs wait, 1,000 run on 2,500 nodes (10,000 GPUs); ticks and requests.

    python benchmarks/daemon.py                all of it, about four minutes
    python benchmarks/daemon.py --seconds 10   a short look

The store (SQLite, WAL, synchronous=FULL), the loop and the socket are real and run in one process, the
clients in others; nodes and jobs are simulated. Each figure is printed with its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.server import ApiServer, unix_socket
from boa_daemon.backends.simulated import FileCloud, SimulatedLimits
from boa_daemon.clock import SteadyClock
from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.daemon.loop.components import World
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.serve import keep_answering
from boa_daemon.sim.simulated_runner import SimulatedRunner
from boa_daemon.testing.daemon_in_a_folder import job_content

SETTINGS: dict[str, Any] = {
    "budget": {
        "usd_per_hour": 8000.0,
        "usd_per_day_cap": 1e6,
        "usd_per_month_cap": 2e7,
        "max_instances": 2000,
    },
    "cloud": {"boot_seconds": 0.0, "instance_types": ["g4dn.12xlarge"]},
    "workload": {"policy": "boa"},
    "steady": {"moves_per_hour": 1_000_000},
}


TICK_SECONDS, GET_MS, SUBMIT_MS = 0.5, 50.0, 100.0
LOOKS = ("/v1/status", "/v1/jobs?limit=50", "/v1/instances?limit=50", "/healthz")
CONNECTIONS = 32
"""The number of concurrent submissions."""


def a_client(path: str) -> httpx.Client:
    """Return a client of the socket."""
    transport = httpx.HTTPTransport(uds=path)
    return httpx.Client(transport=transport, base_url="http://boa", timeout=120.0)


class Line:
    """A connection for one request after the other; a library's client would cost more than the answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def post(self, path: str, body: bytes) -> bytes:
        """Return the body of the answer."""
        head = f"POST {path} HTTP/1.1\r\nHost: boa\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
        answer = await self._reader.readexactly(length)
        if b" 201 " not in lines[0]:
            raise SystemExit(f"a submission was refused: {lines[0]!r} {answer!r}")
        return answer


async def submit_on(path: str, per_second: float, seconds: float) -> tuple[list[float], list[str], float]:
    """Submit at a steady rate in an open loop: a submission does not wait for earlier answers."""
    took: list[float] = []
    names: list[str] = []
    lines = [Line(*await asyncio.open_unix_connection(path)) for _ in range(CONNECTIONS)]
    count = int(per_second * seconds)
    bodies = [json.dumps({"jobs": [job_content(f"s{n}", hours=100.0)]}).encode() for n in range(count)]

    async def one(number: int) -> None:
        asked = time.perf_counter()
        while not lines:
            await asyncio.sleep(0.001)
        # Use the connection that was idle longest, because the server closes those idle for five seconds.
        line = lines.pop(0)
        names.extend(json.loads(await line.post("/v1/jobs", bodies[number]))["jobs"])
        lines.append(line)
        took.append(time.perf_counter() - asked)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(begin + number / per_second - time.perf_counter(), 0.0))
            group.create_task(one(number))
    return took, names, time.perf_counter() - begin


def submitter(path: str, per_second: float, seconds: float, out: Any) -> None:
    """Submit from a separate process."""
    out.put(("submit", *asyncio.run(submit_on(path, per_second, seconds))))


def looker(path: str, what: str, seconds: float, out: Any) -> None:
    """Send a request five times a second."""
    took = []
    with a_client(path) as client:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            asked = time.perf_counter()
            client.get(what).raise_for_status()
            took.append(time.perf_counter() - asked)
            time.sleep(0.2)
    out.put((what, took, [], 0.0))


def percentile(values: list[float], share: float) -> float:
    """Return a percentile in milliseconds."""
    return 1e3 * sorted(values)[min(int(share * len(values)), len(values) - 1)]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--running", type=int, default=1_000)
    parser.add_argument("--folder", type=Path, help="where the database lies; default: the system's")
    parser.add_argument("--nodes", type=int, default=2_500)
    options = parser.parse_args()
    keep_answering()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        run(Path(name), options)


def run(folder: Path, options: argparse.Namespace) -> None:
    """Fill the daemon, then measure."""
    clock = SteadyClock()
    values = json.loads(json.dumps(SETTINGS))
    values["budget"]["max_instances"] = options.nodes
    settings = Settings.model_validate(values)
    cloud = FileCloud(folder / "cloud.sqlite", clock, limits=SimulatedLimits(boot_seconds=0.0), durable=False)
    runner = SimulatedRunner(clock, speed=lambda _name, _width: 1.0)
    storage = open_storage(sqlite_url(folder / "boa.sqlite"))
    daemon = Daemon(settings, World(clock=clock, cloud=cloud, runner=runner), storage)
    service = Service(daemon)
    daemon.start()
    gpus = 4 * options.nodes
    width = max(gpus // options.running, 1)
    content = job_content("run", hours=1000.0, min_gpus=width, max_gpus=width)
    service.submit([content] * options.running, user="ann")
    for _ in range(8):
        daemon.tick()
    began = time.perf_counter()
    batch = [job_content(f"w{n}", hours=100.0, max_gpus=4) for n in range(options.waiting)]
    service.submit(batch, user="ann")
    batch_seconds = time.perf_counter() - began
    daemon.tick()
    daemon.tick()
    state = daemon.standing.decision.state if daemon.standing.decision else None
    assert state is not None
    running = sum(bool(job.slots) for job in state.jobs.values())
    print(f"{len(state.jobs) - running:,} jobs wait, {running:,} run, {len(state.nodes):,} nodes")
    print(f"batch of {options.waiting:,} jobs in one call: {batch_seconds:.2f} s, all stored")
    processor = time.thread_time()
    alone = [one_tick(daemon) for _ in range(5)]
    processor = (time.thread_time() - processor) / len(alone)
    print(
        f"tick alone: median {statistics.median(alone):.3f} s, most {max(alone):.3f} s, "
        f"of which on the processor {processor:.3f} s (limit {TICK_SECONDS} s)"
    )
    under_load(folder, service, options)


def one_tick(daemon: Daemon) -> float:
    """Return the seconds of one tick."""
    began = time.perf_counter()
    if daemon.tick() is None:
        raise SystemExit(daemon.standing.fault)
    took = time.perf_counter() - began
    # As `daemon/clockwork.py` does, after the tick and without its lock.
    daemon.after_ticks()
    return took


def under_load(folder: Path, service: Service, options: argparse.Namespace) -> None:
    """Submit and read while ticks follow each other without a pause."""
    daemon = service.daemon
    path = str(folder / "boa.sock")
    server = ApiServer(create_app(service, Authenticator(daemon.settings.api)), [unix_socket(Path(path))])
    server.start()
    stop, ticks = threading.Event(), []
    processor, load = time.process_time(), os.getloadavg()[0]

    def tick_on() -> None:
        while not stop.is_set():
            ticks.append(one_tick(daemon))
            stop.wait(max(2.0 - ticks[-1], 0.0))

    ticker = threading.Thread(target=tick_on)
    ticker.start()
    before = len(daemon.storage.queue.active) if daemon.storage else 0
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    clients = [
        context.Process(target=submitter, args=(path, options.rate, options.seconds, out)),
        *(context.Process(target=looker, args=(path, what, options.seconds, out)) for what in LOOKS),
    ]
    for process in clients:
        process.start()
    found = {row[0]: row[1:] for row in (out.get(timeout=10 * options.seconds + 60) for _ in clients)}
    for process in clients:
        process.join()
    stop.set()
    ticker.join()
    server.stop()
    took, names, lasted = found["submit"]
    stored = len(daemon.storage.queue.active) - before if daemon.storage else 0
    print(
        f"tick under load: median {statistics.median(ticks):.3f} s, most {max(ticks):.3f} s "
        f"(limit {TICK_SECONDS} s)"
    )
    processor = time.process_time() - processor
    print(
        f"machine: {os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after; the "
        f"daemon took {processor:.1f} s of processor"
    )
    rate, most = len(took) / lasted, percentile(took, 0.99)
    print(
        f"submit while ticking: {rate:.0f}/s for {lasted:.0f} s, p50 {percentile(took, 0.5):.1f} ms, ", end=""
    )
    print(f"p99 {most:.1f} ms (limit {SUBMIT_MS:.0f} ms)")
    idle = percentile(found["/healthz"][0], 0.99)
    for what in LOOKS:
        took = found[what][0]
        limit = "nothing to do: the machine's own times" if what == "/healthz" else f"limit {GET_MS:.0f} ms"
        most = percentile(took, 0.99)
        print(
            f"GET {what}: p50 {percentile(took, 0.5):.1f} ms, p99 {most:.1f} ms ({limit}), "
            f"{most / idle:.1f} times that of /healthz"
        )
    lost = len(set(names)) - stored
    print(f"answered {len(set(names)):,}, stored {stored:,}: {'none lost' if lost == 0 else f'{lost} LOST'}")
    daemon.close()


if __name__ == "__main__":
    main()
