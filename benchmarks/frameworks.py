"""The cost of a resize for each framework: 1 -> 2 -> 4 -> 1 with and without kills, beside an unbroken run.

    python benchmarks/frameworks.py                          # all that are installed; an hour and more
    python benchmarks/frameworks.py --framework ddp          # one of them
    python benchmarks/frameworks.py --engine ssm             # on nodes whose scripts run here, S3 of moto

Results are written to `--output` as they come, by default the file behind the table in the documentation. The
same command again measures what is missing there and prints the table; `--again` measures the named courses
anew. Lines to adapt are the lines of the example that name something of `boa_daemon`, imports included. Lost
steps are the engine's own count. Seconds are from the decision (the order to stop, or the kill) to the first
step that the next generation reports; the median of the three moves. Under kills a process of the job gets
SIGKILL at each width. Under `ssm` and `ray` 2 and 4 workers are on two nodes, and each generation begins on
the other node, so that its checkpoint has to be moved there. The baseline is the same script at one width,
unbroken: the loss after the same number of steps.
"""

from __future__ import annotations

import argparse
import ast
import json
import logging
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engine_bench import EXAMPLES, TORCHRUN, Bench
from engine_worlds import ENGINES, ray_world

from boa_daemon.job.processes import carrying, started_ticks
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import Accepted, Runner, RunReport

HERE = Path(__file__).parent
FOUND = HERE.parent / "docs" / "explanation" / "data" / "frameworks.json"
WIDTHS = (1, 2, 4)
COURSES = ("peace", "kills")
EVERY = 10
AHEAD = 5
"""Steps of each generation before its resize; a killed generation has saved none of them."""
TOTAL = 400
"""Steps of a course unless its last resize comes later; so one unbroken run serves all engines."""
NEVER = 1_000_000
PATIENCE_SECONDS = 600.0
WORLDS = {**ENGINES, "ray": ray_world}
Found = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of job: its example, its launcher, the required packages, and the number of nodes it may use."""

    example: str
    needs: str
    start: str = TORCHRUN
    engines: tuple[str, ...] = tuple(WORLDS)
    nodes: int = 2
    pause: float = 0.05

    def command(self, steps: int, every: int = NEVER, *, is_slow: bool = False) -> str:
        """Return the command that runs this many steps and saves a checkpoint every `every` steps."""
        pause = self.pause if is_slow else 0.0
        return f"{self.start} {EXAMPLES / self.example} --steps {steps} --every {every} --pause {pause}"


KINDS = {
    "numpy": Kind(example="train_numpy.py", needs="numpy", start=sys.executable, pause=0.01),
    "ddp": Kind(example="train_ddp.py", needs="torch"),
    "fsdp2": Kind(example="train_fsdp.py", needs="torch"),
    "huggingface": Kind(example="train_huggingface.py", needs="transformers"),
    "lightning": Kind(example="train_lightning.py", needs="lightning"),
    "fabric": Kind(example="train_fabric.py", needs="lightning"),
    "accelerate": Kind(example="train_accelerate.py", needs="accelerate"),
    "jax": Kind(example="train_jax.py", needs="jax", start=sys.executable, nodes=1),
    "ray": Kind(example="train_ray.py", needs="ray", start=sys.executable, engines=("ray",)),
}


def lines_to_adapt(source: str) -> int:
    """Return how many lines name something of `boa_daemon`, or a result of one of its calls."""
    tree = ast.parse(source)
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("boa_daemon")
        for alias in node.names
    }

    def is_ours(node: ast.AST) -> bool:
        return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and is_ours(node.value.func):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.withitem) and is_ours(node.context_expr):
            names |= {node.optional_vars.id} if isinstance(node.optional_vars, ast.Name) else set()
    lines = {each.lineno for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id in names}
    lines |= {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("boa_daemon")
    }
    return len(lines)


@dataclass(slots=True)
class Course:
    """The figures of 1 -> 2 -> 4 -> 1: seconds to a generation's end and to the next one's first step."""

    lost: int = 0
    to_end: list[float] = field(default_factory=list)
    to_step: list[float] = field(default_factory=list)
    steps: int = 0
    loss: float | None = None


def run_course(bench: Bench, kind: Kind, engine: str, *, kills: bool) -> Course:
    """Start at each width, wait for some steps, stop or kill, and finish on one worker."""
    course, standing = Course(), 0
    nodes = 1 if engine == "local" else kind.nodes
    admit(bench, engine, kind.command(NEVER, EVERY if kills else NEVER, is_slow=True))
    decided: float | None = None
    for gpus in WIDTHS:
        bench.start(gpus, nodes=min(gpus, nodes))
        wait_step(bench, standing + 1)
        if decided is not None:
            course.to_step.append(time.monotonic() - decided)
        wait_step(bench, standing + AHEAD + (EVERY if kills else 0))
        decided = time.monotonic()
        if kills:
            kill_a_process(bench)
        else:
            bench.stop()
        end = bench.wait_end(seconds=PATIENCE_SECONDS)
        course.to_end.append(time.monotonic() - decided)
        assert end.phase == ("failed" if kills else "stopped"), f"{end}\n{bench.printed()}"
        course.lost += end.lost_steps
        standing = end.manifest.step if end.manifest is not None else 0
        bench.nodes = bench.nodes[::-1]
    course.steps = max(TOTAL, standing + AHEAD)
    admit(bench, engine, kind.command(course.steps))
    bench.start(1)
    wait_step(bench, standing + 1)
    assert decided is not None
    course.to_step.append(time.monotonic() - decided)
    course.loss = finished(bench).loss
    return course


def admit(bench: Bench, engine: str, run: str) -> None:
    """Admit the command; on rented nodes each node has its own folder."""
    alone = {"workdir": "."} if engine == "ssm" else {}
    one_thread = {"OMP_NUM_THREADS": "1"}
    answer = bench.admit(run, stop_grace_seconds=120.0, environment=one_thread, **alone)
    assert answer == Accepted(), answer


def wait_step(bench: Bench, step: int) -> None:
    """Wait until a step is reported."""
    bench.wait(lambda report: (report.step or 0) >= step, seconds=PATIENCE_SECONDS)


def finished(bench: Bench) -> RunReport:
    """Wait for the end, and check that the job finished."""
    end = bench.wait_end(seconds=PATIENCE_SECONDS)
    assert end.phase == "finished", f"{end}\n{bench.printed()}"
    return end


def command_of(pid: int) -> str:
    """Return the command line of a process, or an empty one if the process has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


def kill_a_process(bench: Bench) -> None:
    """Kill the newest process of the generation: a worker, if a launcher has started workers."""
    ours = set(carrying(f"BOA_JOB_ID={bench.job}")) & set(carrying(f"BOA_GENERATION={bench.generation}"))
    # Ray Train starts helpers after its workers, and goes on if a helper dies.
    ours = {pid for pid in ours if "RayTrainWorker" in command_of(pid)} or ours
    os.kill(max(ours, key=lambda pid: (started_ticks(pid) or 0, pid)), signal.SIGKILL)


def measure(name: str, engine: str, course: str, *, runner: Runner, folder: Path, found: Found) -> Found:
    """Return the figures of a course; its unbroken run is added to `found`."""
    kind = KINDS[name]

    def a_bench(job: str) -> Bench:
        (folder / job).mkdir()
        # The name is unique on this machine, because processes are killed by the job's name.
        return Bench(engine=runner, workdir=folder / job, job=f"{job}-{os.getpid()}")

    done = run_course(a_bench(f"{name}-{course}"), kind, engine, kills=course == "kills")
    baseline = f"{name} unbroken {done.steps}"
    if baseline not in found:
        bench = a_bench(f"{name}-{done.steps}")
        admit(bench, engine, kind.command(done.steps))
        bench.start(1)
        found[baseline] = finished(bench).loss
    assert done.loss is not None
    return {**asdict(done), "away": abs(done.loss - found[baseline]) / abs(found[baseline])}


def end_all(runner: Runner) -> None:
    """Kill all running jobs, also if a course fails or is interrupted."""
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        running = [report for report in runner.poll().values() if not report.is_over]
        for report in running:
            runner.kill(report.job, report.generation)
        if not running:
            return
        time.sleep(0.2)


def table(found: Found) -> str:
    """Return the results as a table, with a dash for each missing measurement."""
    rows = [
        "| kind | engine | lines | lost in peace | lost under three kills | s | s after kills | loss away |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, kind in KINDS.items():
        lines = lines_to_adapt((EXAMPLES / kind.example).read_text())
        for engine in WORLDS:
            measured = {course: found.get(f"{name} {engine} {course}", {}) for course in COURSES}
            courses = {course: one for course, one in measured.items() if "away" in one}
            if not courses:
                continue
            lost = [str(courses[course]["lost"]) if course in courses else "-" for course in COURSES]
            seconds = [
                f"{statistics.median(courses[course]['to_step']):.1f}" if course in courses else "-"
                for course in COURSES
            ]
            away = max(one["away"] for one in courses.values())
            said = f"{away:.1e}" if away else "0"
            rows.append(f"| {' | '.join([name, engine, str(lines), *lost, *seconds, said])} |")
    return "\n".join(rows)


def main() -> None:
    """Measure what is missing, and print the table."""
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    flags.add_argument("--framework", action="append", choices=list(KINDS))
    flags.add_argument("--engine", action="append", choices=list(WORLDS))
    flags.add_argument("--course", action="append", choices=COURSES)
    flags.add_argument("--output", type=Path, default=FOUND, help="file of results, read and written")
    flags.add_argument("--again", action="store_true", help="measure again what has a result")
    asked = flags.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # SIGTERM to this script also ends its jobs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    output: Path = asked.output
    found: Found = json.loads(output.read_text()) if output.exists() else {}
    for engine in asked.engine or WORLDS:
        missing = [
            (name, course)
            for name in asked.framework or KINDS
            for course in asked.course or COURSES
            if engine in KINDS[name].engines
            and find_spec(KINDS[name].needs)
            and (asked.again or "away" not in found.get(f"{name} {engine} {course}", {}))
        ]
        if missing:
            measure_all(engine, missing, found, output)
    print(table(found))


def measure_all(engine: str, missing: list[tuple[str, str]], found: Found, output: Path) -> None:
    """Measure courses on one engine, and write down each result."""
    with tempfile.TemporaryDirectory(prefix="boa-frameworks-") as folder, ExitStack() as stack:
        runner = stack.enter_context(WORLDS[engine](Path(folder) / "root"))()
        stack.callback(end_all, runner)
        nodes = [a_node(node) for node in Bench(engine=runner, workdir=Path(folder)).nodes]
        until = time.monotonic() + PATIENCE_SECONDS
        while set(runner.prepare(nodes).values()) != {Accepted()} and time.monotonic() < until:
            time.sleep(0.1)
        for name, course in missing:
            began = time.monotonic()
            try:
                one = measure(name, engine, course, runner=runner, folder=Path(folder), found=found)
            except (AssertionError, ValueError) as error:
                one = {"failed": str(error)[:4000]}
                end_all(runner)
            found[f"{name} {engine} {course}"] = one
            said = {key: value for key, value in one.items() if key != "failed"} or one
            print(f"{name} {engine} {course}, {time.monotonic() - began:.0f} s: {said}", file=sys.stderr)
            output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
