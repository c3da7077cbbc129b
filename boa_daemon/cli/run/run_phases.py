"""The phases of a job: derived from the daemon's answers, with the seconds and dollars of each.

starting the daemon   until its first tick is done
planning              no node is rented for the job yet
booting               nodes are requested, boot, and are checked
starting              a node is ready, or the job has GPUs but has printed nothing yet
running               the job works
stopping              the job is cancelled, and may write a checkpoint
giving back           the job has ended, and nodes are not yet ended
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
    """One phase; `note` names its nodes."""

    name: PhaseName
    began_at: float
    began_usd: float
    note: str = ""
    seconds: float = 0.0
    usd: float = 0.0

    @property
    def row(self) -> dict[str, Any]:
        """The phase as JSON."""
        seconds, usd = round(self.seconds, 3), round(self.usd, 6)
        return {"phase": self.name, "seconds": seconds, "usd": usd, "note": self.note}


@dataclass(slots=True, kw_only=True)
class RunPhases:
    """The phases so far; the last one is current."""

    found: list[RunPhase] = field(default_factory=list)

    def take(self, name: PhaseName, *, at: float, usd: float, note: str = "") -> RunPhase | None:
        """Record the current phase; return the phase that it ends, if any.

        New cost is charged to the phase that begins: a node's first minute to its boot.
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
    """Return the phase of a job that has not ended; `has_printed` refers to the running generation."""
    if job["nodes"]:
        if job["status"] == "cancelling":
            return "stopping"
        return "running" if has_printed or _has_step(job) else "starting"
    if any(row["phase"] == "requested" for row in instances):
        return "booting"
    return "starting" if any(row["phase"] == "ready" for row in instances) else "planning"


def place_of(job: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]) -> str:
    """Return the job's GPUs and nodes as text, or the booting nodes; empty if there are none."""
    mine = [row for row in instances if row["id"] in job["nodes"]]
    if mine:
        gpus = "1 GPU" if job["gpus"] == 1 else f"{job['gpus']} GPUs"
        return f"{gpus} on {', '.join(_described(row) for row in mine)}"
    return ", ".join(_described(row) for row in instances if row["phase"] == "requested")


def _described(row: Mapping[str, Any]) -> str:
    words = (row["id"], row["instance_type"], row["market"], row["zone"])
    return " ".join(str(word) for word in words if word)


def _has_step(job: Mapping[str, Any]) -> bool:
    """Return whether a job in its first generation has reported a step."""
    return job["step"] is not None and job["generation"] == 1


@dataclass(slots=True, kw_only=True)
class RunMeter:
    """Dollars of a run: of all nodes since its start if the daemon is its own, else of the job."""

    is_own: bool
    before: Mapping[str, float] = field(default_factory=dict)
    _seen: dict[str, float] = field(default_factory=dict)

    def read(self, job: Mapping[str, Any] | None, instances: Sequence[Mapping[str, Any]]) -> float:
        """Return the dollars of the run so far."""
        if not self.is_own:
            return 0.0 if job is None else float(job["usd"])
        # Keep costs by node: one that ended a day ago is no longer listed, but still counts.
        self._seen.update((row["id"], float(row["usd"])) for row in instances)
        return sum(usd - self.before.get(name, 0.0) for name, usd in self._seen.items())
