"""The client of a daemon, for Python and for the command line: one connection, typed questions.

    from boa_daemon import Client

    with Client() as boa:                                   # the daemon that `boa status` would talk to
        names = boa.submit("train.yaml")
        boa.wait(names, check=True)

Answers are the documents that `boa ... -o json` prints (`boa_daemon.api.answers`): instants in seconds since
the Unix epoch, durations in seconds, money in dollars. What the daemon refuses is `RefusedByDaemon` with its
sentence, a daemon that does not answer is `DaemonUnreachable`; both are a `BoaError`, with the exit code of a
command that met it.
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
    ArtifactsAnswer,
    By,
    CancelAnswer,
    CostAnswer,
    DownAnswer,
    ExecAnswer,
    ExplainAnswer,
    GroupAnswer,
    InstancesAnswer,
    JobsAnswer,
    LogAnswer,
    PlanAnswer,
    StatusAnswer,
    SubmittedAnswer,
    WholeJobAnswer,
)
from boa_daemon.api.connection import DaemonUnreachable, RefusedByDaemon, ask, open_http, stream
from boa_daemon.errors import BoaError, InputError
from boa_daemon.inputs.code_archive import pack
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.submission import as_submitted, read_submission
from boa_daemon.store.records import first_of_group

__all__ = ["Client", "DaemonUnreachable", "JobsFailed", "RefusedByDaemon", "WaitedTooLong"]

ACTIVE = frozenset({"queued", "running", "cancelling"})
"""What a job is that is not over."""
MOST_ASKED_ONE_BY_ONE = 20
"""Of more jobs the list of all that are active is asked for."""
MOST_LISTED = 20_000
LOOK_SECONDS, MOST_LOOK_SECONDS = 0.1, 1.0
"""How soon the end of a command is asked for, and how seldom in the end."""
RESTART_SECONDS = 300.0
"""So long a daemon may be gone while somebody waits for a job: that is a restart."""


class WaitedTooLong(BoaError):
    """Jobs were not over in time; they go on."""


class JobsFailed(BoaError):
    """Jobs ended otherwise than well; `jobs` are all that were waited for."""

    def __init__(self, message: str, jobs: list[WholeJobAnswer]) -> None:
        super().__init__(message)
        self.jobs = jobs


class Client:
    """Talks to a daemon; use it in a `with`, from one thread."""

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
            jobs: job files, or the content of such. A folder in one is relative to the file, or to the
                current folder.

        Raises:
            InputError: when a file cannot be read or is wrong; nothing was submitted.
            RefusedByDaemon: when the daemon does not take them; nothing was submitted.
        """
        contents: list[dict[str, Any]] = []
        for job in jobs:
            if isinstance(job, Mapping):
                document = Document(name="the job", content=dict(job), language="json")
                contents += as_submitted(document, beside=Path.cwd())
            else:
                contents += read_submission(Path(job))
        return self.submit_checked(contents)["jobs"]

    def submit_checked(self, contents: Iterable[Mapping[str, Any]]) -> SubmittedAnswer:
        """Submit what `boa_daemon.inputs.submission` has read.

        Raises:
            RefusedByDaemon: when the daemon does not take them; nothing was submitted.
        """
        jobs = list(contents)
        for code in {job["code"]["digest"]: job["code"] for job in jobs if job.get("code")}.values():
            self._send_code(code)
        return cast(SubmittedAnswer, self.post("/jobs", {"jobs": jobs}))

    def _send_code(self, code: Mapping[str, Any]) -> None:
        """Send packed code to the daemon, unless it has it.

        Raises:
            InputError: when the code is not any more what it was when the job file was read.
        """
        if self.get(f"/code/{code['digest']}")["is_here"]:
            return
        packed = pack(Path(code["folder"]), code.get("revision"))
        if packed.digest != code["digest"]:
            raise InputError(
                f"code: {code['folder']} was changed while it was submitted", hint="Submit again"
            )
        ask(self._http, "PUT", f"/code/{packed.digest}", at=self._at, content=packed.archive)

    def jobs(
        self,
        *,
        user: str | None = None,
        group: str | None = None,
        team: str | None = None,
        before: int | None = None,
        ended: bool = False,
        limit: int = 1000,
    ) -> JobsAnswer:
        """List jobs, the newest first: those that are not over, with `ended` also those that are.

        Args:
            user: only those of this user.
            group: only those of this group.
            team: only those that this team pays for.
            before: the page that follows one whose answer had this `next`.
            ended: also those that are over.
            limit: so many, 20,000 at the most.

        Raises:
            RefusedByDaemon: with status 404 where there is no such group.
        """
        words = {"user": user, "group": group, "team": team, "before": before}
        return cast(JobsAnswer, self.get("/jobs", **words, ended=ended, limit=limit))

    def group(self, name: str) -> GroupAnswer:
        """Say how many jobs of a group are how, and what they have cost together.

        Raises:
            RefusedByDaemon: with status 404 where there is none of that id.
        """
        return cast(GroupAnswer, self.get(f"/groups/{_quoted(name)}"))

    def job(self, name: str) -> WholeJobAnswer:
        """Return one job with its file.

        Raises:
            RefusedByDaemon: with status 404 where there is none of that id.
        """
        return cast(WholeJobAnswer, self.get(f"/jobs/{_quoted(name)}"))

    def explain(self, name: str) -> ExplainAnswer:
        """Say why a job has its width and its nodes, or why it waits.

        Raises:
            RefusedByDaemon: with status 404 where there is none of that id.
        """
        return cast(ExplainAnswer, self.get(f"/jobs/{_quoted(name)}/explain"))

    def wait(
        self,
        names: str | Iterable[str],
        *,
        timeout_seconds: float | None = None,
        check: bool = False,
        poll_seconds: float = 1.0,
    ) -> list[WholeJobAnswer]:
        """Wait until jobs are over, and return them in order; a daemon that restarts meanwhile is waited for.

        Args:
            names: ids of jobs; that of a group stands for all of it.
            timeout_seconds: how long, at the most; for ever by default.
            check: raise `JobsFailed` unless all have finished.
            poll_seconds: time between looks.

        Raises:
            WaitedTooLong: when the time is over; the jobs go on.
            JobsFailed: with `check`, when a job has failed or was cancelled.
            RefusedByDaemon: with status 404 where there is no job of an id.
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
        """Look which jobs are over by now."""
        left = [name for name in wanted if name not in over]
        if len(left) > MOST_ASKED_ONE_BY_ONE:
            active = {job["id"] for job in self.jobs(limit=MOST_LISTED)["jobs"]}
            left = [name for name in left if name not in active]
        for name in left:
            job = self.job(name)
            if job["status"] not in ACTIVE:
                over[name] = job

    def logs(
        self, name: str, *, since: int = 0, generation: int | None = None, node: int | None = None
    ) -> LogAnswer:
        """Return a piece of what a job printed, from a byte on.

        Args:
            name: id of the job.
            since: the byte; `next_offset` of the piece before.
            generation: of this start, from 1 on; the newest by default.
            node: of this node of the job, from 0 on; by default the one of the process that reports.

        Raises:
            RefusedByDaemon: when there is none of that id, start or node, or it is not yours to read.
        """
        path = f"/jobs/{_quoted(name)}/logs"
        return cast(LogAnswer, self.get(path, since=since, generation=generation, node=node))

    def follow(
        self, name: str, *, generation: int | None = None, node: int | None = None, poll_seconds: float = 1.0
    ) -> Iterator[str]:
        """Yield what a job prints until it is over; as `logs` otherwise."""
        since, was_over = 0, False
        while True:
            piece = self.logs(name, since=since, generation=generation, node=node)
            if piece["text"]:
                yield piece["text"]
            is_new, since = piece["next_offset"] != since, piece["next_offset"]
            if not is_new and was_over:
                return
            # A job that is over may have printed between the two questions: it is asked once more.
            was_over = piece["status"] not in ACTIVE
            if not is_new and not was_over:
                time.sleep(poll_seconds)

    def cancel(self, name: str) -> CancelAnswer:
        """Cancel a job, or every job of a group; those that run may write their checkpoints first.

        Raises:
            RefusedByDaemon: when there is none of that id, or it is not yours.
        """
        kind = "groups" if _is_group(name) else "jobs"
        return cast(CancelAnswer, self.post(f"/{kind}/{_quoted(name)}/cancel"))

    def exec(
        self, name: str, command: str | Sequence[str], *, node: int = 0, seconds: float = 60.0
    ) -> ExecAnswer:
        """Run a command beside a job that runs, and return how it ended, with the newest of what it printed.

        Args:
            name: id of the job.
            command: a line for the shell, or the words of a command.
            node: the node of the job, from 0 on.
            seconds: after so many it is ended.

        Raises:
            RefusedByDaemon: when the job does not run or is not yours, or it has no such node.
        """
        text = command if isinstance(command, str) else shlex.join(command)
        path = f"/jobs/{_quoted(name)}/exec"
        word = self.post(path, {"command": text, "node": node, "seconds": seconds})["command"]
        pause = LOOK_SECONDS
        while not (said := self.get(f"{path}/{word}"))["is_over"]:
            time.sleep(pause)
            pause = min(pause * 1.5, MOST_LOOK_SECONDS)
        return cast(ExecAnswer, said)

    def artifacts(self, name: str) -> ArtifactsAnswer:
        """List the files that a job has left, by the `artifacts` of its file.

        Raises:
            RefusedByDaemon: when there is none of that id, or it is not yours to read.
        """
        return cast(ArtifactsAnswer, self.get(f"/jobs/{_quoted(name)}/artifacts"))

    def download(self, name: str, file: str, target: str | Path) -> Path:
        """Copy one of the files that a job has left to a file here, whole or not at all; return where it is.

        Raises:
            RefusedByDaemon: when there is no such file, or it is not yours to read.
            DaemonUnreachable: when the daemon goes away in the middle.
        """
        path = Path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.part")
        try:
            with aside.open("wb") as content:
                where = f"/jobs/{_quoted(name)}/artifacts/{quote(file)}"
                for block in stream(self._http, where, at=self._at):
                    content.write(block)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        return path

    def status(self) -> StatusAnswer:
        """Say how the daemon is; it answers at once, whatever it is doing."""
        return cast(StatusAnswer, self.get("/status"))

    def plan(self) -> PlanAnswer:
        """Say what the next look would do; nothing is done.

        Raises:
            RefusedByDaemon: with status 503 before the first look.
        """
        return cast(PlanAnswer, self.get("/plan"))

    def cost(self, *, by: By = "job", since: float | None = None) -> CostAnswer:
        """Say who spent what since an instant; by default since the month (UTC) began."""
        return cast(CostAnswer, self.get("/cost", by=by, since=since))

    def instances(self, *, ended: bool = False) -> InstancesAnswer:
        """List nodes; with `ended` also those that ended within a day."""
        return cast(InstancesAnswer, self.get("/instances", ended=ended))

    def down(self, *, is_down: bool = True) -> DownAnswer:
        """Let everything go, or take work up again; for administrators.

        Raises:
            RefusedByDaemon: with status 403 for everybody else.
        """
        return cast(DownAnswer, self.post("/down", {"is_down": is_down}))

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Ask for the document at any path of the HTTP API, without its `/v1`; it may carry a query."""
        given = {key: value for key, value in query.items() if value is not None}
        return ask(self._http, "GET", path, at=self._at, query=given)

    def post(self, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Order something at any path of the HTTP API."""
        given = None if document is None else dict(document)
        return ask(self._http, "POST", path, at=self._at, json=given)


def default_address(config: Path | None = None, socket: str | None = None) -> str | Path:
    """Return where the daemon is that flags, `BOA_ADDRESS` or the settings name, in this order.

    Raises:
        InputError: when a settings file is wrong.
    """
    if socket:
        return socket
    if config is None:
        with suppress(KeyError):
            return os.environ["BOA_ADDRESS"]
    from boa_daemon.daemon.daemon_paths import socket_of  # noqa: PLC0415 - slow to import, where an address needs none
    from boa_daemon.daemon.setting_layers import load_settings  # noqa: PLC0415

    return socket_of(load_settings(config).settings)


def _is_group(name: str) -> bool:
    """Whether an id is that of a group; those of jobs end in a number alone."""
    return first_of_group(name) is not None


def _quoted(name: str) -> str:
    """Return an id as part of a path; what is none is for the daemon to refuse."""
    return quote(name or " ", safe="").replace("%2F", "%252F")
