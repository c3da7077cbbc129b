"""A probe of the rules that fill the queue of warnings: without them it stays empty and looks well."""

from __future__ import annotations

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.resource_names import queue_arn
from boa_daemon.backends.aws.instances.event_rules import PATTERNS, SAID, lets_through
from boa_daemon.tick.facts.ports import Clock

PROBE_SECONDS, AGAIN_SECONDS = 170.0, 50.0
"""Seconds between looks, and after one that failed."""


class EventRuleProbe:
    """Looks every few minutes whether EventBridge still sends our events to the queue.

    `fault` is not empty where they cannot be looked at either: then nobody knows whether warnings come.
    """

    def __init__(self, calls: AwsCalls, clock: Clock) -> None:
        self._calls, self._clock = calls, clock
        self._ask_at = 0.0
        self._account = ""
        self.fault = ""
        self.is_well = False
        """Whether the last look found all rules."""

    def refresh(self, queue_url: str) -> None:
        """Look if it is time; `fault` says what is lost."""
        now = self._clock.now()
        if not queue_url or now < self._ask_at:
            return
        self._ask_at = now + PROBE_SECONDS
        try:
            self.fault = self._look(queue_url)
            self.is_well = not self.fault
        except CallFailed as error:
            self._ask_at, self.is_well = now + AGAIN_SECONDS, False
            self.fault = f"the rules that fill the queue of spot warnings cannot be read: {error}"

    def _look(self, queue_url: str) -> str:
        """Return which rules are missing or disabled; empty if none is.

        Raises:
            CallFailed: when EventBridge cannot be asked.
        """
        settings = self._calls.settings
        self._account = self._account or str(self._calls.call("sts:GetCallerIdentity")["Account"])
        target = queue_arn(settings, queue_url, self._account)
        names = list(self._calls.pages("events:ListRuleNamesByTarget", "RuleNames", TargetArn=target))
        rules = [self._calls.call("events:DescribeRule", Name=name) for name in names]
        lost = [
            SAID[about]
            for about, pattern in PATTERNS.items()
            if not any(
                rule.get("State") == "ENABLED" and lets_through(str(rule.get("EventPattern", "")), pattern)
                for rule in rules
            )
        ]
        if not lost:
            return ""
        return (
            f"no enabled rule of EventBridge sends the queue events of {' and of '.join(lost)}: "
            "`boa doctor` prints the command that mends it"
        )
