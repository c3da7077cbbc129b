"""What resizing costs each framework: 1 -> 2 -> 4 -> 1 in peace and under kills, beside an unbroken run.

    python benchmarks/frameworks.py                    # all that are installed, some minutes each
    python benchmarks/frameworks.py --framework ddp    # one of them
    python benchmarks/frameworks.py --engine ssm       # on nodes whose scripts run here, S3 and SQS of moto

Lines to adapt are those of the example that name something of `boa_daemon`, imports included. Lost steps are
the engine's own count. Seconds are from the decision, the order to stop, to the first step that the next
generation reports; the median of the three moves. The baseline is the same script at one width, unbroken: the
loss after the same number of steps is compared with its loss.
"""

from __future__ import annotations

import argparse
import ast
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from engine_bench import EXAMPLES, TORCHRUN, Bench  # noqa: E402  what the tests use to start, stop and wait
from engine_worlds import ENGINES, World, ray_world  # noqa: E402  after its folder is on the path

from boa_daemon.testing import a_node  # noqa: E402
from boa_daemon.tick.ports import Accepted, Runner  # noqa: E402

WIDTHS = (1, 2, 4)
COURSES = ("peace", "kills")
EVERY = 10
AHEAD = 5
"""Steps that each generation makes before it is moved; where it is killed it has saved none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of job: its example, what starts it, and what must be installed."""

    example: str
    needs: str
    start: str = TORCHRUN
    engines: tuple[str, ...] = ("local", "ssm")


KINDS = {
    "numpy": Kind(example="train_numpy.py", needs="numpy", start=sys.executable),
    "ddp": Kind(example="train_ddp.py", needs="torch"),
    "fsdp2": Kind(example="train_fsdp.py", needs="torch"),
    "huggingface": Kind(example="train_huggingface.py", needs="transformers"),
    "lightning": Kind(example="train_lightning.py", needs="lightning"),
    "fabric": Kind(example="train_fabric.py", needs="lightning"),
    "accelerate": Kind(example="train_accelerate.py", needs="accelerate"),
    "jax": Kind(example="train_jax.py", needs="jax", start=sys.executable),
    "ray": Kind(example="train_ray.py", needs="ray", start=sys.executable, engines=("ray",)),
}


def lines_to_adapt(source: str) -> int:
    """Return how many lines name something of `boa_daemon`, or what one of its calls gave."""
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
    """What 1 -> 2 -> 4 -> 1 came to."""

    lost: int = 0
    seconds: list[float] = field(default_factory=list)
    steps: int = 0
    loss: float | None = None


def run_course(bench: Bench, command: str, *, kills: bool) -> Course:
    """Start at each width, go some steps, stop or kill, and finish at one worker."""
    course, standing = Course(), 0
    every = EVERY if kills else 1_000_000
    bench.admit(f"{command} --steps 1000000 --every {every} --pause 0.02", stop_grace_seconds=60.0)
    decided: float | None = None
    for gpus in WIDTHS:
        bench.start(gpus)
        bench.wait_step(standing + 1)
        if decided is not None:
            course.seconds.append(time.monotonic() - decided)
        bench.wait_step(standing + AHEAD + (EVERY if kills else 0))
        decided = time.monotonic()
        if kills:
            bench.engine.kill(bench.job, bench.generation)
        else:
            bench.stop()
        end = bench.wait_end()
        course.lost += end.lost_steps
        standing = end.manifest.step if end.manifest is not None else 0
    course.steps = standing + AHEAD
    bench.admit(f"{command} --steps {course.steps} --every 1000000", stop_grace_seconds=60.0)
    bench.start(1)
    bench.wait(lambda report: report.is_over or (report.step or 0) > standing)
    assert decided is not None
    course.seconds.append(time.monotonic() - decided)
    end = bench.wait_end()
    assert end.phase == "finished", f"{end}\n{bench.printed()}"
    course.loss = end.loss
    return course


def row_of(name: str, kind: Kind, engine: str, world: World, *, courses: tuple[str, ...]) -> str:
    """Return a framework's row of the table; a course that is not run has a dash."""
    with (
        tempfile.TemporaryDirectory(prefix="boa-frameworks-") as folder,
        world(Path(folder) / "root") as make,
    ):
        work = Path(folder) / "work"
        work.mkdir()
        runner = make()
        command = f"{kind.start} {EXAMPLES / kind.example}"
        nodes = [a_node(node) for node in Bench(engine=runner, workdir=work).nodes]
        until = time.monotonic() + 60.0
        while set(runner.prepare(nodes).values()) != {Accepted()} and time.monotonic() < until:
            time.sleep(0.1)
        try:
            found = {
                job: run_course(Bench(engine=runner, workdir=work, job=job), command, kills=job == "kills")
                for job in courses
            }
            one = found[courses[0]]
            whole = Bench(engine=runner, workdir=work, job="whole")
            unbroken = whole.run_to_end(f"{command} --steps {one.steps} --every 1000000").loss
        finally:
            end_all(runner)
    assert one.loss is not None
    assert unbroken is not None
    lost = [str(found[job].lost) if job in found else "-" for job in COURSES]
    seconds = [f"{statistics.median(found[job].seconds):.1f}" if job in found else "-" for job in COURSES]
    cells = [name, engine, str(lines_to_adapt((EXAMPLES / kind.example).read_text())), *lost, *seconds]
    return f"| {' | '.join(cells)} | {abs(one.loss - unbroken) / abs(unbroken):.1e} |"


def end_all(runner: Runner) -> None:
    """End what runs: nothing is left behind where a course fails, or is interrupted."""
    until = time.monotonic() + 20.0
    while time.monotonic() < until:
        running = [report for report in runner.poll().values() if not report.is_over]
        for report in running:
            runner.kill(report.job, report.generation)
        if not running:
            return
        time.sleep(0.2)


def main() -> None:
    """Print the table."""
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    flags.add_argument("--framework", action="append", choices=list(KINDS))
    flags.add_argument("--engine", action="append", choices=["local", "ssm", "ray"])
    flags.add_argument("--course", action="append", choices=COURSES)
    asked = flags.parse_args()
    # Whoever ends this ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    worlds = {**ENGINES, "ray": ray_world}
    print("| kind | engine | lines | lost in peace | lost under kills | s | s after kills | loss away |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in asked.framework or KINDS:
        kind = KINDS[name]
        if find_spec(kind.needs) is None:
            print(f"| {name} | | | | | | | not installed |", flush=True)
            continue
        for engine in asked.engine or ("local", "ssm", "ray"):
            if engine in kind.engines:
                print(
                    row_of(name, kind, engine, worlds[engine], courses=tuple(asked.course or COURSES)),
                    flush=True,
                )


if __name__ == "__main__":
    main()
