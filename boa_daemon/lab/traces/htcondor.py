"""HTCondor's history: ``condor_history -json``, ``-jsonl`` or ``-long``, or the file of the history itself.

A record (ClassAd) is a job: ``ClusterId.ProcId``. Its GPUs are those that it was given (``GPUsProvisioned``,
``AssignedGPUs``), or else ``RequestGPUs``, on each of its machines; ``RemoteWallClockTime`` is the time of
all of its runs together.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.accounting import Line, lines_of
from boa_daemon.lab.traces.json_records import read_records
from boa_daemon.lab.traces.kubernetes import gpu_name
from boa_daemon.lab.traces.rigid import GPU_TYPE, RigidJob, rigid_workload
from boa_daemon.lab.traces.source_files import all_files
from boa_daemon.text_files import is_json
from boa_daemon.traces.workload import Options, Workload

FILES = ("history*", "condor*", "*.json", "*.txt")
COMMAND = "condor_history -json > history.json"
_RUNS = {
    1: "that still wait",
    2: "that still run",
    5: "that are held",
    6: "that still run",
    7: "that still run",
}
_LINE = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(.*)", re.ASCII)
_NAMES = ("GPUs_DeviceName", "MachineAttrGPUs_DeviceName0", "CUDADeviceName", "MachineAttrCUDADeviceName0")
_PARALLEL = 11


def import_htcondor(source: Path, options: Options) -> Workload:
    """Return the workload of a history of HTCondor.

    Raises:
        InputError: when a file is missing or damaged, naming the line or the record.
    """
    paths = all_files(source, FILES, options.workload)
    dropped: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    said: list[str] = []
    label = paths[0].name if len(paths) == 1 else f"{paths[0].parent.name} ({len(paths)} files)"
    jobs = _jobs(paths, dropped, removed, said)
    return rigid_workload(f"HTCondor {label}", jobs, options, path=paths[0], dropped=dropped, said=said)


def _jobs(
    paths: Iterable[Path], dropped: Counter[str], removed: Counter[str], said: list[str]
) -> Iterator[RigidJob]:
    """Yield the jobs that are over."""
    seen: dict[str, str] = {}
    for path in paths:
        for ad in _ads_of_json(path) if is_json(path) else _ads_of_text(path):
            name = f"{ad.whole('ClusterId')}.{ad.whole('ProcId')}"
            if name in seen:
                raise ad.refuse(f"a second record of job {name}; the first is {seen[name]}")
            seen[name] = ad.where
            status = ad.whole("JobStatus", 4)
            seconds = ad.number("RemoteWallClockTime")
            if status in _RUNS:
                dropped[_RUNS[status]] += 1
                continue
            gpus = ad.gpus()
            if status == 3 and gpus and seconds:
                removed["jobs"] += 1
            yield RigidJob(
                id=name,
                submitted_at_seconds=ad.number("QDate"),
                gpus=gpus,
                gpu_seconds=gpus * seconds,
                gpu_type=ad.gpu_type(),
            )
    if removed["jobs"]:
        said.append(f"{removed['jobs']} jobs were removed: they count as they ran")


class _Ad:
    """A record: its values by name in small letters, and how errors name it."""

    def __init__(self, values: Mapping[str, Any], path: Path, where: str, line: int | None = None) -> None:
        self._values = {name.lower(): value for name, value in values.items()}
        self._path, self.where, self._line = path, where, line

    def refuse(self, problem: str) -> InputError:
        """Return the error for a problem in this record."""
        hint = f"Write the file with {COMMAND}"
        if self._line is None:
            return InputError(f"{self.where}: {problem}", file=self._path, hint=hint)
        return InputError(problem, file=self._path, line=self._line, hint=hint)

    def number(self, name: str, otherwise: float | None = None) -> float:
        """Return a number from 0, which must be there without another one."""
        value = self._values.get(name.lower(), otherwise)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise self.refuse(
                f"{name} must be a number; got {str(value)[:40]!r}"
                if value is not None
                else f"{name} is missing"
            )
        return float(value)

    def whole(self, name: str, otherwise: int | None = None) -> int:
        """Return a whole number from 0."""
        value = self.number(name, otherwise)
        if value != int(value):
            raise self.refuse(f"{name} must be a whole number; got {value:g}")
        return int(value)

    def gpus(self) -> int:
        """Return the GPUs of all machines of a job."""
        machines = self.whole("MaxHosts", 1) if self._values.get("jobuniverse") == _PARALLEL else 1
        given = self._values.get("gpusprovisioned")
        if isinstance(given, int | float) and not isinstance(given, bool) and given > 0:
            return machines * self.whole("GPUsProvisioned")
        assigned = self._values.get("assignedgpus")
        if isinstance(assigned, str) and assigned.strip() and assigned.lower() != "undefined":
            return machines * len([one for one in assigned.split(",") if one.strip()])
        asked = self._values.get("requestgpus")
        if asked is None or (isinstance(asked, str) and asked.lower() in ("undefined", "")):
            return 0
        return machines * self.whole("RequestGPUs")

    def gpu_type(self) -> str:
        """Return the model of the GPUs, where the record names one."""
        found = next((self._values[name.lower()] for name in _NAMES if self._values.get(name.lower())), None)
        return gpu_name(str(found)) if found else GPU_TYPE


def _ads_of_json(path: Path) -> Iterator[_Ad]:
    for one in read_records(path, (), noun="job", hint=f"Write the file with {COMMAND}"):
        yield _Ad(one.content, path, one.where)


def _ads_of_text(path: Path) -> Iterator[_Ad]:
    """Yield the records of ``Name = value`` lines, between which stand blank lines or lines of stars."""
    values: dict[str, Any] = {}
    begin, last = 0, 0
    for line in lines_of([path]):
        is_rule = line.text.startswith("***")
        if values and (is_rule or line.number > last + 1):
            yield _Ad(values, path, f"on line {begin}", begin)
            values = {}
        last = line.number
        if is_rule:
            continue
        found = _LINE.fullmatch(line.text)
        if found is None:
            raise line.refuse("no line of the form Name = value", f"Write the file with {COMMAND}")
        if not values:
            begin = line.number
        values[found[1]] = _value(line, found[2].strip())
    if values:
        yield _Ad(values, path, f"on line {begin}", begin)


def _value(line: Line, text: str) -> Any:
    """Return a value: a text, a number, or an expression as it stands."""
    if text.startswith('"'):
        if len(text) < 2 or not text.endswith('"'):
            raise line.refuse("a text without its end", "The file may be cut short")
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text
