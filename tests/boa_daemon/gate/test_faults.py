"""Jobs and gates that are killed, stopped, cut off, restarted or lie: nobody loses an iteration or stalls.

The gate's own broker in a world of messages, on a clock of its own, so that a stall is measured to the
millisecond on any machine; then a thousand real lines to a real gate.
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
    """A job of the world: it computes, asks, sends; and may be stopped, or not reach the gate."""

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
    """Jobs, a gate that may be away, and the rule of the client: without a word from the gate, send."""

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
        """Bring an empty gate up in place of the old one."""
        self.broker, self.is_gate_up = Broker(self.settings, first_fence=10**9), True
        for job in self.jobs:
            job.fence = 0

    def reaches(self, job: Job) -> bool:
        """Return whether a job hears the gate."""
        return self.is_gate_up and not job.is_cut_off and not job.is_stopped

    def send(self, job: Job, fence: int) -> None:
        """Let a job send: how long it waited is noted."""
        job.longest_wait = max(job.longest_wait, self.now - job.waits_since)
        job.doing, job.fence, job.at = "sending", fence, self.now + LINK.seconds(MESSAGE)

    def step(self, job: Job) -> None:
        """Do what is due."""
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
        """Hear what the gate says."""
        by_name = {job.name: job for job in self.jobs}
        for grant in self.broker.settle(self.now):
            job = by_name[grant.job]
            if job.doing == "waiting" and self.reaches(job):
                self.send(job, grant.fence)

    def look(self) -> None:
        """Note how long a card has idled that somebody alive waits for."""
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
        """Let time pass until all that can end has ended."""
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
    """Return jobs on pairs of cards, all alike but for their lengths."""
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
    """Return who sends under a lease, or else who waits: the worst moment to stop."""
    return [job for job in world.jobs if job.fence and job.doing == "sending"] or [
        job for job in world.jobs if job.doing == "waiting"
    ]


def stop(world: World) -> None:
    """SIGSTOP: a holder does nothing any more, and its line stays open."""
    for job in senders(world)[:1]:
        job.is_stopped = True


def stop_many(world: World) -> None:
    """SIGSTOP a third of all: holders, and those who would be next."""
    stop(world)
    for job in world.jobs[::3]:
        job.is_stopped = True


def go_on(world: World) -> None:
    """SIGCONT."""
    for job in world.jobs:
        job.is_stopped = False


def kill(world: World) -> None:
    """Kill -9: the kernel closes the line."""
    for job in senders(world)[:1]:
        job.left = 0
        world.broker.leave(job.name, world.now)


def kill_gate(world: World) -> None:
    """Kill -9 the gate."""
    world.is_gate_up = False


def cut_off(world: World) -> None:
    """A partition: half of the jobs hear nothing and are not heard; their lines stay open."""
    for job in world.jobs[::2]:
        job.is_cut_off = True


def mend(world: World) -> None:
    """The partition ends; new lines replace the old ones."""
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
def test_nobody_loses_an_iteration_and_no_card_idles_for_long(
    fault: str, jobs: int, cards: int, policy: str
) -> None:
    """Whoever is alive ends; no card that somebody alive waits for idles for 1.5 s."""
    world = a_world(jobs, list(FAULTS[fault]), cards=cards, policy=policy)
    world.run()

    assert [job.name for job in world.jobs if job.left and not job.is_stopped] == []
    assert world.longest_idle <= MOST_STALL


@pytest.mark.exhaustive  # A thousand jobs, step by step in Python: some ten seconds.
@pytest.mark.parametrize("fault", ["a holder is stopped", "a partition that ends", "everything"])
def test_a_thousand_jobs_under_faults(fault: str) -> None:
    """Five hundred cards, two jobs on each and more."""
    world = a_world(1000, list(FAULTS[fault]), cards=500)
    world.run(tick=0.02)

    assert [job.name for job in world.jobs if job.left and not job.is_stopped] == []
    assert world.longest_idle <= MOST_STALL


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow the lines of a thousand jobs, both ends in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if wanted < 2600:
        pytest.skip(f"a process may open {wanted} files here, and a thousand lines need 2,600")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.exhaustive  # A thousand greetings over sockets: some seconds.
def test_a_gate_serves_a_thousand_lines_while_some_are_cut_and_some_lie(
    start: Callable[..., Bench], many_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tenth is cut while it waits, every tenth has a wrong token: all others are answered."""
    # All lines are open before the first says hello: on a busy machine the last would be cut off as mute.
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


def test_a_job_that_is_stopped_while_it_holds_delays_the_next_by_its_lease(
    start: Callable[..., Bench],
) -> None:
    """Over real lines: the holder says nothing more, and its line stays open."""
    bench = start()
    holder = bench.raw()
    holder.hello("holder", nics=["A"])
    # They are there before the lease begins, which is short: on a busy machine it would run out meanwhile.
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

    # All of them at once: others may have been stopped with it.
    assert said == ["free"] * 3
    assert lease <= MOST_STALL
    assert time.monotonic() - began >= lease
    assert bench.gate.status()["counts"]["stalled"] == 1
    holder.socket.close()
    for client in others:
        client.close()


def test_a_wrong_token_costs_the_others_nothing(start: Callable[..., Bench], tmp_path: Path) -> None:
    """A hundred refusals in a row, and who holds the right one is served."""
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
