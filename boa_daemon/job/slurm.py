"""Runs the units of a generation inside a Slurm job, a keeper on each node.  Standard library only.

    ... boa_daemon.job.slurm generation FOLDER     the batch script of the Slurm job
    ... boa_daemon.job.slurm unit FOLDER           one task on each node, started by the former with `srun`

Slurm delivers a signal either to the batch script alone or to every process of a step, and the latter would
end the workers of a data loader, and steps with them. So orders go to the batch script, which passes them to
each node through the standard input of `srun`. Each task hands them to its keeper, and to nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from boa_daemon.job.unit import Unit, read_json

ORDERS = {signal.SIGTERM: "stop", signal.SIGUSR1: "kill"}
LOOK_SECONDS = 1.0
"""How often a task looks for an order in the folder of its generation."""
NODE_NAME = "BOA_SLURM_NODE"
"""Variable of a unit with the name that Slurm gives its node."""


def units_below(generation: Path) -> list[Path]:
    """Return the folders of a generation's units, in the order of their ranks."""
    return sorted(generation.glob("n[0-9]*"), key=lambda folder: int(folder.name[1:]))


def run_generation(generation: Path) -> int:
    """Start a task on each node, pass orders on, and return the exit code of the generation."""
    count = len(units_below(generation))
    tasks = subprocess.Popen(
        [
            "srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--overlap",
            "--input=all", "--cpu-bind=none", "--kill-on-bad-exit=0", "--export=ALL",
            sys.executable, "-m", "boa_daemon.job.slurm", "unit", str(generation),
        ],
        stdin=subprocess.PIPE,
    )  # fmt: skip
    assert tasks.stdin is not None
    orders = tasks.stdin

    def pass_on(number: int, _frame: object) -> None:
        try:
            orders.write(f"{ORDERS[signal.Signals(number)]}\n".encode())
            orders.flush()
        except (OSError, ValueError):
            return  # The tasks have ended.

    for number in ORDERS:
        signal.signal(number, pass_on)
    return tasks.wait()


def run_unit(generation: Path) -> int:
    """Keep the unit of this node; return its exit code, 0 after an order to stop."""
    here = os.environ.get("SLURMD_NODENAME", "")
    folder = next(
        (each for each in units_below(generation) if Unit.read(each).environment.get(NODE_NAME) == here), None
    )
    if folder is None:
        print(f"boa: no unit of {generation} is for the node {here!r}", file=sys.stderr)  # noqa: T201
        return 1
    words = [sys.executable, "-m", "boa_daemon.job.keeper"]
    with (folder / "keeper.err").open("wb") as errors:
        keeper = subprocess.Popen(
            [*words, "--foreground", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        )
    for number in ORDERS:
        # `scancel` without -b, a preemption and the end of the time limit come this way.
        signal.signal(number, lambda number, _frame: keeper.send_signal(number))
    threading.Thread(target=_listen, args=(keeper,), daemon=True).start()
    _await(keeper, generation)
    if read_json(folder / "exit.json") is None:
        subprocess.run([*words, "--settle", str(folder)], stdin=subprocess.DEVNULL, cwd="/", check=False)
    end = read_json(folder / "exit.json") or {}
    code = end.get("code")
    if end.get("stop_asked") or code == 0:
        return 0
    return code if isinstance(code, int) and 0 < code < 256 else 1


def _await(keeper: subprocess.Popen[bytes], generation: Path) -> None:
    """Wait for the keeper's end; pass on the orders that the daemon wrote beside the units.

    They come late on a file system that caches, and also while Slurm's controller is dead.
    """
    given = set[str]()
    while True:
        try:
            keeper.wait(timeout=LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            for number, name in ORDERS.items():
                if name not in given and os.path.exists(generation / name):
                    given.add(name)
                    keeper.send_signal(number)
        else:
            return


def _listen(keeper: subprocess.Popen[bytes]) -> None:
    """Pass the orders that come on standard input to the keeper."""
    numbers = {name: number for number, name in ORDERS.items()}
    for line in sys.stdin:
        number = numbers.get(line.strip())
        if number is not None:
            keeper.send_signal(number)


def main(arguments: list[str]) -> int:
    """Run a generation or a unit."""
    what, folder = arguments
    return {"generation": run_generation, "unit": run_unit}[what](Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
