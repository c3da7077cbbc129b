"""Ordered stops: who is registered, who is told when, and what a stop says that it lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from engine_bench import script, until

from boa_daemon.job import stops
from boa_daemon.job.checkpoint import MANIFEST
from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.failures import ERROR_FILE, FILE_NAME
from boa_daemon.job.processes import children, descendants, is_alive, kill_all_carrying, send, started_ticks
from boa_daemon.job.run import Run
from boa_daemon.job.stops import (
    REGISTER,
    Registered,
    Registration,
    catches_sigterm,
    make_request,
    only_waits,
    register_file,
    registered,
    request_file,
)
from boa_daemon.job.unit import Unit, keepers_of, read_json

LOOP = Path(__file__).parents[2] / "command_jobs" / "loop.py"
LOOP_ALONE = f"{sys.executable} {LOOP} --save 2"
LOOP_FOLLOWED = f"{LOOP_ALONE}; echo it went on"
LOOP_PIPED = f"{LOOP_ALONE} | cat"


def a_unit(folder: Path, run: str, **changes: Any) -> Unit:
    """Return a written unit of this command, with the variables that the helper needs."""
    values: dict[str, Any] = {
        "name": f"u-{folder.name}-{os.getpid()}",
        "job": "a",
        "generation": 1,
        "rank": 0,
        "run": run,
        "folder": folder / "g1" / "n0",
        "workdir": str(folder),
        "progress_file": str(folder / "g1" / "own" / "progress.json"),
        "checkpoint_dir": str(folder / "checkpoint"),
        "grace_seconds": 20.0,
    }
    unit = Unit(**(values | changes))
    own = {
        "BOA_CHECKPOINT_DIR": unit.checkpoint_dir,
        "BOA_PROGRESS_FILE": unit.progress_file,
        "BOA_GENERATION": "1",
        "BOA_UNIT": unit.name,
        "BOA_JOB_ID": "a",
    }
    unit = Unit(**(values | {"environment": own} | changes))
    unit.write()
    return unit


@pytest.fixture
def keep() -> Iterator[Any]:
    """Return a function that starts a unit's guard, and so its keeper; all are killed at the end."""
    with ExitStack() as stack:

        def start(unit: Unit, before: str = "") -> subprocess.Popen[bytes]:
            text = (
                f"import sys; from boa_daemon.job import keeper, stops; {before}; keeper.main(sys.argv[1:])"
            )
            how = ["-c", text] if before else ["-m", "boa_daemon.job.keeper"]
            words = [sys.executable, *how, "--foreground", str(unit.folder)]
            guard = stack.enter_context(subprocess.Popen(words))
            stack.callback(kill_all_carrying, f"BOA_UNIT={unit.name}")
            stack.callback(lambda: [send([pid], signal.SIGKILL) for pid in keepers(unit)])
            return guard

        yield start


def keepers(unit: Unit) -> list[int]:
    """Return the living processes that keep a unit: its guard, then its keeper."""
    found = keepers_of(read_json(unit.folder / "keeper.json"))
    return [pid for pid, ticks in found if is_alive(pid, ticks)]


def kill_keeper(unit: Unit, *, times: int = 1) -> None:
    """Kill the keeper of a unit, and then each that follows it, and wait for the next one."""
    for _ in range(times):
        alive = keepers(unit)
        if len(alive) < 2:
            return  # The unit has ended meanwhile, or its keeper is about to end it.
        keeper = alive[1]
        send([keeper], signal.SIGKILL)
        until(
            lambda before=keeper: (
                (unit.folder / "exit.json").exists()
                or (len(keepers(unit)) == 2 and before not in keepers(unit))
            )
        )


def printed(unit: Unit) -> str:
    return "".join(file.read_text() for file in sorted(unit.folder.glob("out-*.log")))


def step_of(unit: Unit) -> int:
    return int((read_json(unit.progress_file) or {}).get("step", 0))


def saved_step(unit: Unit) -> int:
    return int((read_json(Path(unit.checkpoint_dir) / MANIFEST) or {}).get("step", 0))


def ended(unit: Unit) -> dict[str, Any]:
    return read_json(unit.folder / "exit.json") or {}


HOLDER = """
import os, sys, time
from boa_daemon.job.stops import Registration
mine = Registration(os.environ)
mine.enter()
if "looks" in sys.argv: mine.looks()
if "saved" in sys.argv: mine.has_saved()
if "forks" in sys.argv and os.fork() == 0:
    time.sleep(60)
print("in", flush=True)
sys.stdin.readline()
if "execs" in sys.argv: os.execv("/bin/sleep", ["sleep", "60"])
"""


@pytest.mark.parametrize("how", ["", "looks", "saved", "forks", "execs"])
def test_the_register_has_living_processes_that_registered_themselves(tmp_path: Path, how: str) -> None:
    """A forked worker is none of them, and neither is a process that has ended or become another program."""
    file = tmp_path / "register"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, how],
        env={**os.environ, REGISTER: str(file)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"in\n"
        has_saved = how == "saved"
        assert registered(file) == [
            Registered(holder.pid, looks=how in ("looks", "saved"), has_saved=has_saved)
        ]
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        until(lambda: registered(file) == [])
        os.killpg(holder.pid, signal.SIGKILL)


LOSER = """
import os, sys, time
from boa_daemon.job.stops import Registration
mine = Registration(os.environ)
mine.enter()
mine.looks()
if sys.argv[1] == "closes": os.closerange(3, 64)
if sys.argv[1] == "reads": open(os.environ["BOA_REGISTER_FILE"], "rb").close()
parent = os.getpid()
if sys.argv[1] == "forks":
    if os.fork(): os._exit(0)
    while os.getppid() == parent: time.sleep(0.001)
other = open("other", "w")
mine.looks()
print(os.getpid(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["closes", "reads", "forks"])
def test_a_process_that_lost_its_place_in_the_register_takes_it_again_at_its_next_look(
    tmp_path: Path, how: str
) -> None:
    """A script may close all descriptors, read the register, which drops its locks, or go on in a fork."""
    file = tmp_path / "register"
    with subprocess.Popen(
        [sys.executable, "-c", LOSER, how],
        env={**os.environ, REGISTER: str(file)},
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        pid = int(holder.stdout.readline())
        assert registered(file) == [Registered(pid, True)]
        assert registered(tmp_path / "other") == []
        holder.stdin.close()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_the_register_has_all_in_whatever_order_they_came(tmp_path: Path, order: Sequence[int]) -> None:
    """The kernel names locks in the order in which their owners came, which is not that of the file."""
    file = tmp_path / "register"
    with ExitStack() as all_of_them:
        holders = [
            all_of_them.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", f"import sys; sys.stdin.readline(){HOLDER}", "looks"],
                    env={**os.environ, REGISTER: str(file)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for _ in order
        ]
        for one in order:
            come, go = holders[one].stdin, holders[one].stdout
            assert come is not None
            assert go is not None
            come.write(b"\n")
            come.flush()
            assert go.readline() == b"in\n"
        assert registered(file) == [Registered(pid, True) for pid in sorted(one.pid for one in holders)]
        for holder in holders:
            holder.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace of processes")
def test_the_register_counts_processes_of_another_namespace_one_by_one(tmp_path: Path) -> None:
    """Whoever looks from a namespace that lacks them is told the number 0 of each."""
    file = tmp_path / "register"
    look = (
        "import pathlib; from boa_daemon.job.stops import registered; "
        f"print([one.pid for one in registered(pathlib.Path({str(file)!r}))])"
    )
    with ExitStack() as both:
        for _ in range(2):
            holder = both.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", HOLDER],
                    env={**os.environ, REGISTER: str(file)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            both.callback(holder.kill)
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"in\n"
        inside = ["unshare", "--pid", "--fork", sys.executable, "-c", look]
        assert subprocess.run(inside, capture_output=True, text=True, check=True).stdout == "[0, 0]\n"


@pytest.mark.parametrize("what", ["missing", "a pipe", "a folder", "a device"])
def test_a_register_that_a_job_replaced_is_empty(tmp_path: Path, what: str) -> None:
    """The keeper neither blocks nor fails."""
    file = tmp_path / "register"
    if what == "a pipe":
        os.mkfifo(file)
    elif what == "a folder":
        file.mkdir()
    elif what == "a device":
        file.symlink_to("/dev/zero")
    assert registered(file) == []


def test_a_request_is_not_written_through_a_link(tmp_path: Path) -> None:
    """A job may put a link where the request belongs; what it points to is not made."""
    unit = a_unit(tmp_path, "true")
    unit.own.mkdir(parents=True)
    request_file(unit).symlink_to(tmp_path / "elsewhere")
    make_request(unit)
    assert not (tmp_path / "elsewhere").exists()


def test_a_process_outside_of_the_unit_gets_no_signal(tmp_path: Path, keep: Any) -> None:
    """This process registers as if it were the unit's, and goes on; the unit's own saves and ends."""
    unit = a_unit(tmp_path, f"{sys.executable} {LOOP} | cat")
    keeper = keep(unit)
    until(lambda: step_of(unit) > 5)
    stranger = Registration({REGISTER: str(register_file(unit))})
    stranger.enter()
    stranger.looks()
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
    try:
        keeper.terminate()
        assert keeper.wait(timeout=60) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert got == []
    assert saved_step(unit) == step_of(unit)


PLAIN = (
    "import signal, time\n"
    "def end(number, frame):\n    print('told', flush=True)\n"
    "    time.sleep({save})\n    print('saved', flush=True)\n    raise SystemExit(0)\n"
    "signal.signal(signal.SIGTERM, end)\nprint('begun', flush=True)\ntime.sleep(600)"
)


@pytest.mark.first_set(1)
@pytest.mark.parametrize("after", ["", "; true", " & sleep 600", " & disown; sleep 600"])
def test_a_script_without_the_helper_gets_sigterm_at_once_and_its_whole_grace(
    tmp_path: Path, keep: Any, after: str
) -> None:
    """That its shell ends at once changes nothing; the log says which way was taken."""
    unit = a_unit(tmp_path, f"{script(PLAIN.format(save=4))}{after}")
    keeper = keep(unit)
    until(lambda: "begun" in printed(unit))
    began = time.monotonic()
    keeper.terminate()
    until(lambda: "told" in printed(unit), 3.0)
    assert keeper.wait(timeout=60) == 0
    assert time.monotonic() - began < 15.0
    assert "saved" in printed(unit)
    assert "a stop: SIGTERM to all processes of the command" in printed(unit)
    assert ended(unit)["killed"] is False


def test_what_a_trap_starts_after_the_stop_has_the_rest_of_the_grace(tmp_path: Path, keep: Any) -> None:
    """An upload in a trap, after the training has saved, is not ended by a signal."""
    unit = a_unit(tmp_path, f"trap 'sleep 3; echo uploaded' EXIT; {sys.executable} {LOOP}; echo it went on")
    keeper = keep(unit)
    until(lambda: step_of(unit) > 5)
    keeper.terminate()
    assert keeper.wait(timeout=60) == 0
    assert "uploaded" in printed(unit)
    assert "it went on" not in printed(unit)
    assert saved_step(unit) == step_of(unit)


def test_a_sidecar_that_ignores_sigterm_ends_with_the_grace_and_the_stop_is_not_called_forced(
    tmp_path: Path, keep: Any
) -> None:
    """All that had to be saved was saved."""
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    unit = a_unit(tmp_path, f"{script(ignores)} & {sys.executable} {LOOP}", grace_seconds=4.0)
    keeper = keep(unit)
    until(lambda: step_of(unit) > 5)
    began = time.monotonic()
    keeper.terminate()
    assert keeper.wait(timeout=60) == 0
    assert time.monotonic() - began > 3.5
    assert (ended(unit)["killed"], ended(unit)["lingering"], ended(unit)["why_lost"]) == (False, 1, "")
    assert saved_step(unit) == step_of(unit)


def test_a_process_killed_before_it_saved_is_not_waited_for(tmp_path: Path, keep: Any) -> None:
    """Its lock is gone with it; the log says what was lost."""
    unit = a_unit(tmp_path, f"{sys.executable} {LOOP} --save 600 | cat")
    keeper = keep(unit)
    until(lambda: step_of(unit) > 5)
    keeper.terminate()
    until(lambda: "a stop: the process" in printed(unit))
    (saver,) = registered(register_file(unit))
    began = time.monotonic()
    os.kill(saver.pid, signal.SIGKILL)
    assert keeper.wait(timeout=60) == 0
    assert time.monotonic() - began < 10.0
    assert "the process that was asked to save ended without a checkpoint" in printed(unit)


WHEN = ("before it", "before it, twice", "in the middle", "in the middle, twice", "after the save")


def test_a_process_that_saves_at_once_does_not_outrun_the_suspension_of_its_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have ended before the keeper, on a busy machine, has gone on after its request."""
    unit = a_unit(tmp_path, "unused")

    def slow(of: Unit) -> bool:
        stops.leave_file(of).touch()  # As if its exit were not orderly: it does not wait for the keeper.
        found = make_request(of)
        time.sleep(1.5)
        return found

    monkeypatch.setattr(stops, "make_request", slow)
    unit.own.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        ["bash", "-c", f"{sys.executable} {LOOP}; touch {tmp_path}/went-on"],
        env={**os.environ, **unit.environment, **stops.variables(unit)},
        start_new_session=True,
    ) as shell:
        until(lambda: any(one.looks for one in stops.registered(stops.register_file(unit))))
        stop = stops.OrderedStop(unit, shell.pid, lambda: descendants(os.getpid()))
        assert not stop.savers()
        while shell.poll() is None:
            stop.go_on()
            time.sleep(0.02)
    assert stop.asks_first
    assert saved_step(unit) > 0
    assert not (tmp_path / "went-on").exists()


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_shell_that_has_become_a_training_goes_on_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_frozen: bool
) -> None:
    """`first & exec second`: it was a shell when the keeper looked, and registers before it is suspended."""
    unit = a_unit(tmp_path, "unused")
    unit.own.mkdir(parents=True, exist_ok=True)
    known: list[Registered] = []
    monkeypatch.setattr(stops, "registered", lambda file: list(known))
    monkeypatch.setattr(stops, "_program", lambda pid: "su" if pid == outer.pid and is_frozen else "bash")
    group = ControlGroup()
    if is_frozen:
        try:
            group = ControlGroup.make(f"boa-test-{os.getpid()}")
        except OSError:
            return
        if not (group.folders[0] / "cgroup.freeze").exists():
            group.remove()
            return
    words = ["bash", "-c", "bash -c 'sleep 60 & wait' & wait"]
    enter = group.enter  # Of a group without folders: nothing.
    with subprocess.Popen(words, start_new_session=True, preexec_fn=enter) as outer:  # noqa: PLW1509
        try:
            until(lambda: len(descendants(outer.pid)) == 2)
            (shell,) = children(outer.pid)
            (first,) = children(shell)
            known.append(Registered(first, True))
            monkeypatch.setattr(stops, "_serves_terminal", lambda pid: True)
            stop = stops.OrderedStop(unit, outer.pid, lambda: descendants(os.getpid()), group=group)
            until(lambda: not may_run(shell))
            known.append(Registered(shell, True))
            stop.go_on()
            until(lambda: may_run(shell))
            assert is_frozen or not may_run(outer.pid), "it only waits"
        finally:
            group.thaw()
            os.killpg(outer.pid, signal.SIGKILL)
            until(lambda: not group.pids())
            group.remove()


def may_run(pid: int) -> bool:
    """Return whether a process is neither suspended nor frozen."""
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    here = Path(f"/proc/{pid}/cgroup").read_text()
    return state != "T" and "/held" not in here


SHAPES = {"alone": LOOP_ALONE, "then": LOOP_FOLLOWED, "pipe": LOOP_PIPED}
KILLED = [
    # Each shape with each kind of kill, and each time with one shape; the other pairs are of the same kinds.
    pytest.param(when, shape, marks=[] if shape == "then" or when in WHEN[2:4] else pytest.mark.exhaustive)
    for shape in SHAPES
    for when in WHEN
]


@pytest.mark.first_set(2)
@pytest.mark.parametrize(("when", "shape"), KILLED)
def test_a_stop_loses_no_step_though_its_keeper_is_killed(
    tmp_path: Path, keep: Any, when: str, shape: str
) -> None:
    """The next keeper goes on with the stop: the grace still counts from the order, shells stay suspended."""
    unit = a_unit(tmp_path, SHAPES[shape])
    guard = keep(unit)
    until(lambda: step_of(unit) > 5)
    if when.startswith("before"):
        kill_keeper(unit, times=2 if "twice" in when else 1)
    guard.terminate()
    until(lambda: "a stop: the process" in printed(unit))
    if when.startswith("in"):
        kill_keeper(unit, times=2 if "twice" in when else 1)
    if when.startswith("after"):
        until(lambda: saved_step(unit) > 0)
        kill_keeper(unit)
    assert guard.wait(timeout=60) == 0
    assert saved_step(unit) == step_of(unit) > 5
    assert (ended(unit)["stop_asked"], ended(unit)["killed"]) == (True, False)
    assert not ended(unit).get("agent_lost")
    assert "it went on" not in printed(unit)
    # After the save the command may end before the kill comes, and its keeper with it.
    assert when == "after the save" or "another one goes on" in printed(unit)


def test_the_grace_counts_from_the_order_also_under_the_next_keeper(tmp_path: Path, keep: Any) -> None:
    """A save that takes for ever is ended, with its suspended shell, and the loss is told."""
    unit = a_unit(tmp_path, f"{sys.executable} {LOOP} --save 600; echo it went on", grace_seconds=5.0)
    guard = keep(unit)
    until(lambda: step_of(unit) > 5)
    began = time.monotonic()
    guard.terminate()
    until(lambda: "a stop: the process" in printed(unit))
    family = descendants(guard.pid)
    time.sleep(2.0)
    kill_keeper(unit)
    assert guard.wait(timeout=60) == 0
    assert time.monotonic() - began > 4.5
    assert all(started_ticks(pid) is None for pid in family)
    assert ended(unit)["killed"]
    assert "no save was complete within its grace of 5 s" in printed(unit)
    assert "it went on" not in printed(unit)


def test_a_command_without_the_helper_gets_its_signal_though_its_keeper_is_killed(
    tmp_path: Path, keep: Any
) -> None:
    """Its own end of SIGTERM may take its whole grace."""
    unit = a_unit(
        tmp_path, "trap 'sleep 2; echo saved; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    )
    guard = keep(unit)
    until(lambda: "ready" in printed(unit))
    guard.terminate()
    until(lambda: "a stop: SIGTERM" in printed(unit))
    kill_keeper(unit)
    assert guard.wait(timeout=60) == 0
    assert (ended(unit)["code"], ended(unit)["stop_asked"], ended(unit)["killed"]) == (3, True, False)
    assert "saved" in printed(unit)


@pytest.mark.parametrize("looks", [1, 3])
def test_a_process_without_a_keeper_stops_when_the_lease_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Only if it has seen a keeper: where locks do not reach, it goes on."""
    monkeypatch.setattr(stops, "LEASE_SECONDS", 0.05)
    monkeypatch.setattr(stops, "LEASE_LOOK_SECONDS", 0.0)
    unit = a_unit(tmp_path, "true")
    unit.own.mkdir(parents=True, exist_ok=True)
    lease = stops.Lease(stops.variables(unit))
    assert not lease.is_over()
    time.sleep(0.1)
    assert not lease.is_over(), "nobody was seen to hold it"
    ready, go = os.pipe()
    holder = os.fork()
    if holder == 0:
        os.close(go)
        stops.hold_lease(unit)
        os.read(ready, 1)
        os._exit(0)
    os.close(ready)
    until(lambda: stops._is_locked(stops.lease_file(unit)))
    for _ in range(looks):
        assert not lease.is_over()
        time.sleep(0.06)
    os.close(go)
    os.waitpid(holder, 0)
    until(lease.is_over, seconds=10.0)


def test_a_command_without_anybody_saves_and_ends(tmp_path: Path, keep: Any) -> None:
    """Keeper and guard are killed, and no engine comes: the checkpoint holds each step that was reported."""
    short = "from boa_daemon.job import stops; stops.LEASE_SECONDS = 2.0; stops.LEASE_LOOK_SECONDS = 0.2; "
    runs = f"import runpy, sys; sys.argv = ['{LOOP}']; runpy.run_path('{LOOP}', run_name='__main__')"
    unit = a_unit(tmp_path, script(short + runs))
    guard = keep(unit)
    until(lambda: step_of(unit) > 20)
    time.sleep(0.5)
    family = [pid for pid in descendants(guard.pid) if pid not in keepers(unit)]
    for pid in keepers(unit):
        os.kill(pid, signal.SIGKILL)
    guard.wait()
    until(lambda: all(started_ticks(pid) is None for pid in family), seconds=60.0)
    assert saved_step(unit) == step_of(unit)


def test_a_forked_worker_dies_of_sigterm_though_its_parent_catches_it() -> None:
    """Also if the signal comes at the moment of the fork, as from a pool that is closed at once."""
    text = (
        "import os, signal\nfrom boa_daemon.job.run import current\ncurrent()\n"
        "for _ in range(200):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        while True: signal.pause()\n"
        "    os.kill(child, signal.SIGTERM)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM\n"
        "assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nassert current().stop_asked\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


def test_whether_a_process_catches_sigterm_is_seen_from_outside() -> None:
    """An ignored signal is not caught."""
    for handler, caught in (("signal.SIG_IGN", False), ("signal.SIG_DFL", False), ("print", True)):
        text = f"import signal; signal.signal(15, {handler}); print('set', flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert catches_sigterm(process.pid) is caught
            process.communicate(b"\n")


@pytest.mark.parametrize(
    ("program", "waits"),
    [
        (name, True)
        for name in ("sh", "bash", "bash-5.1", "dash", "zsh5", "zsh-5.9", "ksh93", "mksh-static", "tcsh")
    ]
    + [(name, True) for name in ("busybox", "make", "gmake", "xargs", "find", "time")]
    + [
        (name, False)
        for name in ("python3.11", "ssh", "torchrun", "perl", "script", "sudo", "tee", "push", "")
    ],
)
def test_programs_that_only_wait_are_known_by_name_and_version(program: str, waits: bool) -> None:
    """What is suspended must not react to it, and must not be needed by the process that saves."""
    assert only_waits(program) == waits


PRINTS = (
    "import time\nfor number in range(40_000):\n    print(number)\n    if not number % 100: time.sleep(0.01)"
)


def test_no_output_is_lost_or_doubled_though_keepers_are_killed_while_they_write_it(
    tmp_path: Path, keep: Any
) -> None:
    """A byte is in the log or in the command's pipe, and never in a keeper alone."""
    unit = a_unit(tmp_path, script(PRINTS), log_bytes=1 << 22)
    guard = keep(unit)
    for lines in (1000, 4000, 7000, 10_000):
        until(lambda lines=lines: printed(unit).count("\n") > lines)
        kill_keeper(unit)
    assert guard.wait(timeout=60) == 0
    told = [line for line in printed(unit).splitlines() if "boa:" not in line]
    assert told == [str(number) for number in range(40_000)]


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("ENOSPC", "make room for two checkpoints in"),
        ("EROFS", "let the job write to"),
        ("EBADMSG", "every="),
    ],
)
def test_a_stop_whose_save_fails_says_why_and_what_to_change(
    tmp_path: Path, keep: Any, code: str, advice: str
) -> None:
    """It tried again before; the exception is the process's own."""
    text = (
        "import errno, os, time\nfrom boa_daemon import job\nfrom boa_daemon.job import run\n"
        "run.LAST_PAUSES_SECONDS = (0.1,)\n"
        f"def save(file): raise OSError(errno.{code}, os.strerror(errno.{code}))\n"
        "for step in job.steps(10**6, load=None, save=save): time.sleep(0.01)\n"
    )
    unit = a_unit(tmp_path, script(text))
    own = {**unit.environment, ERROR_FILE: str(unit.own / FILE_NAME)}
    unit = a_unit(tmp_path, script(text), environment=own)
    keeper = keep(unit)
    until(lambda: step_of(unit) > 5)
    keeper.terminate()
    assert keeper.wait(timeout=60) == 0
    assert "it is tried again, because a stop waits for it" in printed(unit)
    why = ended(unit)["why_lost"]
    assert why in printed(unit)
    assert os.strerror(getattr(errno, code)) in why
    assert advice in why


EVALUATOR = (
    "import time\nfrom boa_daemon import job\n{first}\nwhile True:\n    {each}\n    time.sleep(0.05)\n"
)
EVALUATORS = {
    "asks for the newest checkpoint": EVALUATOR.format(first="pass", each="job.resume()"),
    "asked for the folder": EVALUATOR.format(first="job.checkpoint_dir()", each="pass"),
    "asks whether to stop": EVALUATOR.format(first="pass", each="job.should_stop()"),
    "computes": EVALUATOR.format(first="job.resume()", each="sum(range(10**6))"),
    "waits for a child": EVALUATOR.format(
        first="job.resume(); import subprocess", each="subprocess.run(['sleep', '600'])"
    ),
    "waits for a thread": EVALUATOR.format(
        first="job.resume(); import threading",
        each="one = threading.Thread(target=time.sleep, args=(600,), daemon=True); one.start(); one.join()",
    ),
    "in a fork": EVALUATOR.format(
        first="import os\njob.resume()\nif os.fork(): os.wait()", each="job.resume()"
    ),
    "has the ranks of its parent": "import os\nos.environ.update(WORLD_SIZE='2', RANK='1')\n"
    + EVALUATOR.format(first="pass", each="job.resume()"),
}


KILLED_BESIDE = [pytest.param(name, True, id=f"{name}, keeper killed") for name in ("computes", "in a fork")]


@pytest.mark.first_set(2)
@pytest.mark.parametrize(
    ("name", "kill"), [*(pytest.param(name, False, id=name) for name in EVALUATORS), *KILLED_BESIDE]
)
def test_a_process_without_a_step_does_not_hold_a_stop_whose_trainings_have_saved(
    tmp_path: Path, keep: Any, name: str, kill: bool
) -> None:
    """It is told after the training, like a process without the helper; the log says so."""
    run = f"({script(EVALUATORS[name])}; echo it went on) & {sys.executable} {LOOP} --save 2; echo it went on"
    unit = a_unit(tmp_path, run, grace_seconds=120.0)
    guard = keep(unit)
    until(lambda: step_of(unit) > 5 and len(registered(register_file(unit))) > 1)
    began = time.monotonic()
    guard.terminate()
    until(lambda: "a stop: the " in printed(unit))
    if kill:
        kill_keeper(unit)
    assert guard.wait(timeout=60) == 0
    assert time.monotonic() - began < 40.0
    assert saved_step(unit) == step_of(unit) > 5
    assert ended(unit)["killed"] is False
    assert "had nothing to save, and got SIGTERM after those that had" in printed(unit)
    assert "it went on" not in printed(unit)


HOLDS = {
    "has reported a step": "job.report(1); time.sleep(4); job.save(2, lambda file: file.write(b'x'))",
    "is in its first step": "def save(file): file.write(b'x')\n"
    "for _ in job.steps(9, load=None, save=save): time.sleep(4)",
    "has a handler of its own": "import signal\njob.resume()\n"
    "def end(*_): time.sleep(4); job.save(2, lambda file: file.write(b'x')); raise SystemExit\n"
    "signal.signal(signal.SIGTERM, end)\nprint('set', flush=True)\ntime.sleep(600)",
    "begins to train": "job.resume(); print('set', flush=True)\n"
    "while not job.run.current().stop_asked: time.sleep(0.01)\n"
    "job.report(1); time.sleep(4); job.save(2, lambda file: file.write(b'x'))",
}


@pytest.mark.first_set(1)
@pytest.mark.parametrize("name", HOLDS)
def test_a_process_that_may_have_something_to_save_has_its_time_though_another_has_saved(
    tmp_path: Path, keep: Any, name: str
) -> None:
    """Also one that has not looked for a stop, and one that gets its first step after the order."""
    text = (
        f"import time\nfrom boa_daemon import job\nimport boa_daemon.job.run\n{HOLDS[name]}\nprint('saved')\n"
    )
    folder = tmp_path / "other"
    other = f"BOA_CHECKPOINT_DIR={folder} BOA_PROGRESS_FILE= {script(text)}"
    unit = a_unit(tmp_path, f"{other} & {LOOP_ALONE} --save 0; wait")
    guard = keep(unit)
    until(lambda: step_of(unit) > 5 and len(registered(register_file(unit))) > 1)
    until(lambda: "set" in printed(unit) or "'set'" not in HOLDS[name])
    guard.terminate()
    assert guard.wait(timeout=60) == 0
    assert saved_step(unit) == step_of(unit) > 5
    assert (folder / MANIFEST).exists()


def test_a_process_without_a_step_has_its_whole_grace_if_no_other_uses_the_helper(
    tmp_path: Path, keep: Any
) -> None:
    """It may be a loop that neither reports nor has looked yet."""
    text = (
        "import time\nfrom boa_daemon import job\njob.resume(); print('set', flush=True)\n"
        "until = time.monotonic() + 4\nwhile time.monotonic() < until: time.sleep(0.1)\n"
        "if job.should_checkpoint(): job.save(1, lambda file: file.write(b'x'))\n"
    )
    unit = a_unit(tmp_path, script(text))
    guard = keep(unit)
    until(lambda: "set" in printed(unit))
    guard.terminate()
    assert guard.wait(timeout=60) == 0
    assert saved_step(unit) == 1


@pytest.mark.first_set(1)
@pytest.mark.parametrize("reads", [False, True])
def test_a_shell_beside_the_training_is_suspended_only_when_that_is_about_to_end(
    tmp_path: Path, keep: Any, reads: bool
) -> None:
    """It may make something that the training needs, until it has saved; one that reads a pipe runs on."""
    beats = "while :; do echo beat; sleep 0.1; done > beats"
    second = f"BOA_CHECKPOINT_DIR=second BOA_PROGRESS_FILE= {LOOP_ALONE}"
    beside = f"({second} 2>&1; sleep 1) | (cat > log; echo read to the end)" if reads else second
    ends = "while kill -0 $(cat pid); do sleep 0.1; done 2> errors; echo it went on"
    run = f"({beats}) & (bash -c 'echo $$ > pid; exec {LOOP_ALONE}' &); sleep 1; {beside} & {ends}"
    unit = a_unit(tmp_path, run.replace("--save 2", "--save 3"))
    guard = keep(unit)
    until(lambda: step_of(unit) > 5 and len(registered(register_file(unit))) == 2)
    guard.terminate()
    until(lambda: "a stop: the 2 processes" in printed(unit))
    time.sleep(0.5)
    before = (tmp_path / "beats").stat().st_size
    time.sleep(1.0)
    assert (tmp_path / "beats").stat().st_size > before, "it runs while the training saves"
    assert guard.wait(timeout=60) == 0
    assert saved_step(unit) == step_of(unit) > 5
    assert "it went on" not in printed(unit)
    assert ("read to the end" in printed(unit)) is reads


def test_a_process_that_is_about_to_end_says_so_and_waits_for_its_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for ever: its keeper may be gone. Not at all where an older keeper names no file to wait for."""
    monkeypatch.setattr(stops, "SHELL_SECONDS", 0.3)
    file, places = tmp_path / "register", {stops.LEAVE: str(tmp_path / "leave")}
    text = f"{HOLDER}mine.leaves(); print('out', flush=True); sys.stdin.readline()"
    words = [sys.executable, "-c", text, "looks"]
    with subprocess.Popen(
        words,
        env={**os.environ, **places, REGISTER: str(file)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as one:
        assert one.stdin is not None
        assert one.stdout is not None
        one.stdin.write(b"\n")
        one.stdin.flush()
        until(lambda: registered(file) == [Registered(one.pid, looks=True, leaves=True, has_saved=True)])
        (tmp_path / "leave").touch()
        assert one.stdout.readline() == b"in\n"
        assert one.stdout.readline() == b"out\n"
        one.stdin.close()
    began = time.monotonic()
    (tmp_path / "leave").unlink()
    Registration({REGISTER: str(file), **places}).leaves()
    assert 0.2 < time.monotonic() - began < 5.0
    monkeypatch.setattr(stops, "SHELL_SECONDS", 600.0)
    Registration({REGISTER: str(file)}).leaves()


@pytest.mark.first_set(1)
@pytest.mark.parametrize("ignored", ["TERM", "TERM HUP", "TERM HUP INT QUIT USR1"])
def test_a_shell_that_ignores_sigterm_does_not_go_on_after_a_stop(
    tmp_path: Path, keep: Any, ignored: str
) -> None:
    """Its trap at the exit runs."""
    unit = a_unit(tmp_path, f"trap '' {ignored}; trap 'echo at the exit' EXIT; {LOOP_FOLLOWED}")
    guard = keep(unit)
    until(lambda: step_of(unit) > 5)
    guard.terminate()
    assert guard.wait(timeout=60) == 0
    assert saved_step(unit) == step_of(unit) > 5
    assert "it went on" not in printed(unit)
    assert "at the exit" in printed(unit)


@pytest.mark.parametrize("trap", ["EXIT", "TERM"])
def test_what_a_trap_starts_has_the_rest_of_the_grace(tmp_path: Path, keep: Any, trap: str) -> None:
    """It may upload what the command has left."""
    program = f"{sys.executable} -c \"import time; time.sleep(2); print('uploaded', flush=True)\"; exit"
    unit = a_unit(tmp_path, f"trap '{program}' {trap}; {LOOP_FOLLOWED}")
    guard = keep(unit)
    until(lambda: step_of(unit) > 5)
    guard.terminate()
    assert guard.wait(timeout=60) == 0
    assert saved_step(unit) == step_of(unit) > 5
    assert "uploaded" in printed(unit)
    assert "it went on" not in printed(unit)


LIVES_ON = """
import sys, time
from boa_daemon import job
for step in job.steps(1_000_000, load=lambda path: None, save=lambda file: file.write(b"x")):
    time.sleep(0.005)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    sum(range(1000)) if sys.argv[2] == "works" else time.sleep(0.1)
print("at its end", flush=True)
"""


@pytest.mark.parametrize(("does", "seconds"), [("sleeps", 50.0), ("works", 4.0)])
def test_what_has_saved_and_goes_on_is_ended_once_it_does_nothing(
    tmp_path: Path, keep: Any, does: str, seconds: float
) -> None:
    """While it works it has its grace, also where its work ends; the log says what to change."""
    (tmp_path / "t.py").write_text(LIVES_ON)
    unit = a_unit(tmp_path, f"{sys.executable} t.py {seconds} {does}; echo it went on", grace_seconds=60.0)
    guard = keep(unit, "stops.SILENT_SECONDS = 2.0")
    until(lambda: step_of(unit) > 5)
    guard.terminate()
    assert guard.wait(timeout=40) == 0
    assert saved_step(unit) == step_of(unit) > 5
    assert ("at its end" in printed(unit)) is (does == "works")
    assert "it went on" not in printed(unit)
    assert ("done nothing for" if does == "sleeps" else "goes on with something else") in printed(unit)


def test_a_loop_after_the_last_one_is_a_training_again() -> None:
    """A sweep finishes one training and begins the next."""
    noted: list[str] = []
    run = Run({})
    for name in ("looks", "has_saved"):
        setattr(run._registration, name, lambda name=name: noted.append(name))
    run.note_saved()
    run.train()
    run.train()
    assert noted == ["has_saved", "looks"]
