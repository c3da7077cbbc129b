"""What phase a job is in, as its daemon tells it, and how long and how dear each phase was.

starting the daemon   until it has done its first look
planning              nobody rents anything for the job yet
booting               nodes are asked for, boot, and are looked at
starting              a node is ready, or it holds GPUs and has said nothing yet
running               it works
stopping              it writes a checkpoint: a move, a limit, or the end of the money
giving back           it is over, and nodes are still there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

PhaseName: TypeAlias = Literal[
    "starting the daemon", "planning", "booting", "starting", "running", "stopping", "giving back"
]
OVER = ("finished", "failed", "cancelled")


@dataclass(slots=True, kw_only=True)
class RunPhase:
    """One phase, from one change to the next; `note` says where it took place."""

    name: PhaseName
    began_at: float
    began_usd: float
    note: str = ""
    seconds: float = 0.0
    usd: float = 0.0

    @property
    def row(self) -> dict[str, Any]:
        """The phase as JSON shows it."""
        seconds, usd = round(self.seconds, 3), round(self.usd, 6)
        return {"phase": self.name, "seconds": seconds, "usd": usd, "note": self.note}


@dataclass(slots=True, kw_only=True)
class RunPhases:
    """The phases so far; the last of them is the one that goes on."""

    found: list[RunPhase] = field(default_factory=list)

    def take(self, name: PhaseName, *, at: float, usd: float, note: str = "") -> RunPhase | None:
        """Take in what phase it is now; return the one that this ends, if any.

        What is new on the bill belongs to the phase that begins: a node's first minute, to its boot.
        """
        last = self.found[-1] if self.found else None
        if last is None:
            self.found.append(RunPhase(name=name, began_at=at, began_usd=usd, note=note))
            return None
        last.seconds = at - last.began_at
        if last.name == name and (last.note == note or not note or not last.note):
            last.note = last.note or note
            last.usd = usd - last.began_usd
            return None
        self.found.append(RunPhase(name=name, began_at=at, began_usd=last.began_usd + last.usd, note=note))
        return last

    def close(self, *, at: float, usd: float) -> RunPhase | None:
        """End the last phase, and return it."""
        if not self.found:
            return None
        last = self.found[-1]
        last.seconds, last.usd = at - last.began_at, usd - last.began_usd
        return last


def phase_of(
    job: Mapping[str, Any], instances: Sequence[Mapping[str, Any]], *, has_printed: bool
) -> PhaseName:
    """Return the phase of a job that is not over; `has_printed` is about the generation that runs."""
    if job["nodes"]:
        if job["status"] == "cancelling":
            return "stopping"
        return "running" if has_printed or _has_step(job) else "starting"
    if any(row["phase"] == "requested" for row in instances):
        return "booting"
    return "starting" if any(row["phase"] == "ready" for row in instances) else "planning"


def place_of(job: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]) -> str:
    """Return where a job is: its GPUs and nodes, or the nodes that boot; empty where there are none."""
    mine = [row for row in instances if row["id"] in job["nodes"]]
    if mine:
        gpus = "1 GPU" if job["gpus"] == 1 else f"{job['gpus']} GPUs"
        return f"{gpus} on {', '.join(_described(row) for row in mine)}"
    return ", ".join(_described(row) for row in instances if row["phase"] == "requested")


def _described(row: Mapping[str, Any]) -> str:
    """Return a node in a few words."""
    words = (row["id"], row["instance_type"], row["market"], row["zone"])
    return " ".join(str(word) for word in words if word)


def _has_step(job: Mapping[str, Any]) -> bool:
    """Return whether a job that starts for the first time has reported a step."""
    return job["step"] is not None and job["generation"] == 1


@dataclass(slots=True, kw_only=True)
class RunMeter:
    """Dollars of a run: of all nodes since it began where the daemon is its own, else of the job alone."""

    is_own: bool
    before: Mapping[str, float] = field(default_factory=dict)
    _seen: dict[str, float] = field(default_factory=dict)

    def read(self, job: Mapping[str, Any] | None, instances: Sequence[Mapping[str, Any]]) -> float:
        """Return the dollars so far."""
        if not self.is_own:
            return 0.0 if job is None else float(job["usd"])
        # One that ended a day ago is in no list any more; what it cost is still to be counted.
        self._seen.update((row["id"], float(row["usd"])) for row in instances)
        return sum(usd - self.before.get(name, 0.0) for name, usd in self._seen.items())
