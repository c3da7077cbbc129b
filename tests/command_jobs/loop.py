"""A loop of small steps under `boa_daemon.job`, alone or with helper processes.

python loop.py [--with HELPERS] [--save SECONDS] [--pause SECONDS]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from boa_daemon import job


def square(number: int) -> int:
    """Return a square; the work of a helper."""
    return number * number


def serve(questions: multiprocessing.Queue[int], answers: multiprocessing.Queue[int]) -> None:
    """Answer each question with its square."""
    while True:
        answers.put(square(questions.get()))


def worker(kind: str) -> Callable[[int], None]:
    """Return a function that asks a worker process of this start method."""
    context = multiprocessing.get_context(kind)
    questions, answers = context.Queue(), context.Queue()
    context.Process(target=serve, args=(questions, answers), daemon=True).start()

    def ask(step: int) -> None:
        questions.put(step)
        assert answers.get() == square(step)

    return ask


def pool_of(kind: str) -> Callable[[int], None]:
    pool = multiprocessing.get_context(kind).Pool(2)
    return lambda step: _check(pool.map(square, [step, step + 1]), step)


def fresh_pool() -> Callable[[int], None]:
    """Return a function that makes a pool for each step, and ends it with SIGTERM, as pools do."""

    def ask(step: int) -> None:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            _check(pool.map(square, [step, step + 1]), step)

    return ask


def executor() -> Callable[[int], None]:
    found = concurrent.futures.ProcessPoolExecutor(2)
    return lambda step: _check(list(found.map(square, [step, step + 1])), step)


def child() -> Callable[[int], None]:
    """Return a function that asks a program over pipes."""
    cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert cat.stdin is not None
    assert cat.stdout is not None
    come, go = cat.stdout, cat.stdin

    def ask(step: int) -> None:
        go.write(f"{step}\n".encode())
        go.flush()
        assert come.readline() == f"{step}\n".encode()

    return ask


def shell() -> Callable[[int], None]:
    """Return a function that runs a command in each step."""
    return lambda step: subprocess.run(f"test {step} -ge 0", shell=True, check=True) and None


def uploader() -> Callable[[int], None]:
    """Return a function that hands each step to a thread and to a process, and fails if one is gone."""
    ask, done = worker("spawn"), threading.Event()
    threading.Thread(target=done.wait, daemon=True).start()
    return ask


def own_handler() -> Callable[[int], None]:
    """Return a function that does nothing; the script's own handler of SIGTERM ends it without a save."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
    return lambda step: None


def _check(answers: list[int], step: int) -> None:
    assert answers == [square(step), square(step + 1)]


HELPERS: dict[str, Callable[[], Callable[[int], None]]] = {
    "none": lambda: lambda step: None,
    "fork": lambda: worker("fork"),
    "spawn": lambda: worker("spawn"),
    "forkserver": lambda: worker("forkserver"),
    "pool": lambda: pool_of("fork"),
    "spawn-pool": lambda: pool_of("spawn"),
    "fresh-pool": fresh_pool,
    "executor": executor,
    "child": child,
    "shell": shell,
    "uploader": uploader,
    "own-handler": own_handler,
}


def main() -> None:
    """Do steps until the stop."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--with", dest="helpers", choices=list(HELPERS), default="none")
    flags.add_argument("--late", action="store_true", help="start the helpers after the first use of the job")
    flags.add_argument("--save", type=float, default=float(os.environ.get("SAVE_SECONDS", "0")))
    flags.add_argument("--pause", type=float, default=0.005)
    flags.add_argument("--steps", type=int, default=1_000_000)
    flags.add_argument("--in-thread", action="store_true")
    asked = flags.parse_args()

    def loop() -> None:
        if asked.late:
            job.checkpoint_dir()
        ask = HELPERS[asked.helpers]()

        def save(file: object) -> None:
            time.sleep(asked.save)
            file.write(b"x")  # type: ignore[attr-defined]

        for step in job.steps(asked.steps, load=lambda path: None, save=save):
            ask(step)
            time.sleep(asked.pause)
            if step % 50 == 0:
                print("step", step, flush=True)  # noqa: T201  a job's output
        print("after the loop", flush=True)  # noqa: T201

    if asked.in_thread:
        thread = threading.Thread(target=loop)
        thread.start()
        thread.join()
    else:
        loop()


if __name__ == "__main__":
    sys.exit(main())
