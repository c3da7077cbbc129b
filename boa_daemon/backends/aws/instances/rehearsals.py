"""Rehearses what is rarely done and must work: a launch and an end, each as a dry run every few minutes.

Rights, images, subnets, security groups, key pairs and profiles have owners who change them. Without a
rehearsal such a change shows when the next job needs a node, or when a node that nobody needs cannot be
ended. EC2 checks a dry run as it checks the call, and answers `DryRunOperation` if it would do it.
"""

from __future__ import annotations

from collections.abc import Sequence

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.launch import Launcher
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Clock

REHEARSE_SECONDS = 170.0
"""Seconds between rehearsals: with a refresh each minute, every third has one."""
_SAYS_NOTHING = ("dry-run", "unknown", "throttled", "not-found", "wrong-state")
"""Meanings of answers after which an end is no better and no worse known than before, or is allowed."""
_IS_MARKET = ("no-capacity", "quota", "price", "not-offered", "throttled", "unknown", "subnet-full")
"""Meanings of refusals by the market: they pass, and are told where a job waits for them."""


class Rehearsals:
    """Keeps why a launch or an end would be refused now; one thread rehearses, others read."""

    def __init__(self, calls: AwsCalls, launcher: Launcher, clock: Clock) -> None:
        self._calls, self._launcher, self._clock = calls, launcher, clock
        self._due_at: float | None = None
        self._turn = 0
        self.launch_fault = ""
        self.end_fault = ""

    def forget(self) -> None:
        """Rehearse at the next refresh."""
        self._due_at = 0.0

    def refresh(self, offers: Sequence[Offer], running: Sequence[str], *, in_turn: bool = False) -> None:
        """Rehearse a launch of one of the offers and the end of one of the running instances.

        With `in_turn`, rehearse only one of both each time: a site without a queue of warnings lists more
        often, and its calls are as few.
        """
        now = self._clock.now()
        if self._due_at is None:
            # What was launched or ended last says the same for a while.
            self._due_at = now + REHEARSE_SECONDS
        if now < self._due_at:
            return
        self._due_at, self._turn = now + REHEARSE_SECONDS, self._turn + 1
        number = self._turn // 2 if in_turn else self._turn
        is_launch = not in_turn or self._turn % 2 == 0 or not running
        if offers and is_launch:
            self._launch(offers[number % len(offers)])
        if not running:
            self.end_fault = ""
        elif not (in_turn and is_launch):
            self._end(running[number % len(running)])

    def _launch(self, offer: Offer) -> None:
        error = self._launcher.rehearse(offer)
        if error is None or error.meaning == "dry-run":
            self.launch_fault = ""
        elif error.meaning not in _IS_MARKET:
            self.launch_fault = f"a launch of {offer.key} would be refused: {error}"

    def _end(self, instance: str) -> None:
        try:
            self._calls.call("ec2:TerminateInstances", InstanceIds=[instance], DryRun=True)
        except CallFailed as error:
            if error.meaning == "dry-run":
                self.end_fault = ""
            elif error.meaning not in _SAYS_NOTHING:
                self.end_fault = f"{instance} could not be ended now, and is billed until it is: {error}"
