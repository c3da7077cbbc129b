"""When to start a job again after it failed, and when to give up: pure, one decision per job.

A failure that the same command would meet again at once (no memory, no command) is final. Others are tried
again, each time a little later; so many within the window without a new checkpoint in between, and the job
rests for a person to look at. New checkpoints clear the count: a job that gets on is worth another try.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from boa_daemon.tick.ports import RunReport
from boa_daemon.units import SECONDS_PER_HOUR, counted, format_hours
from policies.model import check_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed generation: when it was seen, the step of the checkpoint that it left, and its cause."""

    at: float
    step: int
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAgain:
    """The job may start again from an instant on."""

    not_before: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The job is not started again."""

    reason: str


Verdict: TypeAlias = TryAgain | GiveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBreaker:
    """Try again after `first_wait_seconds`, then twice that and so on, until `most_failures` in a window.

    With `most_by_cause` each kind of failure is counted by itself, and one that stands there is tried again
    also where another try would meet it again.
    """

    most_failures: int = 4
    window_seconds: float = 3600.0
    first_wait_seconds: float = 5.0
    most_by_cause: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_positive("most_failures", self.most_failures)
        check_positive("window_seconds", self.window_seconds)
        check_positive("first_wait_seconds", self.first_wait_seconds, zero=True)

    def judge(self, report: RunReport, failures: Sequence[Failure]) -> Verdict:
        """Return what follows from a failed generation; `failures` are the job's so far, that one last."""
        if not report.is_retryable and report.cause not in self.most_by_cause:
            return GiveUp(reason=f"{report.cause}, which another try would meet again: {report.evidence}")
        last = failures[-1]
        streak = [
            failure
            for failure in failures
            if failure.at > last.at - self.window_seconds and failure.step >= last.step
            if not self.most_by_cause or failure.cause == last.cause
        ]
        if len(streak) >= self.most_by_cause.get(last.cause, self.most_failures):
            if len(streak) == 1:
                return GiveUp(reason=report.evidence)
            window = format_hours(self.window_seconds / SECONDS_PER_HOUR)
            kind = f" ({last.cause})" if self.most_by_cause else ""
            return GiveUp(
                reason=f"{counted(len(streak), 'failure')}{kind} within {window} at step {last.step}, "
                f"the last one: {report.evidence}"
            )
        wait = self.first_wait_seconds * 2.0 ** (len(streak) - 1)
        return TryAgain(not_before=last.at + wait)
