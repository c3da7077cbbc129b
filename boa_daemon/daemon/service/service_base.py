"""Shared base of the API services: the storage, the instant of an answer, and the job that is meant."""

from __future__ import annotations

from collections.abc import Iterator

from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.service.job_forecasts import JobForecasts
from boa_daemon.errors import BoaError, InputError, did_you_mean
from boa_daemon.store.groups import JobGroup, find_group
from boa_daemon.store.records import JobRecord
from boa_daemon.store.storage import Storage
from policies.model import JobId

MOST_OFFERS = 5
"""Number of offers that a note about refusals names."""
RECENT_JOBS = 200
"""Number of newest jobs that are suggested for a mistyped id."""


class UnknownJob(InputError):
    """No job has that id."""


class NotAllowed(BoaError):
    """The job belongs to somebody else, or the user's limits are exceeded."""


class NotReady(BoaError):
    """The daemon cannot do that now; its status says why."""


class ServiceBase:
    """Base of the services that answer requests for one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.outlook = JobForecasts(daemon)
        daemon.after_ticks = self.outlook.prepare

    def _find(self, name: JobId) -> JobRecord:
        """Return a job.

        Raises:
            UnknownJob: when there is no such job.
        """
        queue = self._storage().queue
        found = queue.job(name)
        if found is None:
            recent = [job.id for job in queue.jobs(limit=RECENT_JOBS)]
            raise UnknownJob(f"no job {name!r}", hint=did_you_mean(name, recent) or "See `boa jobs --all`")
        return found

    def _find_group(self, name: str) -> JobGroup:
        """Return a group.

        Raises:
            UnknownJob: when there is no such group.
        """
        found = find_group(self._storage().queue, name)
        if found is None:
            recent = dict.fromkeys(job.group for job in self._storage().queue.jobs(limit=RECENT_JOBS))
            hint = did_you_mean(name, [group for group in recent if group])
            raise UnknownJob(f"no group {name!r}", hint=hint or "`boa submit` prints the id of a group")
        return found

    def owned(self, name: JobId, user: str, is_admin: bool) -> JobRecord:
        """Return a job that a caller may change.

        Raises:
            UnknownJob: when there is no such job.
            NotAllowed: when it belongs to another user.
        """
        record = self._find(name)
        if record.user != user and not is_admin:
            raise NotAllowed(f"job {name} is of user {record.user}; you are {user}")
        return record

    def note_order(self, user: str, what: str, target: str, said: str) -> None:
        """Record an order in the log of decisions."""
        now = self.daemon.world.clock.now()
        self._storage().orders.note(user=user, what=what, target=target, said=said, at=now)

    def _as_of(self) -> float:
        """Return the instant of the last decision, or of the daemon's start."""
        decision = self.daemon.standing.decision
        return self.daemon.standing.started_at if decision is None else decision.state.now

    def _storage(self) -> Storage:
        """Return the storage.

        Raises:
            NotReady: when the daemon has no database that it may write.
        """
        if self.daemon.storage is None:
            raise NotReady(self.daemon.standing.fault)
        return self.daemon.storage

    def _troubles(self) -> Iterator[str]:
        """Yield why nodes are unusable, and why the last launches were refused."""
        if self.daemon.storage is not None:
            yield from self.daemon.fleet.unusable().values()
            now = self.daemon.world.clock.now()
            refused = self.daemon.storage.store.refused_launches(now)
            by_reason: dict[str, list[str]] = {}
            for offer, (_, why) in refused.items():
                by_reason.setdefault(why, []).append(offer)
            for why, offers in by_reason.items():
                ago = now - max(refused[offer][0] for offer in offers)
                which = ", ".join(offer.rstrip("/") for offer in offers[:MOST_OFFERS])
                which += f" and {len(offers) - MOST_OFFERS} more offers" if len(offers) > MOST_OFFERS else ""
                yield f"the last launch of {which} was refused {ago:.0f} s ago: {why}"
            for offer, (at, why) in self.daemon.fleet.failures().items():
                yield f"the last node of {offer} failed at its start {now - at:.0f} s ago: {why}"
