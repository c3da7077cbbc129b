"""Accounting logs of PBS: OpenPBS, PBS Professional and Torque, a file for each day.

A line is ``MM/DD/YYYY HH:MM:SS;E;17.server;user=a ... ctime=N start=N end=N ...``. E records are jobs that
have ended, R records runs after which a job was put back into its queue; a job with an S record and no E runs
still. The GPUs are those that the job was given (``exec_vnode``, ``exec_gpus``), or else those it asked for
(``Resource_List``: ``ngpus``, ``select``, Torque's ``nodes``). ``resources_used.ngpus`` is 0 at many sites,
and is not read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from boa_daemon.lab.traces.accounting import GPU_NAMES, Attempt, Line, import_log, lines_of
from boa_daemon.lab.traces.rigid import GPU_TYPE
from boa_daemon.traces.workload import Options, Workload

FILES = ("[12][0-9][0-9][0-9][01][0-9][0-3][0-9]", "*accounting*", "*acct*", "*.log", "*.txt")
_RECORD = re.compile(
    r"\s*(?:\S+: )?\d{2}/\d{2}/\d{4} \d{2}:\d{2}:\d{2}(?:\.\d+)?;"
    r"(?P<kind>[A-Za-z]{1,2});(?P<job>[^;]*);(?P<rest>.*)"
)
_PAIR = re.compile(r"""(?:^|(?<=\s))([\w.\-\[\]]+)=("(?:[^"\\]|\\.)*"|'[^']*'|\S*)(?:\s+|$)""")
_JOB = re.compile(r"(?P<number>\d+)(?P<task>\[\d*\]|-\d+)?(?:\..*)?", re.ASCII)
_TYPES = ("gpu_type", "gputype", "gpu_model", "accelerator_model", "accelerator_type", "gpu_name")
_HINT = "It is a file of server_priv/accounting, one for each day"


def import_pbs(source: Path, options: Options) -> Workload:
    """Return the workload of an accounting log, or of a folder of them.

    Raises:
        InputError: when a file is missing or damaged, naming the line.
    """
    return import_log(source, options, name="PBS", files=FILES, read=_attempts)


def _attempts(paths: Iterable[Path], dropped: Counter[str]) -> Iterator[Attempt]:
    """Yield the runs of jobs."""
    started: set[str] = set()
    ended: set[str] = set()
    for line in lines_of(paths):
        found = _RECORD.fullmatch(line.text)
        if found is None:
            raise line.refuse("no record of PBS's accounting", _HINT)
        kind, job = found["kind"], _job(line, found["job"])
        if kind == "S":
            started.add(job)
        if kind not in ("E", "R"):
            continue
        if not job:
            raise line.refuse(f"a job is named such as 17.server or 17[3].server; got {found['job'][:40]!r}")
        values = _values(line, found["rest"])
        if job.endswith("[]"):
            dropped["that are parents of arrays"] += 1
            continue
        if kind == "R" and not ("start" in values and "end" in values):
            dropped["that are runs without their times"] += 1
            continue
        if kind == "E":
            ended.add(job)
        types = _types(values)
        gpus = _gpus(line, values)
        if len(types) > 1 and gpus:
            dropped["of several GPU types"] += 1
            continue
        start = line.seconds("start", values.get("start", "0"))
        end = line.seconds("end", values["end"]) if "end" in values else 0.0
        submitted = values.get("ctime") or values.get("qtime")
        if not submitted or ("end" not in values and start):
            raise line.refuse(f"job {job} has no {'end' if submitted else 'ctime'}")
        yield Attempt(
            job=job,
            at=line.place,
            submitted_at_seconds=line.seconds("ctime", submitted),
            start=start,
            end=end if start else 0.0,
            gpus=gpus,
            gpu_type=next(iter(types), GPU_TYPE),
            has_failed=values.get("Exit_status", "0") != "0",
        )
    dropped["that still run"] += len(started - ended)


def _job(line: Line, text: str) -> str:
    """Return the id of a job without its server; empty for records of the server itself."""
    found = _JOB.fullmatch(text.strip())
    if found is None:
        return ""
    return found["number"] + (found["task"] or "")


def _values(line: Line, text: str) -> dict[str, str]:
    """Return the values of a record by name."""
    # Words that are no pair are passed over: names of jobs, and times of a hook, have spaces.
    pairs = _PAIR.findall(text)
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        for name in ("start", "end", "ctime"):
            if names.count(name) > 1:
                raise line.refuse(f"{name} is given twice")
    return {name: value.strip("\"'") for name, value in values.items()}


def _types(values: Mapping[str, str]) -> set[str]:
    """Return the types of GPUs that a job asked for."""
    found = {
        values[f"Resource_List.{name}"].lower() for name in _TYPES if values.get(f"Resource_List.{name}")
    }
    for chunk in values.get("Resource_List.select", "").split("+"):
        words = dict(word.partition("=")[::2] for word in chunk.split(":"))
        found |= {words[name].lower() for name in _TYPES if words.get(name)}
    return found


def _gpus(line: Line, values: Mapping[str, str]) -> int:
    """Return the GPUs of a job: given, or else asked for."""
    given = [part for part in re.split(r"[()+]+", values.get("exec_vnode", "")) if part]
    if total := sum(_of_chunk(line, chunk) for chunk in given):
        return total
    if values.get("exec_gpus"):
        return len(values["exec_gpus"].split("+"))
    for name, value in values.items():
        kind, _, own = name.partition(".")
        if kind == "Resource_List" and GPU_NAMES.fullmatch(own) and value != "0":
            return line.whole(name, value)
    for name in ("select", "nodes", "neednodes"):
        chunks = values.get(f"Resource_List.{name}", "").split("+")
        if total := sum(_of_request(line, chunk) for chunk in chunks):
            return total
    return 0


def _of_chunk(line: Line, chunk: str) -> int:
    """Return the GPUs of a part such as ``node:ncpus=4:ngpus=2``."""
    total = 0
    for word in chunk.split(":")[1:]:
        name, equals, value = word.partition("=")
        if equals and GPU_NAMES.fullmatch(name):
            total += line.whole(name, value)
    return total


def _of_request(line: Line, chunk: str) -> int:
    """Return the GPUs of a request: ``2:ncpus=4:ngpus=2``, ``2:ppn=8:gpus=2:shared``, ``node7:gpus=1``."""
    number, _, rest = chunk.partition(":")
    return (int(number) if re.fullmatch(r"\d{1,6}", number) else 1) * _of_chunk(line, f":{rest}")
