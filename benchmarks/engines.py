"""The time that engines take to start, stop and resume jobs.

    python benchmarks/engines.py            # local engine, about a minute
    python benchmarks/engines.py --all      # and PyTorch, Ray, and SSM whose scripts run here: some minutes

The baseline is the same command without an engine, started with the same environment and stopped with
SIGTERM. Times are medians, in seconds. Most of each time is the start of Python and its imports; the engine's
part is the difference from the baseline.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engine_bench import DDP, NUMPY, Bench
from engine_worlds import ENGINES, World, ray_world

from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import Accepted

HERE = Path(__file__).parent
WIDTHS = (1, 2)
STEPS = "--steps 1000000"


def median_row(name: str, times: list[tuple[float, float, float]]) -> None:
    """Print the medians of (start to first step, stop to manifest, resume to first step)."""
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in medians) + " |", flush=True)


def baseline(command: str, width: int, folder: Path) -> tuple[float, float, float]:
    """Return the three times of a command without any engine."""
    environment = {
        **os.environ,
        "BOA_GPUS": str(width),
        "BOA_GPUS_PER_NODE": str(width),
        "PET_NPROC_PER_NODE": str(width),
        "BOA_CHECKPOINT_DIR": str(folder / "checkpoint"),
        "BOA_PROGRESS_FILE": str(folder / "progress.json"),
        "MASTER_PORT": "29477",
        "PET_RDZV_ENDPOINT": "127.0.0.1:29477",
        "PET_RDZV_BACKEND": "c10d",
        "PET_LOCAL_ADDR": "127.0.0.1",
    }
    first, stop = _run_once(command, environment, folder)
    again, _ = _run_once(command, environment, folder)
    return first, stop, again


def _run_once(command: str, environment: dict[str, str], folder: Path) -> tuple[float, float]:
    """Return (seconds to the first step, seconds from SIGTERM to a new manifest)."""
    progress, manifest = folder / "progress.json", folder / "checkpoint" / "manifest.json"
    progress.unlink(missing_ok=True)
    began = time.perf_counter()
    with subprocess.Popen(
        shlex.split(command), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:  # fmt: skip
        _until(lambda: progress.exists() and progress.stat().st_size > 0)
        first = time.perf_counter() - began
        before = manifest.stat().st_mtime_ns if manifest.exists() else 0
        began = time.perf_counter()
        os.killpg(process.pid, signal.SIGTERM)
        _until(lambda: manifest.exists() and manifest.stat().st_mtime_ns != before)
        stop = time.perf_counter() - began
    return first, stop


def _until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.perf_counter() + seconds
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError("the job did not get that far")
        time.sleep(0.005)


def measured(bench: Bench, width: int) -> tuple[float, float, float]:
    """Return the three times under an engine, each from the order to the report of its effect."""
    began = time.perf_counter()
    bench.start(width)
    step = bench.wait(lambda report: report.step is not None).step or 0
    first = time.perf_counter() - began
    began = time.perf_counter()
    bench.stop()
    end = bench.wait_end()
    stop = time.perf_counter() - began
    assert end.lost_steps == 0, end
    began = time.perf_counter()
    bench.start(width)
    bench.wait(lambda report: (report.step or 0) > step)
    again = time.perf_counter() - began
    bench.stop()
    bench.wait_end()
    return first, stop, again


@contextmanager
def a_bench(world: World, command: str) -> Iterator[Bench]:
    """Yield an engine with a job."""
    with tempfile.TemporaryDirectory(prefix="boa-engines-") as folder, world(Path(folder) / "root") as make:
        bench = Bench(engine=make(), workdir=Path(folder))
        nodes = [a_node(name) for name in bench.nodes]
        _until(lambda: set(bench.engine.prepare(nodes).values()) == {Accepted()})
        bench.admit(command)
        yield bench


def main() -> None:
    """Print the tables."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--all", action="store_true", help="every engine, and PyTorch")
    flags.add_argument("--repeats", type=int, default=3)
    asked = flags.parse_args()
    print("| what | start to first step | stop to manifest | resume to first step |\n|---|---|---|---|")
    jobs = {"numpy": f"{NUMPY} {STEPS} --pause 0.002"}
    if asked.all:
        jobs["torch"] = f"{DDP} {STEPS}"
    for job, command in jobs.items():
        for width in WIDTHS:
            with tempfile.TemporaryDirectory() as folder:
                times = [
                    baseline(command, width, Path(folder, str(at)))
                    for at in range(asked.repeats)
                    if not Path(folder, str(at)).mkdir()
                ]
            median_row(f"{job}, width {width}, no engine", times)
            every = {**ENGINES, "ray": ray_world}
            engines = every if asked.all and job == "numpy" else {"local": ENGINES["local"]}
            for name, world in engines.items():
                with a_bench(world, command) as bench:
                    median_row(
                        f"{job}, width {width}, {name}",
                        [measured(bench, width) for _ in range(asked.repeats)],
                    )


if __name__ == "__main__":
    main()
