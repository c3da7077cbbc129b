"""The accounting of Grid Engine (SGE, Univa, Altair, Son of Grid Engine): its file, or ``qacct -j``.

A line of ``accounting`` has 43 values or more with a colon between them, of which the first 43 mean the same
in all versions. The GPUs are those that the job's category asks for (``-l gpu=2``). Newer versions count
milliseconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from boa_daemon.lab.traces.accounting import GPU_NAMES, Attempt, Line, import_log, lines_of
from boa_daemon.lab.traces.instants import zone_of
from boa_daemon.lab.traces.rigid import GPU_TYPE
from boa_daemon.time_text import instant_seconds
from boa_daemon.traces.workload import Options, Workload

FILES = ("accounting*", "qacct*", "*.txt")
_PLACES = {
    "hostname": 1, "jobnumber": 5, "qsub_time": 8, "start_time": 9, "end_time": 10, "failed": 11,
    "exit_status": 12, "granted_pe": 33, "slots": 34, "taskid": 35, "category": 39, "pe_taskid": 41,
}  # fmt: skip
_LEAST = 43
_AMERICAN = re.compile(r"(\d{2})/(\d{2})/(\d{4})( .*)")
"""How Univa's qacct prints a day, wherever it runs."""
_NEVER = ("", "-/-", "-", "NONE", "0", "undefined")
_TYPES = re.compile(r"gpu_?(?:type|model|name)", re.IGNORECASE)
_HINT = "It is $SGE_ROOT/default/common/accounting, or what `qacct -j` prints"


def import_grid_engine(source: Path, options: Options) -> Workload:
    """Return the workload of an accounting file of Grid Engine.

    Raises:
        InputError: when a file is missing or damaged, naming the line.
    """
    zone = zone_of(options.time_zone)
    said: list[str] = []

    def read(paths: Iterable[Path], dropped: Counter[str]) -> Iterator[Attempt]:
        several = 0
        for line, values in _records(paths):
            if values.get("pe_taskid", "NONE") not in ("NONE", "", "undefined"):
                dropped["that are tasks of a parallel job"] += 1
                continue
            gpus, types = _gpus(line, values)
            if len(types) > 1 and gpus:
                dropped["of several GPU types"] += 1
                continue
            several += bool(
                gpus and values["granted_pe"] != "NONE" and line.whole("slots", values["slots"]) > 1
            )
            submitted, start, end = (
                _at(line, name, values[name]) for name in ("qsub_time", "start_time", "end_time")
            )
            task = values["taskid"]
            yield Attempt(
                job=values["jobnumber"] + ("" if task in _NEVER else f".{task}"),
                at=line.place,
                submitted_at_seconds=submitted,
                start=start,
                end=end if start else 0.0,
                gpus=gpus,
                gpu_type=next(iter(types), GPU_TYPE),
                has_failed=values["failed"].split()[:1] != ["0"]
                or values["exit_status"].split()[:1] != ["0"],
            )
        if several:
            said.append(
                f"{several} jobs asked for GPUs in a parallel environment: "
                "they count once per job, not once per slot"
            )

    def _at(line: Line, name: str, text: str) -> float:
        if text in _NEVER:
            return 0.0
        if text.isdecimal():
            return line.seconds(name, text)
        american = _AMERICAN.fullmatch(text)
        plain = text if american is None else f"{american[3]}-{american[1]}-{american[2]}{american[4]}"
        try:
            return instant_seconds(plain, zone)
        except (ValueError, OverflowError) as error:
            raise line.refuse(f"{name} {text!r} is no time: {error}") from None

    return import_log(source, options, name="Grid Engine", files=FILES, read=read, said=said)


def _records(paths: Iterable[Path]) -> Iterator[tuple[Line, Mapping[str, str]]]:
    """Yield the records with the line on which each begins."""
    block: dict[str, str] = {}
    begin: Line | None = None
    summed: Path | None = None
    for line in lines_of(paths):
        text = line.text.strip()
        if text.startswith("#") or line.path == summed:
            continue
        if set(text) == {"="}:
            if begin is not None:
                yield begin, _whole(begin, block)
            block, begin = {}, line
        elif begin is not None:
            name, _, value = text.partition(" ")
            if name == "Total":
                # A table of all jobs follows, up to the end of the file.
                yield begin, _whole(begin, block)
                begin, summed = None, line.path
                continue
            block.setdefault(
                {"job_number": "jobnumber", "task_number": "taskid"}.get(name, name), value.strip()
            )
        else:
            cells = text.split(":")
            if len(cells) < _LEAST or not cells[5].isdecimal():
                raise line.refuse("no record of Grid Engine's accounting", _HINT)
            values = {name: cells[place] for name, place in _PLACES.items()}
            if values["taskid"] == "0":
                values["taskid"] = ""
            yield line, values
    if begin is not None and block:
        yield begin, _whole(begin, block)


def _whole(line: Line, block: dict[str, str]) -> Mapping[str, str]:
    """Return a block of ``qacct -j`` with what not every version prints."""
    for name in ("jobnumber", "qsub_time", "start_time", "end_time"):
        if not block.get(name):
            raise line.refuse(f"the block of `qacct -j` that begins here has no {name}", _HINT)
    rest = {"taskid": "", "granted_pe": "NONE", "slots": "1", "failed": "0", "exit_status": "0"}
    return rest | block


def _gpus(line: Line, values: Mapping[str, str]) -> tuple[int, set[str]]:
    """Return the GPUs that a job asked for, and their types."""
    total, types = 0, set[str]()
    # Univa has what was granted besides, or the command alone.
    text = values.get("category") or values.get("submit_cmd") or values.get("submit_cmd_line") or ""
    for request in re.findall(r"(?:^|\s)-l\s+(\S+)", text):
        for word in request.split(","):
            name, _, value = word.partition("=")
            if GPU_NAMES.fullmatch(name):
                total += line.whole(name, value) if value not in ("", "true", "TRUE", "1") else 1
            elif _TYPES.fullmatch(name):
                types.add(value.lower())
    return total, types
