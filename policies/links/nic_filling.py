"""Filling idle cards: messages that start beside the first one, because a card would idle otherwise.

A message needs all of its cards at once. In order, one at a time on each card, the pairs of a triangle of
hosts use two cards of three: while 1-2 sends, 3 idles, and whoever wants 3 waits for 1 or 2. All three at
once share each card between two, and move half as fast: 1.5 messages at a time in place of one. So after the
order has been served, one or two further messages start where two things hold at the paces that all would
then have:

    more moves              sum_i p_i  rises,  p_i = 1 / (k_i + (k_i - 1) eta / b)
    and ends come sooner    sum_i p_i / R_i  rises by a fifth,  R_i = remaining service over weight

The first is never so where the messages share all of their cards: there it changes nothing. The second is the
rate at which jobs end, in shortest remaining service first, and keeps a nearly finished job's link to itself.
Both sums are over whoever the caller hands in: the messages that cards link with each other, for what moves
elsewhere in a cluster is nothing to these.

    symbol   here       meaning
    k_i      crowd      messages on the most crowded card of message i, itself included
    p_i      pace       part of the speed that message i has alone
    R_i      rank       remaining service over weight

Cost: O(w^2 f) for w messages that wait and f in flight; the best `MOST_TRIED` that wait are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import combinations

from policies.links.ada_srsf import LEAST_RANK, Message

MOST_TRIED = 8
MARGIN = 1e-9
LEAST_GAIN = 1.2
"""Jobs must come to their end so much faster: soon the next ones ask, and find their cards taken."""


def relative_speeds(messages: Sequence[Message], *, crowding: float) -> list[float]:
    """Return which part of its speed each message has while all are in flight; `crowding` is eta / b."""
    on: Counter[Hashable] = Counter(server for message in messages for server in message.servers)
    crowds = [max((on[server] for server in message.servers), default=1) for message in messages]
    return [1.0 / (crowd + (crowd - 1) * crowding) for crowd in crowds]


def fill_idle_nics(
    waiting: Sequence[Message], in_flight: Sequence[Message], *, crowding: float
) -> tuple[Message, ...]:
    """Return the messages, at most two, that should start beside those in flight; none where none should."""
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
    """Return how much moves, and how fast jobs come to their end."""
    found = relative_speeds(messages, crowding=crowding)
    return sum(found), sum(
        pace / max(message.rank, LEAST_RANK) for pace, message in zip(found, messages, strict=True)
    )
