"""Runs a command or a shell beside a job, in its folder, as its user.  Standard library only.

    ... boa_daemon.job.unit_access FOLDER --seconds N COMMAND    one command; prints its result as JSON
    ... boa_daemon.job.unit_access FOLDER                        a shell on the present terminal
    ... boa_daemon.job.unit_access FOLDER --terminal             the same, as leader of a new session

FOLDER is the folder of a running unit. The command or shell ends with the unit, after its time limit, or with
the process that started it. While it runs, the modification time of the file `inside` is kept recent.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from boa_daemon.job.account import become, working_folder
from boa_daemon.job.container import (
    RUN_AS_USER,
    NoContainers,
    in_container,
    program,
    renamed_inside,
    usable_tool,
)
from boa_daemon.job.course import read_course
from boa_daemon.job.own_memory import enter_memory_of, has_own_memory
from boa_daemon.job.processes import descendants, is_alive, send, started_ticks
from boa_daemon.job.secrets import SecretMissing, values_of
from boa_daemon.job.unit import Unit, keepers_of, read_own

MOST_OUTPUT = 16_000
"""Limit of the output that is kept, the newest part; SSM returns at most 24,000 characters."""
MOST_DOCUMENT = 23_000
LOOK_SECONDS, PRESENT_SECONDS = 0.1, 5.0
NOT_RUNNING, HAS_ENDED = "the job does not run on this node", "the job has ended on this node"
NOT_HERE = 69
"""Exit code if the unit does not run, or if nothing can be started beside it."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ENDS = (signal.SIGTERM, signal.SIGHUP)


class UnitAccessFailed(RuntimeError):
    """Nothing can be started beside the job."""


def keepers_that_live(folder: Path) -> list[tuple[int, int]]:
    """Return the processes that keep a unit: their ids, and their start times in clock ticks.

    Raises:
        UnitAccessFailed: when the unit does not run.
    """
    found = [one for one in keepers_of(read_own(folder, "keeper.json")) if is_alive(*one)]
    if not found:
        raise UnitAccessFailed(NOT_RUNNING)
    return found


def words_of(unit: Unit, command: str, tool: str = "") -> list[str]:
    """Return the command line for a command beside a unit's, or for a shell if `command` is empty."""
    shell = ["/bin/bash", "-c", command] if command else ["/bin/bash", "-i"]
    if not unit.image:
        return shell
    if tool == "apptainer":
        # Each call is a container of its own, with the same folders and GPUs.
        return in_container(replace(unit, run=command or "bash -i"), tool, unit.environment)
    inner = renamed_inside(unit) + 'exec "$(command -v bash || echo /bin/sh)" '
    inner += '-c "$0"' if command else "-i"
    terminal = () if command else ("--interactive", "--tty")
    return [tool, "exec", *terminal, unit.name, "/bin/sh", "-c", inner, *([command] if command else [])]


class UnitAccess:
    """Starts a process beside a unit, and watches it until its end."""

    def __init__(self, folder: Path) -> None:
        try:
            self.unit = Unit.read(folder)
        except FileNotFoundError:
            raise UnitAccessFailed(NOT_RUNNING) from None  # It has ended, and its folder is gone.
        self._keepers = keepers_that_live(folder)
        self._is_to_end = False
        self._looked_at = 0.0
        self._libc = ctypes.CDLL(None, use_errno=True)

    def start(self, command: str, **given: Any) -> subprocess.Popen[bytes]:
        """Start a command (or a shell) as the job's user; the kernel kills it if this process dies.

        Raises:
            UnitAccessFailed: when it cannot be started.
        """
        for number in _ENDS:
            signal.signal(number, self._end)
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        unit, libc, parent = self.unit, self._libc, os.getpid()
        try:
            tool = usable_tool() if unit.image else ""
            secrets = values_of(unit.secrets, unit.secrets_file)
        except (NoContainers, SecretMissing) as error:
            raise UnitAccessFailed(str(error)) from None

        def become_child() -> None:
            if not is_ours:
                with unit.as_user():
                    os.fchdir(workdir)
                if beside:
                    enter_memory_of(beside)
                    with unit.as_user():
                        os.chdir(unit.workdir)
                become(unit)
            # The kernel forgets it when a process changes its user.
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        # A tool that enters the container has our rights: it gets our variables, and none of the job's.
        is_ours = tool in RUN_AS_USER
        beside = 0 if is_ours else self._enclosed()
        words = words_of(unit, command, tool)
        try:
            workdir = working_folder(unit)
            return subprocess.Popen(
                [program(words[0]), *words[1:]] if tool else words,
                cwd="/",
                env=dict(os.environ) if is_ours else {**os.environ, **unit.environment, **secrets},
                preexec_fn=become_child,  # noqa: PLW1509  no thread runs yet
                **given,
            )
        except (OSError, subprocess.SubprocessError) as error:
            # The second: its process could not become one beside the job's.
            if not self._is_kept():
                raise UnitAccessFailed(HAS_ENDED) from None
            why = error.strerror if isinstance(error, OSError) else "it cannot be put beside the job"
            raise UnitAccessFailed(f"cannot start in {unit.workdir}: {why}") from None

    def _enclosed(self) -> int:
        """Return a process of the unit's command that has shared memory of its own; 0 if there is none."""
        course = read_course(self.unit.folder)
        if course is None or not course.has_own_memory:
            return 0
        # The number of a first process that has ended may be that of another job's by now.
        pids = [*([course.child] if course.child_lives else []), *course.control_group.pids()]
        return next(filter(has_own_memory, pids), 0)

    def _end(self, _number: int, _frame: object) -> None:
        self._is_to_end = True

    def watch(self, process: subprocess.Popen[bytes], seconds: float | None = None) -> str:
        """Wait for the process, kill it with the unit or after `seconds`; return why, empty if not killed."""
        until = None if seconds is None else time.monotonic() + seconds
        why = ""
        while process.poll() is None:
            if self._is_to_end:
                why = "the process that started it is gone"
            elif not self._is_kept():
                why = HAS_ENDED
            elif until is not None and time.monotonic() >= until:
                why = f"its {seconds:g} s are over"
            if why:
                break
            self._be_present()
            time.sleep(LOOK_SECONDS)
        while below := [pid for pid in descendants(os.getpid()) if started_ticks(pid) is not None]:
            send(below, signal.SIGKILL)
            time.sleep(0.02)
        if not why and process.wait() < 0 and not self._is_kept():
            why = HAS_ENDED  # Whoever ended the job has ended this, too.
        process.wait()
        return why

    def _is_kept(self) -> bool:
        """Return whether the unit runs; its keeper may have been replaced meanwhile."""
        if any(is_alive(*one) for one in self._keepers):
            return True
        with suppress(UnitAccessFailed, OSError):
            self._keepers = keepers_that_live(self.unit.folder)
            return True
        return False

    def _be_present(self) -> None:
        """Show the job that somebody is working beside it."""
        if time.monotonic() - self._looked_at < PRESENT_SECONDS and self._looked_at:
            return
        self._looked_at = time.monotonic()
        with suppress(OSError), self.unit.as_user():
            (self.unit.own / "inside").touch()


def run_command(folder: Path, command: str, seconds: float) -> dict[str, Any]:
    """Run a command beside a unit; return its exit code, why it was ended, and its newest output."""
    output, dropped = bytearray(), 0
    try:
        inside = UnitAccess(folder)
        process = inside.start(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except UnitAccessFailed as error:
        return {"code": None, "why": str(error), "output": "", "dropped_bytes": 0}
    assert process.stdout is not None

    def read(pipe: int) -> None:
        nonlocal dropped
        while block := os.read(pipe, 1 << 16):
            output.extend(block)
            dropped += max(len(output) - MOST_OUTPUT, 0)
            del output[: max(len(output) - MOST_OUTPUT, 0)]

    reader = threading.Thread(target=read, args=(process.stdout.fileno(),), daemon=True)
    reader.start()
    why = inside.watch(process, seconds)
    reader.join(2.0)
    return {
        "code": None if why else process.returncode,
        "why": why,
        "output": output.decode(errors="replace"),
        "dropped_bytes": dropped,
    }


def command_result_json(document: dict[str, Any]) -> str:
    """Return a command's result as JSON, with its output cut so that SSM returns all of it."""
    text = json.dumps(document, ensure_ascii=False)
    while len(text) > MOST_DOCUMENT:
        output = document["output"]
        cut = len(output) // 4 + 1
        dropped = document["dropped_bytes"] + len(output[:cut].encode())
        document = {**document, "output": output[cut:], "dropped_bytes": dropped}
        text = json.dumps(document, ensure_ascii=False)
    return text


def open_shell(folder: Path, *, is_session: bool) -> int:
    """Run a shell on the present terminal; return its exit code."""
    try:
        if is_session:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        inside = UnitAccess(folder)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTTOU, signal.SIGTTIN):
            signal.signal(number, signal.SIG_IGN)
        process = inside.start("", restore_signals=True)
    except (UnitAccessFailed, OSError) as error:
        os.write(2, f"boa: {error}\r\n".encode())
        return NOT_HERE
    why = inside.watch(process)
    if why:
        with suppress(OSError):
            os.write(2, f"\r\nboa: the shell was ended: {why}\r\n".encode())
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def main(arguments: Sequence[str]) -> int:
    """Run a command and print its result, or run a shell."""
    folder = Path(arguments[0]).resolve()
    rest = list(arguments[1:])
    if rest[:1] == ["--seconds"]:
        print(command_result_json(run_command(folder, rest[2], float(rest[1]))), flush=True)  # noqa: T201  its caller reads it
        return 0
    return open_shell(folder, is_session="--terminal" in rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
