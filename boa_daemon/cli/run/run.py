"""``boa run``: run one job to its end, show its cost meanwhile, and end everything that was rented for it.

If a daemon is running, the job is submitted to it. Otherwise a daemon is started for this run with the run's
budget as its cap: boots and idle nodes count against it, and at the end everything is given back.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypeAlias

import typer

from boa_daemon.cli.common.byte_progress import byte_progress
from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption
from boa_daemon.cli.common.log_lines import Reader
from boa_daemon.cli.common.output import OutputFormat, OutputOption, print_json
from boa_daemon.cli.run.run_phases import OVER, RunMeter, RunPhases, phase_of, place_of
from boa_daemon.cli.run.run_screen import Screen
from boa_daemon.errors import FAILED, PARTLY_DONE, InputError
from boa_daemon.inputs.submission import read_submission
from boa_daemon.tick.facts.reasons import text_of

WaitOption: TypeAlias = Annotated[
    float, typer.Option(min=0.0, help="Seconds to wait until nodes have ended.")
]
LOOK_SECONDS = 0.5
INTERRUPTED = 130
_LIMITS = ("max_usd reached", "max_hours reached")


def run(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Job file with one job; - is standard input.")],
    max_usd: Annotated[float, typer.Option(min=0.01, help="Most dollars that the run may cost.")],
    config: ConfigOption = None,
    socket: SocketOption = None,
    wait_seconds: WaitOption = 600.0,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Run one job to its end; show its phases, log and cost, and print a receipt.

    If no daemon is running, one is started for this run: it may spend --max-usd in total, including boots and
    idle nodes, and ends everything it rented. With a running daemon --max-usd limits the job's own cost.
    Ctrl-C cancels the job. Exit code 0: finished; 1: failed; 4: the money or hours ran out, or something is
    left.
    """
    with byte_progress("packing the code") as told:
        contents = read_submission(file, progress=told)
    if len(contents) != 1:
        raise InputError(f"`boa run` takes one job; {file} has {len(contents)}", hint="Use `boa submit`")
    content = {**contents[0], "max_usd": min(max_usd, float(contents[0].get("max_usd", max_usd)))}
    shown = Screen(is_quiet=output is not OutputFormat.table, max_usd=max_usd)
    one = JobRun(content=content, max_usd=max_usd, screen=shown, wait_seconds=wait_seconds)
    run_to_receipt(one, config, socket, form=output)


def run_to_receipt(one: JobRun, config: Path | None, socket: str | None, *, form: OutputFormat) -> None:
    """Run a job to its end and print its receipt.

    Raises:
        Exit: with the exit code of a run that did not finish.
    """
    # When the run is killed or its terminal closes, spending must stop too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    with _a_daemon(one, config, socket):
        one.through()
    receipt = one.receipt()
    if form is OutputFormat.json:
        print_json(receipt)
    else:
        one.screen.receipt(receipt)
    if code := _exit_code(one, receipt):
        raise typer.Exit(code)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Turn a signal into a keyboard interrupt; after SIGHUP discard output, for the terminal is gone."""
    if number == signal.SIGHUP:
        for end in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), end)
    raise KeyboardInterrupt


def _exit_code(one: JobRun, receipt: Mapping[str, Any]) -> int:
    if one.is_interrupted:
        return INTERRUPTED
    if receipt["is_money_used_up"] or receipt["cause"] in _LIMITS or not receipt["is_clean"]:
        return PARTLY_DONE
    return 0 if one.has_ended_well(receipt) else FAILED


@contextmanager
def _a_daemon(one: JobRun, config: Path | None, socket: str | None) -> Iterator[None]:
    """Give the run the running daemon, or one of its own; at the end count what its own one left."""
    from boa_daemon.api.client import Client, DaemonUnreachable  # noqa: PLC0415 - slow to import
    from boa_daemon.cli.common.cluster_resources import count_resources  # noqa: PLC0415
    from boa_daemon.cli.common.own_daemon import OwnDaemon, caps_within, work_again  # noqa: PLC0415
    from boa_daemon.daemon.settings.daemon_paths import daemon_paths, socket_of  # noqa: PLC0415
    from boa_daemon.daemon.settings.setting_layers import load_settings  # noqa: PLC0415

    settings = load_settings(config, flags={"daemon.socket": socket}).settings
    try:
        client = Client(socket_of(settings))
    except DaemonUnreachable:
        client = None
    if client is not None:
        with client:
            one.client = client
            yield
            one.look_once_more()
        return
    options = [*(("--config", str(config)) if config else ()), *(("--socket", socket) if socket else ())]
    caps = caps_within(settings, daemon_paths(settings), one.max_usd, now=time.time())
    own = OwnDaemon(settings, options, caps)
    one.begin_own(own.revive)
    try:
        own.start()
        with Client(own.socket) as client:
            one.client = client
            client.down(is_down=False)
            try:
                yield
            finally:
                one.give_back()
    finally:
        own.stop()
        work_again(settings)
    one.left = count_resources(settings)


_OF_A_NODE = ("id", "instance_type", "zone", "market", "launched_at", "ended_at", "usd", "kinds")
"""Fields of a node in a receipt."""


@dataclass(slots=True, kw_only=True)
class JobRun:
    """One job and its daemon, polled twice a second."""

    content: Mapping[str, Any]
    max_usd: float
    screen: Screen
    wait_seconds: float
    client: Any = None
    left: Mapping[str, int] | None = None
    is_interrupted: bool = False
    is_money_used_up: bool = False
    phases: RunPhases = field(default_factory=RunPhases)
    _meter: RunMeter = field(default_factory=lambda: RunMeter(is_own=False))
    _revive: Callable[[], None] | None = None
    _job: dict[str, Any] | None = None
    _nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    _reader: Reader = field(default_factory=Reader)
    _generation: int = 0
    _has_printed: bool = False
    _usd: float = 0.0
    _began_at: float = field(default_factory=time.time)

    def begin_own(self, revive: Callable[[], None]) -> None:
        """Note that the daemon is this run's own; `revive` restarts it after it died."""
        self._revive, self._meter = revive, RunMeter(is_own=True)
        self._turn("starting the daemon")

    def through(self) -> None:
        """Submit the job and follow it until it ends; a keyboard interrupt cancels it.

        Raises:
            BoaError: when the daemon refuses the job, or no longer answers.
        """
        before = self._ask("/instances", ended=True)["instances"]
        self._meter.before = {row["id"]: float(row["usd"]) for row in before}
        try:
            self._jobs()
        except KeyboardInterrupt:
            self.is_interrupted = True
            self._cancel()
        self._turn("giving back")

    def _jobs(self) -> None:
        """Run the jobs of this run: here one."""
        self._through(self.content)

    def _through(self, content: Mapping[str, Any]) -> str:
        """Submit a job and follow it until it ends; return its name."""
        name: str = self.client.post("/jobs", {"jobs": [dict(content)]})["jobs"][0]
        self._generation, self._has_printed, self._reader = 0, False, Reader()
        self._look(name)
        while not self._is_over():
            time.sleep(LOOK_SECONDS)
            self._look(name)
            self._end_without_money(name)
            self._visit(name)
        return name

    def _visit(self, name: str) -> None:
        """Hook called at each poll; a subclass may act beside the job."""

    def has_ended_well(self, receipt: Mapping[str, Any]) -> bool:
        """Return whether the run succeeded."""
        return bool(receipt["status"] == "finished")

    def _is_over(self) -> bool:
        return self._job is not None and self._job["status"] in OVER

    def _cancel(self) -> None:
        """Cancel the job, and wait until it has ended; a second interrupt ends the waiting."""
        if self._job is None or self._is_over():
            return
        name = self._job["id"]
        self.screen.note(f"cancelling {name}; it may write a checkpoint first")
        self._order(f"/jobs/{name}/cancel")
        until = time.monotonic() + self.wait_seconds
        while not self._is_over() and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            self._look(name)

    def _end_without_money(self, name: str) -> None:
        """Cancel a job that waits because the run's cap is used up, when no node is running."""
        assert self._job is not None
        is_short = self._revive is not None and self._job["waits_for"] in ("cap-day", "cap-month")
        if is_short and not self._job["nodes"] and not any(self._living()):
            self.is_money_used_up = True
            self._order(f"/jobs/{name}/cancel")

    def _living(self) -> list[dict[str, Any]]:
        """Return the nodes that had not ended at the last poll."""
        return [row for row in self._nodes.values() if row["ended_at"] is None]

    def _look(self, name: str) -> None:
        """Read the state of the job and its nodes, and show what is new."""
        job = self._ask(f"/jobs/{name}")
        self._job = job
        self._take_nodes(job)
        if job["generation"] != self._generation:
            self._read_log(name, self._generation)
            self._generation, self._has_printed, self._reader = job["generation"], False, Reader()
        self._read_log(name, self._generation)
        if job["status"] not in OVER:
            living = self._living()
            phase = phase_of(job, living, has_printed=self._has_printed)
            self._turn(phase, note=place_of(job, living))
            why = "" if job["nodes"] or job["waits_for"] is None else f"waits: {text_of(job['waits_for'])}"
            self.screen.meter(time.time() - self._began_at, self._usd, job, why)

    def _take_nodes(self, job: Mapping[str, Any] | None) -> None:
        """Read the nodes of the run: those of its own daemon, or else those that the job used."""
        rows = self._ask("/instances", ended=True)["instances"]
        for row in rows:
            is_own = self._revive is not None and (
                row["ended_at"] is None or row["launched_at"] >= self._began_at
            )
            if is_own or row["id"] in self._nodes or (job is not None and row["id"] in job["nodes"]):
                self._nodes[row["id"]] = row
        self._usd = self._meter.read(job, rows)

    def _read_log(self, name: str, generation: int) -> None:
        """Show what a generation printed since the last poll."""
        while generation:
            chunk = self._ask(f"/jobs/{name}/logs", since=self._reader.offset, generation=generation)
            if chunk["next_offset"] <= self._reader.offset:
                return
            self._reader.offset = chunk["next_offset"]
            self._has_printed = True
            self.screen.log(chunk["text"])

    def _turn(self, name: Any, *, note: str = "") -> None:
        """Record the current phase, and show a change."""
        count = len(self.phases.found)
        # The first phase begins with the run, so that reading settings and caps is counted.
        at = time.time() if count else self._began_at
        ended = self.phases.take(name, at=at, usd=self._usd, note=note)
        if len(self.phases.found) > count:
            self.screen.phase(ended, self.phases.found[-1])

    def _ask(self, path: str, **query: Any) -> dict[str, Any]:
        """Send a GET request to the daemon; restart our own daemon if it died.

        Raises:
            DaemonUnreachable: when the daemon does not answer.
        """
        return self._answered(lambda: self.client.get(path, **query))

    def _order(self, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a POST request that may safely be repeated; otherwise like `_ask`."""
        return self._answered(lambda: self.client.post(path, document))

    def _answered(self, question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the daemon's answer; restart our own daemon if it died, and ask again."""
        from boa_daemon.api.client import DaemonUnreachable  # noqa: PLC0415 - slow to import

        try:
            return question()
        except DaemonUnreachable:
            if self._revive is None:
                raise
            self.screen.note("the daemon does not answer; restarting it if it died")
            self._revive()
            return question()

    def give_back(self) -> None:
        """Have our own daemon end all nodes, and wait for that."""
        self._cancel()
        self._turn("giving back")
        self._order("/down", {"is_down": True})
        until = time.monotonic() + self.wait_seconds
        self._take_nodes(self._job)
        try:
            while self._living() and time.monotonic() < until:
                time.sleep(LOOK_SECONDS)
                self._take_nodes(self._job)
                self._turn("giving back")
        except KeyboardInterrupt:
            self.screen.note("no longer waiting; the receipt says what is left")
        if self._job is not None:
            self._job = self._ask(f"/jobs/{self._job['id']}")

    def look_once_more(self) -> None:
        """Read the nodes a last time after the job ended, while the daemon still answers."""
        self._take_nodes(self._job)

    def receipt(self) -> dict[str, Any]:
        """Return the receipt: result, phases, cost, nodes, and what is left."""
        self.phases.close(at=time.time(), usd=self._usd)
        job = self._job or {}
        left = self.left
        return {
            "job": job.get("id"),
            "status": job.get("status", "not submitted"),
            "cause": job.get("cause", ""),
            "exit_code": job.get("exit_code"),
            "step": job.get("step"),
            "generations": job.get("generation", 0),
            "lost_steps": job.get("lost_steps", 0),
            "is_own_daemon": self._revive is not None,
            "is_money_used_up": self.is_money_used_up,
            "max_usd": self.max_usd,
            "usd": round(self._usd, 6),
            "usd_of_job": job.get("usd", 0.0),
            "seconds": round(time.time() - self._began_at, 3),
            "phases": [phase.row for phase in self.phases.found],
            "nodes": [{key: row[key] for key in _OF_A_NODE} for row in self._nodes.values()],
            "left": left,
            "is_clean": left is None or not any(left.values()),
        }
