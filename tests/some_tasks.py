"""Tasks for tests, in a module of their own: workers import them by its name."""

from __future__ import annotations

import math
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from policies.errors import InfeasibleBudget


@dataclass(frozen=True)
class Answer:
    """Numbers that JSON is bad at, in containers that it has not."""

    numbers: tuple[float, ...]
    at: float | None = None


def a_square(n: int) -> Answer:
    """Return a number of many digits, and ones that are none."""
    return Answer(numbers=(math.sqrt(n) ** 3, math.inf, 0.1 + 0.2), at=None)


def in_vain(least: float) -> float:
    """Refuse, as a policy does."""
    raise InfeasibleBudget("the budget is too small", least_spend=least)


def dies_once(marker: str) -> int:
    """Kill the worker the first time."""
    if not Path(marker).exists():
        Path(marker).write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def dies(_n: int) -> int:
    """Kill the worker."""
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def noted(folder: str, n: int) -> int:
    """Leave a note that it was done, and by whom."""
    with (Path(folder) / f"{n}").open("a") as file:
        file.write("x")
    time.sleep(0.02)
    return n * n


def len_of(values: MappingProxyType[str, float]) -> int:
    """Return how many there are."""
    return len(values)
