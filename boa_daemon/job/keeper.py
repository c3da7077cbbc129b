"""The keeper of one unit: one generation of one job on one node.  Standard library only.

It runs the job's command in its own session, keeps what it prints, hands a stop on, ends it when the grace is
over, gathers processes that linger, and writes down how it ended. It lives apart from the daemon, so a daemon
may die and come back; where systemd runs the unit, it is the unit's main process. Should it die itself, the
kernel ends its child, and whoever looks next ends the rest.

    unit.json    in    what to run (see `Unit`)
    keeper.json  out   the keeper's process
    exit.json    out   how it ended
    out-*.log    out   what it printed
    go           in    the turn of a unit that waits for it
    ready        out   that it waits, with all that can be had before its turn

SIGTERM asks for a checkpoint and an end; SIGUSR1 ends it at once.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from boa_daemon.job import early_start
from boa_daemon.job.account import drops, hand_over, popen_as
from boa_daemon.job.artifacts import collect
from boa_daemon.job.checkpoint import MANIFEST, set_fence
from boa_daemon.job.container import RUN_AS_USER, NoContainers, command_of, ran_out_of_memory, within_limits
from boa_daemon.job.failures import full_disk
from boa_daemon.job.logs import LogWriter, remove_rank_files, trim_rank_files
from boa_daemon.job.processes import descendants, kill_all_carrying, memory_kills, send, started_ticks
from boa_daemon.job.seal import key_of, sealed
from boa_daemon.job.secrets import SecretMissing, values_of
from boa_daemon.job.unit import (
    KEPT,
    SCRATCH,
    Unit,
    keep_room,
    lost_end,
    read_own,
    sealed_document,
    status_of,
    told_status,
    write_in_room,
    write_json,
)

LEAVE_SECONDS = 0.5
"""Helpers of the command may take so long to notice its end."""
LINGER_SECONDS = 2.0
"""How long processes that outlive the command have to end by themselves after a signal."""
ERRAND_SECONDS = 120.0
"""How long an errand (a report, a copy) may take."""
AS_KEEPER = ("word", "bring", "look")
"""Errands that run as the keeper's user: word and logs, the code, the look at the node."""
TELLING = ("word", "before", "keep")
"""Errands that find the unit's status in `BOA_STATUS`; to work it out may mean to read a whole checkpoint."""
LOOK_BEATS, LOOK_SECONDS = 4, 60.0
"""The node is looked at with each so many beats, and for so long at the most."""
GO, READY = "go", "ready"
TURN_SECONDS, MOST_WAIT_SECONDS = 0.02, 900.0
"""How often a unit that waits looks whether its turn has come, and when it does not wait any longer."""
Stamp: TypeAlias = tuple[int, int] | None
"""The file that is under a name now, by its inode and time; none where there is none."""
TRIM_SECONDS = 5.0
"""What ranks print is cut to its limit this often."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD)


class Keeper:
    """Keeps one command."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._ended: dict[int, int] = {}
        self._errands: dict[str, tuple[subprocess.Popen[bytes], float | None]] = {}
        self._codes: dict[str, int] = {}
        self._before_failed = ""
        self._stop_asked_at: float | None = None
        self._kill_asked = False
        self._hard = False
        self._spares_upload = False
        self._seen: tuple[int, Any] = (0, None)
        self._kept_from: tuple[Stamp, Stamp] = (None, None)

    def run(self) -> None:
        """Run the command to its end and write down how it ended."""
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        kept = {"pid": os.getpid(), "ticks": started_ticks(os.getpid())}
        write_json(self.unit.folder / "keeper.json", sealed_document(self.unit.folder, kept))
        # A job that fills the disk, or one beside it, must not take with it how it ended: it would run again.
        keep_room(self.unit.folder / "exit.json")
        if self.unit.after:
            keep_room(self.unit.folder / "ending.json")
        kills_before = memory_kills()
        with suppress(OSError):
            self.unit.own.mkdir(parents=True, exist_ok=True)
        if self._do_errand(self.unit.bring, slot="bring", seconds=None, wait=True):
            self._before_failed = self._said("bring") or "its code could not be fetched"
        hand_over(self.unit)
        log, child = LogWriter(self.unit.folder, self.unit.log_bytes), None
        if self.unit.waits and not self._before_failed:
            child = self._wait_for_turn(log)
        if not self._is_over_already and self._do_errand(
            self.unit.before, slot="before", seconds=None, wait=True
        ):
            self._before_failed = self._said("before") or "its checkpoint could not be fetched"
        # Never before its turn: the generation that runs could not save any more.
        if not self.unit.waits or (self.unit.folder / GO).exists():
            with suppress(OSError), self.unit.as_user():
                set_fence(Path(self.unit.checkpoint_dir), self.unit.generation)
        if self.unit.note:
            log.write(f"boa: {self.unit.note}\n".encode())
        if self._before_failed:
            log.write(f"{self._before_failed}\nboa: it is not started without what it needs\n".encode())
        if self._is_over_already:
            self._hard = child is not None
            self._gather()
            log.close()
            self._write_exit(None, out_of_memory=False, lingering=0)  # Stopped before it began.
            return
        try:
            child = self._go_on(child) or self._start(log)
        except (OSError, NoContainers, SecretMissing) as error:
            what = "" if isinstance(error, SecretMissing) else f" in {self.unit.workdir}"
            log.write(f"boa: cannot start{what}: {error}\n".encode())
            log.close()
            code = 1 if isinstance(error, SecretMissing) else 127
            self._write_exit(code << 8, out_of_memory=False, lingering=0)
            return
        log.write(b"")  # From now on there is a log, and its age says for how long nothing was printed.
        code = self._watch(child.pid)
        lingering = self._gather()
        self._pump.join(5.0)
        if self.unit.artifacts and self._stop_asked_at is None and not self._hard:
            for fault in collect(self.unit):
                log.write(f"boa: {fault}\n".encode())
        log.close()
        with suppress(OSError), self.unit.as_user():
            remove_rank_files(self.unit.own)
        is_out_of_memory = memory_kills() > kills_before or ran_out_of_memory(self.unit)
        self._write_exit(code, out_of_memory=is_out_of_memory, lingering=lingering)
        drop_scratch(self.unit)

    @property
    def _is_over_already(self) -> bool:
        """Whether its command is not to begin, or not to go on."""
        return self._stop_asked_at is not None or self._kill_asked or bool(self._before_failed)

    def _wait_for_turn(self, log: LogWriter) -> subprocess.Popen[bytes] | None:
        """Wait for the word to go on; return the command where it was started before that, and waits, too."""
        unit, child = self.unit, None
        if unit.waits == "start" and early_start.has_room_for(unit.wait_bytes):
            with suppress(OSError, NoContainers, SecretMissing):
                child = self._start(log, early=True)
        write_json(unit.folder / READY, sealed_document(unit.folder, {"is_started": child is not None}))
        until = time.monotonic() + MOST_WAIT_SECONDS
        while not (unit.folder / GO).exists() and not self._is_over_already:
            self._listen(TURN_SECONDS, None if child is None else child.pid)
            self._kill_asked |= time.monotonic() > until
            if not unit.folder.is_dir():
                # Whoever dropped it may not have seen what had just begun; nobody can say the word now.
                kill_all_carrying(f"BOA_UNIT={unit.name}")
                raise SystemExit(1)
        self.unit = Unit.read(unit.folder)  # What leads to the last checkpoint is known only now.
        hand_over(self.unit)
        return child

    def _go_on(self, child: subprocess.Popen[bytes] | None) -> subprocess.Popen[bytes] | None:
        """Tell a command that waits to go on; None where there is none, or it has ended."""
        if child is None:
            return None
        if child.pid in self._ended:
            self._gather()
            return None
        with self.unit.as_user():
            (self.unit.own / GO).touch()
        return child

    def _start(self, log: LogWriter, *, early: bool = False) -> subprocess.Popen[bytes]:
        """Start the command in its own session; its secrets are in its environment, and nowhere else."""
        secrets = values_of(self.unit.secrets, self.unit.secrets_file)
        environment = {**os.environ, **self.unit.environment, **secrets}
        if early:
            environment[early_start.GO_FILE] = str(self.unit.own / GO)
        if drops(self.unit):
            environment.pop("XDG_RUNTIME_DIR", None)
        with self.unit.as_user():
            (self.unit.own / SCRATCH).mkdir(parents=True, exist_ok=True)
        argv, note = command_of(self.unit, environment)
        if note:
            log.write(f"boa: {note}\n".encode())
        # The checkpoint that the command begins with stands already.
        self._kept_from = (self._stamp(Path(self.unit.checkpoint_dir) / MANIFEST), (0, 0))
        libc, parent = self._libc, os.getpid()

        def become_child() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            if os.getppid() != parent:
                os._exit(1)

        child = subprocess.Popen(
            argv,
            cwd=self.unit.workdir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=become_child,  # noqa: PLW1509  no thread runs yet
            # Inside its container a command is the job's user; who asks docker for one is the keeper's.
            **({} if argv[0] in RUN_AS_USER else popen_as(self.unit)),
        )
        self._pump = threading.Thread(target=_pump, args=(child, log), daemon=True)
        self._pump.start()
        return child

    def _watch(self, child: int) -> int:
        """Wait for the command's end, hand on stops, and end it when its grace is over; return its status."""
        next_beat = time.monotonic() + self.unit.beat_seconds
        next_trim = time.monotonic() + TRIM_SECONDS
        beats = 0
        while child not in self._ended:
            self._listen(0.5 if self._stop_asked_at is None else 0.1, child)
            now = time.monotonic()
            if self._stop_asked_at is not None and now > self._stop_asked_at + self.unit.grace_seconds:
                self._kill_asked = True
            if self._kill_asked:
                self._hard = True
                send([child, *self._family()], signal.SIGKILL)
            if now >= next_trim:
                next_trim = now + TRIM_SECONDS
                with suppress(OSError), self.unit.as_user():
                    trim_rank_files(self.unit.own, self.unit.log_bytes)
            if now >= next_beat:
                next_beat = now + self.unit.beat_seconds
                if beats % LOOK_BEATS == 0:
                    self._do_errand(self.unit.look, slot="look")
                beats += 1
                self._do_errand(self.unit.beat)
                if self._has_new_checkpoint():
                    self._do_errand(self.unit.keep, slot="keep", seconds=None)
        return self._ended[child]

    def _has_new_checkpoint(self) -> bool:
        """Return whether a checkpoint may have to be brought away.

        That is not the one that was there at the last try, where that try noted that it stands.
        """
        manifest = self._stamp(Path(self.unit.checkpoint_dir) / MANIFEST)
        kept = self._stamp(self.unit.own / KEPT)
        if manifest is None or (manifest == self._kept_from[0] and kept != self._kept_from[1]):
            return False
        if "keep" not in self._errands:
            self._kept_from = (manifest, kept)
        return True

    def _stamp(self, file: Path) -> Stamp:
        """Return what tells a file of the unit's user from the one that was there before."""
        with suppress(OSError), self.unit.as_user():
            found = file.stat()
            return found.st_ino, found.st_mtime_ns
        return None

    def _listen(self, seconds: float, child: int | None = None) -> None:
        """Wait for a signal for a while, act on it, and reap what has ended."""
        info = signal.sigtimedwait(_SIGNALS, seconds)
        if info is not None and info.si_signo == signal.SIGUSR1:
            self._kill_asked = True
        elif info is not None and info.si_signo != signal.SIGCHLD and self._stop_asked_at is None:
            self._stop_asked_at = time.monotonic()
            if child is not None:
                with suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGTERM)
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                self._ended[pid] = status
        for slot, (errand, until) in list(self._errands.items()):
            is_late = until is not None and time.monotonic() > until
            if errand.pid in self._ended or is_late:
                how = self._ended.get(errand.pid)
                if how is None:
                    errand.kill()
                self._codes[slot] = -1 if how is None else os.waitstatus_to_exitcode(how)
                errand.returncode = 0  # Reaped here: Popen must not wait for it.
                del self._errands[slot]

    def _family(self) -> list[int]:
        """Return the processes below us that live and are no errand of ours."""
        errands = [errand.pid for errand, _ in self._errands.values()]
        mine = {*errands, *(pid for errand in errands for pid in descendants(errand))}
        return [p for p in descendants(os.getpid()) if p not in mine and started_ticks(p) is not None]

    def _gather(self) -> int:
        """End what outlived the command, first kindly; return how many there were."""
        lingering: set[int] = set()
        leaves_until = time.monotonic() + LEAVE_SECONDS
        while self._family() and not self._hard and time.monotonic() < leaves_until:
            self._listen(0.05)
        until = time.monotonic() + LINGER_SECONDS
        while family := self._family():
            fresh = [pid for pid in family if pid not in lingering]
            lingering.update(fresh)
            is_late = self._hard or time.monotonic() > until
            send(family if is_late else fresh, signal.SIGKILL if is_late else signal.SIGTERM)
            self._listen(0.05)
        return len(lingering)

    def _do_errand(
        self, script: str, *, slot: str = "word", seconds: float | None = ERRAND_SECONDS, wait: bool = False
    ) -> int:
        """Start an errand unless one is on its way in its slot; with `wait`, return its exit code at its end.

        One that is waited for is given up when the unit is to end at once; the last word never is.
        """
        if not script or (not wait and slot in self._errands):
            return 0
        while slot in self._errands and not self._kill_asked:
            self._listen(0.1)
        status = self._told(verify=wait) if slot in TELLING else ""
        until = None if seconds is None else time.monotonic() + seconds
        self._codes.pop(slot, None)
        # Without our blocked signals, or a SIGTERM could not end it.
        with (self.unit.folder / f"{slot}.err").open("wb") as errors:
            errand = subprocess.Popen(
                ["/bin/bash", "-c", script],
                env={
                    **os.environ,
                    **self._home(slot),
                    "BOA_STATUS": status,
                    "BOA_PYTHON": sys.executable,
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                preexec_fn=_unblock,  # noqa: PLW1509  it only unblocks signals
                # Word and logs are the keeper's; checkpoints are the job's, and so is who moves them.
                **({} if slot in AS_KEEPER else popen_as(self.unit)),
            )
        self._errands[slot] = (errand, until)
        while wait and slot in self._errands:
            self._listen(0.1)
            if slot == "word":
                continue
            if self._kill_asked and self._spares_upload:
                self._kill_asked = self._spares_upload = False
            if self._kill_asked or (slot in ("bring", "before") and self._stop_asked_at is not None):
                with suppress(ProcessLookupError):
                    os.killpg(errand.pid, signal.SIGKILL)
        return self._codes.get(slot, 0)

    def _home(self, slot: str) -> Mapping[str, str]:
        """Return where an errand that is the job's finds its user's files."""
        home = self.unit.environment.get("HOME")
        return {"HOME": home} if home and slot not in AS_KEEPER and drops(self.unit) else {}

    def _said(self, slot: str) -> str:
        """Return what an errand printed about its failure."""
        try:
            return (self.unit.folder / f"{slot}.err").read_text(errors="replace").strip()[-500:]
        except OSError:
            return ""

    def _told(self, *, verify: bool) -> str:
        """Return the unit's status as what an errand tells others: JSON under the seal of its generation."""
        return json.dumps(sealed(self._status(verify=verify), key_of(self.unit.folder)))

    def _status(self, *, verify: bool) -> Mapping[str, Any]:
        """Return the unit's status; a checkpoint is looked at once, when its manifest is new."""
        file = Path(self.unit.checkpoint_dir) / MANIFEST
        changed_at = 0  # None yet, or its user has no way to it: then its command cannot start either.
        with suppress(OSError), self.unit.as_user():
            changed_at = file.stat().st_mtime_ns
        status = status_of(self.unit.folder, verify=verify or changed_at != self._seen[0])
        if status["manifest"] is None and changed_at == self._seen[0]:
            status["manifest"] = self._seen[1]
        self._seen = (changed_at, status["manifest"])
        return status

    def _write_exit(self, status: int | None, *, out_of_memory: bool, lingering: int) -> None:
        """Write down how it ended; then run the last errand, which tells the others."""
        code = None if status is None else os.waitstatus_to_exitcode(status)
        unit = self.unit
        facts: dict[str, Any] = {
            "code": code,
            "stop_asked": self._stop_asked_at is not None,
            "killed": self._hard,
            "out_of_memory": out_of_memory,
            "lingering": lingering,
            **_ends(unit),
            "disk_full": bool(code) and full_disk(unit.workdir, unit.checkpoint_dir),
            "before_failed": self._before_failed,
            "ended_at": time.time(),
        }
        if code and unit.look and self._stop_asked_at is None:
            # A GPU that fails takes its process with it at once: the look of the last beat is too old.
            self._kill_asked = False
            self._do_errand(unit.look, slot="look", seconds=LOOK_SECONDS, wait=True)
        if unit.after:
            # That was the command; another order ends the upload. Where the command ended by itself the first
            # order does not: an engine ends all units of a job when one has failed.
            self._kill_asked, self._spares_upload = False, not self._hard
            # Until the last checkpoint is away the unit has not ended, whoever asks: its steps would be lost.
            if not self._before_failed and self._do_errand(unit.keep, slot="keep", seconds=None, wait=True):
                log = LogWriter(unit.folder, unit.log_bytes)
                log.write(f"{self._said('keep')}\nboa: the last checkpoint was not kept\n".encode())
                log.close()
            write_in_room(unit.folder / "ending.json", sealed_document(unit.folder, facts))
            self._do_errand(unit.after, wait=True)
        write_in_room(unit.folder / "exit.json", sealed_document(unit.folder, facts))


def _ends(unit: Unit) -> dict[str, bool]:
    """Return what a unit's command left behind to say that it has done its work."""
    done, result = Path(f"{unit.progress_file}.done"), Path(unit.workdir) / unit.result
    with unit.as_user():
        return {
            "is_done": os.path.exists(done),
            "lacks_result": bool(unit.result) and not os.path.exists(result),
        }


def end_orphaned_unit(folder: Path) -> None:
    """End what a lost keeper left behind, and write its end down, unless it did so itself."""
    unit = Unit.read(folder)
    if read_own(folder, "exit.json") is not None:
        return
    facts = lost_end(
        lingering=kill_all_carrying(f"BOA_UNIT={unit.name}"),
        **_ends(unit),
        ended_at=time.time(),
    )
    write_json(folder / "exit.json", sealed_document(unit.folder, facts))
    for script, seconds, user in (
        (unit.keep, None, popen_as(unit)),
        (unit.after, ERRAND_SECONDS, dict[str, Any]()),
    ):
        if script:
            status = json.dumps(told_status(folder, verify=True))
            subprocess.run(
                ["/bin/bash", "-c", script],
                env={**os.environ, "BOA_STATUS": status, "BOA_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=seconds,
                **user,
            )
    drop_scratch(unit)


def drop_scratch(unit: Unit) -> None:
    """Remove what a unit's command needed while it ran."""
    with unit.as_user():
        shutil.rmtree(unit.own / SCRATCH, ignore_errors=True)


def _unblock() -> None:
    """Let a child of ours receive signals."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _pump(child: subprocess.Popen[bytes], log: LogWriter) -> None:
    """Copy what the command prints into its log until it closes."""
    assert child.stdout is not None
    with child.stdout as pipe:
        while block := os.read(pipe.fileno(), 1 << 16):
            log.write(block)


def _apart() -> None:
    """Leave the process that started us: its end, its terminal and its session are not ours."""
    if os.fork():
        os._exit(0)
    os.setsid()


def main(arguments: list[str]) -> int:
    """Keep a folder's unit, apart from its starter unless `--foreground`; or `--status`; or `--settle`."""
    folder = Path(arguments[-1]).resolve()
    if "--settle" in arguments:
        end_orphaned_unit(folder)
        return 0
    if "--status" in arguments:
        print(json.dumps(told_status(folder, verify=True)))  # noqa: T201  its caller reads it
        return 0
    unit = Unit.read(folder)
    if "--foreground" not in arguments:
        _apart()
    with (folder / "keeper.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # It has a keeper already.
        os.set_inheritable(lock.fileno(), False)
        if not (folder / "keeper.json").exists():
            Keeper(unit).run()
    return 0


def start_apart(folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a keeper for the unit in a folder; the process ends as soon as the keeper stands on its own."""
    with (folder / "keeper.err").open("wb") as errors:
        return subprocess.Popen(
            within_limits(Unit.read(folder), [sys.executable, "-m", "boa_daemon.job.keeper", str(folder)]),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
