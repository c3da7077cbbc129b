"""What a job asks of scarce room: its widths, what is left of it, and how much it is overdue.

`policies.online.narrowing` weighs the claims of all jobs against each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.model import Job, Width
from policies.quick import quick
from policies.speedup import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
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


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a job asks of scarce room.

    `work` is what is left of it, in phases of the menu's speeds. `size_per_gpu` is what a GPU takes of the
    room. `lasts_hours` is for how long a change of width lasts, about. `overdue` is how many times as long as
    promised the job has been there: above 1 it comes first, and its weight grows.
    """

    job: Job
    menu: Menu
    weight: float
    work: float
    size_per_gpu: float
    money_per_gpu: float
    restart_hours: float = 0.0
    lasts_hours: float = math.inf
    overdue: float = 0.0

    @property
    def is_overdue(self) -> bool:
        """Whether it has been there for longer than promised."""
        return self.overdue > 1.0

    @property
    def urgency(self) -> float:
        """The weight, grown by how much the job is overdue."""
        return self.weight * max(1.0, self.overdue)

    @property
    def room_hours_over_weight(self) -> float:
        """The room-hours that the rest takes at the most efficient width, over the weight: Smith's order."""
        best = self.menu.corners[0]
        hours = self.work / self.menu.speeds[best]
        return hours * self.menu.gpus[best] * self.size_per_gpu / self.urgency

    @property
    def restart_share(self) -> float:
        """The share of its work that a running job loses to a restart, while the change lasts."""
        held = self.job.width
        number = None if held is None else self.menu.numbers.get(held)
        if number is None or self.restart_hours <= 0.0:
            return 0.0
        left = self.work / self.menu.speeds[number]
        # What ends a change: others who come and go, or its own end.
        rate = 1.0 / self.lasts_hours + (1.0 / left if left > 0.0 else math.inf)
        return min(1.0, self.restart_hours * rate)
