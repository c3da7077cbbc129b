"""Mistakes of new users: the rows of docs/reference/mistakes.md, and the files that they name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Mistake(NamedTuple):
    """A mistake: its description, the typed command, the expected answer, and the exit code."""

    what: str
    typed: str
    says: str
    code: int = 2


def problem(*, budget: str = "{gpus: 6}", rate: str = "2", speedup: str = "{table: {1: 1.0}}") -> str:
    """Return a problem file of one class."""
    phases = f"[{{size_gpu_hours: 1, speedup: {speedup}}}]"
    return f"budget: {budget}\nclasses:\n- name: v\n  arrivals_per_hour: {rate}\n  phases: {phases}\n"


def priced(kind: str = "usd_per_gpu_hour: 2", *, speedup: str = "{a100: {table: {1: 1.0}}}") -> str:
    """Return a problem file with one GPU type that has a price."""
    return f"gpu_types: {{a100: {{{kind}}}}}\n" + problem(budget="{usd_per_hour: 40}", speedup=speedup)


def job(**more: str) -> str:
    """Return a job file."""
    return "".join(
        f"{key}: {value}\n" for key, value in {"name": "a", "class": "v", "run": "echo hi", **more}.items()
    )


def trace(row: str, header: str = "job_id,arrived_at_seconds,class_name") -> str:
    """Return a trace of one row."""
    return f"{header}\n{row}\n"


OFFER = 'as_of = {day}\nsource = "x"\n[[offers]]\nname = "a"\nkind = "compute"\ndiscounts = {{p4d = {off}}}\n'
STATE = '[daemon]\nstate_dir = "state"\n'
FILES = {
    "tab.yaml": "budget: {gpus: 6}\nclasses:\n-\tname: v\n",
    "untabled.yaml": problem(speedup="{1: 1.0, 2: 1.8}"),
    "listed.yaml": problem(speedup="{table: [1.0, 1.8]}"),
    "bare-budget.yaml": problem(budget="40000"),
    "unit.yaml": problem(budget="{usd_per_day: 40}"),
    "negative.yaml": problem(rate="-2"),
    "nan.yaml": problem(rate=".nan"),
    "text.yaml": problem(rate='"2 per hour"'),
    "twice.yaml": "budget: {gpus: 7}\n" + problem(),
    "classes.yaml": priced(),
    "type.yaml": priced("instance_type: p4d.24xlagre"),
    "unpriced.yaml": priced("gpus_per_instance: 8"),
    "other-gpu.yaml": priced(speedup="{a10: {table: {1: 1.0}}}"),
    "percent.yaml": problem(speedup="{amdahl: {parallel_fraction: 98}}"),
    "poor.yaml": problem(budget="{gpus: 0.5}"),
    "bracket.yaml": "classes: [a: b\n",
    "empty.yaml": "",
    "case.json": '{"servers": 2,}',
    "half.json": '{"servers": 2}',
    "folder/classes.yaml": priced(),
    "columns.csv": trace("1,2,v", "job_id,arrival,class_name"),
    "semicolons.csv": trace("1;2;v", "job_id;arrived_at_seconds;class_name"),
    "early.csv": trace("a,-5,v"),
    "dated.csv": trace("a,2026-01-01,v"),
    "class.csv": trace("a,5,visoin"),
    "double.csv": trace("a,5,v\na,6,v"),
    "short.csv": trace("a,5"),
    "trace.csv": trace("a,5,v\nb,6,v"),
    "jobs.csv": "job_id,class_name,deadline_hours\na,v,-1\n",
    "one-job.csv": "job_id,class_name\na,v\n",
    "prices.csv": "type,usd\np4d.24xlarge,20\n",
    "world.yaml": "zone: [a]\n",
    "study.yaml": "title: x\nbudgets: [30/h]\npolicies: [bao]\ntraces:\n"
    "- {name: s, trace: trace.csv, classes: classes.yaml}\n",
    "offer.toml": OFFER.format(day="2026-11-01", off="27"),
    "offer-day.toml": OFFER.format(day="2026-13-01", off="0.27"),
    "unquoted.toml": "[cloud]\nprovider = aws\n",
    "true.toml": "[daemon]\nobserve = True\n",
    "repeated.toml": "[budget]\nusd_per_hour = 3\nusd_per_hour = 4\n",
    "key.toml": "[budget]\nusd_per_hours = 3\n",
    "section.toml": "[buget]\nusd_per_hour = 3\n",
    "quoted.toml": '[budget]\nusd_per_hour = "$40"\n',
    "market.toml": '[cloud]\nmarket = "spto"\n',
    "policy.toml": '[workload]\npolicy = "bao"\n',
    "region.toml": '[cloud]\nprovider = "aws"\nregion = "us-esat-1"\n' + STATE,
    "provider.toml": '[cloud]\nprovider = "asw"\n' + STATE,
    "engine.toml": '[engine]\nname = "pbs"\n' + STATE,
    "machine.toml": '[cloud]\ninstance_types = ["p4d.24xlagre"]\n' + STATE,
    "tokens.toml": '[api]\nlisten = "127.0.0.1:0"\n' + STATE,
    "port.toml": '[api]\nlisten = "127.0.0.1:{taken}"\ntokens = "tokens"\n' + STATE,
    "host.toml": '[api]\nlisten = "8470"\ntokens = "tokens"\n' + STATE,
    "no-run.yaml": "name: a\nclass: v\n",
    "typo.yaml": job(max_gpu="4"),
    "widths.yaml": job(min_gpus="8", max_gpus="2"),
    "past.yaml": job(deadline="2020-01-31T08:00:00Z"),
    "date.yaml": job(deadline="31/12/2030"),
    "dollars.yaml": job(max_usd="$300"),
    "hours.yaml": job(max_hours="2h"),
    "free.yaml": job(max_usd="-3"),
    "workdir.yaml": job(workdir="nowhere"),
    "secret.yaml": job(secrets="{TOKEN: hunter2}"),
    "own.yaml": job(environment='{BOA_GPUS: "3"}'),
    "name.yaml": job(name="my job!"),
    "image.yaml": job(image="My Image"),
    "class.yaml": job(**{"class": "visoin"}),
    "locked.yaml": problem(),
    "tokens": "a-token-that-is-long-enough ann\n",
}

_ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| `boa (?P<typed>[^|]+)` \| `+(?P<says>[^|]+?)`+ \| (?P<code>\d) \|$", re.M
)


def mistakes() -> list[Mistake]:
    """Return the rows of the page."""
    page = (ROOT / "docs/reference/mistakes.md").read_text(encoding="utf-8")
    return [
        Mistake(row["what"], row["typed"], row["says"].strip(), int(row["code"]))
        for row in _ROW.finditer(page)
    ]
