"""The cost of interruptions to a job on the spot market, and the best interval between its checkpoints.

A job of T hours on n nodes, each taken back at a rate per hour, saves a checkpoint after every c hours of
work; a save takes v hours. Most interruptions, at a total rate A, are announced in time for one more save.
The others, at the rate L, lose the work since the last save. After each interruption the job waits for a new
node and restarts.

    E(t)  = ln(1 + A (exp((A + L) t) - 1) / (A + L)) / A      mean hours until t hours are done, save to save
    work  = m E(c + v) + E(T - m c),  m = ceil(T / c) - 1     there is no save after the last stretch
    held  = work exp((A + L) r)                               restarts of r hours are interrupted as well
    hours = held (1 + A b_a + L b_u)                          b: hours of waiting for the new node

Derivation of E: the first interruption comes after x hours, and then E(t - x) hours are left if it was
announced, E(t) if not. With A = 0 E is the known (exp(L t) - 1) / L, with L = 0 it is t. Interruptions are a
Poisson process over the hours that nodes are held, so each line is exact with one exception: after an
announced interruption the next save is assumed to come when it was due before, though it comes c hours later.

The best interval minimises E(c + v) / c. With A = 0 it is (1 + W(-exp(-L v - 1))) / L, where W is the upper
branch of Lambert's function: sqrt(2 v / L) for small L v (Young 1974, Daly 2006). If announced interruptions
are frequent and saves are expensive, it is best never to save in between.

    symbol   here                     meaning
    A, L     announced, lost          per hour of the job, all nodes together
    v, c     cost_hours, every_hours  of a save; work between two saves
    r        restart_hours            from new nodes to work

Cost: O(1) per option.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import scipy

from policies.model import check_positive

_MOST_EXPONENT = 500.0
_SMALL = 1e-9
_LONGEST = 1e3
"""The longest interval considered, as a multiple of the best one without announced interruptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """The rate at which a node is taken back, and the `unannounced_fraction` that comes without notice.

    A job leaves a node `leave_hours` before the node's end, and waits `boot_hours` for a new node.
    """

    per_node_hour: float
    notice_hours: float = 0.0
    unannounced_fraction: float = 0.0
    leave_hours: float = 0.0
    boot_hours: float = 0.0

    def __post_init__(self) -> None:
        for name in ("per_node_hour", "notice_hours", "unannounced_fraction", "leave_hours", "boot_hours"):
            check_positive(name, getattr(self, name), zero=True)

    def rates(self, nodes: int, *, cost_hours: float) -> tuple[float, float]:
        """Return interruptions per hour on `nodes` nodes: (those with time for a save, those without)."""
        every = self.per_node_hour * nodes
        lost = every * (1.0 if cost_hours > self.notice_hours else self.unannounced_fraction)
        return every - lost, lost


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSchedule:
    """A job saves after every `every_hours` of work, which takes `cost_hours`; infinite means never."""

    every_hours: float = math.inf
    cost_hours: float = 0.0

    def __post_init__(self) -> None:
        check_positive("cost_hours of a save", self.cost_hours, zero=True)


def best_interval(announced: float, lost: float, cost_hours: float) -> float:
    """Return the hours of work between two saves that lose the least time; infinite if saves do not pay."""
    if lost == 0.0:
        return math.inf
    if cost_hours == 0.0:
        return 0.0
    alone = float((1.0 + scipy.special.lambertw(-math.exp(-lost * cost_hours - 1.0)).real) / lost)
    if announced == 0.0:
        return alone

    def per_hour(log_every: float) -> float:
        every = math.exp(log_every)
        return _in_a_row(every + cost_hours, announced, lost) / every

    # Announced interruptions also save, so the best interval is at least that without them.
    within = math.log(alone), math.log(_LONGEST * alone)
    found = scipy.optimize.minimize_scalar(per_hour, bounds=within, method="bounded")
    never = (announced + lost) / announced
    return math.inf if found.fun >= never * (1.0 - _SMALL) else math.exp(found.x)


def hours_with_interruptions(
    hours: float, nodes: int, terms: Interruptions, saves: CheckpointSchedule, *, restart_hours: float
) -> float:
    """Return the mean hours, waiting and restarts included, of a job that works for `hours` on `nodes`.

    Infinite if the job practically never ends.

    Raises:
        ValueError: when there is no work between two saves.
    """
    announced, lost = terms.rates(nodes, cost_hours=saves.cost_hours)
    stretch = min(saves.every_hours, hours)
    if stretch <= 0.0:
        raise ValueError(f"the work between two saves must be more than zero hours; got {stretch!r}")
    saved = max(0, math.ceil(hours / stretch * (1.0 - 1e-12)) - 1)
    work = _in_a_row(hours - saved * stretch, announced, lost)
    if saved:
        work += saved * _in_a_row(stretch + saves.cost_hours, announced, lost)
    restarts = terms.per_node_hour * nodes * restart_hours
    if restarts > _MOST_EXPONENT:
        return math.inf
    # Even if a notice is too short for a save, the next node is requested as soon as it comes.
    unannounced = terms.per_node_hour * nodes * terms.unannounced_fraction
    ahead = max(0.0, terms.notice_hours - terms.leave_hours)
    waits = (announced + lost - unannounced) * max(0.0, terms.boot_hours - ahead)
    return work * math.exp(restarts) * (1.0 + waits + unannounced * terms.boot_hours)


def _in_a_row(hours: float, announced: float, lost: float) -> float:
    """Return E(hours), the mean hours until `hours` of work are done from one save to the next."""
    both = announced + lost
    if lost == 0.0:
        return hours
    if both * hours > _MOST_EXPONENT:
        return (
            math.inf
            if announced == 0.0
            else hours * both / announced + math.log(announced / both) / announced
        )
    grown = math.expm1(both * hours) / both
    return grown if announced * grown < _SMALL else math.log1p(announced * grown) / announced
