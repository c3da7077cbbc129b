"""One small life of a daemon, which can be killed at each of its effects: `see_through` plays it to its end.

The daemon is the real one: assembled from its settings, with a simulated cloud in a file and jobs that are
real processes under real keepers. Each process of it is a fork; its successor finds nothing but the files.
People order things between two ticks, and look first whether they have been done.

A point is an effect outside the process (on a file, a lock, a process, the database, the cloud), with the
step of the life and the functions that led to it. A life that is not disturbed tells which there are.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, select, update

import boa_daemon
from boa_daemon.backends.simulated import FileCloud
from boa_daemon.daemon.loop import last_state
from boa_daemon.daemon.loop.assembly import open_daemon
from boa_daemon.daemon.loop.clockwork import Clockwork
from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.service.replay import replay
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import daemon_paths
from boa_daemon.engines import local_units
from boa_daemon.errors import InputError
from boa_daemon.job.processes import carrying, kill_all_carrying
from boa_daemon.store.database_setup import backups_in
from boa_daemon.store.decisions import DaemonStore
from boa_daemon.store.leader import Leadership
from boa_daemon.store.tables import CHARGE_DAYS, CHARGES, GENERATIONS, INTENTS, LEADER
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import job_content

START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
STEP_SECONDS, QUIET_STEP_SECONDS = 2.0, 15.0
"""Seconds between two ticks: while processes start or stop, which take real time, and else."""
PATIENCE_SECONDS, LEASE_SECONDS = 90.0, 3600.0
CAP_USD = 6.0
HERE = str(Path(boa_daemon.__file__).parent)
_OF_FILES = ("rename", "remove", "mkdir", "rmdir", "chmod", "chown", "link", "symlink", "truncate", "utime")
EFFECTS = frozenset(
    [f"os.{name}" for name in (*_OF_FILES, "kill", "killpg", "fork")]
    + ["subprocess.Popen", "fcntl.flock", "fcntl.lockf"]
)
"""Audit events of the interpreter; a file that is opened to be written is one, too."""
ORDERS = ("launch", "terminate", "renew", "rehearse_end")
"""What the cloud is told; its file is written by these alone."""
TORN = "torn "
"""How a point begins at which the process dies when a file is open, and nothing is written yet."""
_NUMBERS = re.compile(r"[0-9a-f]{8,}|[0-9]+(-[0-9]+)*")
JOB = """
mine={place}/runs-$BOA_JOB_ID-$BOA_NODE_RANK
mkdir $mine || echo "$mine twice at once" >> {place}/faults
trap 'rmdir $mine; exit 0' TERM
echo "$BOA_JOB_ID $BOA_GENERATION $BOA_NODE_RANK" >> {place}/ran
echo '{{"step": 1}}' > $BOA_PROGRESS_FILE
while [ ! -e {place}/go ]; do sleep 0.02; done
rmdir $mine
"""
"""A job that says when it runs, and ends when it is told to, or when the file `go` is there."""


class Points:
    """The points of this process: notes them in `note`, and dies at one.

    That is the first point that begins with `at`, or the one with this number.
    """

    def __init__(self, at: str | int, note: Path) -> None:
        self.at, self.step, self.met = at, "", dict[str, None]()
        self._note, self._is_here = note, False
        self._pid, self._thread = os.getpid(), threading.current_thread()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let the test do something of its own, which is no point."""
        self._is_here, before = True, self._is_here
        try:
            yield
        finally:
            self._is_here = before

    def meet(self, what: str, torn: str = "") -> None:
        """Note a point that is met for the first time in its step, and die if it is the one."""
        if self._is_here or os.getpid() != self._pid or threading.current_thread() is not self._thread:
            return
        self._is_here = True
        try:
            point = f"{self.step}|{what}|{'<'.join(_functions()[:5])}"
            for one in (point, *([TORN + point] if torn else [])):
                if one in self.met:
                    continue
                self.met[one] = None
                with self._note.open("a") as note:
                    note.write(one + "\n")
                if len(self.met) == self.at or (isinstance(self.at, str) and one.startswith(self.at)):
                    if one is not point:
                        os.close(os.open(torn, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644))
                    os.kill(os.getpid(), signal.SIGKILL)
        finally:
            self._is_here = False

    def hear(self, heard: str, given: tuple[Any, ...]) -> None:
        """Meet the point of an audit event."""
        if self._is_here or (heard not in EFFECTS and heard != "open"):
            return
        if heard == "open" and not (isinstance(given[2], int) and given[2] & (os.O_ACCMODE | os.O_CREAT)):
            return
        path = os.fsdecode(given[0]) if given and isinstance(given[0], (str, bytes)) else ""
        if heard == "subprocess.Popen" or path == os.devnull:
            path = ""
        empties = heard == "open" and bool(given[2] & (os.O_TRUNC | os.O_EXCL)) and bool(path)
        name = _NUMBERS.sub("#", os.path.relpath(path, self._note.parent)) if path else ""
        self.meet(f"{heard}:{name}", path if empties else "")

    def watch(self, daemon: Daemon) -> None:
        """Meet the points of the daemon's orders to the cloud, before and after."""
        cloud = daemon.world.cloud
        for name in ORDERS:
            setattr(cloud, name, self._around(name, getattr(cloud, name)))

    def _around(self, name: str, order: Callable[..., Any]) -> Callable[..., Any]:
        def around(*given: Any) -> Any:
            self.meet(f"{name}: before")
            answer = order(*given)
            self.meet(f"{name}: after")
            return answer

        return around


def _functions() -> list[str]:
    """Return the functions of ours that are under way, the innermost first."""
    names, frame = [], sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(HERE):
            names.append(frame.f_code.co_name.strip("<>"))
        frame = frame.f_back  # type: ignore[assignment]
    return list(dict.fromkeys(names))


@dataclass
class Life:
    """One life in a folder, on the database `url` (a SQLite file in the folder if it is empty)."""

    folder: Path
    story: str
    url: str = ""
    points: list[str] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)

    def see_through(self, at: str = "", then: int = 0) -> bool:
        """Play the life to its end, with a successor if it dies at a point; return whether it died.

        The successor dies at its own point number `then`, unless that is 0.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        has_died = self._play(at or 0)
        if has_died and self._play(then):
            assert not self._play(0)
        self.report = json.loads((self.folder / "report.json").read_text())
        return has_died

    def _play(self, at: str | int) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            code = 1
            try:
                with (self.folder / "log").open("a") as log:
                    os.dup2(log.fileno(), 1)
                    os.dup2(log.fileno(), 2)
                    code = self._live(at)
            except BaseException:
                (self.folder / "error").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        points = self.folder / "points"
        if not self.points and points.exists():
            self.points = list(dict.fromkeys(points.read_text().splitlines()))
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return True
        error = self.folder / "error"
        assert os.waitstatus_to_exitcode(status) == 0, error.read_text() if error.exists() else status
        return False

    def _live(self, at: str | int) -> int:
        last_state.EVERY_SECONDS = 0.0
        local_units.KEEPER_SECONDS, local_units.TRY_SECONDS = 20.0, 1.0
        points = Points(at, self.folder / "points")
        sys.addaudithook(points.hear)
        # Of each engine, so that those of the schema's migration are among them.
        event.listen(Engine, "commit", lambda _connection: points.meet("commit"))
        Process(self, points).run()
        return 0

    @property
    def mark(self) -> str:
        """A variable in the environment of each process of the life's jobs."""
        return f"LIFE={self.folder}"

    def clear(self) -> None:
        """End what is left of the life's jobs."""
        kill_all_carrying(self.mark)


class Process:
    """One process of a daemon, and the people who order things of it."""

    def __init__(self, life: Life, points: Points) -> None:
        self.life, self.points, self.folder = life, points, life.folder
        self.now = self.folder / "now"
        instant = float(self.now.read_text()) if self.now.exists() else START
        self.clock = ManualClock(instant)
        settings: dict[str, Any] = {
            "budget": {"usd_per_hour": 4.0, "usd_per_day_cap": CAP_USD, "max_instances": 3},
            "cloud": {"boot_seconds": 3.0},
            "daemon": {
                "state_dir": str(self.folder / "state"),
                "idle_hold_seconds": 20.0,
                "tick_seconds": 15.0,
            },
            "steady": {"minimum_hold_seconds": 0.0, "moves_per_hour_of_a_job": 50},
            "gate": {"enabled": False},
            "engine": {"own_user": False},
        }
        if life.url:
            settings["daemon"]["database"] = life.url
        points.step = "opening"
        self.daemon = open_daemon(Settings.model_validate(settings), clock=self.clock, lead=_lead)
        assert self.daemon.storage is not None, self.daemon.standing.fault
        self.storage = self.daemon.storage
        self.service = Service(self.daemon)
        self.daemon.after_tick = self.service.after_tick
        self.clockwork = Clockwork(self.daemon, daemon_paths(self.daemon.settings))
        points.watch(self.daemon)

    def run(self) -> None:
        """Play the story on to its end, and write the report."""
        began, done = time.monotonic(), self.folder / "done"
        for number, (name, order, is_so) in enumerate(STORIES[self.life.story].steps):
            if number < (int(done.read_text()) if done.exists() else 0):
                continue
            self.points.step = name
            while not is_so(self):
                assert time.monotonic() < began + PATIENCE_SECONDS, (name, self.seen)
                order(self)
                self._turn()
            self._put(done, str(number + 1))
        self._turn()  # A successor may find nothing left to be done, but a last bill.
        with self.points.aside():
            report = the_report(self)
            self.daemon.close()
            (self.folder / "report.json").write_text(json.dumps(report))

    def _put(self, file: Path, text: str) -> None:
        with self.points.aside():
            aside = file.with_suffix(".new")
            aside.write_text(text)
            aside.rename(file)

    def _turn(self) -> None:
        """Let time pass, and tick; while processes start or stop, wait for them."""
        is_moving = any(
            job.slots and (not self.is_there(job.id, job.generation) or job.id in self.daemon.work._stopping)
            for job in self.storage.queue.active.values()
        )
        if is_moving:
            time.sleep(0.03)
        self.clock.instant += STEP_SECONDS if is_moving else QUIET_STEP_SECONDS
        self._put(self.now, str(self.clock.instant))
        self.daemon.tick()
        assert not self.daemon.standing.fault, self.daemon.standing.fault

    @property
    def seen(self) -> Any:
        return [(row["id"], row["status"], row["gpus"]) for row in self.service.jobs()["jobs"]]

    def row(self, name: str) -> dict[str, Any] | None:
        """Return the answer about a job, by the name that its user gave it."""
        return next((row for row in self.service.jobs()["jobs"] if row["name"] == name), None)

    def ran(self) -> list[str]:
        file = self.folder / "ran"
        return file.read_text().splitlines() if file.exists() else []

    def is_there(self, job: str, generation: int) -> bool:
        """Return whether a generation's own process has begun."""
        return f"{job} {generation} 0" in self.ran()

    def runs(self, name: str, gpus: int) -> bool:
        """Return whether a job runs at a width."""
        row = self.row(name)
        return (
            row is not None
            and row["status"] == "running"
            and row["gpus"] == gpus
            and self.is_there(row["id"], row["generation"])
        )

    def status(self, name: str) -> str:
        row = self.row(name)
        return "" if row is None else str(row["status"])

    def live(self) -> list[Any]:
        return [node for node in self.daemon.world.cloud.nodes() if node.ended_at is None]  # type: ignore[attr-defined]

    # What people order.

    def submit(self, *names: str) -> None:
        for name in names:
            if self.row(name) is None:
                key, _, value = self.life.mark.partition("=")
                content = {
                    **job_content(name, hours=0.2, max_gpus=1),
                    "run": JOB.format(place=self.folder),
                    "workdir": str(self.folder),
                    "environment": {key: value},
                    "stop_grace_seconds": 20,
                }
                self.service.submit([content], user="ann")

    def resize(self, name: str, gpus: int) -> None:
        row = self.row(name)
        assert row is not None
        if self.storage.queue.active[row["id"]].content.get("max_gpus") != gpus:
            self.service.resize(row["id"], gpus=gpus, user="ann", is_admin=True)

    def cancel(self, name: str) -> None:
        row = self.row(name)
        assert row is not None
        if row["status"] in ("running", "queued") and not self.storage.queue.active[row["id"]].is_cancelled:
            self.service.cancel(row["id"], user="ann", is_admin=True)

    def warn(self, name: str) -> None:
        """Rehearse a spot warning of the node of a job, once."""
        row = self.row(name)
        assert row is not None
        if row["gpus"] and row["generation"] == 1 and all(node.ends_by is None for node in self.live()):
            with suppress(InputError):
                self.service.interrupt(row["id"], user="ann", is_admin=True)

    def has_moved(self, name: str) -> bool:
        """Return whether a job runs on nodes that stay."""
        row = self.row(name)
        going = {node.id for node in self.live() if node.ends_by is not None}
        return row is not None and row["generation"] > 1 and self.runs(name, 1) and not going

    def down(self, is_down: bool) -> None:
        if self.daemon.standing.is_down != is_down:
            self.service.down(is_down=is_down)

    def finish(self) -> None:
        with self.points.aside():
            (self.folder / "go").touch()

    def is_over(self) -> bool:
        queue, store = self.storage.queue, self.storage.store
        return not (queue.active or queue.instances or self.live() or store.unsettled())

    def back_up(self) -> None:
        """Do what is done once an hour."""
        self.clockwork._backup()
        self.clockwork._sweep()

    @property
    def is_backed_up(self) -> bool:
        return bool(self.life.url or backups_in(daemon_paths(self.daemon.settings).backups))


def _lead(engine: Engine) -> Leadership:
    """Lead on a database, with a lease that no busy machine lets run out; the predecessor's is over."""
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            connection.execute(update(LEADER).values(expires_at=0.0))
    leadership = Leadership(engine, lease_seconds=LEASE_SECONDS)
    assert leadership.take() is None
    return leadership


Step = tuple[str, Callable[[Process], object], Callable[[Process], bool]]
"""A name, what people order until it is so, and whether it is so."""


@dataclass(frozen=True)
class Story:
    """The steps of a life, and what is to come of it."""

    steps: tuple[Step, ...]
    jobs: Mapping[str, str]
    ran: list[str]
    """Job, generation and node of each process that begins."""
    nodes: int
    """Rented at the most: a daemon that comes late may still have the node of a job that ended."""
    orders: list[str]


_END: tuple[Step, ...] = (
    ("finish", Process.finish, lambda it: it.status("a") == "finished"),
    ("idle", lambda it: None, Process.is_over),
    ("backup", Process.back_up, lambda it: it.is_backed_up),
)
STORIES: Mapping[str, Story] = {
    "resize": Story(
        steps=(
            ("submit", lambda it: it.submit("a", "b"), lambda it: it.runs("a", 1) and it.runs("b", 1)),
            ("cancel", lambda it: it.cancel("b"), lambda it: it.status("b") == "cancelled"),
            ("resize", lambda it: it.resize("a", 2), lambda it: it.runs("a", 2)),
            *_END,
        ),
        jobs={"a": "finished", "b": "cancelled"},
        ran=["a-1 1 0", "a-1 2 0", "a-1 2 1", "b-2 1 0"],
        nodes=3,
        orders=["cancel", "resize"],
    ),
    "warning": Story(
        steps=(
            ("submit", lambda it: it.submit("a"), lambda it: it.runs("a", 1)),
            ("warning", lambda it: it.warn("a"), lambda it: it.has_moved("a")),
            ("down", lambda it: it.down(True), lambda it: not it.live() and it.status("a") == "queued"),
            ("up", lambda it: it.down(False), lambda it: it.runs("a", 1)),
            *_END,
        ),
        jobs={"a": "finished"},
        ran=["a-1 1 0", "a-1 2 0", "a-1 3 0"],
        nodes=3,
        orders=[],
    ),
}
EXPECTED_ALERT = "this day would end at"
"""In the one alert of a life: its cap is below what its nodes would cost in a day."""


def the_report(process: Process) -> dict[str, Any]:
    """Return what a life has left, for the checks."""
    store, cloud = process.storage.store, process.daemon.world.cloud
    assert isinstance(cloud, FileCloud)
    with store.database.read() as connection:
        intents = connection.execute(select(INTENTS)).all()
        charges = Counter(connection.scalars(select(CHARGES.c.node)))
        days = sum(connection.scalars(select(CHARGE_DAYS.c.micro_dollars)))
        generations = [(row.job, row.generation, row.end) for row in connection.execute(select(GENERATIONS))]
    return {
        "jobs": {row["name"]: row["status"] for row in process.service.jobs()["jobs"]},
        "nodes": [
            {"id": node.id, "by": node.launched_by, "at": node.launched_at, "ended_at": node.ended_at}
            for node in cloud.everything()
        ],
        "intents": {row.id: row.status for row in intents},
        "bill": cloud.bill_micro_dollars(),
        "settled": store.settled_micro_dollars(),
        "days": days,
        "charges": dict(charges),
        "open": [launch.action.id for launch in store.unsettled()],
        "generations": generations,
        "ran": process.ran(),
        "faults": (process.folder / "faults").read_text() if (process.folder / "faults").exists() else "",
        "records": _records(store),
        "orders": [row["what"] for row in process.storage.orders.newest(1000)],
        "alerts": [row["sentence"] for row in process.service.alerts()["alerts"]],
    }


def _records(store: DaemonStore) -> dict[str, Any]:
    """Return what is wrong with the records of decisions, which are replayed, and the acts that they name."""
    wrong, acts = [], list[str]()
    for decision in store.decisions(limit=10_000):
        acts += [action["id"] for action in decision["actions"]]
        if not decision["actions"]:
            continue
        record = store.decision_record(decision["tick"])
        if not replay(record).is_same:
            wrong.append(f"decision {decision['tick']} is not what it was")
    return {"wrong": wrong, "acts": acts}


def faults_of(life: Life, *, spare_nodes: int = 0) -> list[str]:
    """Return what is wrong with a life, whether it was disturbed or not; so many nodes more may be rented."""
    found, story = life.report, STORIES[life.story]
    nodes, acts = found["nodes"], set(found["records"]["acts"])
    checks = {
        f"jobs ended otherwise: {found['jobs']}": found["jobs"] == story.jobs,
        f"a job ran twice at once: {found['faults']}": not found["faults"],
        f"not one start each: {found['ran']}, {found['generations']}": sorted(found["ran"]) == story.ran,
        f"nodes leaked, or more than were needed: {nodes}": len(nodes) <= story.nodes + spare_nodes
        and all(node["ended_at"] is not None for node in nodes),
        "a node was rented without an intent": {node["by"] for node in nodes} <= set(found["intents"]),
        f"open: {found['open']}": not found["open"],
        f"billed {found['bill']}, charged {found['settled']}, by days {found['days']}": (
            found["bill"] == found["settled"] == found["days"] <= CAP_USD * 1e6
        ),
        f"not one charge each: {found['charges']}": sorted(found["charges"])
        == sorted(node["id"] for node in nodes),
        f"an act without its decision: {set(found['intents']) - acts}": set(found["intents"]) <= acts,
        f"decisions that are not what they were: {found['records']['wrong']}": not found["records"]["wrong"],
        f"orders without a note: {found['orders']}": sorted(found["orders"]) == story.orders,
        f"alerts: {found['alerts']}": all(EXPECTED_ALERT in said for said in found["alerts"]),
        f"left: {_left_by(life)}": not _left_by(life),
        "the database is damaged": life.url or _is_sound(life.folder / "state" / "boa.sqlite"),
    }
    return [said for said, is_so in checks.items() if not is_so]


def _is_sound(file: Path) -> bool:
    with closing(sqlite3.connect(file)) as database:
        return bool(database.execute("PRAGMA integrity_check").fetchone() == ("ok",))


def _left_by(life: Life) -> list[str]:
    """Return what is left of a life on this machine, once its keepers had time to end."""
    until = time.monotonic() + 10.0
    while (left := carrying(life.mark)) and time.monotonic() < until:
        time.sleep(0.02)
    files = [str(file) for file in life.folder.rglob(".*") if file.name != ".lock"]
    return [f"process {pid}" for pid in left] + files
