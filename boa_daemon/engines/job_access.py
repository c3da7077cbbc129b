"""Commands and shells beside jobs, on this machine and on rented nodes (see `boa_daemon.job.unit_access`)."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from boa_daemon.engines.ssm_commands import SsmCommands
from boa_daemon.engines.ssm_scripts import library
from boa_daemon.tick.facts.node_lives import instance_of
from boa_daemon.tick.facts.ports import Accepted, Refused, SaidInside, WayIn
from policies.model import JobId, NodeId

MODULE = "boa_daemon.job.unit_access"
MOST_AT_ONCE = 32
KEPT_SECONDS = 600.0
"""How long the result of a command is kept for its caller."""
_GOES_ON = ("Pending", "InProgress", "Delayed", "Unasked")


def parse_command_result(text: str) -> SaidInside:
    """Return a command's result from its JSON; a malformed one becomes a result without an exit code."""
    try:
        found = json.loads(text)
        code = found["code"]
        return SaidInside(
            code=None if code is None else int(code),
            why=str(found["why"])[:1000],
            output=str(found["output"]),
            dropped_bytes=max(int(found["dropped_bytes"]), 0),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return SaidInside(code=None, why=f"its end cannot be read: {text.strip()[-300:]}")


@dataclass(frozen=True, slots=True)
class _Begun:
    """A running command: the function that asks for its result, and until when it may be asked."""

    ask: Callable[[], SaidInside | None]
    until: float


class RunningCommands:
    """The running commands, each under a random token that cannot be guessed."""

    def __init__(self) -> None:
        self._known: dict[str, _Begun] = {}
        self._lock = threading.Lock()

    def is_full(self) -> bool:
        """Return whether the maximum of commands runs; expired commands are dropped first."""
        now = time.monotonic()
        with self._lock:
            self._known = {word: one for word, one in self._known.items() if one.until > now}
            return len(self._known) >= MOST_AT_ONCE

    def add(self, ask: Callable[[], SaidInside | None], seconds: float) -> str:
        """Add a command that may run for `seconds`; return its token."""
        word = secrets.token_hex(16)
        with self._lock:
            self._known[word] = _Begun(ask, time.monotonic() + seconds + KEPT_SECONDS)
        return word

    def end(self, word: str) -> SaidInside | Refused | None:
        """Return a command's result, once; None while it runs."""
        with self._lock:
            found = self._known.get(word)
        if found is None:
            return Refused(reason="this command is not known any more", kind="bad-request")
        said = found.ask()
        if said is not None:
            with self._lock:
                self._known.pop(word, None)
        return said


def no_such_node(job: JobId, node: int) -> Refused:
    """Return the refusal of a node number that a job does not have."""
    return Refused(reason=f"job {job} has no node {node}; its nodes count from 0", kind="bad-request")


FULL = Refused(reason=f"{MOST_AT_ONCE} commands already run beside jobs; wait until one of them ends")


class LocalJobAccess:
    """Implements `JobAccessPort` on this machine; `folder_of` returns the folder of a job's unit."""

    def __init__(
        self, folder_of: Callable[[JobId, int], Path | Refused], environment: Callable[[], Mapping[str, str]]
    ) -> None:
        self._folder_of, self._environment = folder_of, environment
        self._commands = RunningCommands()

    def _on_node(self, folder: Path, words: Sequence[str]) -> tuple[list[str], dict[str, Any]] | Refused:
        """Return the command line that runs a command on a unit's node, and the options of its `Popen`."""
        del folder
        return list(words), {}

    def _result(self, said: str) -> SaidInside:
        """Return the result of a command from what it printed."""
        return parse_command_result(said)

    def way(self, job: JobId, node: int) -> WayIn | Refused:
        """Return the folder of a unit on this machine."""
        folder = self._folder_of(job, node)
        if isinstance(folder, Refused):
            return folder
        return WayIn(kind="here", node="", folder=str(folder))

    def begin(self, job: JobId, node: int, command: str, *, seconds: float) -> str | Refused:
        """Start a command beside a unit; return the token for `end`."""
        folder = self._folder_of(job, node)
        if isinstance(folder, Refused) or self._commands.is_full():
            return folder if isinstance(folder, Refused) else FULL
        words = [sys.executable, "-m", MODULE, str(folder), "--seconds", f"{seconds:g}", command]
        there = self._on_node(folder, words)
        if isinstance(there, Refused):
            return there
        output = tempfile.TemporaryFile()  # noqa: SIM115  closed where its end is read
        process = subprocess.Popen(
            there[0],
            cwd="/",
            env=dict(self._environment()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **there[1],
        )

        def ask() -> SaidInside | None:
            if process.poll() is None:
                return None
            with output:
                output.seek(0)
                return self._result(output.read().decode(errors="replace"))

        return self._commands.add(ask, seconds)

    def end(self, word: str) -> SaidInside | Refused | None:
        """Return how a command ended, None while it runs."""
        return self._commands.end(word)

    def open(
        self, job: JobId, node: int, terminal: str, *, term: str, may_use: Callable[[int], bool]
    ) -> Accepted | Refused:
        """Open a shell beside a unit on the caller's terminal, if `may_use` accepts the terminal's owner."""
        folder = self._folder_of(job, node)
        if isinstance(folder, Refused):
            return folder
        there = self._on_node(folder, [sys.executable, "-m", MODULE, str(folder), "--terminal"])
        if isinstance(there, Refused):
            return there
        try:
            end = _opened_terminal(terminal, may_use)
        except (OSError, ValueError):
            # One sentence for all: what is at a path that the caller chose is none of the caller's business.
            return Refused(reason=f"{terminal!r} is not a terminal of yours", kind="bad-request")
        try:
            process = subprocess.Popen(
                there[0],
                cwd="/",
                env={**self._environment(), "TERM": term},
                stdin=end,
                stdout=end,
                stderr=end,
                start_new_session=True,
                **there[1],
            )
        finally:
            os.close(end)
        threading.Thread(target=process.wait, name="boa-shell", daemon=True).start()
        return Accepted()


def _opened_terminal(path: str, may_use: Callable[[int], bool]) -> int:
    """Return a descriptor of a terminal, if `may_use` accepts its owner.

    The file is looked at before it is really opened: to open a device can be an act, as with a watchdog.

    Raises:
        OSError: when it is no terminal, not the caller's, or cannot be opened.
    """
    seen = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(seen)
        if not stat.S_ISCHR(found.st_mode) or found.st_rdev == 0 or not may_use(found.st_uid):
            raise OSError(errno.ENOTTY, "no terminal")
        end = os.open(f"/proc/self/fd/{seen}", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(seen)
    if not os.isatty(end):
        os.close(end)
        raise OSError(errno.ENOTTY, "no terminal")
    os.set_blocking(end, True)
    return end


class SsmJobAccess:
    """Implements `JobAccessPort` on rented nodes; `place_of` returns node, folder and root of a unit."""

    def __init__(
        self,
        commands: SsmCommands,
        place_of: Callable[[JobId, int], tuple[str, str, str] | Refused],
        *,
        region_of: Callable[[NodeId], str] = lambda node: "",
    ) -> None:
        self._ssm, self._place_of, self._region_of = commands, place_of, region_of
        self._commands = RunningCommands()

    def way(self, job: JobId, node: int) -> WayIn | Refused:
        """Return the node of a unit, and the command that opens a shell beside it there."""
        place = self._place_of(job, node)
        if isinstance(place, Refused):
            return place
        name, folder, root = place
        shell = ("sudo", "env", f"PYTHONPATH={library(root)}", "python3", "-m", MODULE, folder)
        region = self._region_of(name)
        return WayIn(kind="ssm", node=instance_of(name), folder=folder, shell=shell, region=region)

    def begin(self, job: JobId, node: int, command: str, *, seconds: float) -> str | Refused:
        """Start a command beside a unit through Run Command; return the token for `end`."""
        place = self._place_of(job, node)
        if isinstance(place, Refused) or self._commands.is_full():
            return place if isinstance(place, Refused) else FULL
        name, folder, root = place
        words = ("python3", "-m", MODULE, folder, "--seconds", f"{seconds:g}", command)
        script = f"PYTHONPATH={quote(library(root))} exec {' '.join(map(quote, words))}\n"
        sent = self._ssm.send([name], script, "run a command in a job")
        if isinstance(sent, Refused):
            return sent

        def ask() -> SaidInside | None:
            status, output = self._ssm.result(sent, name)
            if status in _GOES_ON:
                return None
            if status == "Success":
                return parse_command_result(output)
            return SaidInside(code=None, why=f"the command ended as {status}: {output[-300:].strip()}")

        return self._commands.add(ask, seconds)

    def end(self, word: str) -> SaidInside | Refused | None:
        """Return how a command ended, None while it runs."""
        return self._commands.end(word)

    def open(
        self, job: JobId, node: int, terminal: str, *, term: str, may_use: Callable[[int], bool]
    ) -> Accepted | Refused:
        """Refuse: the person who wants a shell on a rented node opens it through SSM."""
        del job, node, terminal, term, may_use
        return Refused(reason="the daemon opens no shell on a rented node: use SSM", kind="bad-request")
