"""A study on one process, on two, killed and continued, and on Ray: equal answers and times.

    python benchmarks/study.py                           # 239 runs of benchmarks/study.yaml, some minutes
    python benchmarks/study.py STUDY.yaml --only graph   # what 1 to 64 processes would take

Each way runs `boa study` in a process of its own with an empty folder of answers. `killed` ends the study and
its workers after a third of the time that one process took, and gives the same command again. Ray is a
cluster of three nodes on this machine; one of its workers is killed. Answers are compared line by line.

The graph is measured here: each run's processor seconds, in the order in which its cell needs them; a rival's
cell begins after the end of its reference's cell. The schedule is simulated: the first cell that is ready
gets the next free process. Not included are the start of a process, and runs that idle processes do ahead.
"""

from __future__ import annotations

import argparse
import heapq
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from boa_daemon.lab.compare.study import CaseRow, run_study
from boa_daemon.lab.compare.study_file import load_study
from boa_daemon.tasks.tasks import Tasks
from boa_daemon.tasks.workers import InlineWorkers

ROOT = Path(__file__).resolve().parents[1]
WAYS = ("one", "two", "killed", "ray", "graph")
PORT = 10137
PROCESSES = (1, 2, 4, 8, 16, 32, 64)


def command(study: Path, on: str, out: Path) -> list[str]:
    """Return the command as a user would type it."""
    return [
        sys.executable,
        "-m",
        "boa_daemon",
        "study",
        str(study),
        "--on",
        on,
        "--out",
        str(out),
        "-o",
        "csv",
    ]


def run(study: Path, on: str, out: Path, *, beside: Callable[[], None] = lambda: None) -> tuple[float, str]:
    """Return the seconds of the study, and its answer."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command(study, on, out),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    beside()
    answer, said = process.communicate()
    if process.returncode not in {0, 4}:
        raise SystemExit(f"{on}: {said}")
    return time.perf_counter() - began, answer


def killed(study: Path, out: Path, after_seconds: float) -> tuple[float, str, int]:
    """Kill the study and continue it; return the seconds of both parts, the answer, the runs kept."""
    began = time.perf_counter()
    first = subprocess.Popen(
        command(study, "local:2", out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(after_seconds)
    with suppress(ProcessLookupError):
        os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    kept = sum(1 for _ in out.rglob("*.json"))
    return time.perf_counter() - began + (again := run(study, "local:2", out))[0], again[1], kept


@contextmanager
def a_cluster() -> Iterator[str]:
    """Yield the address of a Ray cluster of three nodes on this machine."""
    import ray.cluster_utils  # noqa: PLC0415 - an extra

    cluster = ray.cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": PORT},
    )
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        yield f"ray://127.0.0.1:{PORT}"
    finally:
        cluster.shutdown()


def kill_a_worker() -> None:
    """Kill a Ray process that runs a task, as soon as one exists."""
    until = time.monotonic() + 120.0
    while time.monotonic() < until:
        found = subprocess.run(["pgrep", "-f", "ray::perform"], capture_output=True, text=True, check=False)
        if found.stdout.split():
            os.kill(int(found.stdout.split()[0]), signal.SIGKILL)
            return
        time.sleep(0.05)
    raise SystemExit("ray: no worker did a task within two minutes")


class Timed(InlineWorkers):
    """Runs tasks in this process, and notes the processor seconds of each."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def answer(self, task: bytes) -> bytes:
        """Run a task and return its answer."""
        began = time.process_time()
        answer = super().answer(task)
        self.seconds.append(time.process_time() - began)
        return answer


def graph(study: Path) -> list[tuple[list[float], list[list[float]]]]:
    """Return for each reference its runs' seconds in order, and those of each rival that follows it."""
    asked, workers = load_study(study), Timed()
    chains: dict[tuple[object, ...], tuple[list[float], list[list[float]]]] = {}

    def on_found(found: CaseRow) -> None:
        own, workers.seconds = workers.seconds, []
        key = (id(found.case), found.cell.budget, found.cell.max_nodes, found.cell.seed)
        if found.cell.target is None:
            chains[key] = (own, [])
        else:
            chains[key][1].append(own)

    with Tasks(workers) as tasks:
        run_study(asked, tasks, on_found=on_found)
    return list(chains.values())


def seconds_on(chains: list[tuple[list[float], list[list[float]]]], processes: int) -> float:
    """Return the end of the last run on this many processes."""
    free = [0.0] * processes
    # (ready at, number, runs left of the cell, cells that follow)
    ready = [(0.0, n, first, rivals) for n, (first, rivals) in enumerate(chains)]
    number, end = len(ready), 0.0
    heapq.heapify(ready)
    while ready:
        at, _, runs, follow = heapq.heappop(ready)
        if not runs:
            for rival in follow:
                number += 1
                heapq.heappush(ready, (at, number, rival, []))
            continue
        ends = max(at, heapq.heappop(free)) + runs[0]
        heapq.heappush(free, ends)
        end = max(end, ends)
        number += 1
        heapq.heappush(ready, (ends, number, runs[1:], follow))
    return end


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("study", type=Path, nargs="?", default=ROOT / "benchmarks" / "study.yaml")
    parser.add_argument("--only", choices=WAYS, action="append")
    words = parser.parse_args()
    ways = words.only or WAYS
    answers: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, study = Path(name), words.study.resolve()
        alone = 0.0
        if {"one", "two", "killed", "ray"} & set(ways):
            alone, answers["one"] = run(study, "local:1", folder / "one")
            runs = sum(1 for _ in (folder / "one").rglob("*.json"))
            cells = len(answers["one"].splitlines()) - 1
            print(f"one process: {cells} cells, {runs} runs, {alone:.1f} s", flush=True)
        if "two" in ways:
            seconds, answers["two"] = run(study, "local:2", folder / "two")
            print(f"two processes: {seconds:.1f} s, {alone / seconds:.2f} times as fast", flush=True)
        if "killed" in ways:
            seconds, answers["killed"], kept = killed(study, folder / "killed", alone / 3.0)
            print(f"killed and continued: {seconds:.1f} s in all, {kept} runs were kept", flush=True)
        if "ray" in ways:
            with a_cluster() as address:
                seconds, answers["ray"] = run(study, address, folder / "ray", beside=kill_a_worker)
            print(f"Ray, three nodes, a worker killed: {seconds:.1f} s", flush=True)
        if "graph" in ways:
            measured = graph(study)
            for times in (1, 8):
                chains = measured * times
                print(f"the graph, {len(chains)} references with their rivals:", flush=True)
                for processes in PROCESSES:
                    faster = seconds_on(chains, 1) / seconds_on(chains, processes)
                    print(f"  {processes:3} processes: {faster:5.1f} times one", flush=True)
    for way, answer in answers.items():
        if answer != answers["one"]:
            raise SystemExit(f"{way}: the answer differs from that of one process")
    if answers:
        print(f"answers equal to the last digit: {', '.join(answers)}")


if __name__ == "__main__":
    main()
