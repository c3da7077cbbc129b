"""The Standard Workload Format of the Parallel Workloads Archive, and that of the Grid Workloads Archive.

A line has 18 numbers (29 in the Grid Workloads Format, of which the first 11 are the same), of which -1 is an
unknown one: the job, its submission in seconds from the begin of the log, its wait, its run time, the
processors it was given, ..., those it asked for (8th), ..., its status (11th). Lines that begin with ``;`` or
``#`` are a header; ``; UnixStartTime: N`` says when the log began.

Each processor counts as a GPU: the format has no other. Lines with a status of 2 to 4 are bursts of a job
that has a line for the whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from boa_daemon.lab.traces.accounting import Attempt, Line, import_log, lines_of
from boa_daemon.traces.workload import Options, Workload

FILES = ("*.swf", "*.gwf", "*-cln*", "*.txt")
_WIDTHS = (18, 29)
_STARTED = re.compile(r"[;#]\s*UnixStartTime:\s*(\d+)\b", re.IGNORECASE | re.ASCII)
_FAILED = (0, 5)
_BURSTS = (2, 3, 4)
_HINT = "A line has 18 numbers: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html"


def import_swf(source: Path, options: Options) -> Workload:
    """Return the workload of a log in the Standard Workload Format.

    Raises:
        InputError: when a file is missing or damaged, naming the line.
    """
    said = ["each processor counts as a GPU: the format states no GPUs"]
    return import_log(source, options, name="SWF", files=FILES, read=_attempts, said=said)


def _attempts(paths: Iterable[Path], dropped: Counter[str]) -> Iterator[Attempt]:
    """Yield the jobs."""
    started = 0.0
    bursts: dict[str, list[Line]] = {}
    whole: set[str] = set()
    for line in lines_of(paths):
        if line.text.lstrip()[0] in ";#":
            if (found := _STARTED.match(line.text.strip())) is not None:
                started = float(found[1])
            continue
        words = line.text.partition(";")[0].split()
        if len(words) not in _WIDTHS:
            raise line.refuse(f"{len(words)} numbers where the format has 18", _HINT)
        job, submit, wait, run, given, asked, status = (
            _number(line, words, place) for place in (0, 1, 2, 3, 4, 7, 10)
        )
        name = f"{job:.0f}"
        if status in _BURSTS:
            bursts.setdefault(name, []).append(line.place)
            continue
        whole.add(name)
        if submit < 0:
            raise line.refuse(f"job {name} has no time of submission")
        begin = started + submit + max(wait, 0.0)
        yield Attempt(
            job=name,
            at=line.place,
            submitted_at_seconds=started + submit,
            start=begin,
            end=begin + max(run, 0.0),
            gpus=int(given if given > 0 else max(asked, 0)),
            has_failed=status in _FAILED and run > 0,
        )
    dropped["that are bursts of a job"] += sum(len(lines) for lines in bursts.values())
    for name, lines in bursts.items():
        if name not in whole:
            raise lines[0].refuse(f"job {name} has bursts (status 2 to 4) and no line for the whole", _HINT)


def _number(line: Line, words: list[str], place: int) -> float:
    """Return a number, of which -1 is an unknown one; job, processors and status are whole."""
    try:
        value = float(words[place])
        is_whole = place in (1, 2, 3) or value == int(value)
        if -1 <= value < 1e12 and is_whole:
            return value
    except (ValueError, OverflowError):
        pass
    raise line.refuse(f"field {place + 1} must be a number from -1; got {words[place][:40]!r}", _HINT)
