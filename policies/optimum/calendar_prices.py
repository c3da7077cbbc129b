"""A lower bound for all calendars by Lagrangian relaxation: every limit is replaced by prices.

If each dollar and each instance has a price over time, the jobs are independent: each takes the option and
the start with the least weighted hours plus price. The sum over the jobs, less the value of the limits at the
prices, is a lower bound for any prices (Lagrange). Prices are raised where jobs use more than the limit and
lowered where they use less (Polyak 1969), for as many rounds as the list's length allows. The best such bound
equals that of the linear programme in which a job may be split over its starts.

Limits at each moment are kept only on average over the cells of a grid; otherwise jobs are whole, with one
option and one start that need not be an edge of a cell. With hours off, hours are those of the working clock.

    sum over jobs of the least w (end - r) + n (P(end) - P(start))  -  sum over limits of price x room

    symbol   here        meaning
    w, r     weight, submitted   of a job
    n        instances   of an option
    P        paid        price of holding one instance, integrated from the beginning

Cost: O(rounds x jobs x options x cells).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.optimum.calendar import CALENDAR_TOLERANCE, Calendar, CalendarJob, CalendarLimits
from policies.optimum.working_time import WorkingTime
from policies.speedup import Floats, Ints

CELLS = 48
"""Cells of the grid; edges of periods and of hours off add more."""
WORK = 15_000_000
"""Pairs of option and start that are evaluated, over all rounds."""
FEWEST, MOST = 20, 200
"""Least and most rounds."""
STEP, MEMORY, PATIENCE = 0.3, 0.7, 4
"""First step as a share of the distance to the goal; weight of the last direction (momentum); rounds without
a better bound after which the step is halved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedBound:
    """The bound, and by job id the start that the job chooses at the prices and its price of a dollar."""

    bound: float
    starts: Mapping[str, float]
    hours_per_usd: Mapping[str, float]


def bound_at_prices(
    jobs: Sequence[CalendarJob],
    limits: CalendarLimits,
    usd_per_hour: Mapping[str, float],
    calendar: Calendar,
    *,
    keeps_dates: bool = False,
) -> PricedBound:
    """Return a lower bound on the weighted sum of completion times of any calendar, with its prices.

    `calendar` is the best one known; the better it is, the faster the prices converge. With `keeps_dates` the
    bound holds only for calendars that meet all deadlines that `calendar` meets.
    """
    kept = {entry.job.job.id for entry in calendar.entries if not entry.is_late} if keeps_dates else set()
    offers = _OptionStarts.of(jobs, limits, calendar, kept)
    rooms = _PricedLimits.of(offers, limits, usd_per_hour)
    goal = calendar.weighted_hours
    tried = [(rooms.bound(offers, one)[0], one) for one in _first(offers, rooms, calendar)]
    best, worth = max(tried, key=lambda pair: pair[0])
    at, step, waited, last = worth, STEP, 0, np.zeros(len(worth))
    for _ in range(int(np.clip(WORK // offers.base.size, FEWEST, MOST))):
        found, over = rooms.bound(offers, at)
        if found > best * (1.0 + 1e-6):
            best, worth, waited = found, at, 0
        elif (waited := waited + 1) == PATIENCE:
            at, step, waited, last = worth, 0.5 * step, 0, np.zeros(len(worth))
            found, over = rooms.bound(offers, at)
        # A price of zero cannot fall further.
        last = np.where((at <= 0.0) & (over < 0.0), 0.0, over) + MEMORY * last
        size = float(last @ last)
        if goal <= found * (1.0 + 1e-6) or size == 0.0:
            break
        at = np.maximum(at + step * (goal - found) / size * last, 0.0)
    return _priced(jobs, offers, rooms, worth, best)


def _priced(
    jobs: Sequence[CalendarJob], offers: _OptionStarts, rooms: _PricedLimits, worth: Floats, bound: float
) -> PricedBound:
    pays, rows, columns = offers.least(rooms.price(worth))
    options = [option for job in jobs for option in job.options]
    waits = offers.base[rows, columns]
    return PricedBound(
        bound=bound,
        starts={job.job.id: float(at) for job, at in zip(jobs, offers.starts[rows, columns], strict=True)},
        hours_per_usd={
            job.job.id: float(max(paid - wait, 0.0)) / options[row].usd
            for job, row, paid, wait in zip(jobs, rows, pays, waits, strict=True)
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptionStarts:
    """Every option of every job with the starts that may be best: a row per option, a column per start.

    Costs are linear within cells, so a job is cheapest if it starts or ends at an edge of a cell, or at its
    earliest or latest moment. `base` is the weighted hours, infinite if the start is too early or the end too
    late.
    """

    grid: Floats
    working: WorkingTime
    kinds: tuple[str, ...]
    kind: Ints
    job_begins: Ints
    instances: Floats
    starts: Floats
    ends: Floats
    base: Floats
    start_cell: Ints
    end_cell: Ints

    @classmethod
    def of(
        cls, jobs: Sequence[CalendarJob], limits: CalendarLimits, calendar: Calendar, kept: set[str]
    ) -> _OptionStarts:
        """Build the options and starts of a list; jobs in `kept` must meet their deadlines."""
        working = limits.working
        grid = _grid(limits, calendar)
        rows = [(number, option) for number, job in enumerate(jobs) for option in job.options]
        kinds = tuple(dict.fromkeys(option.gpu_type for _, option in rows))
        places = {name: number for number, name in enumerate(kinds)}
        owner = np.array([number for number, _ in rows])
        hours = np.array([option.hours for _, option in rows])[:, None]
        submitted = np.array([job.job.submit_hours for job in jobs])
        first = np.array([working.worked(float(at)) for at in submitted])[owner, None]
        due = np.array([job.due_hours if job.job.id in kept else np.inf for job in jobs])
        latest = np.array([working.worked(float(at)) if np.isfinite(at) else np.inf for at in due])
        last = latest[owner, None] - hours
        own = np.where(np.isfinite(last), last, first)
        shape = (len(rows), len(grid))
        starts = np.hstack([first, own, np.broadcast_to(grid, shape), np.broadcast_to(grid, shape) - hours])
        ends = starts + hours
        weight = np.array([job.job.weight for job in jobs])[owner, None]
        waits = weight * (_moments(working, ends) - submitted[owner, None])
        slack = CALENDAR_TOLERANCE * (1.0 + np.abs(starts))
        may = (starts >= first - slack) & (ends <= latest[owner, None] * (1.0 + CALENDAR_TOLERANCE) + slack)
        return cls(
            grid=grid,
            working=working,
            kinds=kinds,
            kind=np.array([places[option.gpu_type] for _, option in rows]),
            job_begins=np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]),
            instances=np.array([float(option.instances) for _, option in rows]),
            starts=starts,
            ends=ends,
            base=np.where(may, waits, np.inf),
            start_cell=_cells(grid, starts),
            end_cell=_cells(grid, ends),
        )

    def least(self, price: Floats) -> tuple[Floats, Ints, Ints]:
        """Return the least cost of each job, and the row and column that it chooses, each (jobs,).

        `price` is that of an instance-hour by GPU type and cell; the last cell is all time after the grid.
        """
        paid = np.zeros_like(price)
        paid[:, 1:] = np.cumsum(price[:, :-1] * np.diff(self.grid), axis=1)
        kind = self.kind[:, None]

        def until(at: Floats, cell: Ints) -> Floats:
            return np.asarray(paid[kind, cell] + price[kind, cell] * (at - self.grid[cell]))

        held = until(self.ends, self.end_cell) - until(np.maximum(self.starts, 0.0), self.start_cell)
        cost = self.base + self.instances[:, None] * held
        column = np.argmin(cost, axis=1)
        of_row = cost[np.arange(len(cost)), column]
        of_job = np.minimum.reduceat(of_row, self.job_begins)
        ends = np.r_[self.job_begins[1:], len(of_row)]
        spans = zip(self.job_begins, ends, strict=True)
        rows = np.array([begin + int(np.argmin(of_row[begin:end])) for begin, end in spans])
        return of_job, rows, column[rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PricedLimits:
    """The finite limits: the amount of each (`room`), and the use of it by GPU type and cell.

    `draws[l, g]` is what an instance-hour of type g takes of limit l, in the cells where `holds[l]` is 1.
    `sort` numbers the sorts of limits (per hour, per period, in all, instances of each type).
    """

    room: Floats
    draws: Floats
    holds: Floats
    sort: Ints

    @classmethod
    def of(
        cls, offers: _OptionStarts, limits: CalendarLimits, usd_per_hour: Mapping[str, float]
    ) -> _PricedLimits:
        """Collect the finite limits: per cell, per period, and in all."""
        grid, kinds = offers.grid, offers.kinds
        cells = len(grid)
        dollars = np.array([usd_per_hour[name] for name in kinds])
        room: list[float] = []
        draws: list[Floats] = []
        holds: list[Floats] = []
        sort: list[int] = []

        def add(amount: float, drawn: Floats, cell: Floats, kind: int) -> None:
            room.append(amount)
            draws.append(drawn)
            holds.append(cell)
            sort.append(kind)

        each = np.eye(cells)
        lengths = np.diff(grid)
        if np.isfinite(limits.usd_per_hour):
            for number, length in enumerate(lengths):
                add(limits.usd_per_hour * length, dollars, each[number], 0)
        if np.isfinite(limits.usd_per_period):
            middles = 0.5 * (grid[:-1] + grid[1:])
            period = np.array([_moment(limits, float(at)) // limits.period_hours for at in middles])
            for number in np.unique(period):
                add(limits.usd_per_period, dollars, np.r_[period == number, False].astype(float), 1)
        if np.isfinite(limits.usd_in_all):
            add(limits.usd_in_all, dollars, np.ones(cells), 2)
        for place, name in enumerate(kinds):
            if name in limits.instances:
                for number, length in enumerate(lengths):
                    one = np.zeros(len(kinds))
                    one[place] = 1.0
                    # A quota of zero must not divide by zero: its options become extremely dear.
                    add(max(limits.instances[name], 1e-9) * length, one, each[number], 3 + place)
        return cls(
            room=np.array(room),
            draws=np.array(draws).reshape(len(room), len(kinds)),
            holds=np.array(holds).reshape(len(room), cells),
            sort=np.array(sort, dtype=int),
        )

    def price(self, worth: Floats) -> Floats:
        """Return the price of an instance-hour, shape (types, cells)."""
        return np.asarray((self.draws * (worth / self.room)[:, None]).T @ self.holds)

    def bound(self, offers: _OptionStarts, worth: Floats) -> tuple[float, Floats]:
        """Return the bound if each whole limit is worth `worth`, and the relative overuse of each limit."""
        pays, rows, columns = offers.least(self.price(worth))
        starts, ends = offers.starts[rows, columns], offers.ends[rows, columns]
        edges = np.r_[offers.grid, np.inf]
        held = (
            np.diff(np.clip(edges, starts[:, None], ends[:, None]), axis=1) * offers.instances[rows][:, None]
        )
        used = np.zeros((len(offers.kinds), len(offers.grid)))
        np.add.at(used, offers.kind[rows], held)
        drawn = np.einsum("lg,gc,lc->l", self.draws, used, self.holds, optimize=True)
        return float(pays.sum() - worth.sum()), drawn / self.room - 1.0


def _first(offers: _OptionStarts, rooms: _PricedLimits, calendar: Calendar) -> list[Floats]:
    """Return initial values of the limits: all zero, or one sort of limit valued by the calendar's waiting.

    Losing an hour of a limit delays by an hour all jobs that are present then, or all that end later.
    """
    ends = np.array([offers.working.worked(entry.ends) for entry in calendar.entries])
    come = np.array([offers.working.worked(entry.job.job.submit_hours) for entry in calendar.entries])
    weight = np.array([entry.job.job.weight for entry in calendar.entries])
    lengths = np.r_[np.diff(offers.grid), 0.0]
    at = offers.grid[:, None]
    present = ((come <= at) & (ends > at)) @ weight * lengths
    later = (ends > at) @ weight * lengths
    found = [np.zeros(len(rooms.room))]
    for sort in np.unique(rooms.sort):
        for waiting in (present, later):
            whole = np.where(rooms.sort == sort, rooms.holds @ waiting, 0.0)
            found += [factor * whole for factor in (0.25, 0.5, 0.8, 1.0)]
    return found


def _grid(limits: CalendarLimits, calendar: Calendar) -> Floats:
    """Return the edges of the cells, from 0 to the calendar's end, on the working clock."""
    working = limits.working
    end = max(working.worked(calendar.all_done), 1e-6)
    edges = [np.linspace(0.0, end, CELLS + 1), working.before[working.before < end]]
    if np.isfinite(limits.usd_per_period):
        periods = np.arange(int(calendar.all_done // limits.period_hours) + 1) * limits.period_hours
        edges.append(np.array([working.worked(float(at)) for at in periods]))
    return np.unique(np.concatenate(edges))


def _cells(grid: Floats, at: Floats) -> Ints:
    """Return the cell of each moment; moments after the grid are in the last cell."""
    return np.clip(np.searchsorted(grid, at, side="right") - 1, 0, len(grid) - 1)


def _moments(working: WorkingTime, worked: Floats) -> Floats:
    """Return the first moments at which `worked` working hours have passed (`WorkingTime.end`)."""
    if working.is_always:
        return worked
    place = np.searchsorted(working.before, worked, side="left") - 1
    begun = np.maximum(place, 0)
    return np.where(place < 0, worked, working.ends[begun] + worked - working.before[begun])


def _moment(limits: CalendarLimits, worked: float) -> float:
    return worked if limits.working.is_always else limits.working.start(worked)
