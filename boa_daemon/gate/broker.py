"""The core of the gate: takes requests to send, returns grants. No clock, no sockets; `now` is an argument.

A message needs all of its cards at the same time. One broker grants all of them together, so there is no
deadlock. The order is decided by `policies.links.ada_srsf`, the same code that the simulator runs. A grant is
a lease: after its deadline, the holder counts as stalled and the cards are free again; later frames with the
old fence are ignored. After a change, only jobs that are linked with it by shared cards are considered. Cost
of a request: O(m log m) for m messages that wait on those cards, and O(l) for the l leases of the site.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from boa_daemon.gate.grant_sizes import allows_overlap, bucket_bytes, undisturbed_bytes
from boa_daemon.gate.job_state import LEAST_TIMED, JobAtGate, Lease
from boa_daemon.gate.nics import Nic, judge, linked_jobs, overhead_fraction
from boa_daemon.gate.ordering_gain import OrderingGain
from boa_daemon.gate.timing import Timings
from boa_daemon.gate.types import GateSettings, Grant, SendRequest
from policies.links.ada_srsf import LinkPolicy, Message, link_policy
from policies.links.nic_filling import fill_idle_nics
from policies.model import JobId

MOST_FREE_ITERATIONS = 1000
FREE_AT_FIRST = 0.5
"""A new job may send freely for this fraction of the time since it joined, at most `free_seconds`."""


class Broker:
    """The jobs at the gate, their requests, and their leases."""

    def __init__(self, settings: GateSettings, *, first_fence: int = 1, now: float = 0.0) -> None:
        self.settings = settings
        self.seats: dict[JobId, JobAtGate] = {}
        self.nics: dict[str, Nic] = {}
        self.counts = {"asks": 0, "grants": 0, "free": 0, "opened": 0, "stalled": 0, "late": 0, "meetings": 0}
        self.timings = Timings(settings.link)
        self.gains: dict[JobId, float] = {}
        self.bucket_bytes = settings.grant_bytes
        self._planned: dict[JobId, float] = {}
        self._policy = self._new_policy()
        self._fence = first_fence
        self._leasing: dict[JobId, JobAtGate] = {}
        self._changed: set[str] = set()
        self._stalled_cards = frozenset[str]()
        self._round = 0
        self.looks_again_at = now
        """When the link is fitted next; after that, each card is judged again at its next change."""

    @property
    def policy(self) -> LinkPolicy:
        """The link policy, with the present estimate of the link's constants."""
        return self._policy

    def join(self, job: JobId, *, nics: frozenset[str], gpus: int, weight: float, now: float) -> None:
        """Add a job; replace one of the same name, whose connection has died."""
        self.leave(job, now)
        seat = JobAtGate(
            job=job,
            nics=nics,
            gpus=gpus,
            weight=weight,
            joined_at=now,
            planned_gpu_seconds=self._planned.get(job),
        )
        self.seats[job] = seat
        for name in nics:
            self.nics.setdefault(name, Nic(name)).jobs.add(job)
        self._begin_anew(nics, now)

    def leave(self, job: JobId, now: float) -> None:
        """Remove a job and end its lease."""
        seat = self.seats.pop(job, None)
        if seat is None:
            return
        self._release(seat, now)
        self.gains.pop(job, None)
        for name in seat.nics:
            self.nics[name].jobs.discard(job)
            if not self.nics[name].jobs:
                del self.nics[name]
        self._begin_anew(seat.nics, now)

    def _parts(self, cards: Iterable[str]) -> Iterator[list[JobAtGate]]:
        """Yield groups of linked jobs that cover all jobs on these cards, each in the order of joining.

        Jobs of one group are linked by shared cards, directly or via others; jobs of two groups are not.
        """
        found = set[str]()
        for card in sorted(cards):
            if card not in found:
                part = [self.seats[job] for job in linked_jobs(card, self.nics, self.seats)]
                found.update(*(seat.nics for seat in part))
                yield sorted(part, key=lambda seat: (seat.joined_at, seat.job))

    def _begin_anew(self, cards: frozenset[str], now: float) -> None:
        """For all jobs linked to these cards: discard times measured beside neighbours, and judge anew."""
        for part in self._parts(cards):
            for seat in part:
                seat.forget_paces()
                for name in seat.nics:
                    self.nics[name].forget_attempts()
            self._judge(part, now)

    def ask(self, job: JobId, ask: SendRequest, now: float) -> None:
        """Record a request, which `settle` answers. A request from a job with a lease ends the lease."""
        seat = self.seats[job]
        self._release(seat, now)
        seat.ask, seat.asked_at, seat.computes_since = ask, now, None
        knew = seat.compute_seconds is not None, seat.has_shown(in_order=False)
        seat.learn(ask, now)
        if (seat.compute_seconds is not None, seat.has_shown(in_order=False)) != knew:
            # Judge anew: the first verdict, or the end of a trial, needed these measurements.
            for name in seat.nics:
                self.nics[name].judged_in = None
        self.counts["asks"] += 1
        met = False
        for name in seat.nics:
            nic = self.nics[name]
            busy = bool(nic.in_flight)
            nic.count(met=busy)
            met |= busy
        self.counts["meetings"] += met
        self._changed |= seat.nics

    def done(self, job: JobId, fence: int, seconds: float | None, now: float) -> None:
        """End a lease, unless the fence is outdated; `seconds` is how long the message took."""
        seat = self.seats[job]
        lease = seat.lease
        if lease is None or lease.fence != fence:
            self.counts["late"] += 1
            return
        if not lease.is_mixed and seconds is not None:
            self.timings.add(messages_at_once=lease.crowd, message_bytes=lease.bytes, seconds=seconds)
        self._release(seat, now)

    def cancel(self, job: JobId, now: float) -> None:
        """Withdraw a job's request, and a lease that may have crossed with it: the job sends without one."""
        seat = self.seats[job]
        seat.ask = None
        self._release(seat, now)

    def take_plan(self, remaining_gpu_seconds: Mapping[JobId, float]) -> None:
        """Use the plan's remaining GPU-seconds for jobs that do not report their own, until the next plan."""
        self._planned = dict(remaining_gpu_seconds)
        for job, seat in self.seats.items():
            seat.planned_gpu_seconds = self._planned.get(job)

    def settle(self, now: float) -> list[Grant]:
        """Return the grants that are due. Call this after every change, and at `next_wake`."""
        self._expire(now)
        self._hand_over(now)
        if now >= self.looks_again_at:
            self._look_again(now)
        opened, self._stalled_cards = self._stalled_cards, frozenset()
        grants = [grant for part in self._parts(self._changed) for grant in self._serve(part, opened, now)]
        self._changed = set()
        return grants

    def _serve(self, part: Sequence[JobAtGate], opened: frozenset[str], now: float) -> list[Grant]:
        """Return the grants that are due to one group of linked jobs."""
        if any(self.nics[name].judged_in != self._round for seat in part for name in seat.nics):
            self._judge(part, now)
        waiting = [seat for seat in part if seat.ask is not None]
        grants = [self._free_grant(seat, now) for seat in self._ungated(waiting)]
        # Jobs that waited for a stalled holder: its fault may have stopped others, too.
        stalled = [seat for seat in waiting if seat.ask is not None and seat.nics & opened]
        grants += [self._opened_grant(seat, now) for seat in stalled]
        waiting = [seat for seat in waiting if seat.ask is not None]
        if waiting:
            grants += self._admit(waiting, part, now)
        return grants

    def next_wake(self, now: float) -> float | None:
        """Return when `settle` is due next: a lease expires, or a message should have been sent."""
        leases = [seat.lease for seat in self._leasing.values() if seat.lease is not None]
        instants = [lease.deadline for lease in leases]
        if allows_overlap(self.settings, self.timings.link):
            instants += [lease.ends_at for lease in leases if lease.is_last and not lease.is_handed_over]
        return min(instants, default=None)

    def _ungated(self, waiting: Sequence[JobAtGate]) -> list[JobAtGate]:
        """Return the waiting jobs that send only through cards without ordering."""
        return [seat for seat in waiting if not any(self.nics[name].is_on for name in seat.nics)]

    def _opened_grant(self, seat: JobAtGate, now: float) -> Grant:
        """Let a job send once without a lease, at the same time as others."""
        assert seat.ask is not None
        self.counts["opened"] += 1
        size = max(seat.ask.ready_bytes, seat.ask.message_bytes)
        return self._answer(seat, now, size=size, free=1)

    def _hand_over(self, now: float) -> None:
        """Free the cards of messages that should have been sent by now, before the end is reported.

        The next job can then start without a pause on the link. If overlapping messages slow the link down,
        or the job has more to send, the gate waits for the report.
        """
        if not allows_overlap(self.settings, self.timings.link):
            return
        for seat in self._leasing.values():
            lease = seat.lease
            if (
                lease is not None
                and lease.is_last
                and not lease.is_handed_over
                and lease.ends_at <= now + 1e-9
            ):
                lease.advance(now)
                lease.is_handed_over = True
                for name in lease.servers:
                    self.nics[name].in_flight.discard(seat.job)
                self._recount(lease.servers, now)
                self._changed |= lease.servers

    def _admit(self, waiting: Sequence[JobAtGate], part: Sequence[JobAtGate], now: float) -> list[Grant]:
        """Let the policy choose the messages that start, given those in flight on their cards."""
        most = self.bucket_bytes
        link = self.timings.link
        gated = {seat.job: frozenset(name for name in seat.nics if self.nics[name].is_on) for seat in waiting}
        met = {job for servers in gated.values() for name in servers for job in self.nics[name].in_flight}
        for job in met:
            lease = self.seats[job].lease
            assert lease is not None
            lease.advance(now)
        asked = {
            seat.job: seat.waiting(link, now, servers=gated[seat.job], most_bytes=most) for seat in waiting
        }
        admission = self._policy.admit(
            list(asked.values()), [self.seats[job].sending(link, now) for job in sorted(met)]
        )
        grants = [self._grant(self.seats[job], gated[job], now) for job in admission.start]
        while self.settings.fills and (extra := self._fill(asked, gated, part, now)):
            grants += [self._grant(self.seats[message.job], gated[message.job], now) for message in extra]
        return grants

    def _fill(
        self,
        asked: Mapping[JobId, Message],
        gated: Mapping[JobId, frozenset[str]],
        part: Sequence[JobAtGate],
        now: float,
    ) -> tuple[Message, ...]:
        """Return messages that may start beside those in flight, because a card would idle otherwise."""
        link = self.timings.link
        left = [message for job, message in asked.items() if self.seats[job].ask is not None and gated[job]]
        reserved = self._policy.reserved(left)
        left = [message for message in left if reserved.isdisjoint(message.servers)]
        flying = [
            seat.sending(link, now)
            for seat in part
            if seat.lease is not None and not seat.lease.is_handed_over
        ]
        crowding = link.contention_seconds_per_byte / link.seconds_per_byte
        return fill_idle_nics(left, flying, crowding=crowding) if left else ()

    def _grant(self, seat: JobAtGate, servers: frozenset[str], now: float) -> Grant:
        assert seat.ask is not None
        self._fence += 1
        size = seat.wanted_bytes(self.bucket_bytes)
        if self.settings.fills:
            others = {job for name in servers for job in self.nics[name].jobs} - {seat.job}
            reach = undisturbed_bytes(seat, [self.seats[job] for job in others], self.timings.link, now)
            size = min(seat.ask.ready_bytes, max(size, reach))
        link = self.timings.link
        expected = link.seconds(size, messages_at_once=max(2, self._policy.max_at_once))
        lease_seconds = self.settings.lease_seconds(expected)
        seat.lease = Lease(
            fence=self._fence,
            bytes=size,
            servers=servers,
            bytes_left=size,
            deadline=now + lease_seconds,
            updated_at=now,
            seconds_per_byte=link.seconds_per_byte,
            crowd=0,
            is_last=size >= max(seat.ask.ready_bytes, seat.ask.message_bytes),
        )
        self._leasing[seat.job] = seat
        for name in servers:
            self.nics[name].in_flight.add(seat.job)
        self._recount(servers, now)
        self.counts["grants"] += 1
        seat.leases += 1
        return self._answer(seat, now, fence=self._fence, size=size, lease_seconds=lease_seconds, free=0)

    def _free_grant(self, seat: JobAtGate, now: float) -> Grant:
        """Let a job send without asking for `free_seconds`; less at first, because others may join soon."""
        assert seat.ask is not None
        habits = seat.habits(self.timings.link, self.bucket_bytes)
        free = 1
        if habits is not None and any(self.nics[name].attempt_ends_at is not None for name in seat.nics):
            free = LEAST_TIMED
        elif habits is not None:
            seconds = min(self.settings.free_seconds, FREE_AT_FIRST * (now - seat.joined_at))
            free = math.ceil(seconds / max(habits.alone_seconds, 1e-4))
        self.counts["free"] += 1
        size = max(seat.ask.ready_bytes, seat.ask.message_bytes)
        return self._answer(seat, now, size=size, free=max(1, min(MOST_FREE_ITERATIONS, free)))

    def _answer(
        self,
        seat: JobAtGate,
        now: float,
        *,
        fence: int = 0,
        size: float,
        lease_seconds: float = 0.0,
        free: int,
    ) -> Grant:
        assert seat.ask is not None
        ask, seat.ask = seat.ask, None
        seat.grants += 1
        seat.answered(free)
        seat.waited_seconds += now - seat.asked_at
        return Grant(
            job=seat.job,
            id=ask.id,
            fence=fence,
            bytes=size,
            lease_seconds=lease_seconds,
            free_iterations=free,
            overhead_fraction=overhead_fraction(self.nics[name] for name in seat.nics),
        )

    def _release(self, seat: JobAtGate, now: float) -> None:
        lease, seat.lease = seat.lease, None
        if lease is None:
            return
        del self._leasing[seat.job]
        seat.computes_since = now
        for name in lease.servers:
            if name in self.nics:
                self.nics[name].in_flight.discard(seat.job)
        self._recount(lease.servers, now)
        self._changed |= lease.servers

    def _recount(self, servers: frozenset[str], now: float) -> None:
        """Update the estimated pace of all messages on these cards."""
        for job in {job for name in servers if name in self.nics for job in self.nics[name].in_flight}:
            lease = self.seats[job].lease
            assert lease is not None
            crowd = max(len(self.nics[name].in_flight) for name in lease.servers)
            if crowd != lease.crowd:
                lease.advance(now)
                lease.is_mixed |= lease.crowd > 0
                lease.crowd = crowd
                lease.seconds_per_byte = self.timings.link.pace(crowd)

    def _expire(self, now: float) -> None:
        for seat in list(self._leasing.values()):
            if seat.lease is not None and seat.lease.deadline <= now:
                seat.stalls += 1
                self.counts["stalled"] += 1
                self._stalled_cards |= seat.lease.servers
                self._release(seat, now)

    def _look_again(self, now: float) -> None:
        """Fit the link anew; judge cards with waiting jobs now, and the others at their next change."""
        self.looks_again_at = now + self.settings.evaluate_seconds
        self._round += 1
        if self.settings.fits_link and self.timings.refit():
            self._policy = self._new_policy()
        self.bucket_bytes = bucket_bytes(self.settings, self.seats.values(), self.timings.link)
        for seat in self.seats.values():
            if seat.ask is not None:
                self._changed |= seat.nics

    def _judge(self, part: Sequence[JobAtGate], now: float) -> None:
        """Decide for each card of a group whether its messages are ordered."""
        link, most = self.timings.link, self.bucket_bytes
        jobs = sorted(seat.job for seat in part)
        worked_out: dict[tuple[JobId, ...], OrderingGain] = {}
        for name in {name for seat in part for name in seat.nics}:
            nic = self.nics[name]
            nic.verdict = judge(
                nic, self.seats, self.settings, link, most, linked=jobs, now=now, worked_out=worked_out
            )
            nic.judged_in = self._round
            self._changed.add(name)
        for job in jobs:
            self.gains.pop(job, None)
        self.gains |= {job: gain for worth in worked_out.values() for job, gain in worth.gains.items()}

    def _new_policy(self) -> LinkPolicy:
        settings = self.settings
        bucket = settings.grant_bytes if math.isfinite(settings.grant_bytes) else None
        return link_policy(
            settings.policy,
            self.timings.link,
            bucket_bytes=bucket,
            max_wait_seconds=settings.patience_seconds,
        )
