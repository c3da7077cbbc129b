"""AdaDUAL: start a second message on a busy link only if it is small enough relative to the first.

Source: Wang, Shi, Wang, Chu, arXiv 2002.10105, the two-task theorems. One link carries a message with M1
bytes left; another of M2 bytes is ready. The sum of their finish times, as a function of the second one's
start, rises and then falls until the link is free. So the best start is at once or when the link is free,
never in between. At once is best if and only if

    M2 / M1 < b / (2 (b + eta))

M1 shrinks as it is sent, so a refused message stays refused until the link's load changes, and it is enough
to test on events. With weights w1, w2 of the two jobs and W the summed weight of further messages that wait
for the link (each loses eta M2), the same comparison gives

    M2 / M1 < w2 b / ((w1 + w2)(b + eta) + W eta)

    symbol   here                          meaning
    M1       bytes_left                    bytes left of the message in flight
    M2       message_bytes                 bytes of the ready message
    b        seconds_per_byte              time of a byte on an idle link
    eta      contention_seconds_per_byte   extra time per byte and per further message
    w1, w2   old_weight, new_weight        cost of a second's delay of each job
    W        waiting_weight                the same, summed over messages that wait behind both

The rule is exact for two messages on one link. For a queue of jobs that iterate it is not, and can be worse
than never overlapping. Cost: O(1).
"""

from __future__ import annotations

import math

INFINITY = math.inf


def threshold(
    seconds_per_byte: float,
    contention_seconds_per_byte: float,
    new_weight: float = 1.0,
    old_weight: float = 1.0,
    waiting_weight: float = 0.0,
) -> float:
    """Return the ratio M2 / M1 below which starting at once pays."""
    both = (new_weight + old_weight) * (seconds_per_byte + contention_seconds_per_byte)
    return new_weight * seconds_per_byte / (both + waiting_weight * contention_seconds_per_byte)


def overlap_pays(message_bytes: float, bytes_left: float, ratio: float) -> bool:
    """Return whether a message should start beside one with `bytes_left`, at threshold `ratio`.

    Threshold 0 always waits and infinity never waits, for any sizes.
    """
    return ratio == INFINITY or message_bytes < ratio * bytes_left
