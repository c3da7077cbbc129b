"""What jobs ask of scarce room: their widths, what is left of them, and how much they are overdue.

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

    `corners` numbers the widths on the upper concave hull of speed against GPUs, from nothing on. The first
    of them is the most efficient width. `steps` are the slope of the step up to each corner and the GPUs that
    it adds. `numbers` says where a width stands.
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
        """Return the speed gained per GPU from one width to a wider one; None is no GPUs at all."""
        gpus, speed = (0, 0.0) if low is None else (self.gpus[low], self.speeds[low])
        return (self.speeds[high] - speed) / (self.gpus[high] - gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What jobs ask of scarce room: arrays of shape (jobs,).

    `menu` numbers each job's among the `menus`, `held` the width that it holds in its menu, -1 for none of
    those. `work` is what is left of it, in phases of the menu's speeds. `size_per_gpu` is what a GPU takes of
    the room. `lasts_hours` is for how long a change of width lasts, about. `overdue` is how many times as
    long as promised the job has been there: above 1 it comes first, and its weight grows.
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
        """The weights, grown by how much a job is overdue."""
        grown: Floats = self.weight * np.maximum(1.0, self.overdue)
        return grown

    @property
    def room_hours_over_weight(self) -> Floats:
        """The room-hours that the rest takes at the most efficient width, over the weight: Smith's order."""
        best = [menu.corners[0] for menu in self.menus]
        speeds = np.array([menu.speeds[at] for menu, at in zip(self.menus, best, strict=True)])
        gpus = np.array([menu.gpus[at] for menu, at in zip(self.menus, best, strict=True)])
        hours = self.work / speeds[self.menu]
        order: Floats = hours * gpus[self.menu] * self.size_per_gpu / self.urgency
        return order

    @property
    def restart_share(self) -> Floats:
        """The share of its work that a running job loses to a restart, while the change lasts."""
        share = np.zeros(len(self.jobs))
        runs = np.flatnonzero((self.held >= 0) & (self.restart_hours > 0.0))
        if len(runs):
            left = self.work[runs] / self.held_speed[runs]
            # What ends a change: others who come and go, or its own end.
            with np.errstate(divide="ignore"):
                rate = 1.0 / self.lasts_hours[runs] + 1.0 / left
            share[runs] = np.minimum(1.0, self.restart_hours[runs] * rate)
        return share

    @property
    def held_speed(self) -> Floats:
        """The speed at the width that is held; 0 for none."""
        speed = np.zeros(len(self.jobs))
        for row in np.flatnonzero(self.held >= 0).tolist():
            speed[row] = self.menus[self.menu[row]].speeds[self.held[row]]
        return speed
