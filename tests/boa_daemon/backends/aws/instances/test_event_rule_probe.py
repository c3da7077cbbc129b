"""`aws/instances/event_rule_probe.py`: whether the queue of warnings still gets our events."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from ec2_rows import Answers, failed

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.instances.event_rule_probe import AGAIN_SECONDS, PROBE_SECONDS, EventRuleProbe
from boa_daemon.backends.aws.instances.event_rules import PATTERNS
from boa_daemon.testing import ManualClock

URL = "https://sqs.us-east-1.amazonaws.com/123456789012/boa-warnings"
QUEUE = "arn:aws:sqs:us-east-1:123456789012:boa-warnings"
ALLOW = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage"}
OPEN = json.dumps({"Statement": [ALLOW]})


class Site:
    """A queue with two rules, and a probe that looks at them."""

    def __init__(self, *, policy: str = OPEN) -> None:
        self.rules: dict[str, dict[str, Any]] = {
            name: {"State": "ENABLED", "EventPattern": json.dumps(pattern), "Arn": f"arn:{name}"}
            for name, pattern in PATTERNS.items()
        }
        self.clock, self.policy = ManualClock(1000.0), policy
        self.calls = Answers(
            GetCallerIdentity={"Account": "123456789012"},
            ListRuleNamesByTarget=lambda TargetArn: [*self.rules] if TargetArn == QUEUE else [],  # noqa: N803
            DescribeRule=lambda Name: self.rules[Name],  # noqa: N803
            GetQueueAttributes=lambda **_: {"Attributes": {"Policy": self.policy} if self.policy else {}},
        )
        self.probe = EventRuleProbe(cast(AwsCalls, self.calls), self.clock)

    def fault(self, url: str = URL, *, after: float = PROBE_SECONDS) -> str:
        """Return what the next look says."""
        self.clock.instant += after
        self.probe.refresh(url)
        return self.probe.fault


def test_rules_that_send_everything_to_an_open_queue_are_well() -> None:
    """One rule may send both kinds; without a queue nothing is asked."""
    site = Site()
    assert (site.fault(), site.probe.is_well) == ("", True)
    site.rules = {"all": {"State": "ENABLED", "EventPattern": '{"source": ["aws.ec2"]}', "Arn": "arn:all"}}
    assert site.fault() == ""
    bare = Site()
    assert (bare.fault(""), bare.calls.asked, bare.probe.is_well) == ("", [], False)


@pytest.mark.parametrize(
    ("about", "change", "lost"),
    [
        ("warnings", {"State": "DISABLED"}, "spot instances that are taken back"),
        ("ends", {"EventPattern": json.dumps(PATTERNS["warnings"])}, "instances that end"),
        ("ends", {"EventPattern": ""}, "instances that end"),
    ],
)
def test_a_rule_that_is_off_or_too_narrow_is_no_rule(about: str, change: dict[str, str], lost: str) -> None:
    """The sentence says which events are lost, and only those."""
    site = Site()
    site.rules[about] |= change
    said = site.fault()
    assert f"sends the queue events of {lost}: " in said
    assert not site.probe.is_well
    site.rules.clear()
    assert "taken back and of instances that end" in site.fault()


def test_a_queue_that_lets_none_of_the_rules_in_stays_empty() -> None:
    """One rule of several is enough; AWS's own queue without a policy takes no events."""
    only = [ALLOW | {"Condition": {"ArnEquals": {"aws:SourceArn": f"arn:{name}"}}} for name in PATTERNS]
    site = Site(policy=json.dumps({"Statement": only}))
    assert site.fault() == ""
    site.policy = json.dumps({"Statement": only[:1]})
    assert "no events of instances that end arrive" in site.fault()
    site.rules["more"] = site.rules["ends"] | {"Arn": "arn:warnings"}
    assert site.fault() == ""
    site.policy = ""
    assert "does not let EventBridge send to it" in site.fault()


def test_a_stand_in_that_knows_no_policies_is_well_until_it_has_had_one() -> None:
    """A policy that was taken away is a fault anywhere."""
    here = "http://127.0.0.1:5000/123456789012/boa-warnings"
    site = Site(policy="")
    assert site.fault(here) == ""
    site.policy = OPEN
    assert site.fault(here) == ""
    for _ in range(2):
        site.policy = ""
        assert "does not let EventBridge send" in site.fault(here)


def test_it_looks_every_few_minutes_and_sooner_after_a_failure() -> None:
    """A question that fails says which part cannot be read."""
    site = Site()
    site.fault()
    asked = len(site.calls.asked)
    site.fault(after=PROBE_SECONDS - 0.1)
    assert len(site.calls.asked) == asked
    site.calls.operations["GetQueueAttributes"] = failed("sqs:GetQueueAttributes", "AccessDenied")
    assert site.fault(after=0.1).startswith("the queue of spot warnings cannot be read: ")
    assert not site.probe.is_well
    site.calls.operations["DescribeRule"] = failed("events:DescribeRule", "AccessDenied")
    assert site.fault(after=AGAIN_SECONDS).startswith("the rules that fill the queue of spot warnings")
    assert [operation for operation, _ in site.calls.asked].count("sts:GetCallerIdentity") == 1
