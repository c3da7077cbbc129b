"""A keeper that dies at a given point: `python dying_keeper.py [--foreground] FOLDER`.

A point is an effect outside the process (on a file, a process, a lock, a signal), with the functions that
led to it. `DIE_NOTE` is a file that gets the points that are met. Before the first one that begins with
`DIE_AT`, those that `DIE_WHO` names (keeper, guard, both) get SIGKILL, once: `DIE_ONCE` is the file that says
so.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from boa_daemon.job import guard, keeper

HERE = str(Path(keeper.__file__).parent)
_OF_FILES = ("rename", "remove", "mkdir", "rmdir", "chmod", "chown", "link", "symlink", "truncate")
EFFECTS = frozenset(
    [f"os.{name}" for name in (*_OF_FILES, "kill", "killpg", "fork")]
    + ["subprocess.Popen", "fcntl.fcntl", "fcntl.flock", "fcntl.lockf"]
)
"""Audit events of the interpreter; a file that is opened to be written is one, too."""
CALLS = ((os, "waitid"), (os, "waitpid"), (os, "mkfifo"), (os, "setsid"), (os, "_exit"),
         (signal, "sigtimedwait"), (signal, "pthread_sigmask"))  # fmt: skip
"""Effects for which there is no event."""
PAUSE_SECONDS = 0.05
"""How long another process that is killed has to die before this one goes on."""


class Points:
    """The points of this process and of those that it forks."""

    def __init__(self) -> None:
        self.role, self.guard, self.keeper = "guard", os.getpid(), 0
        self._met: set[str] = set()
        self._is_here = False

    def meet(self, what: str) -> None:
        """Note a point that is met for the first time, and die if it is the one."""
        if self._is_here:
            return
        self._is_here = True
        try:
            is_child = self.role == "keeper" and os.getpid() != self.keeper
            point = f"{'child' if is_child else self.role}|{what}|{'<'.join(_functions()[:6])}"
            if point in self._met:
                return
            self._met.add(point)
            if note := os.environ.get("DIE_NOTE"):
                with open(note, "a") as file:
                    file.write(point + "\n")
            if point.startswith(os.environ.get("DIE_AT", "nowhere")):
                with suppress(FileExistsError):
                    os.close(os.open(os.environ["DIE_ONCE"], os.O_CREAT | os.O_EXCL))
                    self._die()
        finally:
            self._is_here = False

    def _die(self) -> None:
        whom = {"keeper": [self.keeper], "guard": [self.guard], "both": [self.guard, self.keeper]}
        for pid in sorted(filter(None, whom[os.environ["DIE_WHO"]]), key=os.getpid().__eq__):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_SECONDS)

    def hear(self, event: str, given: tuple[Any, ...]) -> None:
        """Meet the point of an audit event."""
        if self._is_here or (event not in EFFECTS and event != "open"):
            return
        if event == "open" and not (isinstance(given[2], int) and given[2] & (os.O_ACCMODE | os.O_CREAT)):
            return
        is_file = bool(given) and isinstance(given[0], (str, bytes)) and event != "subprocess.Popen"
        name = Path(os.fsdecode(given[0])).name if is_file else ""
        self.meet(f"{event}:{re.sub(r'boa-[0-9a-f]{12}|-[0-9a-f]{12}$|[0-9]+(-[0-9]+)*', '#', name)}")

    def wrap(self, module: Any, name: str) -> None:
        """Meet a point before a function is called, and after one that has reaped or found something."""
        real = getattr(module, name)

        def wrapped(*given: Any, **named: Any) -> Any:
            if name != "waitid":
                self.meet(name)
            result = real(*given, **named)
            if (name == "waitid" and result is not None) or name == "waitpid":
                self.meet(f"{name}: done")
            return result

        setattr(module, name, wrapped)

    def start_keeper(self, begin: Any) -> Any:
        """Return `Guard._start`, which also tells who the guard and the keeper are."""

        def start(one: Any) -> None:
            keep, self.guard = one._keep, os.getpid()

            def kept(orders: Any, pid: int) -> int:
                self.role, self.keeper = "keeper" if not self.keeper else "next", os.getpid()
                self._met.clear()
                return int(keep(orders, pid))

            one._keep = kept
            try:
                begin(one)
            finally:
                one._keep = keep
            self.keeper = one._keeper

        return start


def _functions() -> list[str]:
    """Return the functions of `boa_daemon.job` that are under way, the innermost first."""
    names, frame = [], sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(HERE):
            names.append(frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return list(dict.fromkeys(names))


def main() -> int:
    """Keep a unit, and die on the way."""
    points = Points()
    for module, name in CALLS:
        points.wrap(module, name)
    guard.Guard._start = points.start_keeper(guard.Guard._start)  # type: ignore[method-assign]
    sys.addaudithook(points.hear)
    return keeper.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
