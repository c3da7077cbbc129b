"""Submissions of jobs and their code: checked, and accepted all or none."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.money.costs import spent_today
from boa_daemon.daemon.service.service_base import NotAllowed, ServiceBase
from boa_daemon.daemon.settings.data_sources import check_data
from boa_daemon.daemon.settings.secret_references import check_rights, check_secrets
from boa_daemon.daemon.settings.teams import team_of
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.groups import members, size_of
from boa_daemon.inputs.job_file import check_job
from boa_daemon.job.code import CodeFailed, digest_of_archive
from boa_daemon.store.database import allow_for_rows
from boa_daemon.store.groups import find_group
from boa_daemon.store.queue import NewJob, PendingSubmission
from boa_daemon.store.storage import Storage
from boa_daemon.tick.facts.ports import CodeStager
from boa_daemon.units import counted
from policies.money_text import in_dollars

MOST_JOBS_AT_ONCE = 10_000
_AT_ONCE = 8
"""Largest submission to check directly, because checking is faster than changing threads."""


class Submissions(ServiceBase):
    """Accepts jobs for one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon)
        self._limited = threading.Lock()

    def submit(self, contents: Sequence[Any], *, user: str) -> dict[str, Any]:
        """Accept jobs, all or none.

        Raises:
            InputError: when one of them is wrong; nothing is stored then.
            NotAllowed: when the user would exceed their number of jobs, or has no money left today.
            NotReady: when the database cannot be written now.
        """
        queue = self._storage().queue
        rows = self._checked(contents, user)
        allow_for_rows(len(rows))
        if user not in self.daemon.settings.users:
            return self.settled(queue.enter(rows, at=self.daemon.world.clock.now()))
        # Check one at a time: two submissions that fit alone may not fit together.
        with self._limited:
            self._check_user(user, len(rows))
            return self.settled(queue.enter(rows, at=self.daemon.world.clock.now()))

    def entered(self, contents: Sequence[Any], *, user: str) -> PendingSubmission | None:
        """Check a small submission without blocking, and queue it for `settled`.

        Return None when that is impossible: many jobs, groups, code or data, or a user with limits.

        Raises:
            InputError: when one of them is wrong; nothing is stored then.
            NotReady: when the database cannot be written now.
        """
        queue = self._storage().queue
        if len(contents) > _AT_ONCE or user in self.daemon.settings.users:
            return None
        if any(
            isinstance(one, Mapping) and one.keys() & {"matrix", "count", "code", "data"} for one in contents
        ):
            return None
        return queue.enter(self._checked(contents, user), at=self.daemon.world.clock.now())

    def settled(self, ticket: PendingSubmission) -> dict[str, Any]:
        """Wait until a submission is on disk, and return its answer."""
        jobs = self._storage().queue.settle(ticket)
        self.daemon.wake(0.1)
        groups = dict.fromkeys(job.group for job in jobs if job.content.get("group") is not None)
        return {
            "as_of": ticket.at,
            "jobs": [job.id for job in jobs],
            "groups": list(groups),
            "dates": self.outlook.dates(jobs),
        }

    @property
    def storage(self) -> Storage:
        """The storage.

        Raises:
            NotReady: when the daemon has no database that it may write.
        """
        return self._storage()

    def checked_for(self, content: Mapping[str, Any], *, user: str, team: str | None, count: int) -> NewJob:
        """Return a job that the daemon itself makes for a user, of which there will be `count`.

        Raises:
            BoaError: when the user may not have them, or nothing can run them.
        """
        checked = check_job(Document(name="the job", content=dict(content), language="json"))
        self._check_user(user, count)
        teams = self.daemon.settings.teams
        if team is not None and team not in teams:
            raise InputError(f"there is no team {team!r}", hint="See [slurm] teams")
        checked = {**checked, "team": team or team_of(None, user, teams)}
        job_class = self.daemon.planner.class_for(checked)
        return checked, user, job_class.name, job_class.size_gpu_hours

    def _checked(self, contents: Sequence[Any], user: str) -> list[NewJob]:
        """Check submitted jobs and return them as rows for the queue.

        Raises:
            InputError: when one of them is wrong.
        """
        if not 1 <= len(contents) <= MOST_JOBS_AT_ONCE:
            raise InputError(f"a submission has 1 to {MOST_JOBS_AT_ONCE} jobs; got {len(contents)}")
        rows: list[NewJob] = []
        _check_text(contents)
        for number, content in enumerate(contents):
            name = "the job" if len(contents) == 1 else f"job {number}"
            checked = check_job(Document(name=name, content=content, language="json"))
            if len(rows) + size_of(checked) > MOST_JOBS_AT_ONCE:
                raise InputError(f"a submission has {MOST_JOBS_AT_ONCE} jobs at the most, groups included")
            check_rights(checked, user, self.daemon.settings)
            check_secrets(checked, self.daemon.settings.engine)
            check_data(checked, self.daemon.settings.engine, self.daemon.world.runner, user)
            checked = {**checked, "team": team_of(checked["team"], user, self.daemon.settings.teams)}
            for other in checked["after"]:
                self._check_known(other.partition(":")[0])
            self._check_code(checked.get("code"))
            job_class = self.daemon.planner.class_for(checked)
            size = job_class.size_gpu_hours * float(checked["scale"])
            rows += ((member, user, job_class.name, size) for member in members(checked))
        return rows

    def _check_code(self, code: Mapping[str, Any] | None) -> None:
        """Refuse code that was not sent, or that this engine cannot deliver.

        Raises:
            InputError: when the code cannot be delivered to a node.
        """
        if code is not None and (code["digest"] is None or not self._code().has_code(code["digest"])):
            hint = "`boa submit` and boa_daemon.Client send it for you"
            raise InputError("code must be packed and sent before the job", hint=hint)

    def _code(self) -> CodeStager:
        """Return the engine's store of packed code.

        Raises:
            InputError: when this engine cannot deliver code.
        """
        runner = self.daemon.world.runner
        if not isinstance(runner, CodeStager):
            raise InputError(
                "this engine cannot deliver code", hint="Set workdir to a folder that the nodes have"
            )
        return runner

    def has_code(self, digest: str) -> bool:
        """Return whether the code was sent before, so that it need not be sent again."""
        return self._code().has_code(digest)

    def take_code(self, digest: str, archive: bytes) -> None:
        """Store packed code for the jobs that name its digest.

        Raises:
            InputError: when the code does not match its digest.
        """
        try:
            found = digest_of_archive(io.BytesIO(archive))
        except CodeFailed as error:
            raise InputError(str(error)) from None
        if found != digest:
            raise InputError(f"the code has the digest {found[:12]}, not {digest[:12]}")
        self._code().take_code(digest, archive)

    def _check_known(self, name: str) -> None:
        """Refuse an id of neither a job nor a group.

        Raises:
            UnknownJob: when there is no such job or group.
        """
        if find_group(self._storage().queue, name) is None:
            self._find(name)

    def _check_user(self, user: str, more: int) -> None:
        """Refuse a submission beyond its user's limits."""
        limits = self.daemon.settings.users.get(user)
        if limits is None:
            return
        queue = self._storage().queue
        mine = [job for job in list(queue.active.values()) if job.user == user]
        if limits.max_jobs is not None and len(mine) + more > limits.max_jobs:
            raise NotAllowed(
                f"user {user} has {counted(len(mine), 'job')} and may have {limits.max_jobs}; "
                f"{more} more would be too many"
            )
        if limits.usd_per_day_cap is not None:
            spent = self.spent_today(user)
            if spent >= limits.usd_per_day_cap:
                cap = limits.usd_per_day_cap
                raise NotAllowed(
                    f"user {user} has spent {in_dollars(spent)} today; the cap is {in_dollars(cap)}"
                )

    def spent_today(self, user: str) -> float:
        """Return the dollars that a user's jobs cost today (UTC)."""
        now = self.daemon.world.clock.now()
        return spent_today(self._storage().queue, now=now).get(user, 0.0)

    def check_may_submit(self, user: str, *, is_admin: bool) -> None:
        """Refuse a user whose jobs would run as the daemon's user, with all of its rights.

        Raises:
            NotAllowed: when the user's jobs would, and neither a role nor a setting permits it.
        """
        runner, settings = self.daemon.world.runner, self.daemon.settings.engine
        if is_admin or settings.shared_account or not getattr(runner, "runs_jobs_as_daemon", False):
            return
        raise NotAllowed(
            f"jobs run as the daemon's own user here, so only administrators may submit; you are {user}. "
            "The daemon's administrator can allow it: [api] admins, or [engine] shared_account"
        )


def _check_text(contents: Sequence[Any]) -> None:
    """Refuse text that cannot be encoded.

    Raises:
        InputError: when a text is not Unicode.
    """
    try:
        json.dumps(contents, ensure_ascii=False).encode()
    except (UnicodeEncodeError, ValueError, RecursionError):
        raise InputError("a job file holds text that is not Unicode") from None
