"""Python client of a daemon, which the command line uses as well: one connection, typed answers.

    from boa_daemon import Client

    with Client() as boa:                                   # the daemon that `boa status` would talk to
        names = boa.submit("train.yaml")
        boa.wait(names, check=True)

Answers are the documents that `boa ... -o json` prints (`boa_daemon.api.answers`): instants in seconds since
the Unix epoch, durations in seconds, money in dollars. A refusal raises `RefusedByDaemon` with the daemon's
sentence, a daemon that does not answer raises `DaemonUnreachable`. Both are a `BoaError` with the exit code
that a command would have.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, cast
from urllib.parse import quote

from boa_daemon.api.answers import (
    CancelAnswer,
    ExecAnswer,
    SubmittedAnswer,
    WholeJobAnswer,
)
from boa_daemon.api.connection import DaemonUnreachable, RefusedByDaemon, ask, open_http, stream
from boa_daemon.api.contract import Verbs, quoted
from boa_daemon.errors import BoaError, InputError

__all__ = ["Client", "DaemonUnreachable", "JobsFailed", "RefusedByDaemon", "WaitedTooLong"]

ACTIVE = frozenset({"queued", "running", "cancelling"})
"""Statuses of jobs that are not over."""
MOST_ASKED_ONE_BY_ONE = 20
"""Above this number of jobs, `wait` lists all active jobs instead of asking for each."""
MOST_LISTED = 20_000
LOOK_SECONDS, MOST_LOOK_SECONDS = 0.1, 1.0
"""Shortest and longest pause between looks whether a command has ended."""
RESTART_SECONDS = 300.0
"""Time that `wait` tolerates a daemon that does not answer, as during a restart."""


class WaitedTooLong(BoaError):
    """Jobs were not over in time; they continue."""


class JobsFailed(BoaError):
    """Some jobs failed or were cancelled; `jobs` are all jobs that were waited for."""

    def __init__(self, message: str, jobs: list[WholeJobAnswer]) -> None:
        super().__init__(message)
        self.jobs = jobs


class Client(Verbs):
    """A connection to a daemon; use it in a `with` statement, from one thread."""

    def __init__(self, address: str | Path | None = None, *, token: str | None = None) -> None:
        """Open a connection.

        Args:
            address: path of the daemon's socket, or `https://host:port`. By default `BOA_ADDRESS` of the
                environment, or the daemon that the settings name.
            token: needed over HTTP; by default `BOA_TOKEN` of the environment.

        Raises:
            InputError: when a token is missing, or would cross a network in the clear.
            DaemonUnreachable: when there is no socket, it is not ours or root's, or nobody listens.
        """
        self._at = address if address is not None else default_address()
        self._http = open_http(self._at, token or os.environ.get("BOA_TOKEN"))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def submit(self, *jobs: str | Path | Mapping[str, Any]) -> list[str]:
        """Submit jobs, all or none, and return their ids in order.

        Args:
            jobs: paths of job files, or their contents. A folder in one is relative to the file, or to the
                current folder.

        Raises:
            InputError: when a file cannot be read or is wrong; nothing was submitted.
            RefusedByDaemon: when the daemon refuses them; nothing was submitted.
        """
        from boa_daemon.inputs.document_file import Document  # noqa: PLC0415 - numpy, for those who submit alone
        from boa_daemon.inputs.submission import as_submitted, read_submission  # noqa: PLC0415 - as above

        contents: list[dict[str, Any]] = []
        for job in jobs:
            if isinstance(job, Mapping):
                document = Document(name="the job", content=dict(job), language="json")
                contents += as_submitted(document, beside=Path.cwd())
            else:
                contents += read_submission(Path(job))
        return self.submit_checked(contents)["jobs"]

    def submit_checked(self, contents: Iterable[Mapping[str, Any]]) -> SubmittedAnswer:
        """Submit job contents that `boa_daemon.inputs.submission` has read.

        Raises:
            RefusedByDaemon: when the daemon refuses them; nothing was submitted.
        """
        jobs = list(contents)
        for code in {job["code"]["digest"]: job["code"] for job in jobs if job.get("code")}.values():
            self._send_code(code)
        return cast(SubmittedAnswer, self.post("/jobs", {"jobs": jobs}))

    def _send_code(self, code: Mapping[str, Any]) -> None:
        """Send packed code to the daemon, unless it has it.

        Raises:
            InputError: when the code has changed since the job file was read.
        """
        if self.get(f"/code/{code['digest']}")["is_here"]:
            return
        from boa_daemon.inputs.code_archive import pack  # noqa: PLC0415 - for those who submit alone

        packed = pack(Path(code["folder"]), code.get("revision"))
        if packed.digest != code["digest"]:
            raise InputError(
                f"code: {code['folder']} was changed while it was submitted", hint="Submit again"
            )
        ask(self._http, "PUT", f"/code/{packed.digest}", at=self._at, content=packed.archive)

    def wait(
        self,
        names: str | Iterable[str],
        *,
        timeout_seconds: float | None = None,
        check: bool = False,
        poll_seconds: float = 1.0,
    ) -> list[WholeJobAnswer]:
        """Wait until jobs are over, through a restart of the daemon, and return them in order.

        Args:
            names: ids of jobs or groups; a group stands for all of its jobs.
            timeout_seconds: longest time to wait; unlimited by default.
            check: raise `JobsFailed` unless all have finished.
            poll_seconds: time between looks.

        Raises:
            WaitedTooLong: when the time is over; the jobs continue.
            JobsFailed: with `check`, when a job has failed or was cancelled.
            RefusedByDaemon: with status 404 when there is no job with an id.
            DaemonUnreachable: when the daemon does not answer for `RESTART_SECONDS`.
        """
        given = [names] if isinstance(names, str) else list(names)
        wanted = [job for name in given for job in self._jobs_of(name)]
        over: dict[str, WholeJobAnswer] = {}
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        heard_at = time.monotonic()
        while True:
            try:
                self._take_over(wanted, over)
                heard_at = time.monotonic()
            except DaemonUnreachable:
                if time.monotonic() - heard_at > RESTART_SECONDS:
                    raise
            left = [name for name in wanted if name not in over]
            if not left:
                break
            if until is not None and time.monotonic() >= until:
                raise WaitedTooLong(
                    f"{len(left)} of {len(wanted)} jobs are not over after {timeout_seconds:g} s: "
                    f"{', '.join(left[:5])}{', ...' if len(left) > 5 else ''}"
                )
            time.sleep(poll_seconds)
        found = [over[name] for name in wanted]
        bad = [job for job in found if job["status"] != "finished"]
        if check and bad:
            said = "; ".join(f"{job['id']} {job['status']}: {job['cause']}" for job in bad[:5])
            raise JobsFailed(f"{len(bad)} of {len(found)} jobs did not finish: {said}", found)
        return found

    def _jobs_of(self, name: str) -> list[str]:
        """Return the ids of a group's jobs in order, or the id of a job."""
        if not _is_group(name):
            return [name]
        return [job["id"] for job in reversed(self.jobs(group=name, ended=True, limit=MOST_LISTED)["jobs"])]

    def _take_over(self, wanted: list[str], over: dict[str, WholeJobAnswer]) -> None:
        """Add the jobs that are over by now to `over`."""
        left = [name for name in wanted if name not in over]
        if len(left) > MOST_ASKED_ONE_BY_ONE:
            active = {job["id"] for job in self.jobs(limit=MOST_LISTED)["jobs"]}
            left = [name for name in left if name not in active]
        for name in left:
            job = self.job(name)
            if job["status"] not in ACTIVE:
                over[name] = job

    def follow(
        self, name: str, *, generation: int | None = None, node: int | None = None, poll_seconds: float = 1.0
    ) -> Iterator[str]:
        """Yield a job's output until it is over; arguments and errors are those of `logs`."""
        since, was_over = 0, False
        while True:
            piece = self.logs(name, since=since, generation=generation, node=node)
            if piece["text"]:
                yield piece["text"]
            is_new, since = piece["next_offset"] != since, piece["next_offset"]
            if not is_new and was_over:
                return
            # A job may have printed between the last piece and its end: ask once more.
            was_over = piece["status"] not in ACTIVE
            if not is_new and not was_over:
                time.sleep(poll_seconds)

    def cancel(self, name: str) -> CancelAnswer:
        """Cancel a job, or every job of a group; running jobs may write their checkpoints first.

        Raises:
            RefusedByDaemon: when there is no such job or group, or it is not yours.
        """
        return self.cancel_group(name) if _is_group(name) else super().cancel(name)

    def exec(
        self, name: str, command: str | Sequence[str], *, node: int = 0, seconds: float = 60.0
    ) -> ExecAnswer:
        """Run a command beside a running job, and return how it ended, with the end of its output.

        Args:
            name: id of the job.
            command: a line for the shell, or the words of a command.
            node: number of the job's node, from 0.
            seconds: time after which the command is ended.

        Raises:
            RefusedByDaemon: when the job does not run, is not yours, or has no such node.
        """
        text = command if isinstance(command, str) else shlex.join(command)
        path = f"/jobs/{quoted(name)}/exec"
        word = self.post(path, {"command": text, "node": node, "seconds": seconds})["command"]
        pause = LOOK_SECONDS
        while not (said := self.get(f"{path}/{word}"))["is_over"]:
            time.sleep(pause)
            pause = min(pause * 1.5, MOST_LOOK_SECONDS)
        return cast(ExecAnswer, said)

    def download(self, name: str, file: str, target: str | Path) -> Path:
        """Download one of a job's output files to `target`, atomically; return its path.

        Raises:
            RefusedByDaemon: when there is no such file, or you may not read it.
            DaemonUnreachable: when the connection breaks.
        """
        from boa_daemon.job.whole_files import whole_file  # noqa: PLC0415 - it brings all of a job's helper

        path = Path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        where = f"/jobs/{quoted(name)}/artifacts/{quote(file)}"
        with whole_file(path) as aside, aside.open("wb") as content:
            for block in stream(self._http, where, at=self._at):
                content.write(block)
        return path

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return the document at a path of the HTTP API, given without `/v1`; the path may have a query."""
        given = {key: value for key, value in query.items() if value is not None}
        return ask(self._http, "GET", path, at=self._at, query=given)

    def post(self, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a POST to a path of the HTTP API, given without `/v1`, and return its answer."""
        return ask(self._http, "POST", path, at=self._at, document=document)


def default_address(config: Path | None = None, socket: str | None = None) -> str | Path:
    """Return the daemon's address from the flags, `BOA_ADDRESS` or the settings, in this order.

    While a settings file is wrong, or no longer names the state folder, the daemon that runs by it goes on
    with the settings before: its socket is found all the same.

    Raises:
        InputError: when a settings file is wrong, and no daemon runs by it.
    """
    if socket:
        return socket
    if config is None:
        with suppress(KeyError):
            return os.environ["BOA_ADDRESS"]
    from boa_daemon.daemon.settings.named_socket import named_socket, nothing_is_set  # noqa: PLC0415 - unused with an address

    named = named_socket(config)
    if named is not None and (named.exists() or nothing_is_set(config)):
        return named
    try:
        from boa_daemon.daemon.settings.daemon_paths import socket_of  # noqa: PLC0415 - half a second to import
        from boa_daemon.daemon.settings.setting_layers import load_settings  # noqa: PLC0415 - as above
        from boa_daemon.daemon.settings.settings_reload import running_socket  # noqa: PLC0415 - as above
    except ModuleNotFoundError:
        # A machine with the client alone: its settings name a daemon, or nothing does.
        if named is None:
            raise
        return named
    try:
        found = socket_of(load_settings(config).settings)
    except InputError:
        if (running := running_socket(config)) is None:
            raise
        return running
    return found if found.exists() else running_socket(config) or found


def _is_group(name: str) -> bool:
    """Whether an id is that of a group; a job's id ends in a plain number."""
    from boa_daemon.store.records import first_of_group  # noqa: PLC0415 - it brings the records, for one name

    return first_of_group(name) is not None
