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
import time
from contextlib import suppress
from pathlib import Path

from boa_daemon.job.processes import is_alive, order
from boa_daemon.job.unit import Unit, is_kept, keepers_of, read_json

ORDERS = {signal.SIGTERM: "stop", signal.SIGUSR1: "kill"}
LOOK_SECONDS = 1.0
"""How often a task looks for an order in the folder of its generation."""
MOST_GUARDS = 20
"""Guards that a unit gets before it is ended, because none can live."""
KEEPER = (sys.executable, "-m", "boa_daemon.job.keeper")
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
    keeping = _Keeping(folder)
    for number in ORDERS:
        # `scancel` without -b, a preemption and the end of the time limit come this way.
        signal.signal(number, lambda number, _frame: keeping.order(number))
    threading.Thread(target=_listen, args=(keeping,), daemon=True).start()
    keeping.run()
    end = read_json(folder / "exit.json") or {}
    code = end.get("code")
    if end.get("stop_asked") or code == 0:
        return 0
    return code if isinstance(code, int) and 0 < code < 256 else 1


class _Keeping:
    """Has a unit kept until it ends: by a guard with its keeper, by either alone, or by new ones.

    Where all tasks of a step have ended, Slurm ends what they have left, and so would end a training whose
    guard or keeper somebody has killed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._given = folder, set[int]()
        self._guard: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start a guard, and others while the unit has no end and nobody keeps it; settle what none keeps."""
        for _ in range(MOST_GUARDS):
            with (self._folder / "keeper.err").open("ab") as errors:
                self._guard = subprocess.Popen(
                    [*KEEPER, "--foreground", str(self._folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    cwd="/",
                    start_new_session=True,
                )
            self._send_again()
            while self._guard.poll() is None:
                self._pass_on()
                with suppress(subprocess.TimeoutExpired):
                    self._guard.wait(timeout=LOOK_SECONDS)
            self._send_again()
            while self._is_kept():
                self._pass_on()
                time.sleep(LOOK_SECONDS)
            if read_json(self._folder / "exit.json") is not None:
                return
        subprocess.run(
            [*KEEPER, "--settle", str(self._folder)], stdin=subprocess.DEVNULL, cwd="/", check=False
        )

    def _is_kept(self) -> bool:
        return read_json(self._folder / "exit.json") is None and is_kept(
            read_json(self._folder / "keeper.json")
        )

    def order(self, number: int) -> None:
        """Give an order to whoever keeps the unit."""
        self._given.add(number)
        self._send(number)

    def _send_again(self) -> None:
        """Send what was ordered to who keeps the unit now: who did before may have died with it."""
        for number in self._given.copy():
            self._send(number)

    def _send(self, number: int) -> None:
        if self._guard is not None and self._guard.poll() is None:
            order(self._guard.pid, signal.Signals(number))
            return
        for pid, ticks in keepers_of(read_json(self._folder / "keeper.json")):
            if is_alive(pid, ticks):
                order(pid, signal.Signals(number))

    def _pass_on(self) -> None:
        """Pass on the orders that the daemon wrote beside the units.

        They come late on a file system that caches, and also while Slurm's controller is dead.
        """
        for number, name in ORDERS.items():
            if number not in self._given and os.path.exists(self._folder.parent / name):
                self.order(number)


def _listen(keeping: _Keeping) -> None:
    """Pass the orders that come on standard input to the keeper."""
    numbers = {name: number for number, name in ORDERS.items()}
    for line in sys.stdin:
        number = numbers.get(line.strip())
        if number is not None:
            keeping.order(number)


def main(arguments: list[str]) -> int:
    """Run a generation or a unit."""
    what, folder = arguments
    return {"generation": run_generation, "unit": run_unit}[what](Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
