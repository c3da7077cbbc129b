"""Ada-SRSF: of the jobs whose messages are ready, the one with the least remaining service sends first.

Source: Wang, Shi, Wang, Chu, arXiv 2002.10105, Ada-SRSF. Whenever something changes, ready messages are
visited by remaining service of their job (remaining time x GPUs, over its weight), and each may start if the
policy's test allows it on all of its servers:

    policy             test, with c = messages in flight on the most crowded of its servers
    srsf-n             c < n
    ada-srsf           c = 0, or c = 1 and AdaDUAL (policies/links/adadual.py) says yes for each message met
    ada-srsf-weighted  the same, AdaDUAL with weights: a job's weight over its remaining service
    ada-srsf-queue     the same, AdaDUAL with the messages that wait for the link
    ada-srsf-buckets   ada-srsf on buckets of `bucket_bytes`: the order is decided again after each bucket
    srsf-preemptive    no better-ranked message wants the server; worse ones in flight are paused (the ideal)

Least service first can starve a large job. So a message that has waited longer than `max_wait_seconds` goes
before all others, oldest first, and reserves its servers, so that no other message starts there while it
waits for the last of them. It then waits only for messages in flight and for those overdue before it. The
limit is infinite in the paper.

With `is_strict`, SRSF(n) is read to the letter: the ready message with the least service is taken, and while
it may not start, no message behind it starts, not even on idle servers. Without it a worse message may pass.

    symbol   here                     meaning
    R_j      service_seconds          remaining time of the job x its GPUs
    w_j      weight                   how much the job counts
    S_j      servers                  servers the message passes through
    n        max_at_once              messages allowed on one server at once

Cost: O(m log m + m s r) for m messages over s servers with r in flight on each.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from policies.errors import InvalidProblem, UnknownPolicy
from policies.links import adadual
from policies.links.contention import Link
from policies.model import JobId

LEAST_BUCKET_BYTES = 25_000_000
"""The bucket size of data-parallel training."""
LATENCIES_PER_BUCKET = 30
"""A default bucket takes at least this many latencies to send, so buckets cost at most about 3 %."""
LEAST_RANK = 1e-9
"""Lower limit of a rank whose inverse is used as a weight."""

AdmissionRule = Literal["plain", "weighted", "queue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """An all-reduce, or the bucket of one, that is ready or in flight."""

    job: JobId
    servers: frozenset[Hashable]
    bytes_left: float
    service_seconds: float
    weight: float = 1.0
    waited_seconds: float = 0.0

    @property
    def rank(self) -> float:
        """Remaining service over weight: the lowest goes first."""
        return self.service_seconds / self.weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The changes to make now: jobs whose messages start, in order, and jobs whose messages must pause."""

    start: tuple[JobId, ...]
    pause: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPolicy:
    """Decides which ready messages may start, given those in flight.

    `threshold` is AdaDUAL's, used when a message would meet another: 0 never overlaps, infinity always does.
    """

    link: Link
    max_at_once: int = 2
    threshold: float = math.inf
    rule: AdmissionRule = "plain"
    preempts: bool = False
    bucket_bytes: float = math.inf
    max_wait_seconds: float = math.inf
    is_strict: bool = False

    def __post_init__(self) -> None:
        if self.max_at_once < 1:
            raise InvalidProblem(f"max_at_once must be 1 or more; got {self.max_at_once}")
        if self.preempts and self.max_at_once != 1:
            raise InvalidProblem("a policy that pauses messages sends one at a time: max_at_once must be 1")
        if self.preempts and self.is_strict:
            raise InvalidProblem("a policy that pauses messages has no line to keep: is_strict must be false")
        if not self.threshold >= 0.0:
            raise InvalidProblem(f"the AdaDUAL threshold must be zero or more; got {self.threshold!r}")
        if not self.bucket_bytes > 0.0:
            raise InvalidProblem(f"bucket_bytes must be more than zero; got {self.bucket_bytes!r}")
        if not self.max_wait_seconds >= 0.0:
            raise InvalidProblem(f"max_wait_seconds must be zero or more; got {self.max_wait_seconds!r}")

    def admit(self, waiting: Sequence[Message], in_flight: Sequence[Message]) -> Admission:
        """Return which messages start now, best first, and which pause.

        Of equal ranks the message earlier in `waiting` wins (preemptive: in flight before waiting).
        """
        if self.preempts:
            return self._preempt(waiting, in_flight)
        sending: defaultdict[Hashable, list[Message]] = defaultdict(list)
        for message in in_flight:
            for server in message.servers:
                sending[server].append(message)
        queued = list(waiting)
        reserved: set[Hashable] = set()
        started: list[JobId] = []
        for message in sorted(waiting, key=self._order):
            if reserved.isdisjoint(message.servers) and self._may_start(message, sending, queued):
                started.append(message.job)
                queued.remove(message)
                for server in message.servers:
                    sending[server].append(message)
            elif self.is_strict:
                break
            elif self._is_overdue(message):
                reserved |= message.servers
        return Admission(start=tuple(started))

    def reserved(self, waiting: Iterable[Message]) -> frozenset[Hashable]:
        """Return the servers that overdue messages wait for; no other message may start on them."""
        return frozenset[Hashable]().union(*(m.servers for m in waiting if self._is_overdue(m)))

    def _order(self, message: Message) -> tuple[bool, float]:
        """Return the sort key: overdue messages first, oldest first; then by rank."""
        if self._is_overdue(message):
            return (False, -message.waited_seconds)
        return (True, message.rank)

    def _is_overdue(self, message: Message) -> bool:
        """Return whether the message has waited long enough to go before all others."""
        return message.waited_seconds > self.max_wait_seconds

    def _may_start(
        self, message: Message, sending: Mapping[Hashable, list[Message]], queued: Sequence[Message]
    ) -> bool:
        """Return whether the message passes the policy's test on all of its servers."""
        met = {server: sending.get(server, []) for server in message.servers}
        if any(len(others) >= self.max_at_once for others in met.values()):
            return False
        behind = self._waiting_weight(message, queued) if self.rule == "queue" else 0.0
        return all(
            adadual.overlap_pays(message.bytes_left, other.bytes_left, self._ratio(message, other, behind))
            for others in met.values()
            for other in others
        )

    def _ratio(self, new: Message, old: Message, behind: float) -> float:
        """Return the threshold between two messages under the policy's rule."""
        if self.rule == "plain":
            return self.threshold
        new_weight, old_weight = 1.0, 1.0
        if self.rule == "weighted":
            new_weight, old_weight = 1.0 / max(new.rank, LEAST_RANK), 1.0 / max(old.rank, LEAST_RANK)
        link = self.link
        return adadual.threshold(
            link.seconds_per_byte, link.contention_seconds_per_byte, new_weight, old_weight, behind
        )

    @staticmethod
    def _waiting_weight(message: Message, queued: Sequence[Message]) -> float:
        """Return how many other messages wait for the message's most wanted server."""
        wanted = Counter(
            s for other in queued if other is not message for s in other.servers & message.servers
        )
        return float(max(wanted.values(), default=0))

    def _preempt(self, waiting: Sequence[Message], in_flight: Sequence[Message]) -> Admission:
        """Give servers in order of rank to the messages that get all of their servers; the rest pause."""
        taken: set[Hashable] = set()
        flying = {id(message) for message in in_flight}
        start, kept = [], set()
        for message in sorted([*in_flight, *waiting], key=self._order):
            if taken.isdisjoint(message.servers):
                taken |= message.servers
                if id(message) in flying:
                    kept.add(id(message))
                else:
                    start.append(message.job)
        pause = tuple(message.job for message in in_flight if id(message) not in kept)
        return Admission(start=tuple(start), pause=pause)


LINK_POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "srsf-1": "one message per server at a time",
        "srsf-2": "at most two",
        "srsf-3": "at most three",
        "ada-srsf": "the paper's rule",
        "ada-srsf-weighted": "the paper's rule, weighted by priority",
        "ada-srsf-queue": "the paper's rule, aware of the queue",
        "ada-srsf-buckets": "the paper's rule on buckets",
        "srsf-preemptive": "the ideal: a better-ranked message pauses a worse one",
    }
)
"""Every link policy by name, with a short description."""

STRICT_LINK_POLICIES = ("srsf-1", "srsf-2", "srsf-3")
"""The link policies that can be read to the letter: a message never passes a better one that waits."""

DEFAULT_LINK_POLICY = "ada-srsf-buckets"


def default_bucket_bytes(link: Link) -> float:
    """Return the bucket size for a link: 25 MB, or more if that takes less than 30 latencies to send."""
    return max(LEAST_BUCKET_BYTES, LATENCIES_PER_BUCKET * link.latency_seconds / link.seconds_per_byte)


def link_policy(
    name: str,
    link: Link,
    *,
    threshold: float | None = None,
    bucket_bytes: float | None = None,
    max_wait_seconds: float = math.inf,
    is_strict: bool = False,
) -> LinkPolicy:
    """Return the policy of that name for a link.

    `threshold` replaces AdaDUAL's b / (2 (b + eta)) in `ada-srsf` and `ada-srsf-buckets`; `bucket_bytes`
    replaces `default_bucket_bytes(link)`. `is_strict` is for `STRICT_LINK_POLICIES`.

    Raises:
        UnknownPolicy: when there is none of that name.
        InvalidProblem: when the policy has no strict reading, or a value is out of range.
    """
    if name not in LINK_POLICIES:
        raise UnknownPolicy(f"there is no link policy {name!r}. Choose one of {', '.join(LINK_POLICIES)}")
    if is_strict and name not in STRICT_LINK_POLICIES:
        raise InvalidProblem(f"{name} has no strict reading; {', '.join(STRICT_LINK_POLICIES)} have one")
    if name.startswith("srsf-"):
        how = name.removeprefix("srsf-")
        preempts = how == "preemptive"
        return LinkPolicy(
            link=link,
            max_at_once=1 if preempts else int(how),
            preempts=preempts,
            max_wait_seconds=max_wait_seconds,
            is_strict=is_strict,
        )
    ratio = adadual.threshold(link.seconds_per_byte, link.contention_seconds_per_byte)
    bucket = default_bucket_bytes(link) if bucket_bytes is None else bucket_bytes
    rules: Mapping[str, AdmissionRule] = {"ada-srsf-weighted": "weighted", "ada-srsf-queue": "queue"}
    return LinkPolicy(
        link=link,
        threshold=ratio if threshold is None else threshold,
        rule=rules.get(name, "plain"),
        bucket_bytes=bucket if name == "ada-srsf-buckets" else math.inf,
        max_wait_seconds=max_wait_seconds,
    )
