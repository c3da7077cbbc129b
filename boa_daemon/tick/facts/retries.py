"""When to start a job again after a failure, and when to give it up, from its failures alone.

A failure that the same command would repeat at once (out of memory, missing command) is final. Other failures
are retried, each time a little later. After too many within the window without a new checkpoint in between, a
person must look at the job. New checkpoints clear the count: a job that makes progress is worth another try.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from boa_daemon.tick.facts.rests import FAILURE
from boa_daemon.units import SECONDS_PER_HOUR, counted, format_hours
from policies.model import check_positive

FailureCause: TypeAlias = Literal[
    "error",
    "signal",
    "out-of-memory",
    "missing-command",
    "disk-full",
    "no-result",
    "agent-lost",
    "killed",
    "no-checkpoint",
    "node-fault",
]
"""Why a generation failed; a closed list."""
NEVER_RETRIED: frozenset[FailureCause] = frozenset({"out-of-memory", "missing-command"})
"""Failures that the same command would repeat at once."""
WINDOW_SECONDS = 30 * 86_400.0
"""Failures without a new checkpoint in between add up for a month: each of them costs money."""
DEFAULT_RETRIES = 3
"""How often a job is retried if its file does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed generation: when the failure was seen, the step of its checkpoint, and its cause."""

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
class Retries:
    """How often a job may fail: `most_failures` within a window.

    With `most_by_cause` each cause is counted separately. A cause listed there is retried even if another try
    would repeat the failure.
    """

    most_failures: int = DEFAULT_RETRIES + 1
    window_seconds: float = WINDOW_SECONDS
    most_by_cause: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_positive("most_failures", self.most_failures)
        check_positive("window_seconds", self.window_seconds)

    @classmethod
    def of(cls, retries: Any) -> Retries:
        """Return the limits in the `retries` of a job file: a number, or a number by cause."""
        if isinstance(retries, int):
            return cls(most_failures=retries + 1)
        return cls(most_by_cause={cause: number + 1 for cause, number in retries.items()})

    def judge(self, failures: Sequence[Failure], *, evidence: str) -> Verdict:
        """Return the consequence of a job's failures so far; `evidence` describes the last one."""
        last = failures[-1]
        if last.cause in NEVER_RETRIED and last.cause not in self.most_by_cause:
            return GiveUp(reason=f"{last.cause}, which another try would repeat: {evidence}")
        streak = [
            failure
            for failure in failures
            if failure.at > last.at - self.window_seconds and failure.step >= last.step
            if not self.most_by_cause or failure.cause == last.cause
        ]
        if len(streak) >= self.most_by_cause.get(last.cause, self.most_failures):
            if len(streak) == 1:
                return GiveUp(reason=evidence)
            window = format_hours(self.window_seconds / SECONDS_PER_HOUR)
            kind = f" ({last.cause})" if self.most_by_cause else ""
            return GiveUp(
                reason=f"{counted(len(streak), 'failure')}{kind} within {window} at step {last.step}, "
                f"the last one: {evidence}"
            )
        return TryAgain(not_before=last.at + FAILURE.seconds(times=len(streak)))


ANY_RETRIES = Retries()


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A generation that has made no step since an instant; it is ended once this lasts for its limit.

    `kind` says what it fails to do. A stall must be seen at `looks_left` more consecutive looks.
    """

    kind: Literal["no-step", "no-report", "no-report-no-print"]
    since: float
    limit_seconds: float
    looks_left: int = 0

    @property
    def ends_at(self) -> float:
        """When the generation is ended, if the silence goes on."""
        return self.since + self.limit_seconds

    def sentence(self, now: float) -> str:
        """Return what the generation failed to do, as a sentence part for people."""
        if self.kind == "no-step":
            return f"made no step for {now - self.since:.0f} s"
        limit = format_hours(self.limit_seconds / SECONDS_PER_HOUR)
        printed = " and printed nothing" if self.kind == "no-report-no-print" else ""
        return f"reported no step{printed} within {limit} (first_report_hours)"


GiveUpCode: TypeAlias = Literal["failed", "max-usd", "max-hours", "after"]
"""Why a job is given up: its failures, a limit in its file, or a job before it that ended badly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """Why a job is not started again."""

    code: GiveUpCode
    reason: str
