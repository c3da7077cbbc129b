"""Access to a running job: a command, a shell or a port, for its user and administrators only."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Any

from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.service.service_base import NotReady, UnknownJob
from boa_daemon.errors import InputError
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts.ports import AccessibleRunner, JobAccessPort, Refused
from policies.model import JobId

_LOG = logging.getLogger("boa.daemon")
MOST_SECONDS = 3600.0
TERMINAL = re.compile(r"/dev/pts/[0-9]{1,9}")


class JobAccess:
    """Checks and answers requests for access to the jobs of one daemon."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._words: dict[str, JobId] = {}
        self._lock = threading.Lock()

    def way(self, name: JobId, *, node: int, user: str, is_admin: bool) -> dict[str, Any]:
        """Return where a job runs, and the command that opens a shell there.

        Raises:
            InputError: when there is no such job or node, or the engine has no access to jobs.
            NotAllowed: when it belongs to another user.
            NotReady: when the job does not run now.
        """
        way = self._inside(name, user, is_admin).way(name, node)
        if isinstance(way, Refused):
            raise _refusal(way)
        shell = list(way.shell)
        return {"job": name, "kind": way.kind, "node": way.node, "shell": shell, "region": way.region}

    def begin(
        self, name: JobId, command: str, *, node: int, seconds: float, user: str, is_admin: bool
    ) -> dict[str, Any]:
        """Start a command beside a job, as the job's user; raises as `way` does."""
        inside = self._inside(name, user, is_admin)
        if "\0" in command:
            raise InputError("a command holds no null character")
        word = inside.begin(name, node, command, seconds=min(seconds, MOST_SECONDS))
        if isinstance(word, Refused):
            raise _refusal(word)
        _LOG.info("%s runs a command beside job %s", user, name, extra={"job": name, "user": user})
        with self._lock:
            self._words[word] = name
        return {"job": name, "command": word}

    def end(self, name: JobId, word: str, *, user: str, is_admin: bool) -> dict[str, Any]:
        """Return whether and how a command ended; raises as `way` does.

        Raises:
            UnknownJob: when the command is not known for this job.
        """
        inside = self._inside(name, user, is_admin)
        with self._lock:
            is_its_own = self._words.get(word) == name
        said = (
            inside.end(word)
            if is_its_own
            else Refused(reason="that command is unknown, or its end was already reported")
        )
        if isinstance(said, Refused):
            raise UnknownJob(said.reason)
        if said is not None:
            with self._lock:
                self._words.pop(word, None)
        return {
            "job": name,
            "is_over": said is not None,
            "exit_code": None if said is None else said.code,
            "why": "" if said is None else said.why,
            "output": "" if said is None else said.output,
            "dropped_bytes": 0 if said is None else said.dropped_bytes,
        }

    def open(
        self,
        name: JobId,
        terminal: str,
        *,
        node: int,
        term: str,
        user: str,
        is_admin: bool,
        may_use: Callable[[int], bool],
    ) -> dict[str, Any]:
        """Open a shell beside a job on a terminal of this machine; raises as `way` does."""
        inside = self._inside(name, user, is_admin)
        if not TERMINAL.fullmatch(terminal):
            raise InputError(f"{terminal!r} is no terminal")
        answer = inside.open(name, node, terminal, term=term, may_use=may_use)
        if isinstance(answer, Refused):
            raise _refusal(answer)
        _LOG.info("%s opens a shell beside job %s", user, name, extra={"job": name, "user": user})
        return {"job": name, "is_open": True}

    def _inside(self, name: JobId, user: str, is_admin: bool) -> JobAccessPort:
        """Return the engine's access port for a job that the caller may enter.

        Raises:
            InputError: when there is no such job, or this engine has no access to jobs.
            NotAllowed: when it belongs to another user, or runs as a user that the caller may not be.
            NotReady: when the job is over, or holds no GPUs.
        """
        record: JobRecord = self._service.owned(name, user, is_admin)
        self._service.check_may_submit(user, is_admin=is_admin)
        runner = self._service.daemon.world.runner
        if not isinstance(runner, AccessibleRunner):
            raise InputError("this engine gives no access to its jobs")
        if not record.slots:
            said = f"job {name} is {record.status} and on no node"
            raise NotReady(said if record.is_active else f"job {name} is over: it is {record.status}")
        return runner.inside


def _refusal(refused: Refused) -> InputError | NotReady:
    return InputError(refused.reason) if refused.kind == "bad-request" else NotReady(refused.reason)
