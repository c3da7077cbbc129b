"""Seconds and memory to read a million rows of a history, per format, each in a process of its own.

    python benchmarks/import_rows.py [--rows 1000000]

The limit of the project is 10 s and 600 MB. The baseline beside it is `csv.reader` alone over the same file,
or `json.loads` of each job of `sacct --json`: it builds no job, and no reader that uses it is faster.
Processor seconds are those to compare on a machine that does other things as well.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = ("sacct", "sacct-json", "acme", "helios", "openb", "pai")
_READ = """
import json, resource, sys, time
from pathlib import Path
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.traces.workload import Options
begin = time.perf_counter()
found = import_source(sys.argv[1], Path(sys.argv[2]), Options())
print(json.dumps({
    "seconds": time.perf_counter() - begin,
    "processor_seconds": sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "jobs": len(found.trace.jobs),
}))
"""


def write(kind: str, path: Path, rows: int) -> None:
    """Write a history of `rows` jobs of one kind."""
    chance = random.Random(1)
    headers = {
        "sacct": "JobID|Submit|Start|End|Elapsed|State|AllocTRES",
        "acme": "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration",
        "helios": "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration",
        "openb": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time",
        "pai": "",
        "sacct-json": '{"meta": {}, "jobs": [',
    }
    with path.open("w", encoding="utf-8") as file:
        if headers[kind]:
            file.write(headers[kind] + "\n")
        for number in range(rows):
            gpus = chance.choice((1, 1, 1, 2, 4, 8))
            day, hour, minute = 1 + number * 28 // rows, chance.randrange(24), chance.randrange(60)
            at = f"2026-03-{day:02}{'T' if kind == 'sacct' else ' '}{hour:02}:{minute:02}:00"
            long = chance.randrange(60, 86_000)
            clock = f"{long // 3600:02}:{long // 60 % 60:02}:{long % 60:02}"
            if kind == "sacct-json":
                since = 1_772_323_200 + number * 28 * 86_400 // rows
                comma = "," if number < rows - 1 else ""
                file.write(f" {_answered(number + 1, since, long, gpus)}{comma}\n")
                continue
            cells = {
                "sacct": f"{number}|{at}|{at}|{at}|{clock}|COMPLETED|cpu=8,mem=64G,gres/gpu:a100={gpus}",
                "acme": f"{number},u1,1,{gpus},8,Other,COMPLETED,{at},{at},{at},{long}",
                "helios": f"{number},u1,{gpus},8,1,COMPLETED,{at},{at},{at},{long}",
                "openb": f"p{number},4000,8192,{gpus},{1000 if gpus > 1 else 500},,LS,Succeeded,{number},"
                f"{number + long},{number}",
                "pai": f"j{number},worker,1.0,Terminated,{number}.0,{number + long}.0,600.0,29.3,"
                f"{gpus * 50}.0,V100",
            }[kind]
            file.write(cells + "\n")
        if kind == "sacct-json":
            file.write('], "errors": []}\n')


def _answered(number: int, at: int, long: int, gpus: int) -> str:
    """Return a job as ``sacct --json`` of Slurm 23.11 prints it, without the keys that no reader needs."""
    unset = {"set": False, "infinite": False, "number": 0}
    resources = [
        {"type": "cpu", "name": "", "id": 1, "count": 8},
        {"type": "mem", "name": "", "id": 2, "count": 65536},
        {"type": "gres", "name": "gpu:a100", "id": 1002, "count": gpus},
    ]
    return json.dumps(
        {
            "account": "ml",
            "job_id": number,
            "array": {"job_id": 0, "task_id": unset, "task": ""},
            "het": {"job_id": 0, "job_offset": unset},
            "partition": "gpu",
            "state": {"current": ["COMPLETED"], "reason": "None"},
            "time": {"elapsed": long, "eligible": at, "submission": at, "start": at, "end": at + long},
            "tres": {"allocated": resources, "requested": resources},
            "steps": [{"step": {"id": f"{number}.batch", "name": "batch"}, "state": ["COMPLETED"]}],
        }
    )


def bare(path: Path, delimiter: str) -> float:
    """Return the processor seconds that the standard reader alone takes, in a process of its own."""
    code = (
        (
            "import json, sys, time\nbegin = time.process_time()\n"
            "with open(sys.argv[1]) as file:\n"
            "    for line in file:\n"
            "        if line.startswith(' '): json.loads(line.rstrip(',\\n'))\n"
            "print(time.process_time() - begin)"
        )
        if not delimiter
        else (
            "import csv, sys, time\nbegin = time.process_time()\n"
            "with open(sys.argv[1], newline='') as file:\n"
            "    for row in csv.reader(file, delimiter=sys.argv[2]): pass\n"
            "print(time.process_time() - begin)"
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path, delimiter], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def measure(kind: str, rows: int, folder: Path) -> dict[str, float]:
    """Return seconds, megabytes and jobs of reading `rows` rows, and the seconds of the baseline."""
    path = folder / ("pai_task_table.csv" if kind == "pai" else f"{kind}.csv")
    write(kind, path, rows)
    done = subprocess.run(
        [sys.executable, "-c", _READ, kind.partition("-")[0], str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    found["baseline_seconds"] = bare(path, {"sacct": "|", "sacct-json": ""}.get(kind, ","))
    path.unlink()
    return found


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    flags = parser.parse_args()
    writer = csv.writer(sys.stdout)
    writer.writerow(
        ("kind", "rows", "seconds", "processor_seconds", "baseline_processor_seconds", "megabytes", "jobs")
    )
    with tempfile.TemporaryDirectory() as folder:
        for kind in flags.kinds.split(","):
            found = measure(kind, flags.rows, Path(folder))
            writer.writerow(
                (
                    kind,
                    flags.rows,
                    f"{found['seconds']:.1f}",
                    f"{found['processor_seconds']:.1f}",
                    f"{found['baseline_seconds']:.1f}",
                    f"{found['megabytes']:.0f}",
                    int(found["jobs"]),
                )
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
