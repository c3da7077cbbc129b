"""The average slowdown of jobs by shared links, for iterations that compute, send and compute again.

A job that spans nodes sends one message per iteration. Alone, an iteration takes  t + c  with  c = a + b M
(see `contention`), so its speed is  1 / (1 + c / t)  of that on one node. Other jobs on its nodes' links make
c longer. Over many iterations with drifting phases only the averages matter:

    in order   better-ranked jobs send first, so a job gets the rest of its busiest link:
               c' = c / (1 - sum u_j),  u_j = c_j / (iteration of j), over the better-ranked j
    unordered  all messages in flight share: c' = k c + (k - 1) (eta / b) c,  k = 1 + sum u_j over all others

    symbol   here             meaning
    t        compute_seconds  forward and backward of one iteration on each GPU
    c / t    share            seconds of sending, alone, per second of computing
    u_j      busy             fraction of time that job j uses its links
    k        crowd            mean number of messages in flight, itself included

This is the mean-field form of the iteration-level model of `contention`. Compared with that model on the
paper's job mix, the mean completion time is within 5 % (in order) and 10 % (unordered), for two to three jobs
that share their links from start to end (`tests/simulation/test_link_share.py`).
Cost: O(sum over jobs of their nodes), times `ROUNDS` if unordered.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

import numpy as np

from policies.links.contention import Link
from policies.model import AllReduce, JobId
from policies.speedup import SpeedupCurve, Table

Server = TypeVar("Server", bound=Hashable)

LEAST_LEFT = 0.05
"""The least share of a link that a job gets: ageing lets even the last job send."""
ROUNDS = 8
"""Rounds of the fixed-point iteration for unordered messages; each contracts by more than half."""


def network_share(link: Link, need: AllReduce) -> float:
    """Return c / t: seconds of sending per second of computing for a job alone on its links."""
    return link.seconds(need.message_bytes) / need.compute_seconds


def across_nodes(curve: SpeedupCurve, *, gpus_per_node: int, share: float) -> SpeedupCurve:
    """Return the curve with speeds beyond one node reduced by the link; a measured table is unchanged.

    The answer is a table of the curve's whole widths, because the speed drops at the second node.
    """
    if isinstance(curve, Table) or curve.max_gpus <= gpus_per_node:
        return curve
    widths = curve.whole_widths()
    speeds = np.where(widths > gpus_per_node, curve.speed_at(widths) / (1.0 + share), curve.speed_at(widths))
    return Table(gpus=tuple(widths.tolist()), speeds=tuple(speeds.tolist()))


def slowdowns(
    servers_of: Mapping[JobId, Collection[Server]],
    shares: Mapping[JobId, float],
    *,
    crowding: float = 0.0,
    in_order: bool = True,
) -> dict[JobId, float]:
    """Return the slowdown of each job that sends, relative to the job alone on the same nodes; 1 or more.

    `servers_of` are the servers of every job that spans several, best-ranked jobs first; `shares` is c / t of
    each job; `crowding` is eta / b of the link, used only if not `in_order`. For a job with links of several
    speeds, `servers_of` maps each link to the part of c that the message takes there: 1 on the slowest.
    """
    taken = {
        job: servers if isinstance(servers, Mapping) else dict.fromkeys(servers, 1.0)
        for job, servers in servers_of.items()
    }
    if in_order:
        return _in_order(taken, shares)
    return _unordered(taken, shares, crowding)


def _in_order(
    servers_of: Mapping[JobId, Mapping[Server, float]], shares: Mapping[JobId, float]
) -> dict[JobId, float]:
    """Return the slowdowns if better-ranked jobs send first."""
    busy: dict[Server, float] = {}
    factors: dict[JobId, float] = {}
    for job, servers in servers_of.items():
        left = max(LEAST_LEFT, min((1.0 - busy.get(server, 0.0)) / part for server, part in servers.items()))
        sending = shares[job] / left
        factors[job] = (1.0 + sending) / (1.0 + shares[job])
        for server, part in servers.items():
            busy[server] = busy.get(server, 0.0) + part * (shares[job] / (1.0 + sending))
    return factors


def _unordered(
    servers_of: Mapping[JobId, Mapping[Server, float]], shares: Mapping[JobId, float], crowding: float
) -> dict[JobId, float]:
    """Return the slowdowns if all messages in flight share, by a damped fixed-point iteration."""
    sending = {job: shares[job] for job in servers_of}
    for _ in range(ROUNDS):
        uses = {job: sending[job] / (1.0 + sending[job]) for job in servers_of}
        busy: dict[Server, float] = {}
        for job, servers in servers_of.items():
            for server, part in servers.items():
                busy[server] = busy.get(server, 0.0) + part * uses[job]
        for job, servers in servers_of.items():
            crowd = max(
                part * (1.0 + (busy[server] - part * uses[job]) * (1.0 + crowding))
                for server, part in servers.items()
            )
            longer = shares[job] * crowd
            sending[job] = 0.5 * (sending[job] + longer)
    return {job: (1.0 + sending[job]) / (1.0 + shares[job]) for job in servers_of}
