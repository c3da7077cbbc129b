"""The keeper: the process that supervises one unit (one generation of one job on one node).

The keeper runs the job's command in its own session, stores its output, stops the command when that is
ordered (`stops`), ends lingering processes, and records how the command ended. The keeper is
independent of the daemon, so the daemon may die and come back. If the keeper dies, the command goes on. The
unit's guard (`guard`), which is the main process if systemd runs the unit, starts another keeper, which reads
what the first had noted (`course`). If the guard is dead too, the unit's engine starts both.

    unit.json    in    what to run (see `Unit`)
    keeper.json  out   the processes of the keeper and of its guard
    course.json  out   how far the unit has come
    first.json   out   how the command's first process ended, if the guard had to see it
    output       out   the named pipe into which the command writes
    ending.json  out   how the command ended, before the last errand has run
    exit.json    out   how the command ended, when all is done
    out-*.log    out   the command's output
    go           in    the unit's turn has come
    ready        out   the unit is prepared and waits for its turn

SIGTERM asks for a checkpoint and a stop; SIGUSR1 ends the unit at once. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Optional

from boa_daemon.job import early_start
from boa_daemon.job.account import drops, hand_over, mount_point, popen_as, working_folder
from boa_daemon.job.artifacts import collect
from boa_daemon.job.checkpoint import MANIFEST, set_fence
from boa_daemon.job.container import (
    LIMITED,
    NoContainers,
    command_of,
    ran_out_of_memory,
    runs_as_keeper,
    variables_of_tool,
    within_limits,
)
from boa_daemon.job.control_group import ControlGroup, memory_kills
from boa_daemon.job.course import Course, make_output, read_course, reopen_output, strays
from boa_daemon.job.enclosure import Enclosure, group_name
from boa_daemon.job.failures import full_disk, read_failure
from boa_daemon.job.guard import FIRST, Guard, Orders, stand_in
from boa_daemon.job.leavings import make_temporary_folder, remove_leavings, remove_trees, temporary_folder
from boa_daemon.job.logs import RANK_FILES, LogWriter, trim_rank_files
from boa_daemon.job.parent_variables import ERRAND, note_variables
from boa_daemon.job.processes import (
    boot_id,
    carries,
    descendants,
    ended_children,
    kill_all_carrying,
    send,
    started_ticks,
    take_back_signals,
)
from boa_daemon.job.regular_files import UNREADABLE
from boa_daemon.job.seal import key_of, sealed
from boa_daemon.job.secrets import SecretMissing, aws_variables, values_of
from boa_daemon.job.stops import (
    LEAVE_SECONDS,
    Loss,
    OrderedStop,
    hold_lease,
    loss_of,
    register_file,
    registered,
)
from boa_daemon.job.stops import variables as stop_variables
from boa_daemon.job.unit import (
    KEPT,
    MOST_PROGRESS_BYTES,
    SCRATCH,
    Unit,
    keep_room,
    lost_end,
    read_json,
    read_own,
    sealed_document,
    status_of,
    told_status,
    verified_checkpoint,
    write_in_room,
    write_json,
)

FIRST_SECONDS = 5.0
"""Time for the guard to note how the command's first process ended, and for that process to note itself."""
STRAY_SECONDS = 0.3
"""How often all processes of the machine are looked through for those of a command without a guard."""
STOP_LOOK_SECONDS = 0.05
"""How often a keeper looks how far a stop has come."""
BACKGROUND_STARTS_SECONDS, BACKGROUND_SECONDS = 5.0, 60.0
"""If a command ends well this soon, those it left in the background have so long to register."""
VERIFY_SECONDS = 1800.0
"""Time limit for computing the digest of the last checkpoint."""
LINGER_SECONDS = 2.0
"""Time for processes that outlive the command to exit after SIGTERM, before SIGKILL."""
ERRAND_SECONDS = 120.0
"""Time limit of an errand (a report, a copy)."""
LAST_UPLOAD_SECONDS = 3600.0
"""Time limit of the last upload of a unit without a keeper: who ends the unit waits, and holds its lock."""
AS_KEEPER = ("word", "bring", "look")
"""Errands that run as the keeper's user: reports and logs, the code and data, the check of the node."""
TELLING = ("word", "before", "keep")
"""Errands that get the unit's status in `BOA_STATUS`, which may require reading a whole checkpoint."""
LOOK_BEATS, LOOK_SECONDS = 4, 60.0
"""The node is checked with each fourth heartbeat; after a failure, for at most `LOOK_SECONDS`."""
GO, READY, ERRORS = "go", "ready", "keeper.err"
PASSING = UNREADABLE | {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ETXTBSY, errno.EINTR}
"""Errors at a start that say nothing about the command: another try may succeed."""
ROOM_SECONDS = 45.0
"""How long a process is waited for that cannot be started now, as at a limit of processes: less than the time
after which the engine counts a unit without a keeper as lost."""
NO_ROOM = "no process could be started ({}): a limit of processes or threads is reached"
TURN_SECONDS, MOST_WAIT_SECONDS = 0.02, 900.0
"""How often a waiting unit checks for its turn, and after how long it gives up."""
Stamp = Optional[tuple[int, int]]
"""Identity of a file: its inode and modification time in nanoseconds; None if there is no file."""
TRIM_SECONDS = 5.0
"""How often the output files of ranks are cut to their limit."""
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD)


class Keeper:
    """Runs and supervises the command of one unit.

    With `orders`, it also follows what was ordered before it was there. `guard` is the process id of its
    guard, 0 for none.
    """

    def __init__(self, unit: Unit, orders: Orders | None = None, guard: int = 0) -> None:
        orders = orders or Orders()
        self.unit = unit
        self._guard = guard
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._course = Course(boot=boot_id(), guard=guard)
        self._has_adopted = False
        self._strays: tuple[float, list[int]] = (0.0, [])
        self._first_gone_at = 0.0
        self._kin: dict[int, int] = {}
        self._group = ControlGroup()
        self._is_out_of_memory = False
        self._has_met_limit = False
        self._ended: dict[int, int | None] = {}
        self._errands: dict[str, tuple[subprocess.Popen[bytes], float | None]] = {}
        self._codes: dict[str, int] = {}
        self._before_failed = ""
        self._stop_asked_at = orders.stop_asked_at
        self._stop: OrderedStop | None = None
        self._kill_asked = orders.is_kill_asked
        self._hard = False
        self._is_late = False
        self._started_at = 0.0
        self._first_started_at = 0.0
        self._pump: threading.Thread | None = None
        self._unpumped: tuple[int, LogWriter] | None = None
        self._lease: int | None = None
        self._ended_at = 0.0
        self._has_registered = False
        self._left_over = 0
        self._spares_upload = False
        self._seen: tuple[int, Any] = (0, None)
        self._kept_from: tuple[Stamp, Stamp] = (None, None)
        self._has_lost_guard = False

    def run(self) -> None:
        """Run the command to its end and record how it ended."""
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._note_keeper()
        self._take_orders_beside()
        # Reserve space: on a full disk the end could not be recorded, and the job would run again.
        keep_room(self.unit.folder / "exit.json")
        keep_room(self.unit.folder / "keeper.json")
        if self.unit.after:
            keep_room(self.unit.folder / "ending.json")
        self._end_errands_of_others()
        before = self._course_before()
        if before is not None and before.child:
            self._adopt(before)
            return
        # A killed keeper may have made it, and noted nothing of it.
        self._group = ControlGroup.find(group_name(self.unit))
        self._end_at_once()  # What waited for its turn waits anew.
        if before is not None and not self._has_not_begun():
            # Nobody knows what its command has done.
            end_orphaned_unit(self.unit.folder)
            return
        if self._guard:
            # Only here: where a command runs already, its guard may be writing this.
            keep_room(self.unit.folder / FIRST)
        if not drops(self.unit):
            with suppress(OSError):
                self.unit.own.mkdir(parents=True, exist_ok=True)
        if self._do_errand(self.unit.bring, slot="bring", seconds=None, wait=True):
            self._before_failed = self._said("bring") or "its code could not be fetched"
        self._hand_over()
        log, child = LogWriter(self.unit.folder, self.unit.log_bytes), None
        if self.unit.waits and not self._before_failed:
            child = self._wait_for_turn(log)
        if not self._is_over_already and self._do_errand(
            self.unit.before, slot="before", seconds=None, wait=True
        ):
            self._before_failed = self._said("before") or "its checkpoint could not be fetched"
        # Not before the unit's turn: the running generation could not save any more.
        if not self.unit.waits or (self.unit.folder / GO).exists():
            with suppress(OSError), self.unit.as_user():
                set_fence(Path(self.unit.checkpoint_dir), self.unit.generation)
        if self.unit.note:
            log.write_line(f"boa: {self.unit.note}")
        if self._before_failed:
            log.write_line(f"{self._before_failed}\nboa: it is not started without what it needs")
        if self._is_over_already:
            self._hard = child is not None
            self._gather()
            log.close()
            self._write_exit(None, out_of_memory=False, lingering=0)  # Stopped before it started.
            return
        try:
            child = self._go_on(child) or self._start(log)
        except (OSError, NoContainers, SecretMissing) as error:
            what = "" if isinstance(error, SecretMissing) else f" in {self.unit.workdir}"
            log.write_line(f"boa: cannot start{what}: {error}")
            self._end_at_once()  # What was started early, and may not go on.
            log.close()
            is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            self._write_exit(code_of(error) << 8, out_of_memory=False, lingering=0, is_full=is_full)
            return
        log.write(b"")  # Create the log: its age tells for how long the command has printed nothing.
        self._see_through(child.pid, log)

    def _course_before(self) -> Course | None:
        """Return how far the unit had come under a killed keeper, None if it has noted nothing.

        A first process that is about to become the command notes itself at once, or ends.
        """
        until = time.monotonic() + FIRST_SECONDS
        found = read_course(self.unit.folder)
        while found is not None and not found.child and self._family() and time.monotonic() < until:
            self._listen(0.02)
            found = read_course(self.unit.folder)
        return found

    def _has_not_begun(self) -> bool:
        """Return whether the command whose start a killed keeper had noted has done nothing.

        Its first process notes itself before it becomes the command, and what has not is killed by now. Under
        another guard that is not sure: what was nobody's child may live on.
        """
        now = read_course(self.unit.folder)
        return now is not None and not now.child and now.guard == self._guard != 0

    def _note_keeper(self) -> None:
        """Note which processes keep the unit.

        On a full disk the note of a killed keeper is as good, if it names the same guard: the guard passes
        orders on, and the unit counts as kept while it lives.

        Raises:
            OSError: when it cannot be written, and no note names this keeper's guard.
        """
        guard = {"guard": self._guard, "guard_ticks": started_ticks(self._guard)} if self._guard else {}
        kept = {"pid": os.getpid(), "ticks": started_ticks(os.getpid()), "boot": boot_id(), **guard}
        try:
            write_in_room(self.unit.folder / "keeper.json", sealed_document(self.unit.folder, kept))
        except OSError:
            if not guard or not guard.items() <= (read_own(self.unit.folder, "keeper.json") or {}).items():
                raise

    def _adopt(self, course: Course) -> None:
        """Go on with a command that another keeper has started, from what that one had noted."""
        self._has_adopted, self._course = True, course
        self._group = course.control_group
        self._started_at, self._first_started_at = course.started_at, course.first_started_at
        self._ended_at, self._has_registered = course.ended_at, course.has_registered
        self._hard, self._is_late, self._left_over = course.is_hard, course.is_late, course.left_over
        if course.has_ended:
            self._ended[course.child] = course.status
        asked = [at for at in (course.stop_asked_at, self._stop_asked_at) if at is not None]
        self._stop_asked_at = min(asked, default=None)
        self._kill_asked |= course.is_hard
        log = LogWriter(self.unit.folder, self.unit.log_bytes)
        log.write_line("boa: the keeper of this unit was killed; another one goes on")
        self._note()
        reader = reopen_output(self.unit.folder)
        if reader is not None:
            self._begin_to_pump(reader, log)
        self._lease = hold_lease(self.unit)
        if self.unit.waits:
            # The killed keeper had noted that its turn has come; who has removed the folder goes on already.
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                self._let_go()
        if course.stop is not None and not self._hard:
            self._stop = OrderedStop(
                self.unit,
                course.child,
                self._family,
                self._note_stop,
                group=self._group,
                before=course.stop,
            )
        self._see_through(course.child, log)

    def _take_orders_beside(self) -> None:
        """Follow what was ordered beside the unit, though no signal of it has come here.

        Whoever got the signal may have died with it, and before a unit has noted a keeper nobody gets one.
        """
        if self._stop_asked_at is None and (self.unit.folder.parent / "stop").exists():
            self._stop_asked_at = time.monotonic()
        self._kill_asked |= (self.unit.folder.parent / "kill").exists()

    def _see_through(self, child: int, log: LogWriter) -> None:
        """Supervise the command to its end, and record the end."""
        code = self._watch(child, log)
        self._has_met_limit = self._has_met_its_limit() or ran_out_of_memory(self.unit)
        is_out_of_memory = self._has_met_limit or self._was_killed_for_memory()
        lingering = self._gather()
        self._remove_leavings(log)
        if self._unpumped is not None:
            self._pump_without_a_thread()
        if self._pump is not None:
            self._pump.join(5.0)
        loss = self._loss()
        if loss:
            log.write_line(f"boa: {loss}")
        if self.unit.artifacts and self._stop_asked_at is None and not self._hard:
            try:
                faults = collect(self.unit, is_over=self._is_told_to_end)
            except Exception as error:
                # What a job has left must not keep its end from being recorded.
                faults = [f"the artifacts could not be copied: {type(error).__name__}: {error}"]
            for fault in faults:
                log.write_line(f"boa: {fault}")
        log.close()
        self._write_exit(code, out_of_memory=is_out_of_memory, lingering=lingering, loss=loss)

    def _is_told_to_end(self) -> bool:
        """Return whether an end at once was ordered; reads what has come meanwhile."""
        self._listen(0.0)
        return self._kill_asked

    @property
    def _is_over_already(self) -> bool:
        """Whether the command must not start, or must not go on."""
        return self._stop_asked_at is not None or self._kill_asked or bool(self._before_failed)

    def _wait_for_turn(self, log: LogWriter) -> subprocess.Popen[bytes] | None:
        """Wait for the unit's turn; return the command's process if it was started early and waits, too."""
        unit, child = self.unit, None
        if unit.waits == "start" and early_start.has_room_for(unit.wait_bytes):
            with suppress(OSError, NoContainers, SecretMissing):
                child = self._start(log, early=True)
        ready = {"is_started": child is not None, "group": self._course.group}
        write_json(unit.folder / READY, sealed_document(unit.folder, ready))
        until = time.monotonic() + MOST_WAIT_SECONDS
        while not (unit.folder / GO).exists() and not self._is_over_already:
            self._listen(TURN_SECONDS)
            self._kill_asked |= time.monotonic() > until
            if not unit.folder.is_dir():
                # The folder was dropped. Kill the command here: the engine may not have seen its start.
                self._group.kill()
                kill_all_carrying(f"BOA_UNIT={unit.name}")
                self._group.remove()
                raise SystemExit(1)
        self.unit = Unit.read(unit.folder)  # Its errands now name the last checkpoint, which is fetched next.
        self._hand_over()
        return child

    def _hand_over(self) -> None:
        """Give the unit's folders to its user; if that fails, the command is not started."""
        try:
            hand_over(self.unit)
        except OSError as error:
            self._before_failed = self._before_failed or f"its folders are not as they must be: {error}"

    def _go_on(self, child: subprocess.Popen[bytes] | None) -> subprocess.Popen[bytes] | None:
        """Let a waiting command go on and return it; None if there is none, or if it has ended."""
        if child is None:
            return None
        if child.pid in self._ended:
            self._gather()
            return None
        self._started_at = time.monotonic()
        # Before it goes on: a next keeper would take it for one that waits, and start it once more.
        self._note_start(child.pid, must=True)
        self._let_go()
        return child

    def _let_go(self) -> None:
        """Let a command that was started early go on."""
        with self.unit.as_user():
            (self.unit.own / GO).touch()

    def _start(self, log: LogWriter, *, early: bool = False) -> subprocess.Popen[bytes]:
        """Start the command in its own session; its secrets are only in its environment."""
        self._lease = self._lease or hold_lease(self.unit)
        secrets = values_of(self.unit.secrets, self.unit.secrets_file, region=self.unit.region)
        temporary = self._temporary_folder()
        told = {**temporary, **self.unit.environment, **stop_variables(self.unit)}
        self.unit = replace(self.unit, environment=told)
        if temporary:
            with suppress(OSError), self.unit.as_user():
                note_variables(Path(temporary["TMPDIR"]), told)
        given = {**told, **secrets}
        environment = {**os.environ, **given}
        if early:
            environment[early_start.GO_FILE] = str(self.unit.own / GO)
        if drops(self.unit):
            environment.pop("XDG_RUNTIME_DIR", None)
        with self.unit.as_user():
            (self.unit.own / SCRATCH).mkdir(parents=True, exist_ok=True)
        workdir = working_folder(self.unit)
        argv, note = command_of(self.unit, environment, workdir=mount_point(self.unit, workdir))
        # Podman and docker switch to the job's user inside the container; they run as the keeper's user, so
        # they get the keeper's variables and folder, and nothing that the job has chosen.
        is_keepers = runs_as_keeper(self.unit, argv)
        if note:
            log.write_line(f"boa: {note}")
        # The checkpoint from which the command resumes is already kept.
        self._kept_from = (self._stamp(Path(self.unit.checkpoint_dir) / MANIFEST), (0, 0))
        enclosure = None if is_keepers else Enclosure(self.unit, {**os.environ, **told})
        if enclosure is not None:
            self._group = enclosure.group
            self._course.group = [str(folder) for folder in self._group.folders]
            for line in enclosure.notes:
                log.write_line(f"boa: {line}")
        self._course.kills_before = self._memory_kills()
        if not early:
            # Should this keeper be killed now, the next one knows that there is a command, and its group.
            self._note_start(0, must=True)

        keeper = os.getpid()

        def become_child() -> None:
            if os.getppid() != keeper:
                os._exit(1)  # A next keeper starts the command anew.
            if not early:
                self._note_start(os.getpid(), must=True)
                if os.getppid() not in (keeper, self._guard):
                    os._exit(1)  # The unit may be taken for one without a command: there must be none.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            if enclosure is not None:
                enclosure.enter(workdir)

        self._started_at = time.monotonic()
        # Wall time, also of an early start that has ended: the times of its files are compared with it.
        self._first_started_at = self._first_started_at or time.time()
        is_dropped = drops(self.unit) and not is_keepers
        reader, writer = make_output(self.unit, self.unit.uid if is_dropped else None, self.unit.gid)
        if self._guard and os.getppid() == self._guard:
            send([self._guard], signal.SIGCHLD)  # It holds the new pipe open, too.
        try:
            child = subprocess.Popen(
                argv,
                cwd="/",
                env=variables_of_tool(os.environ, given) if is_keepers else environment,
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=become_child,  # noqa: PLW1509  no thread runs yet
            )
        except OSError:
            os.close(reader)
            raise
        except subprocess.SubprocessError as error:
            # Its first process has failed before it was the command.
            os.close(reader)
            raise OSError("; ".join(enclosure.is_closed() if enclosure else ()) or str(error)) from error
        finally:
            os.close(writer)
        for line in () if enclosure is None else enclosure.is_closed():
            log.write_line(f"boa: {line}")
        self._course.has_own_memory = enclosure is not None and enclosure.has_own_memory
        self._started_at = time.monotonic()
        if not early:
            self._note_start(child.pid)
        self._begin_to_pump(reader, log)
        return child

    def _begin_to_pump(self, reader: int, log: LogWriter) -> None:
        """Copy what comes out of the command's pipe into its log, in a thread of its own.

        One that cannot be started now is tried again: the command waits once its pipe is full.
        """
        pump = threading.Thread(target=_pump, args=(reader, log), daemon=True)
        try:
            pump.start()
        except RuntimeError:
            self._unpumped = reader, log
            return
        self._pump, self._unpumped = pump, None

    def _pump_without_a_thread(self) -> None:
        """Keep what an ended command has printed, if no thread could be started as long as it ran."""
        assert self._unpumped is not None
        reader, log = self._unpumped
        waiting = select.poll()
        waiting.register(reader, select.POLLIN)
        with suppress(OSError):
            while waiting.poll(0) and log.take(reader):
                pass

    def _note_start(self, child: int, *, must: bool = False) -> None:
        """Note that the command is being started (0), or its first process."""
        course = self._course
        course.child, course.ticks = child, started_ticks(child) or 0 if child else 0
        course.started_at, course.first_started_at = self._started_at, self._first_started_at
        self._note(must=must)

    def _note_stop(self, stop: OrderedStop) -> None:
        """Note how far a stop has come, before it goes further."""
        self._course.stop = stop.state
        self._note()

    def _note(self, *, must: bool = False) -> None:
        """Note how far the unit has come; on a full disk only what is a `must` fails."""
        course = self._course
        course.stop_asked_at, course.is_hard = self._stop_asked_at, self._hard
        course.is_late, course.left_over = self._is_late, self._left_over
        course.ended_at, course.has_registered = self._ended_at, self._has_registered
        try:
            course.write(self.unit.folder)
        except OSError:
            if must:
                raise

    @property
    def _uid(self) -> int:
        """The user of the command."""
        return os.getuid() if self.unit.uid is None else self.unit.uid

    def _temporary_folder(self) -> dict[str, str]:
        """Make the command's folder for temporary files; return the variables that name it.

        A container has one of its own. What PyTorch compiles is kept for the next start, as without BOA.
        """
        if self.unit.image:
            return {}
        before = os.environ.get("TMPDIR") or tempfile.gettempdir()
        with self.unit.as_user():
            folder = make_temporary_folder(self.unit.folder, self._uid)
        compiled = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or f"{before}/torchinductor_{self._uid}"
        return {"TMPDIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": compiled} if folder else {}

    def _watch(self, child: int, log: LogWriter) -> int | None:
        """Wait for the command's end, stop it if that is ordered, and return its status.

        None if nobody saw how its first process ended.
        """
        next_beat = time.monotonic() + self.unit.beat_seconds
        next_trim = time.monotonic() + TRIM_SECONDS
        beats = 0
        while child not in self._ended or self._goes_on(child):
            self._listen(0.5 if self._stop_asked_at is None else STOP_LOOK_SECONDS)
            now = time.monotonic()
            if self._stop_asked_at is not None:
                self._go_on_stopping(child, log)
            if not self._hard and self._has_met_its_limit():
                self._is_out_of_memory = self._kill_asked = True
                log.write_line(
                    f"boa: it used more than its memory_gb of {self.unit.memory_gb:g}: the kernel ended "
                    "one of its processes, and now all are ended"
                )
            if self._kill_asked:
                if not self._hard:
                    self._hard = True
                    self._note()
                self._kill()
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

    def _memory_kills(self) -> int:
        """Return how many processes the kernel has ended for memory in the command's group, or in ours."""
        return self._group.memory_kills() if self._group.counts_memory else memory_kills()

    def _was_killed_for_memory(self) -> bool:
        """Return whether the kernel has ended a process of the command for memory, or one beside it."""
        return self._memory_kills() > self._course.kills_before

    def _has_met_its_limit(self) -> bool:
        """Return whether the kernel has ended a process of the unit because of `memory_gb`.

        Where that is not enforced, the kernel's count may be that of a group with others in it.
        """
        is_enforced = self._group.limits_memory or bool(os.environ.get(LIMITED))
        return bool(self.unit.memory_gb) and is_enforced and self._was_killed_for_memory()

    def _kill(self) -> None:
        """Kill what is left of the command."""
        self._group.kill()
        send(self._family(), signal.SIGKILL)

    def _goes_on(self, child: int) -> bool:
        """Return whether the command goes on though its first process has ended.

        A stop ends with the last process of the command, or with the grace. Without a stop, a registered
        process goes on in the background if the first process has ended well (`setsid python train.py`). If
        that was at once, there is time to register.
        """
        if self._hard:
            return False
        if self._stop is not None:
            return bool(self._family())
        if self._stop_asked_at is not None or self._ended[child] or _ends(self.unit)["is_done"]:
            return False
        now = time.monotonic()
        if not self._ended_at:
            self._ended_at = now
            self._note()
        with self.unit.as_user():
            found = {one.pid for one in registered(register_file(self.unit))}
        family = self._family()
        self._has_registered |= bool(found)
        is_starting = (
            not self._has_registered and self._ended_at < self._started_at + BACKGROUND_STARTS_SECONDS
        )
        return bool(found.intersection(family)) or (
            is_starting and bool(family) and now < self._ended_at + BACKGROUND_SECONDS
        )

    def _go_on_stopping(self, child: int, log: LogWriter) -> None:
        """Begin the stop, or take its next step; ask for a kill when the grace is over."""
        assert self._stop_asked_at is not None
        if self._stop is None:
            self._note()
            self._stop = OrderedStop(self.unit, child, self._family, self._note_stop, group=self._group)
            log.write_line(f"boa: {self._stop}")
        elif said := self._stop.go_on():
            log.write_line(f"boa: {said}")
        if not self._kill_asked and time.monotonic() > self._stop_asked_at + self.unit.grace_seconds:
            # What outlives processes that have saved is a sidecar; else it may be what had to save.
            self._is_late = not self._stop.asks_first or bool(self._stop.savers()) or child not in self._ended
            self._left_over = 0 if self._is_late else len(self._family())
            self._kill_asked = True
            self._note()

    def _loss(self) -> Loss | None:
        """Return what an ordered stop has lost; None if there was none, or if no loss is known."""
        if self._stop is None or _ends(self.unit)["is_done"]:
            return None
        with self.unit.as_user():
            reported = read_json(self.unit.progress_file, most_bytes=MOST_PROGRESS_BYTES) or {}
            saved = read_json(Path(self.unit.checkpoint_dir) / MANIFEST) or {}
            failure = read_failure(self.unit.own) or {}
        assert self._stop_asked_at is not None
        asked_at = time.time() - (time.monotonic() - self._stop_asked_at)
        said = " ".join(str(failure["said"]).split()) if (failure.get("at") or 0.0) >= asked_at - 1.0 else ""
        return loss_of(self._stop, reported, saved, self.unit, is_late=self._is_late, said=said)

    def _has_new_checkpoint(self) -> bool:
        """Return whether there may be a checkpoint to upload.

        There is none if the manifest is that of the last try, and the unit's note of kept checkpoints has
        changed since that try.
        """
        manifest = self._stamp(Path(self.unit.checkpoint_dir) / MANIFEST)
        kept = self._stamp(self.unit.own / KEPT)
        if manifest is None or (manifest == self._kept_from[0] and kept != self._kept_from[1]):
            return False
        if "keep" not in self._errands:
            self._kept_from = (manifest, kept)
        return True

    def _stamp(self, file: Path) -> Stamp:
        """Return the identity of a file of the unit's user; None if it cannot be read."""
        with suppress(OSError), self.unit.as_user():
            found = file.stat()
            return found.st_ino, found.st_mtime_ns
        return None

    def _listen(self, seconds: float) -> None:
        """Wait up to `seconds` for a signal, act on it, and reap ended processes and errands."""
        info = signal.sigtimedwait(_SIGNALS, seconds)
        if info is not None and info.si_signo == signal.SIGUSR1:
            self._kill_asked = True
        elif info is not None and info.si_signo != signal.SIGCHLD and self._stop_asked_at is None:
            self._stop_asked_at = time.monotonic()
        if self._guard and not self._has_lost_guard and os.getppid() != self._guard:
            self._has_lost_guard = True
            self._take_orders_beside()
        if self._unpumped is not None:
            self._begin_to_pump(*self._unpumped)
        child = self._course.child
        for pid, status in ended_children():
            if pid == child:
                self._first_ended(status)
            self._ended[pid] = status
        if self._has_adopted and child not in self._ended and started_ticks(child) != self._course.ticks:
            self._look_for_first_status()
        for slot, (errand, until) in list(self._errands.items()):
            is_late = until is not None and time.monotonic() > until
            if errand.pid in self._ended or is_late:
                how = self._ended.get(errand.pid)
                if how is None:
                    errand.kill()
                self._codes[slot] = -1 if how is None else os.waitstatus_to_exitcode(how)
                errand.returncode = 0  # Reaped here: Popen must not wait for it.
                del self._errands[slot]

    def _first_ended(self, status: int | None) -> None:
        """Note how the command's first process ended."""
        self._ended[self._course.child] = status
        self._course.has_ended, self._course.status = True, status
        self._note()

    def _look_for_first_status(self) -> None:
        """Learn how the first process of an adopted command ended: its parent, the guard, has noted it."""
        found = read_own(self.unit.folder, FIRST) or {}
        now = time.monotonic()
        self._first_gone_at = self._first_gone_at or now
        if found.get("pid") == self._course.child and type(found.get("status")) is int:
            self._first_ended(found["status"])
        elif self._is_astray() or now > self._first_gone_at + FIRST_SECONDS:
            self._first_ended(None)

    def _family(self) -> list[int]:
        """Return the living processes of the command.

        These are its control group, and all of its keepers' descendants but errands.

        Orphans of killed keepers are children of the guard. If that was killed too, they are found by what
        marks them.
        """
        errands = [errand.pid for errand, _ in self._errands.values()]
        mine = {os.getpid(), *errands, *(pid for errand in errands for pid in descendants(errand))}
        found = dict.fromkeys([*descendants(os.getpid()), *self._group.pids()])
        if self._guard and os.getppid() == self._guard:
            found |= dict.fromkeys(descendants(self._guard))
        if self._has_adopted and self._is_astray():
            if time.monotonic() > self._strays[0] + STRAY_SECONDS:
                self._strays = (time.monotonic(), strays(self.unit, self._course))
            found |= dict.fromkeys(self._strays[1])
            for stray in self._strays[1]:
                found |= dict.fromkeys(descendants(stray))
        # The kernel's list of children may lack some while others end: who was there is looked at anew.
        ticks = {pid: started_ticks(pid) for pid in {**found, **self._kin} if pid not in mine}
        self._kin = {
            pid: at for pid, at in ticks.items() if at is not None and (pid in found or self._kin[pid] == at)
        }
        return list(self._kin)

    def _is_astray(self) -> bool:
        """Return whether some of an adopted command may descend from no process of this unit."""
        return self._course.guard != self._guard or os.getppid() != self._guard

    def _end_errands_of_others(self) -> None:
        """Kill what another keeper had going beside its command: this one does it anew."""
        if not self._guard:
            return
        mine = {os.getpid(), *descendants(os.getpid())}
        others = [pid for pid in descendants(self._guard) if pid not in mine]
        errands = [pid for pid in others if carries(pid, f"{ERRAND}={self.unit.name}")]
        send({*errands, *(pid for errand in errands for pid in descendants(errand))}, signal.SIGKILL)

    def _gather(self) -> int:
        """End processes that outlived the command, SIGTERM before SIGKILL; return how many there were."""
        lingering: set[int] = set()
        leaves_until = time.monotonic() + LEAVE_SECONDS
        while self._family() and not self._hard and time.monotonic() < leaves_until:
            self._listen(0.05)
        until = time.monotonic() + LINGER_SECONDS
        while family := self._family():
            fresh = [pid for pid in family if pid not in lingering]
            lingering.update(fresh)
            if self._hard or time.monotonic() > until:
                self._kill()
            else:
                send(fresh, signal.SIGTERM)
            self._listen(0.05)
        self._group.remove()
        return len(lingering)

    def _end_at_once(self) -> None:
        """End what has not begun the command's own work, without SIGTERM before; its end is no kill."""
        self._hard = True
        self._gather()
        self._hard = False

    def _remove_leavings(self, log: LogWriter) -> None:
        """Free the shared memory that the command left on the node, and say so in its log.

        What had its own has left none.
        """
        if self._course.has_own_memory:
            return
        with self.unit.as_user():
            # What looks after a node is on rented ones alone.
            left = remove_leavings(
                self._uid, self.unit.name, since=self._first_started_at, is_shared=not self.unit.look
            )
        if left:
            log.write_line(f"boa: removed what the command had left: {', '.join(left[:5])}")

    def _do_errand(
        self, script: str, *, slot: str = "word", seconds: float | None = ERRAND_SECONDS, wait: bool = False
    ) -> int:
        """Start an errand unless its slot still runs one; with `wait`, return its exit code at its end.

        An order to end at once kills an errand that is waited for, except the last report ("word").
        """
        if not script or (not wait and slot in self._errands):
            return 0
        while slot in self._errands and not self._kill_asked:
            self._listen(0.1)
        try:
            status = self._told(verify=wait) if slot in TELLING else ""
        except OSError:
            # Its files cannot be read now: the next beat reports.
            if not wait:
                return 0
            status = ""
        until = None if seconds is None else time.monotonic() + seconds
        self._codes.pop(slot, None)
        try:
            errand = self._started_errand(script, slot, status, room_seconds=ROOM_SECONDS if wait else 0.0)
        except OSError as error:
            if wait or error.errno not in PASSING:
                raise
            return 0  # The next beat tries again.
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

    def _started_errand(
        self, script: str, slot: str, status: str, *, room_seconds: float
    ) -> subprocess.Popen[bytes]:
        """Start the process of an errand; wait up to `room_seconds` for room for one.

        Raises:
            OSError: when it cannot be started.
        """
        until = time.monotonic() + room_seconds
        while True:
            try:
                # Unblock signals in the child, or SIGTERM could not end it.
                with _for_errors(self.unit.folder / f"{slot}.err") as errors:
                    return subprocess.Popen(
                        ["/bin/bash", "-c", script],
                        env={
                            **os.environ,
                            **aws_variables(self.unit.region),
                            **self._home(slot),
                            "BOA_STATUS": status,
                            "BOA_PYTHON": sys.executable,
                            ERRAND: self.unit.name,
                        },
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=errors,
                        start_new_session=True,
                        preexec_fn=_unblock,  # noqa: PLW1509  it only unblocks signals
                        # Reports and logs belong to the keeper; checkpoints belong to the job's user.
                        **({} if slot in AS_KEEPER else popen_as(self.unit)),
                    )
            except OSError as error:
                if error.errno != errno.EAGAIN or self._kill_asked or time.monotonic() > until:
                    raise
            self._listen(0.5)

    def _home(self, slot: str) -> Mapping[str, str]:
        """Return the HOME of an errand that runs as the job's user."""
        home = self.unit.environment.get("HOME")
        return {"HOME": home} if home and slot not in AS_KEEPER and drops(self.unit) else {}

    def _said(self, slot: str) -> str:
        try:
            return (self.unit.folder / f"{slot}.err").read_text(errors="replace").strip()[-500:]
        except OSError:
            return ""

    def _told(self, *, verify: bool) -> str:
        """Return the unit's status for an errand's report: JSON with the seal of its generation."""
        return json.dumps(sealed(self._status(verify=verify), key_of(self.unit.folder)))

    def _status(self, *, verify: bool) -> Mapping[str, Any]:
        """Return the unit's status; a checkpoint is verified only once, when its manifest is new."""
        file = Path(self.unit.checkpoint_dir) / MANIFEST
        changed_at = 0  # No manifest, or its user cannot reach it: then the command cannot start either.
        with suppress(OSError), self.unit.as_user():
            changed_at = file.stat().st_mtime_ns
        status = status_of(self.unit.folder, verify=verify or changed_at != self._seen[0])
        if status["manifest"] is None and changed_at == self._seen[0]:
            status["manifest"] = self._seen[1]
        self._seen = (changed_at, status["manifest"])
        return status

    def _is_unseen_end(self, code: int | None) -> bool:
        return code is None and self._has_adopted and self._stop_asked_at is None and not self._hard

    def _verified(self) -> dict[str, Any]:
        """Return the newest complete checkpoint for the record of the end, so that no engine has to read it.

        An order to end at once is obeyed meanwhile: how much there is to read is for the job to say.
        """
        if self.unit.keep:
            return {}
        found: dict[str, Any] = {}

        def verify() -> None:
            with suppress(Exception), self.unit.as_user():
                found.update(verified_checkpoint(self.unit))

        before, self._kill_asked = self._kill_asked, False
        thread = threading.Thread(target=verify, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # No threads are left: what is read is read to its end.
            verify()
        else:
            thread.join(0.02)
        until = time.monotonic() + VERIFY_SECONDS
        while thread.is_alive() and not self._kill_asked and time.monotonic() < until:
            self._listen(0.02)
        self._kill_asked |= before
        return found or {"manifest": None, "wrong_manifest": "the checkpoint could not be read to its end"}

    def _write_exit(
        self,
        status: int | None,
        *,
        out_of_memory: bool,
        lingering: int,
        loss: Loss | None = None,
        is_full: bool = False,
    ) -> None:
        """Record how the unit ended; before that, upload the last checkpoint and send the last report."""
        code = None if status is None else os.waitstatus_to_exitcode(status)
        unit = self.unit
        facts: dict[str, Any] = {
            "code": code,
            "stop_asked": self._stop_asked_at is not None,
            # Leavings of a command that has ended in time are no sign of a lost step.
            "killed": self._hard and not self._left_over and not self._is_out_of_memory,
            "out_of_memory": out_of_memory,
            **({"memory_gb": unit.memory_gb} if self._has_met_limit and unit.memory_gb else {}),
            "lingering": max(lingering, self._left_over),
            "why_lost": "" if loss is None else loss.why,
            **_ends(unit),
            **self._verified(),
            # Nobody saw how a command ended by itself: it may have been killed with its keepers.
            **({"agent_lost": True} if self._is_unseen_end(code) else {}),
            "disk_full": is_full or (bool(code) and full_disk(unit.workdir, unit.checkpoint_dir)),
            "before_failed": self._before_failed,
            "ended_at": time.time(),
        }
        if code and unit.look and self._stop_asked_at is None:
            # Check the node again: a failing GPU ends its process at once, after the last heartbeat's check.
            self._kill_asked = False
            self._do_errand(unit.look, slot="look", seconds=LOOK_SECONDS, wait=True)
        if unit.after:
            # The order ended the command; a new order ends the upload. If the command ended by itself, the
            # first order is ignored: an engine ends all units of a job when one has failed.
            self._kill_asked, self._spares_upload = False, not self._hard
            # The unit ends only after the upload of the last checkpoint, or its steps would be lost.
            if not self._before_failed and self._do_errand(unit.keep, slot="keep", seconds=None, wait=True):
                log = LogWriter(unit.folder, unit.log_bytes)
                log.write_line(f"{self._said('keep')}\nboa: the last checkpoint was not uploaded")
                log.close()
            write_in_room(unit.folder / "ending.json", sealed_document(unit.folder, facts))
            self._do_errand(unit.after, wait=True)
        write_in_room(unit.folder / "exit.json", sealed_document(unit.folder, facts))


def _ends(unit: Unit) -> dict[str, bool]:
    """Return whether a unit's command reported that it is done, and whether its result file is missing."""
    done, result = Path(f"{unit.progress_file}.done"), Path(unit.workdir) / unit.result
    with unit.as_user():
        return {
            "is_done": os.path.exists(done),
            "lacks_result": bool(unit.result) and not os.path.exists(result),
        }


def settle(folder: Path) -> None:
    """End a unit that has no keeper; does nothing if it has one after all, as one that has come late.

    Raises:
        OSError: when the end cannot be recorded.
    """
    with _open_lock(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        end_orphaned_unit(folder)


def _open_lock(folder: Path) -> BinaryIO:
    """Open the file that the guard and the keepers of a unit have locked while they live.

    Only their user may open it: whoever can, can lock it.
    """
    file, flags = folder / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(file, flags, 0o600)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP):
            raise
        # A command of our own user has put it there: nobody could keep or end the unit any more.
        remove_trees(file)
        lock = os.open(file, flags, 0o600)
    return os.fdopen(lock, "r+b", buffering=0)


def end_orphaned_unit(folder: Path) -> None:
    """Kill the processes of a unit whose keeper is gone, record its end, and run its last errands.

    Does nothing if the keeper recorded the end itself. Who calls this has the unit's lock.
    """
    unit = Unit.read(folder)
    if read_own(folder, "exit.json") is not None:
        return
    course = read_course(folder)
    group = ControlGroup.find(group_name(unit)) if course is None else course.control_group
    lingering = group.kill() + kill_all_carrying(f"BOA_UNIT={unit.name}")
    group.remove()
    # A keeper may have known the end, and have died in its last errand.
    facts = read_own(folder, "ending.json") or lost_end(
        lingering=lingering,
        **_ends(unit),
        ended_at=time.time(),
        never_kept=_why_never_kept(folder),
    )
    write_in_room(folder / "exit.json", sealed_document(unit.folder, facts))
    if unit.keep:
        with suppress(OSError):  # A user whom the kernel refuses must not keep the end from being reported.
            _do_last_errand(unit, unit.keep, LAST_UPLOAD_SECONDS, **popen_as(unit))
    if unit.after:
        _do_last_errand(unit, unit.after, ERRAND_SECONDS)
    clear_away(unit)


def _why_never_kept(folder: Path) -> str:
    """Return why a unit never had a keeper, in one line; empty if it had one."""
    if (folder / "keeper.json").exists():
        return ""
    said: list[str] = []
    with suppress(OSError):
        said = (folder / ERRORS).read_text(errors="replace").strip().splitlines()
    return (said[-1] if said else "it ended before it could say why")[:500]


def _do_last_errand(unit: Unit, script: str, seconds: float, **user: Any) -> None:
    """Run an errand of a unit without a keeper, and end all its processes once its time is over."""
    environment = {
        **os.environ,
        **aws_variables(unit.region),
        "BOA_STATUS": json.dumps(told_status(unit.folder, verify=True)),
        "BOA_PYTHON": sys.executable,
        ERRAND: unit.name,
    }
    words = ["/bin/bash", "-c", script]
    with subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, **user) as errand:
        try:
            errand.wait(seconds)
        except subprocess.TimeoutExpired:
            kill_all_carrying(f"{ERRAND}={unit.name}")
            errand.kill()


def clear_away(unit: Unit) -> None:
    """Remove temporary files of an ended unit, output files of its ranks, and what its keepers kept ready."""
    found = (temporary_folder(unit.folder), unit.own / SCRATCH, unit.own / RANK_FILES)
    left: list[Path] = []
    # A user whom the kernel refuses has left no files; an ended unit must not count as one that has failed.
    with suppress(OSError), unit.as_user():
        left = [folder for folder in found if os.path.lexists(folder)]
    if left:
        remove_trees(*left, **popen_as(unit))
    for file in unit.folder.glob(".*"):
        # Reserved space, and what a killed keeper was writing.
        with suppress(OSError):
            file.unlink()


def _for_errors(file: Path) -> BinaryIO:
    """Open a file for what a process says on its standard error; on a full disk nobody hears it."""
    try:
        return file.open("wb")
    except OSError:
        return open(os.devnull, "wb")


def code_of(error: Exception) -> int:
    """Return the exit code of a unit whose command cannot be started: a shell's for a missing one, or 1."""
    is_passing = isinstance(error, SecretMissing) or getattr(error, "errno", None) in PASSING
    return 1 if is_passing else 127


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _pump(reader: int, log: LogWriter) -> None:
    """Copy the command's output into its log until the command closes it."""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while log.take(pipe.fileno()):
            pass


def _apart() -> None:
    """Detach from the process that started us, its terminal and its session.

    Raises:
        SystemExit: when no process can be started for a long time.
    """
    until = time.monotonic() + ROOM_SECONDS
    while True:
        try:
            child = os.fork()
            break
        except OSError as error:
            if time.monotonic() > until:
                raise SystemExit(NO_ROOM.format(error.strerror)) from None
            time.sleep(0.5)
    if child:
        os._exit(0)
    os.setsid()


def main(arguments: list[str]) -> int:
    """Keep the unit of a folder, detached unless `--foreground`; or print its `--status`; or `--settle` it.

    `--settle` ends a unit whose keeper is gone.
    """
    folder = Path(arguments[-1]).resolve()
    if "--settle" in arguments:
        settle(folder)
        return 0
    if "--status" in arguments:
        print(json.dumps(told_status(folder, verify=True)))  # noqa: T201  its caller reads it
        return 0
    Unit.read(folder)  # Raises now, and not in each keeper.
    take_back_signals()
    if "--foreground" not in arguments:
        _apart()
    with _open_lock(folder) as lock:
        orders = None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if "--foreground" not in arguments:
                return 0  # The unit already has a keeper.
            # Started again by systemd: the guard was killed, and its keeper goes on.
            orders = stand_in(folder, lock.fileno())
        if read_own(folder, "exit.json") is not None:
            clear_away(Unit.read(folder))
            return 0
        if (folder / "keeper.json").exists() and read_course(folder) is None:
            if "--foreground" in arguments:
                end_orphaned_unit(folder)  # It had no command yet, or the machine was booted meanwhile.
            return 0
        if not Guard(folder, _keep(folder), orders).run():
            end_orphaned_unit(folder)
        with suppress(FileNotFoundError):  # The unit may have been dropped.
            clear_away(Unit.read(folder))  # Where its keeper was killed after it had recorded the end.
    return 0


def _keep(folder: Path) -> Callable[[Orders, int], int]:
    """Return what the guard of a unit does in each keeper that it starts."""

    def keep(orders: Orders, guard: int) -> int:
        unit = Unit.read(folder)
        Keeper(unit, orders, guard).run()
        clear_away(unit)
        if os.getppid() == guard:
            # Should somebody have suspended it: who waits for its end would wait for ever.
            send([guard], signal.SIGCONT)
        return 0

    return keep


def start_apart(folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a keeper for the unit in a folder; the returned process ends once the keeper has detached.

    Raises:
        OSError: when no process can be started now; `keeper.err` says so, too.
    """
    with _for_errors(folder / ERRORS) as errors:
        try:
            return subprocess.Popen(
                within_limits(
                    Unit.read(folder), [sys.executable, "-m", "boa_daemon.job.keeper", str(folder)]
                ),
                cwd="/",  # Python looks for modules in its folder first.
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        except OSError as error:
            what = NO_ROOM.format(error.strerror) if error.errno == errno.EAGAIN else str(error)
            with suppress(OSError):
                errors.write(f"{what}\n".encode())
            raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
