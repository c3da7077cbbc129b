"""Tasks for tests of worker processes, in a module of their own because workers import them by name."""

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
    """Numbers that JSON cannot keep exactly, in containers that JSON does not have."""

    numbers: tuple[float, ...]
    at: float | None = None


def a_square(n: int) -> Answer:
    """Return a number with many digits, an infinite one, and a sum with a rounding error."""
    return Answer(numbers=(math.sqrt(n) ** 3, math.inf, 0.1 + 0.2), at=None)


def in_vain(least: float) -> float:
    """Raise the error of a policy whose budget is too small."""
    raise InfeasibleBudget("the budget is too small", least_spend=least)


def dies_once(marker: str) -> int:
    """Kill the worker the first time; return the worker's process id later."""
    if not Path(marker).exists():
        Path(marker).write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def dies(_n: int) -> int:
    """Kill the worker."""
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def noted(folder: str, n: int) -> int:
    """Append to a file that this task ran, and return the square."""
    with (Path(folder) / f"{n}").open("a") as file:
        file.write("x")
    time.sleep(0.02)
    return n * n


def len_of(values: MappingProxyType[str, float]) -> int:
    """Return the number of values."""
    return len(values)
