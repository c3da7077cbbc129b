"""The accounting of LSF: ``lsb.acct``, and the older files beside it (``lsb.acct.1``, ...).

A line is a record: values with a space between them, texts in quotation marks. ``JOB_FINISH`` records are
jobs that have ended. The GPUs are those of the resource requirement that was in effect
(``rusage[ngpus_physical=2.00]``), on each host that the job ran on, as LSF counts ``-gpu num=2``.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from boa_daemon.csv_text import csv_reader
from boa_daemon.lab.traces.accounting import Attempt, Line, import_log, lines_of
from boa_daemon.lab.traces.rigid import GPU_TYPE
from boa_daemon.traces.workload import Options, Workload

FILES = ("lsb.acct*", "*acct*", "*.txt")
_VERSION, _ENDED, _JOB, _SLOTS, _SUBMITTED, _STARTED, _REQUIRED, _ASKED_HOSTS = 1, 2, 3, 6, 7, 10, 13, 22
_USAGE = 19
"""Values of the usage of processors and memory, which follow the command."""
_INDEX = 6
"""The index in an array stands so far behind them."""
_GPUS = re.compile(
    r"\bn?gpus(?:_physical|_excl_[pt]|_shared|_shared_excl_[pt])?=(\d+(?:\.\d+)?)(:PER_(?:TASK|SLOT))?",
    re.IGNORECASE,
)
_TYPE = re.compile(r"\bgpu_?(?:model|type|name)\s*[=:]=?\s*[\"']?([\w-]+)", re.IGNORECASE)
_DONE = "64"
_HINT = (
    "It is lsb.acct in LSF's work/CLUSTER/logdir; what bacct and bhist print is cut into lines of 80 signs"
)


def import_lsf(source: Path, options: Options) -> Workload:
    """Return the workload of ``lsb.acct``, or of a folder of such files.

    Raises:
        InputError: when a file is missing or damaged, naming the line.
    """
    return import_log(source, options, name="LSF", files=FILES, read=_attempts)


def _attempts(paths: Iterable[Path], dropped: Counter[str]) -> Iterator[Attempt]:
    """Yield the runs of jobs."""
    for line in lines_of(paths):
        text = line.text.strip()
        if text.startswith("#"):
            continue
        if not text.startswith('"'):
            raise line.refuse("no record of LSF's accounting", _HINT)
        values = _values(line, text)
        if values[0] != "JOB_FINISH":
            continue
        try:
            yield _attempt(line, values, dropped)
        except IndexError:
            raise line.refuse(
                f"a record of {len(values)} values: it is cut short", "Fetch the file again"
            ) from None


def _values(line: Line, text: str) -> list[str]:
    """Return the values of a record, in which two quotation marks are one of a text."""
    try:
        return next(csv_reader(text, delimiter=" "))
    except (csv.Error, StopIteration) as error:
        raise line.refuse(f"not whole: {error}", "The file may be cut short: fetch it again") from None


def _attempt(line: Line, values: Sequence[str], dropped: Counter[str]) -> Attempt:
    """Return the run of a job.

    Raises:
        IndexError: when the record is cut short.
    """
    place = _ASKED_HOSTS
    place += 1 + line.whole("numAskedHosts", values[place])
    count = line.whole("numExHosts", values[place])
    hosts = values[place + 1 : place + 1 + count]
    place += 1 + count
    status, behind = values[place], place + 4 + _USAGE
    index = line.whole("idx", values[behind + _INDEX])
    # What is in effect is the last: it has LSF's own defaults.
    texts = [values[_REQUIRED], *(text for text in values[behind:] if "rusage[" in text or "ngpus" in text)]
    stated = next((text for text in reversed(texts) if _GPUS.search(text)), "")
    gpus = 0
    if (found := _GPUS.search(stated)) is not None:
        number = line.whole("ngpus", found[1])
        # A host may stand as 4*host, or once for each slot.
        names = {host.rpartition("*")[2] for host in hosts}
        gpus = number * (line.whole("numProcessors", values[_SLOTS]) if found[2] else max(1, len(names)))
    kind = _TYPE.search(" ".join(texts))
    start = line.seconds("startTime", values[_STARTED])
    return Attempt(
        job=values[_JOB] + (f"[{index}]" if index else ""),
        at=line.place,
        submitted_at_seconds=line.seconds("submitTime", values[_SUBMITTED]),
        start=start,
        end=line.seconds("the time of the event", values[_ENDED]) if start else 0.0,
        gpus=gpus,
        gpu_type=kind[1].lower() if kind else GPU_TYPE,
        has_failed=status != _DONE,
    )
