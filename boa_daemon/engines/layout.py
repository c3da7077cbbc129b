"""The folders of jobs below a root, and the scripts around units."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from policies.model import JobId

OWN = "own"
"""The folder of a generation in which its command writes; the keepers write the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The folders below a root; the same on this machine and on rented nodes."""

    root: Path

    def job(self, job: JobId) -> Path:
        """Return a job's folder; its name is the job's id, escaped so that systemd accepts it too."""
        return self.root / quote(job, safe="").replace(".", "%2E").replace("%", "=")

    def work(self, job: JobId) -> Path:
        """Return the folder of a job's own copy of its code."""
        return self.job(job) / "work"

    def artifacts(self, job: JobId) -> Path:
        """Return the folder of a job's artifacts."""
        return self.job(job) / "artifacts"

    @property
    def code(self) -> Path:
        """The folder of packed and unpacked code, by digest; no job's folder can have this name."""
        return self.root / "=code"

    @property
    def data(self) -> Path:
        """The folder of cached data, by content; no job's folder can have this name."""
        return self.root / "=data"

    def checkpoints(self, job: JobId) -> Path:
        """Return the folder of a job's checkpoints: one for all generations."""
        return self.job(job) / "checkpoint"

    def home(self, job: JobId) -> Path:
        """Return the home folder of a job whose user has none."""
        return self.job(job) / "home"

    def generation(self, job: JobId, number: int) -> Path:
        """Return the folder of a generation of a job."""
        return self.job(job) / f"g{number}"

    def unit(self, job: JobId, number: int, rank: int) -> Path:
        """Return the folder of a generation's unit."""
        return self.generation(job, number) / f"n{rank}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitScripts:
    """The errands of a unit; see `boa_daemon.job.unit.Unit`."""

    bring: str = ""
    before: str = ""
    beat: str = ""
    after: str = ""
    keep: str = ""
    look: str = ""
    beat_seconds: float = 15.0
