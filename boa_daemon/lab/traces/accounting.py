"""What the accounting of batch systems has in common: lines of a log, records of jobs, and their attempts.

A log is a file, or a folder of the files into which a batch system cuts it, read in the order of their names.
A job that ran several times has a record for each attempt; its GPU-time is the sum of theirs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_workload
from boa_daemon.lab.traces.source_files import all_files
from boa_daemon.text_files import open_text
from boa_daemon.time_text import epoch_seconds
from boa_daemon.traces.workload import Options, Workload
from policies.fast_dataclasses import fast_init

GPU_NAMES = re.compile(r"n?gpus?|num_?gpus?|gpu_?(?:card|count|num)s?|cuda", re.IGNORECASE)
"""What sites call their resource of GPUs."""


@fast_init
@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log that is not blank, and where it stands."""

    text: str
    path: Path
    number: int

    @property
    def place(self) -> Line:
        """The line without its text, of which a million would take a gigabyte."""
        return Line("", self.path, self.number)

    def refuse(self, problem: str, hint: str = "") -> InputError:
        """Return the error for a problem in this line."""
        return InputError(problem, file=self.path, line=self.number, hint=hint)

    def seconds(self, name: str, text: str) -> float:
        """Return an instant that is a count since 1970, in seconds or milliseconds."""
        try:
            return epoch_seconds(float(text), text)
        except (ValueError, OverflowError):
            raise self.refuse(f"{name} must be seconds since 1970; got {text[:40]!r}") from None

    def whole(self, name: str, text: str) -> int:
        """Return a whole number from 0; 8.0 counts as 8."""
        try:
            value = float(text)
            if value >= 0 and value == int(value):
                return int(value)
        except (ValueError, OverflowError):
            pass
        raise self.refuse(f"{name} must be a whole number; got {text[:40]!r}")


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A run of a job from `start` to `end` (seconds since 1970), which are both 0 where it never ran."""

    job: str
    at: Line
    submitted_at_seconds: float
    start: float
    end: float
    gpus: int
    gpu_type: str = GPU_TYPE
    has_failed: bool = False

    def seconds(self) -> float:
        """Return the run time.

        Raises:
            InputError: when the end is before the start.
        """
        if self.end < self.start:
            raise self.at.refuse(f"job {self.job} ends {self.start - self.end:g} s before it starts")
        return self.end - self.start


def lines_of(paths: Iterable[Path]) -> Iterator[Line]:
    """Yield the lines of files that are not blank; a line ends with LF, CR LF or CR."""
    for path in paths:
        with open_text(path, newline=None) as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield Line(text.rstrip("\n"), path, number)


def import_log(
    source: Path,
    options: Options,
    *,
    name: str,
    files: Sequence[str],
    read: Callable[[Iterable[Path], Counter[str]], Iterable[Attempt]],
    said: list[str] | None = None,
) -> Workload:
    """Return the workload of the attempts that `read` finds in a log, which it may drop and count.

    `said` are notes, to which `read` may add.

    Raises:
        InputError: when a file is missing or damaged, or two attempts of a job are at one time.
    """
    paths = all_files(source, files, options.workload)
    dropped: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    notes = [] if said is None else said
    jobs = _jobs(read(paths, dropped), dropped, failed, notes)
    label = paths[0].name if len(paths) == 1 else f"{paths[0].parent.name} ({len(paths)} files)"
    return rigid_workload(f"{name} {label}", jobs, options, path=paths[0], dropped=dropped, said=notes)


def _jobs(
    attempts: Iterable[Attempt], dropped: Counter[str], failed: Counter[str], notes: list[str]
) -> Iterator[RigidJob]:
    """Yield the jobs in the order of their first attempts."""
    found: dict[str, Attempt | list[Attempt]] = {}
    for one in attempts:
        known = found.get(one.job)
        if known is None:
            found[one.job] = one
        elif isinstance(known, Attempt):
            found[one.job] = [known, one]
        else:
            known.append(one)
    for job, runs in found.items():
        if isinstance(runs, Attempt):
            failed["jobs"] += runs.has_failed and runs.gpus > 0 and runs.end > runs.start
            yield RigidJob(
                id=job,
                submitted_at_seconds=runs.submitted_at_seconds,
                gpus=runs.gpus,
                gpu_seconds=runs.gpus * runs.seconds(),
                gpu_type=runs.gpu_type,
            )
        elif (several := _of_attempts(job, runs, dropped)) is not None:
            failed["jobs"] += several.gpu_seconds > 0 and max(runs, key=lambda run: run.end).has_failed
            yield several
    if failed["jobs"]:
        notes.append(f"{failed['jobs']} jobs did not end well: they count as they ran")


def _of_attempts(job: str, attempts: Sequence[Attempt], dropped: Counter[str]) -> RigidJob | None:
    """Return a job of several attempts, which followed each other.

    Raises:
        InputError: when two of them were at one time.
    """
    ordered = sorted(attempts, key=lambda run: (run.start, run.end))
    for one, other in pairwise(ordered):
        if other.start < one.end or (one.start, one.end) == (other.start, other.end):
            last, first = sorted((one.at, other.at), key=lambda line: (line.path, -line.number))
            place = f"line {first.number}" if first.path == last.path else f"{first.path.name}:{first.number}"
            raise last.refuse(
                f"a second record of job {job} at the same time; the first is on {place}",
                "Records of one job are attempts where one followed the other",
            )
    with_gpus = [run for run in attempts if run.gpus]
    if len({run.gpu_type for run in with_gpus}) > 1:
        dropped["of several GPU types"] += 1
        return None
    ran = with_gpus or list(attempts)
    return RigidJob(
        id=job,
        submitted_at_seconds=min(run.submitted_at_seconds for run in attempts),
        gpus=max(run.gpus for run in attempts),
        gpu_seconds=sum(run.gpus * run.seconds() for run in attempts),
        gpu_type=ran[0].gpu_type,
    )
