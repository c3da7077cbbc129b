"""The gate and its jobs under kills, stops, partitions, restarts and lies: no lost iteration, no long stall.

The gate's real broker runs in a simulated world of messages with its own clock, so stalls are measured
exactly on any machine. The last tests open real connections to a real gate.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from boa_daemon.gate import connection as connection_module
from boa_daemon.gate.broker import Broker
from boa_daemon.gate.types import GateSettings, SendRequest
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.client import MISSED_BEATS, MOST_WAIT_SECONDS
from boa_daemon.job.gate.token import issue_token
from policies.links.contention import Link

from .conftest import Bench, until

LINK = Link(latency_seconds=0.001, seconds_per_byte=1e-8, contention_seconds_per_byte=0.0)
MESSAGE = 2_000_000
SILENCE = MISSED_BEATS * 0.1
"""What a job waits for a gate that has fallen silent."""
MOST_STALL = 1.5


@dataclass
class Job:
    """A job in the simulated world; it may be stopped or cut off from the gate."""

    name: str
    cards: frozenset[str]
    left: int
    compute_seconds: float
    at: float
    doing: str = "computing"
    fence: int = 0
    heard_at: float = 0.0
    is_stopped: bool = False
    is_cut_off: bool = False
    longest_wait: float = 0.0
    waits_since: float = 0.0


@dataclass
class World:
    """Jobs, a gate that may be down, and the client's rule: a job without an answer sends."""

    jobs: list[Job]
    settings: GateSettings
    faults: list[tuple[float, Callable[[World], None]]]
    now: float = 0.0
    is_gate_up: bool = True
    idle_since: dict[str, float] = field(default_factory=dict)
    longest_idle: float = 0.0

    def __post_init__(self) -> None:
        self.broker = Broker(self.settings)
        self.faults.sort(key=lambda fault: fault[0])

    def restart(self) -> None:
        """Replace the gate by an empty one."""
        self.broker, self.is_gate_up = Broker(self.settings, first_fence=10**9), True
        for job in self.jobs:
            job.fence = 0

    def reaches(self, job: Job) -> bool:
        """Return whether a job is connected to the gate."""
        return self.is_gate_up and not job.is_cut_off and not job.is_stopped

    def send(self, job: Job, fence: int) -> None:
        """Let a job send, and record how long it waited."""
        job.longest_wait = max(job.longest_wait, self.now - job.waits_since)
        job.doing, job.fence, job.at = "sending", fence, self.now + LINK.seconds(MESSAGE)

    def step(self, job: Job) -> None:
        """Do what a job does now."""
        if job.is_stopped or not job.left:
            return
        if job.doing == "computing" and job.at <= self.now:
            job.waits_since = self.now
            if not self.reaches(job):
                self.send(job, 0)
                return
            if job.name not in self.broker.seats:
                self.broker.join(job.name, nics=job.cards, gpus=2, weight=1.0, now=self.now)
            job.doing, job.heard_at = "waiting", self.now
            measured = {"compute_seconds": job.compute_seconds, "exposed_seconds": LINK.seconds(MESSAGE)}
            ask = SendRequest(
                id=1,
                ready_bytes=MESSAGE,
                message_bytes=MESSAGE,
                iteration_bytes=MESSAGE,
                iterations_left=float(job.left),
                **measured,
            )
            self.broker.ask(job.name, ask, self.now)
        elif job.doing == "waiting":
            if self.reaches(job):
                job.heard_at = self.now
            if self.now - job.heard_at > SILENCE or self.now - job.waits_since > MOST_WAIT_SECONDS:
                self.send(job, 0)
        elif job.doing == "sending" and job.at <= self.now:
            if job.fence and self.reaches(job) and job.name in self.broker.seats:
                self.broker.done(job.name, job.fence, LINK.seconds(MESSAGE), self.now)
            job.left -= 1
            job.doing, job.at = "computing", self.now + job.compute_seconds
            if not job.left and self.reaches(job):
                self.broker.leave(job.name, self.now)

    def grant(self) -> None:
        """Deliver the gate's grants."""
        by_name = {job.name: job for job in self.jobs}
        for grant in self.broker.settle(self.now):
            job = by_name[grant.job]
            if job.doing == "waiting" and self.reaches(job):
                self.send(job, grant.fence)

    def look(self) -> None:
        """Record how long a card has been idle although a running job waits for it."""
        busy = {
            card for job in self.jobs if job.doing == "sending" and not job.is_stopped for card in job.cards
        }
        waited = [job for job in self.jobs if job.doing == "waiting" and not job.is_stopped]
        for job in waited:
            free = [card for card in job.cards if card not in busy]
            if len(free) == len(job.cards):
                for card in free:
                    since = self.idle_since.setdefault(card, self.now)
                    self.longest_idle = max(self.longest_idle, self.now - since)
        wanted = {card for job in waited for card in job.cards}
        for card in [card for card in self.idle_since if card in busy or card not in wanted]:
            del self.idle_since[card]

    def run(self, seconds: float = 120.0, tick: float = 0.005) -> None:
        """Let time pass until every job that can end has ended."""
        while self.now < seconds and any(job.left and not job.is_stopped for job in self.jobs):
            while self.faults and self.faults[0][0] <= self.now:
                self.faults.pop(0)[1](self)
            for job in self.jobs:
                self.step(job)
            if self.is_gate_up:
                self.grant()
            self.look()
            self.now += tick


def a_world(
    jobs: int,
    faults: list[tuple[float, Callable[[World], None]]],
    *,
    cards: int = 2,
    policy: str = "ada-srsf-buckets",
) -> World:
    """Return jobs on pairs of cards that differ only in length."""
    draw = np.random.default_rng(jobs)
    found = []
    for n in range(jobs):
        first = int(draw.integers(cards))
        found.append(
            Job(
                name=f"j{n}",
                cards=frozenset({f"h{first}", f"h{(first + 1) % cards}"}),
                left=int(draw.integers(4, 12)),
                compute_seconds=float(draw.uniform(0.02, 0.1)),
                at=float(draw.uniform(0.0, 0.1)),
            )
        )
    settings = GateSettings(
        link=LINK, policy=policy, is_always_on=True, bucket_bytes=MESSAGE, fits_link=False
    )
    return World(found, settings, faults)


def senders(world: World) -> list[Job]:
    """Return the jobs that send under a lease, or else the waiting jobs: the worst moment for a fault."""
    return [job for job in world.jobs if job.fence and job.doing == "sending"] or [
        job for job in world.jobs if job.doing == "waiting"
    ]


def stop(world: World) -> None:
    """Stop a holder (SIGSTOP); its connection stays open."""
    for job in senders(world)[:1]:
        job.is_stopped = True


def stop_many(world: World) -> None:
    """Stop a holder and every third job (SIGSTOP)."""
    stop(world)
    for job in world.jobs[::3]:
        job.is_stopped = True


def go_on(world: World) -> None:
    """Continue all stopped jobs (SIGCONT)."""
    for job in world.jobs:
        job.is_stopped = False


def kill(world: World) -> None:
    """Kill a holder (SIGKILL); the kernel closes its connection."""
    for job in senders(world)[:1]:
        job.left = 0
        world.broker.leave(job.name, world.now)


def kill_gate(world: World) -> None:
    """Kill the gate (SIGKILL)."""
    world.is_gate_up = False


def cut_off(world: World) -> None:
    """Cut half of the jobs off from the gate; their connections stay open."""
    for job in world.jobs[::2]:
        job.is_cut_off = True


def mend(world: World) -> None:
    """End the partition; the jobs reconnect."""
    for job in world.jobs:
        if job.is_cut_off:
            job.is_cut_off, job.fence = False, 0
            world.broker.leave(job.name, world.now)


FAULTS = {
    "nothing": [],
    "a holder is killed": [(0.2, kill), (0.5, kill)],
    "a holder is stopped": [(0.2, stop), (0.6, stop)],
    "many are stopped at once": [(0.2, stop_many)],
    "stopped, and go on": [(0.2, stop), (1.8, go_on)],
    "the gate is killed": [(0.2, kill_gate)],
    "the gate is restarted": [(0.2, kill_gate), (0.7, World.restart)],
    "a partition": [(0.2, cut_off)],
    "a partition that ends": [(0.2, cut_off), (2.5, mend)],
    "everything": [
        (0.2, stop),
        (0.3, cut_off),
        (0.4, kill),
        (0.8, kill_gate),
        (1.2, World.restart),
        (2.5, mend),
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("jobs", "cards", "policy"), [(4, 2, "srsf-1"), (9, 3, "ada-srsf-buckets")])
def test_running_jobs_finish_and_no_wanted_card_is_idle_for_long(
    fault: str, jobs: int, cards: int, policy: str
) -> None:
    """A card that a running job waits for is idle for at most 1.5 s."""
    world = a_world(jobs, list(FAULTS[fault]), cards=cards, policy=policy)
    world.run()

    assert [job.name for job in world.jobs if job.left and not job.is_stopped] == []
    assert world.longest_idle <= MOST_STALL


@pytest.mark.exhaustive  # A thousand jobs in plain Python: about ten seconds.
@pytest.mark.parametrize("fault", ["a holder is stopped", "a partition that ends", "everything"])
def test_a_thousand_jobs_finish_under_faults(fault: str) -> None:
    """Running jobs on 500 cards finish, and no wanted card is idle for more than 1.5 s."""
    world = a_world(1000, list(FAULTS[fault]), cards=500)
    world.run(tick=0.02)

    assert [job.name for job in world.jobs if job.left and not job.is_stopped] == []
    assert world.longest_idle <= MOST_STALL


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow as many open files as a thousand connections need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if wanted < 2600:
        pytest.skip(f"a process may open {wanted} files here, and a thousand lines need 2,600")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.exhaustive  # A thousand handshakes over sockets take some seconds.
def test_a_gate_serves_a_thousand_connections_despite_faulty_ones(
    start: Callable[..., Bench], many_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth disconnects while it waits and a tenth has a wrong token; all other requests are granted."""
    # All connections open before the first hello, so a busy machine needs a longer time limit.
    monkeypatch.setattr(connection_module, "HELLO_SECONDS", 120.0)
    bench = start(policy="ada-srsf-buckets", least_lease_seconds=0.25)
    lines = [bench.raw() for _ in range(1000)]
    answered, refused = [], 0
    for n, line in enumerate(lines):
        token = "0" * 64 if n % 10 == 9 else None
        hello = {"nics": [f"h{n % 50}", f"h{(n + 1) % 50}"], **({} if token is None else {"proof": token})}
        said = line.hello(f"j{n}", **hello)
        refused += said["op"] == "refused"
    for n, line in enumerate(lines):
        if n % 10 != 9:
            line.say({"op": "ask", "id": 1, "ready_bytes": 1e5, "message_bytes": 1e5})
    for n, line in enumerate(lines):
        if n % 10 == 5:
            line.socket.close()
    for n, line in enumerate(lines):
        if n % 10 in (5, 9):
            continue
        line.socket.settimeout(120.0)
        while (frame := line.read()).get("op") == "wait":
            pass
        answered.append(frame.get("op"))
        if frame.get("fence"):
            line.say({"op": "done", "fence": frame["fence"], "seconds": 0.001})

    assert refused == 100
    assert answered == ["grant"] * 800
    for line in lines:
        line.socket.close()
    until(lambda: bench.gate.status()["jobs"] == [])


def test_a_stopped_holder_delays_waiting_jobs_by_its_lease(
    start: Callable[..., Bench],
) -> None:
    """The holder sends no more frames, and its connection stays open."""
    bench = start()
    holder = bench.raw()
    holder.hello("holder", nics=["A"])
    # The clients connect before the short lease begins, which would expire meanwhile on a busy machine.
    others = [bench.client(f"j{n}", nics="A") for n in range(3)]
    said: list[str] = []
    threads = [threading.Thread(target=lambda c=c: said.append(c.ask(1e6, 1e6).why)) for c in others]
    began = time.monotonic()
    holder.say({"op": "ask", "id": 1, "ready_bytes": 1e6, "message_bytes": 1e6})
    lease = holder.read()["lease_seconds"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)

    # All waiting jobs are let through, because other jobs may have stopped too.
    assert said == ["free"] * 3
    assert lease <= MOST_STALL
    assert time.monotonic() - began >= lease
    assert bench.gate.status()["counts"]["stalled"] == 1
    holder.socket.close()
    for client in others:
        client.close()


def test_refused_connections_do_not_affect_a_valid_job(start: Callable[..., Bench], tmp_path: Path) -> None:
    """After a hundred refusals a job with the right token is granted."""
    bench = start(policy="ada-srsf-buckets")
    good = bench.client("good", nics="A")
    for n in range(100):
        line = bench.raw()
        assert line.hello(f"j{n}", proof=issue_token("another secret", job=f"j{n}"))["op"] == "refused"
        line.socket.close()

    assert good.ask(1e3, 1e3).why == "granted"
    assert bench.gate.status()["refusals"] == {"wrong token": 100}
    assert bench.address == GateAddress(path=str(bench.path), answer_seconds=1.0)
    good.close()
