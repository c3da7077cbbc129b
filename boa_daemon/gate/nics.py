"""The gate's view of each network card: its jobs, how often messages meet, and whether ordering pays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from boa_daemon.gate.job_state import LEAST_TIMED, JobAtGate
from boa_daemon.gate.ordering_gain import JobTraffic, OrderingGain
from boa_daemon.gate.types import GateSettings, NicVerdict
from boa_daemon.job.gate.allowance import MOST_FRACTION, OVERHEAD_FRACTION
from policies.links.contention import Link
from policies.model import JobId

MEETING_SMOOTHING = 0.02
"""Weight of the newest request in the fraction of requests that met another message."""
MOST_JUDGED = 12
"""Most jobs in one estimate of the gain, which takes 3 ms then."""
MOST_ATTEMPT_LOSS = 0.0075
"""A trial without order may cost this fraction of the mean JCT, if ordering saves what is expected."""
MOST_ATTEMPT_FACTOR = 4.0
"""A trial ends after this multiple of its iterations' time alone, even if some job has not been timed."""
ATTEMPT_EVERY_SECONDS = 300.0
KEEPS_ON = 0.5
"""A card that is on stays on until the gain falls below this fraction of the threshold for turning it on."""


@dataclass(slots=True)
class Nic:
    """A network card, the jobs that send through it, and those of them that are sending."""

    name: str
    jobs: set[JobId] = field(default_factory=set)
    in_flight: set[JobId] = field(default_factory=set)
    meeting_fraction: float = 0.0
    asks: int = 0
    verdict: NicVerdict | None = None
    attempt_ends_at: float | None = None
    """End of a trial in which jobs send at once, to measure what ordering saves; None outside a trial."""
    attempted_at: float | None = None
    judged_in: int | None = None
    """The round in which the verdict was reached; None if the card is to be judged anew."""

    def forget_attempts(self) -> None:
        """Forget trials, because jobs came or went."""
        self.attempt_ends_at, self.attempted_at = None, None

    def count(self, *, met: bool) -> None:
        """Count a request, and whether it met a message in flight."""
        self.asks += 1
        self.meeting_fraction += MEETING_SMOOTHING * (float(met) - self.meeting_fraction)

    @property
    def is_on(self) -> bool:
        """Whether messages on the card are ordered."""
        return self.verdict is not None and self.verdict.is_on


def judge(
    nic: Nic,
    seats: Mapping[JobId, JobAtGate],
    settings: GateSettings,
    link: Link,
    most_bytes: float,
    *,
    linked: Sequence[JobId],
    now: float,
    worked_out: dict[tuple[JobId, ...], OrderingGain],
) -> NicVerdict:
    """Return whether messages on a card should be ordered, and why.

    `linked` are the jobs that shared cards link with this card. `worked_out` caches gains by jobs, because
    several cards may have the same linked jobs.
    """
    jobs = len(nic.jobs)

    def verdict(is_on: bool, why: str, gain: float | None = None, cost: float | None = None) -> NicVerdict:
        return NicVerdict(
            nic=nic.name, is_on=is_on, why=why, jobs=jobs, gain_fraction=gain, cost_fraction=cost
        )

    if settings.is_always_on:
        return verdict(True, "always on by configuration")
    if jobs < 2:
        return verdict(False, "one job sends here: nothing to order")
    known = [seats[job].habits(link, most_bytes) for job in linked]
    habits = [habit for habit in known if habit is not None]
    if len(habits) < len(linked):
        return verdict(
            True,
            f"learning: {len(linked) - len(habits)} of {len(linked)} jobs have not measured an iteration yet",
        )
    # Only the jobs that send most count: an estimate with more would keep the gate from answering requests.
    habits = sorted(habits, key=lambda habit: (-habit.share, habit.job))[:MOST_JUDGED]
    key = tuple(habit.job for habit in habits)
    # Do not compare measured with expected times: only measured ones contain all that slows a job down.
    are_both_seen = _all_seen(True, key, seats) and _all_seen(False, key, seats)
    if key not in worked_out:
        crowding = link.contention_seconds_per_byte / link.seconds_per_byte
        ways = (True, False) if are_both_seen else ()
        seen = {way: {job: seats[job].paces[way] for job in key} for way in ways}
        worked_out[key] = OrderingGain.of(habits, crowding=crowding, seen=seen)
    gain, cost = worked_out[key].gain_fraction, worked_out[key].cost_fraction
    # Measured times in order already include the cost of asking.
    beyond_cost = gain if are_both_seen else gain - cost
    bar = settings.least_gain_fraction * (KEEPS_ON if nic.is_on else 1.0)
    figures = f"ordering should save {gain:.1%} of the mean JCT, and asking costs {cost:.1%}"
    _end_attempt(nic, key, seats, now)
    if beyond_cost > bar and _may_attempt(nic, habits, seats, now, beyond_cost):
        _begin_attempt(nic, habits, seats, now)
    if nic.attempt_ends_at is not None:
        return verdict(False, f"trial: messages go at once for a moment, to measure the gain: {figures}")
    if beyond_cost > bar:
        return verdict(True, figures, gain, cost)
    if max(habit.share for habit in habits) < bar:
        return verdict(False, f"the card is fast for these jobs: {figures}", gain, cost)
    return verdict(False, f"ordering cannot pay: {figures}", gain, cost)


def _end_attempt(nic: Nic, jobs: Sequence[JobId], seats: Mapping[JobId, JobAtGate], now: float) -> None:
    """End a trial if enough iterations of each job were timed, or if its time is over."""
    if nic.attempt_ends_at is not None and (now >= nic.attempt_ends_at or _all_seen(False, jobs, seats)):
        nic.attempt_ends_at, nic.attempted_at = None, now


def _may_attempt(
    nic: Nic, habits: Sequence[JobTraffic], seats: Mapping[JobId, JobAtGate], now: float, beyond_cost: float
) -> bool:
    """Return whether a trial may begin; `beyond_cost` is what ordering should save of the mean JCT."""
    if nic.attempt_ends_at is not None or not _all_seen(True, [habit.job for habit in habits], seats):
        return False
    if nic.attempted_at is not None and now < nic.attempted_at + ATTEMPT_EVERY_SECONDS:
        return False
    left = [habit.left_seconds / habit.alone_seconds for habit in habits if habit.left_seconds is not None]
    return beyond_cost * LEAST_TIMED / min(left, default=math.inf) <= MOST_ATTEMPT_LOSS


def _begin_attempt(
    nic: Nic, habits: Sequence[JobTraffic], seats: Mapping[JobId, JobAtGate], now: float
) -> None:
    """Begin a trial: jobs send at once until enough iterations of each were timed."""
    for habit in habits:
        seats[habit.job].forget_pace(in_order=False)
    longest = max(habit.alone_seconds for habit in habits)
    nic.attempt_ends_at = now + MOST_ATTEMPT_FACTOR * LEAST_TIMED * longest


def _all_seen(in_order: bool, jobs: Iterable[JobId], seats: Mapping[JobId, JobAtGate]) -> bool:
    """Return whether enough iterations of all jobs were timed, in order or at once."""
    return all(seats[job].has_shown(in_order=in_order) for job in jobs)


def linked_jobs(card: str, nics: Mapping[str, Nic], seats: Mapping[JobId, JobAtGate]) -> set[JobId]:
    """Return the jobs that can delay each other: those on the card, those that share cards with them, etc.

    Empty if no job sends through the card. Cost: O(cards of the jobs found).
    """
    seen, found = {card}, set[JobId]()
    ahead = list(seen)
    while ahead:
        nic = nics.get(ahead.pop())
        for job in nic.jobs - found if nic is not None else ():
            found.add(job)
            new = seats[job].nics - seen
            seen |= new
            ahead += new
    return found


def overhead_fraction(nics: Iterable[Nic]) -> float:
    """Return the fraction of time that a job on these cards may spend on asking: half its expected gain."""
    verdicts = [nic.verdict for nic in nics if nic.verdict is not None]
    if any(verdict.is_on and verdict.gain_fraction is None for verdict in verdicts):
        # Always on, or still learning: there is no estimate of the gain.
        return MOST_FRACTION
    gains = [verdict.gain_fraction or 0.0 for verdict in verdicts]
    return min(MOST_FRACTION, max(OVERHEAD_FRACTION, 0.5 * max(gains, default=0.0)))
