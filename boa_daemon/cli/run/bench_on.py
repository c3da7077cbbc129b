"""``boa bench --on TYPE``: measure step times on rented machines, one job of the daemon per width.

Each instance type gets its own daemon (`boa_daemon.cli.common.own_daemon`), which rents only that type, may
spend what is left of --max-usd, and gives everything back. Each width is one job, widest first, with its own
limits in dollars and hours and no retries. The job runs the user's command for the measuring time and prints
the first and the last progress record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join, quote
from tempfile import TemporaryDirectory
from typing import Any

import typer

from boa_daemon.cli.common.output import OutputFormat
from boa_daemon.cli.run.run import JobRun, run_to_receipt
from boa_daemon.cli.run.run_screen import Screen
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.submission import as_submitted
from boa_daemon.planning.class_file import gpu_types_text, measured_class
from boa_daemon.units import counted
from policies.model import InstanceType

MARK = "boa bench:"
LATE_SECONDS = 120.0
"""Extra seconds that the job of a width may take to start and to end."""
_MEASURE = """{command} & it=$!
trap 'kill $it; exit 1' TERM
seen() {{ cat "$BOA_PROGRESS_FILE" 2>/dev/null; }}
for (( ; ; )); do
  first=$(seen) && [ -n "$first" ] && break
  kill -0 $it 2>/dev/null || {{ wait $it; echo "{mark} exit code $? before its first step"; exit 1; }}
  [ $SECONDS -lt {first:.0f} ] || {{ kill $it; echo "{mark} no step in {first:.0f} s"; exit 1; }}
  sleep 0.2
done
SECONDS=0
while [ $SECONDS -le {seconds:.0f} ] && kill -0 $it 2>/dev/null; do sleep 0.2; done
echo "{mark} [$first, $(seen)]"
kill $it 2>/dev/null
for (( i = 0; i < 50; i++ )); do kill -0 $it 2>/dev/null || exit 0; sleep 0.2; done
kill -KILL $it
exit 0
"""
"""The bash script that the job of a width runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What to measure: the command, its times in seconds, and the code and image that it needs."""

    command: Sequence[str]
    seconds: float
    first_step_seconds: float
    code: Path | None = None
    image: str | None = None


def bench_job(one: BenchOptions, class_name: str, gpus: int) -> Mapping[str, Any]:
    """Return the job file that measures one width, without `max_usd`.

    Raises:
        InputError: when the code folder or the image name is not valid.
    """
    script = _MEASURE.format(
        command=join(one.command), mark=MARK, seconds=one.seconds, first=one.first_step_seconds
    )
    content: dict[str, Any] = {
        "name": f"bench-{gpus}",
        "class": class_name,
        "run": f"exec bash -c {quote(script)}",
        "min_gpus": gpus,
        "max_gpus": gpus,
        "max_hours": (one.seconds + one.first_step_seconds + LATE_SECONDS) / 3600.0,
        "retries": 0,
        "stop_grace_seconds": 10.0,
    }
    if one.code is not None:
        content["code"] = str(one.code)
    if one.image is not None:
        content["image"] = one.image
    return as_submitted(Document(name="boa bench", content=content), beside=Path.cwd())[0]


def step_seconds(log: str) -> tuple[float, int]:
    """Return the seconds per step and the number of steps, from the log of a `bench_job` job.

    Raises:
        InputError: when the job reported fewer than two steps.
    """
    lines = [line.partition(MARK)[2].strip() for line in log.splitlines() if MARK in line]
    try:
        first, last = json.loads(lines[-1])
        done = int(last["step"]) - int(first["step"])
        if done > 0:
            return (float(last["seconds"]) - float(first["seconds"])) / done, done
    except (IndexError, ValueError, KeyError, TypeError):
        pass
    tail = " | ".join(log.splitlines()[-3:])
    raise InputError(
        f"the command reported fewer than two steps{f': {tail}' if tail else ''}",
        hint="Call boa_daemon.job.report(step + 1) after each step, or raise --seconds",
    )


@dataclass(slots=True, kw_only=True)
class WidthBench(JobRun):
    """The widths of one instance type, measured one job after another on a daemon of their own."""

    contents: Mapping[int, Mapping[str, Any]]
    found: dict[int, float] = field(default_factory=dict)

    def _jobs(self) -> None:
        """Measure each width; stop at the first that cannot be measured.

        Raises:
            InputError: when another daemon already listens.
        """
        if self._revive is None:
            raise InputError(
                "another daemon already listens here, and may rent other machine types",
                hint="Stop it first, or give --config settings with a cluster and state_dir of their own",
            )
        for gpus, content in self.contents.items():
            left = max(self.max_usd - self._usd, 0.01)
            name = self._through({**content, "max_usd": left})
            if self._job is None or self._job["status"] != "finished":
                return
            self.found[gpus], steps = step_seconds(self._printed(name))
            said = f"{counted(gpus, 'GPU')}: {self.found[gpus]:.4g} s a step, over {counted(steps, 'step')}"
            self.screen.note(said)

    def _printed(self, name: str) -> str:
        text, offset = "", 0
        while True:
            chunk = self._ask(f"/jobs/{name}/logs", since=offset, generation=self._generation)
            if chunk["next_offset"] <= offset:
                return text
            text, offset = text + chunk["text"], chunk["next_offset"]


def bench_on(
    machines: Mapping[InstanceType, Sequence[int]],
    one: BenchOptions,
    *,
    name: str,
    max_usd: float,
    config: Path | None,
    socket: str | None,
) -> tuple[dict[str, dict[int, float]], int]:
    """Return the seconds per step by GPU type and width, and the first exit code that is not 0.

    Raises:
        InputError: when the command reports no steps.
    """
    found: dict[str, dict[int, float]] = {}
    for machine, widths in machines.items():
        shown = Screen(is_quiet=False, max_usd=max_usd)
        contents = {gpus: bench_job(one, name, gpus) for gpus in sorted(widths, reverse=True)}
        runs = WidthBench(content={}, contents=contents, max_usd=max_usd, screen=shown, wait_seconds=600.0)
        code = 0
        try:
            with _rented(machine, name, widths):
                run_to_receipt(runs, config, socket, form=OutputFormat.table)
        except typer.Exit as end:
            code = end.exit_code
        if runs.found:
            found.setdefault(machine.gpu_type, {}).update(runs.found)
        max_usd -= float(runs.receipt()["usd"])
        if code or len(runs.found) < len(widths):
            return found, code or 1
    return found, 0


@contextmanager
def _rented(machine: InstanceType, name: str, widths: Sequence[int]) -> Iterator[None]:
    """Set environment variables so that settings name only this machine and one class with these widths."""
    with TemporaryDirectory(prefix="boa-bench-") as folder:
        classes = Path(folder) / "classes.yaml"
        text = gpu_types_text({machine.gpu_type: machine})
        linear = {machine.gpu_type: {gpus: 1.0 / gpus for gpus in widths}}
        text += measured_class(name, linear, steps=3600, note="to be measured")
        classes.write_text(text, encoding="utf-8")
        own = {"BOA_CLOUD_INSTANCE_TYPES": machine.name, "BOA_WORKLOAD_CLASSES": str(classes)}
        before = {key: os.environ.get(key) for key in own}
        os.environ.update(own)
        try:
            yield
        finally:
            for key, value in before.items():
                os.environ.pop(key)
                if value is not None:
                    os.environ[key] = value
