"""The jobs that a policy can plan: those of classes that were known when it was built.

A job of a new width limit makes a class of its own. One that is submitted between the building of a policy
and the look at the jobs is left to the next tick, which its submission has called for already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boa_daemon.tick.ports import JobSource
from boa_daemon.tick.state import JobState, UserMoney
from boa_daemon.tick.team_money import TeamMoney
from policies.model import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJobs:
    """Implements `JobSource` around another one: jobs of other `classes` are not shown."""

    source: JobSource
    classes: frozenset[str]

    def jobs(self) -> Mapping[JobId, JobState]:
        """Return the jobs of known classes, in order of arrival."""
        found = self.source.jobs()
        if all(state.job.class_name in self.classes for state in found.values()):
            return found
        return {name: state for name, state in found.items() if state.job.class_name in self.classes}

    def users(self) -> Mapping[str, UserMoney]:
        """Return what users with a cap of their own have spent today."""
        return self.source.users()

    def teams(self) -> Mapping[str, TeamMoney]:
        """Return the purses of teams."""
        return self.source.teams()
