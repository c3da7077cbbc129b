"""Shockwave's trace: Gavel's kinds of jobs, with batch sizes that change during a run, and run times.

Five of the twelve columns are used: the kind, the GPUs, how the batch size changes, the run time alone on
those GPUs (V100), and the arrival. Steps are not used: with a changing batch size they do not measure work,
and the step rates of Shockwave's machines are not Gavel's. Size is run time x speed of those GPUs relative to
one; the speed by width comes from Gavel's table, in the source or in `--profiles`.
"""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from boa_daemon.errors import InputError
from boa_daemon.inputs.tables import TableRow
from boa_daemon.lab.traces.gavel import GPU_TYPES, THROUGHPUTS, class_name_of, priced, read_throughputs
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.lab.traces.step_rates import class_from_step_rates
from boa_daemon.text_files import read_whole_text
from boa_daemon.traces.reader import TraceJob
from boa_daemon.traces.workload import Options, Workload, assemble, cut
from boa_daemon.units import SECONDS_PER_HOUR

_COLUMNS = {"kind": 0, "gpus": 6, "mode": 7, "seconds": 10, "arrival": 11}
_WIDTH = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A job of the trace."""

    id: str
    kind: str
    gpus: int
    changes_batch: bool
    seconds: float
    arrived_at_seconds: float


def import_shockwave(source: Path, options: Options) -> Workload:
    """Return the workload of one trace.

    Raises:
        InputError: when a file is missing, damaged or ambiguous, or no job's kind was measured.
    """
    path = pick_file(source, ("*.trace",), options.workload)
    measured = priced(read_throughputs(_throughputs(source, options)), options)
    first = next(iter(GPU_TYPES))
    known: list[_Job] = []
    dropped: Counter[str] = Counter()
    for job in _jobs(path):
        if job.gpus not in measured.get(job.kind, {}).get(first, {}):
            dropped["of a kind that was not measured on that many GPUs"] += 1
        elif job.seconds <= 0.0:
            dropped["without a run time"] += 1
        else:
            known.append(job)
    kept = cut(known, lambda job: job.arrived_at_seconds, options, dropped)

    def hours_of(job: _Job) -> float:
        rates = measured[job.kind][first]
        return job.seconds / SECONDS_PER_HOUR * rates[job.gpus] / rates[1]

    hours: dict[str, list[float]] = defaultdict(list)
    for _, job in kept:
        hours[job.kind].append(hours_of(job))
    mean = {kind: sum(values) / len(values) for kind, values in sorted(hours.items())}
    changing = sum(job.changes_batch for _, job in kept)
    return assemble(
        f"Shockwave {path.name}",
        [
            TraceJob(job.id, seconds, class_name_of(job.kind), hours_of(job) / mean[job.kind])
            for seconds, job in kept
        ],
        [
            class_from_step_rates(
                class_name_of(kind),
                size * SECONDS_PER_HOUR * measured[kind][first][1],
                measured[kind],
                options,
            )
            for kind, size in mean.items()
        ],
        GPU_TYPES,
        path=path,
        options=options,
        dropped=dropped,
        notes=[
            "jobs may change their width, which those of the trace do not",
            f"{changing} of {len(kept)} jobs change their batch size; here their speed stays the same",
            "weights and deadlines of the trace are not used",
        ],
    )


def _throughputs(source: Path, options: Options) -> Path:
    home = options.profiles or (source if source.is_dir() else source.parent)
    path = home / THROUGHPUTS
    if not path.is_file():
        raise InputError(
            f"no {THROUGHPUTS}, which says how fast the kinds of jobs are at each width",
            file=home,
            hint="It is Gavel's: name its folder with --profiles",
        )
    return path


def _jobs(path: Path) -> Iterator[_Job]:
    """Yield the jobs; their ids are their line numbers."""
    for number, line in enumerate(io.StringIO(read_whole_text(path)), 1):
        cells = line.rstrip("\n").split("\t")
        if len(cells) != _WIDTH:
            raise InputError(f"{len(cells)} columns where {_WIDTH} are known", file=path, line=number)
        row = TableRow({name: cells[at] for name, at in _COLUMNS.items()}, path, number)
        yield _Job(
            id=str(number - 1),
            kind=row.text("kind"),
            gpus=row.whole("gpus", least=1),
            changes_batch=row.text("mode") != "static",
            seconds=row.number("seconds"),
            arrived_at_seconds=row.number("arrival"),
        )
