"""Filling idle network cards: start one or two further messages if a card would otherwise idle.

A message needs all of its cards at once. If each card carries one message at a time, three pairs of hosts
that form a triangle use two of three cards: while 1-2 sends, 3 idles, and the messages that need 3 wait for 1
or 2. If all three send at once, each card is shared by two, and each message has half the speed: 1.5 messages
at a time instead of one. So after the ordered messages, one or two further messages start if two conditions
hold at the resulting speeds:

    more throughput         sum_i p_i  rises,  p_i = 1 / (k_i + (k_i - 1) eta / b)
    and earlier ends        sum_i p_i / R_i  rises by a fifth,  R_i = remaining service over weight

The first never holds for messages that share all of their cards, so nothing changes for them. The second sum
is the rate at which jobs end; the condition keeps the link of a nearly finished job free. Both sums are over
the messages that the caller passes: those connected by shared cards, because other messages in the cluster do
not affect these.

    symbol   here       meaning
    k_i      crowd      messages on the most crowded card of message i, itself included
    p_i      pace       speed of message i relative to its speed alone
    R_i      rank       remaining service over weight

Cost: O(w^2 f) for w waiting messages and f in flight; only the best `MOST_TRIED` waiting ones are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import combinations

from policies.links.ada_srsf import LEAST_RANK, Message

MOST_TRIED = 8
MARGIN = 1e-9
LEAST_GAIN = 1.2
"""The least factor on the rate at which jobs end: further messages block the cards of the next requests."""


def relative_speeds(messages: Sequence[Message], *, crowding: float) -> list[float]:
    """Return each message's speed relative to its speed alone, with all in flight; `crowding` is eta / b."""
    on: Counter[Hashable] = Counter(server for message in messages for server in message.servers)
    crowds = [max((on[server] for server in message.servers), default=1) for message in messages]
    return [1.0 / (crowd + (crowd - 1) * crowding) for crowd in crowds]


def fill_idle_nics(
    waiting: Sequence[Message], in_flight: Sequence[Message], *, crowding: float
) -> tuple[Message, ...]:
    """Return the messages, at most two, that should start in addition to those in flight."""
    if not in_flight:
        return ()
    tried = sorted(waiting, key=lambda message: message.rank)[:MOST_TRIED]
    moved, ended = _rates(in_flight, crowding)
    best: tuple[Message, ...] = ()
    for size in (1, 2):
        for group in combinations(tried, size):
            more, sooner = _rates([*in_flight, *group], crowding)
            if more > moved + MARGIN and sooner > ended * LEAST_GAIN:
                best, ended = group, sooner
    return best


def _rates(messages: Sequence[Message], crowding: float) -> tuple[float, float]:
    """Return (total relative speed, rate at which jobs end)."""
    found = relative_speeds(messages, crowding=crowding)
    return sum(found), sum(
        pace / max(message.rank, LEAST_RANK) for pace, message in zip(found, messages, strict=True)
    )
