"""A probe of what fills the queue of warnings: without rules and policy it stays empty, and looks well."""

from __future__ import annotations

from urllib.parse import urlsplit

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.resource_names import domain_of, queue_arn
from boa_daemon.backends.aws.instances.event_rules import PATTERNS, SAID, lets_through
from boa_daemon.backends.aws.instances.queue_senders import why_events_cannot_send
from boa_daemon.tick.facts.ports import Clock

PROBE_SECONDS, AGAIN_SECONDS = 170.0, 50.0
"""Seconds between looks, and after one that failed."""


class EventRuleProbe:
    """Looks every few minutes whether EventBridge still sends our events to the queue, and may.

    `fault` is not empty where they cannot be looked at either: then nobody knows whether warnings come.
    """

    def __init__(self, calls: AwsCalls, clock: Clock) -> None:
        self._calls, self._clock = calls, clock
        self._ask_at = 0.0
        self._account = ""
        self._had_policy = False
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
            what = "queue" if error.operation.startswith("sqs:") else "rules that fill the queue"
            self.fault = f"the {what} of spot warnings cannot be read: {error}"

    def _look(self, queue_url: str) -> str:
        """Return which rules are missing or disabled, or why the queue does not take events; else empty.

        Raises:
            CallFailed: when EventBridge or the queue cannot be asked.
        """
        settings = self._calls.settings
        self._account = self._account or str(self._calls.call("sts:GetCallerIdentity")["Account"])
        target = queue_arn(settings, queue_url, self._account)
        names = list(self._calls.pages("events:ListRuleNamesByTarget", "RuleNames", TargetArn=target))
        rules = [self._calls.call("events:DescribeRule", Name=name) for name in names]
        fitting = {
            about: [
                str(rule.get("Arn"))
                for rule in rules
                if rule.get("State") == "ENABLED" and lets_through(str(rule.get("EventPattern", "")), pattern)
            ]
            for about, pattern in PATTERNS.items()
        }
        lost = [SAID[about] for about, found in fitting.items() if not found]
        if lost:
            return (
                f"no enabled rule of EventBridge sends the queue events of {' and of '.join(lost)}: "
                "`boa doctor` prints the command that mends it"
            )
        answer = self._calls.call(
            "sqs:GetQueueAttributes", QueueUrl=queue_url, AttributeNames=["Policy", "KmsMasterKeyId"]
        )
        attributes = answer.get("Attributes", {})
        self._had_policy |= bool(attributes.get("Policy"))
        if not (attributes.get("Policy") or self._had_policy or _is_of_aws(queue_url, settings.region)):
            # A stand-in for SQS may know no policies; with AWS a queue without one takes no events.
            return ""
        for about, arns in fitting.items():
            whys = [why_events_cannot_send(attributes, queue=target, rule=arn) for arn in arns]
            if all(whys):
                return (
                    f"{whys[0]}: no events of {SAID[about]} arrive. `boa doctor` prints the policy that it "
                    "should have"
                )
        return ""


def _is_of_aws(queue_url: str, region: str) -> bool:
    return (urlsplit(queue_url).hostname or "").endswith(domain_of(region))
