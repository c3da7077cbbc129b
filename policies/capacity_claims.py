"""Claims of jobs on scarce room: possible widths, work left, and how overdue each job is.

`policies.online.scarce_room` weighs the claims of all jobs against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.model import Job, Width
from policies.speedup import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseWidths:
    """The widths of a phase on one GPU type, ascending, each faster than the one before.

    `corners` are the indices of the widths on the upper concave hull of speed against GPUs, which starts at
    (0, 0). The first corner is the most efficient width. `steps` are the slope of the step up to each corner
    and the GPUs that it adds. `numbers` maps a width to its index.
    """

    widths: tuple[Width, ...]
    speeds: tuple[float, ...]
    corners: tuple[int, ...] = field(init=False, repr=False)
    steps: tuple[tuple[float, int], ...] = field(init=False, repr=False)
    gpus: tuple[int, ...] = field(init=False, repr=False)
    numbers: Mapping[Width, int] = field(init=False, repr=False, compare=False)
    gpus_array: Floats = field(init=False, repr=False, compare=False)
    speeds_array: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpus", tuple(width.gpus for width in self.widths))
        object.__setattr__(self, "numbers", {width: number for number, width in enumerate(self.widths)})
        object.__setattr__(self, "gpus_array", np.array(self.gpus, dtype=np.float64))
        object.__setattr__(self, "speeds_array", np.array(self.speeds, dtype=np.float64))
        corners: list[int] = []
        for number in range(len(self.widths)):
            while corners and self.slope(
                corners[-2] if len(corners) > 1 else None, corners[-1]
            ) <= self.slope(corners[-1], number):
                corners.pop()
            corners.append(number)
        object.__setattr__(self, "corners", tuple(corners))
        lows = (None, *corners[:-1])
        steps = [
            (self.slope(low, high), self.gpus[high] - (0 if low is None else self.gpus[low]))
            for low, high in zip(lows, corners, strict=True)
        ]
        object.__setattr__(self, "steps", tuple(steps))

    def slope(self, low: int | None, high: int) -> float:
        """Return the speed gained per GPU from width `low` to `high`, both indices; None is zero GPUs."""
        gpus, speed = (0, 0.0) if low is None else (self.gpus[low], self.speeds[low])
        return (self.speeds[high] - speed) / (self.gpus[high] - gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Claims of jobs on scarce room, as arrays of shape (jobs,).

    `menu` is the index of the job's menu in `menus`, `held` the index of its current width in that menu (-1
    if it is not there). `work` is the work left, in phases of the menu's speeds. `size_per_gpu` is the room
    that a GPU takes. `lasts_hours` estimates how long a change of width lasts. `overdue` is the job's time in
    the system over the longest that is acceptable: above 1 the job comes first, and its weight grows.
    """

    jobs: Sequence[Job]
    menus: Sequence[PhaseWidths]
    menu: Ints
    held: Ints
    weight: Floats
    work: Floats
    size_per_gpu: Floats
    money_per_gpu: Floats
    restart_hours: Floats
    lasts_hours: Floats
    overdue: Floats

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def urgency(self) -> Floats:
        """The weights, multiplied by `overdue` where that is above 1."""
        grown: Floats = self.weight * np.maximum(1.0, self.overdue)
        return grown

    @property
    def room_hours_over_weight(self) -> Floats:
        """The room-hours of the work left at the most efficient width, over the urgency: Smith's order."""
        best = [menu.corners[0] for menu in self.menus]
        speeds = np.array([menu.speeds[at] for menu, at in zip(self.menus, best, strict=True)])
        gpus = np.array([menu.gpus[at] for menu, at in zip(self.menus, best, strict=True)])
        hours = self.work / speeds[self.menu]
        order: Floats = hours * gpus[self.menu] * self.size_per_gpu / self.urgency
        return order

    @property
    def restart_share(self) -> Floats:
        """The share of its work that a running job loses to a restart while the new width lasts."""
        share = np.zeros(len(self.jobs))
        runs = np.flatnonzero((self.held >= 0) & (self.restart_hours > 0.0))
        if len(runs):
            left = self.work[runs] / self.held_speed[runs]
            # A change of width lasts until other jobs come or go, or until the job ends.
            with np.errstate(divide="ignore"):
                rate = 1.0 / self.lasts_hours[runs] + 1.0 / left
            share[runs] = np.minimum(1.0, self.restart_hours[runs] * rate)
        return share

    @property
    def held_speed(self) -> Floats:
        """The speed at the current width; 0 for a job without one."""
        speed = np.zeros(len(self.jobs))
        for row in np.flatnonzero(self.held >= 0).tolist():
            speed[row] = self.menus[self.menu[row]].speeds[self.held[row]]
        return speed
