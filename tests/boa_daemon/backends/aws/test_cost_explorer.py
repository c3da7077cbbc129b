"""`aws/cost_explorer.py`: the days of Cost Explorer beside those of the ledger, and what counts as drift."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, cast

import pytest
from ec2_rows import Answers

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.cost_explorer import (
    NoCostData,
    check_known,
    compare_days,
    explorer_days,
    kind_of,
)

EC2, OTHER = "Amazon Elastic Compute Cloud - Compute", "EC2 - Other"
FIRST, TODAY = date(2027, 3, 1), date(2027, 3, 5)
NOW = datetime(2027, 3, 5, 13, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("service", "usage", "kind"),
    [
        (EC2, "BoxUsage:p4d.24xlarge", "compute"),
        (EC2, "USW2-SpotUsage:g5.xlarge", "compute"),
        (EC2, "USE1-DataTransfer-Out-Bytes", "transfer"),
        (EC2, "USE1-USW2-AWS-Out-Bytes", "transfer"),
        (OTHER, "EBS:VolumeUsage.gp3", "disk"),
        (OTHER, "USW2-EBS:SnapshotUsage", "images"),
        (OTHER, "NatGateway-Hours", "gateway"),
        (OTHER, "NatGateway-Bytes", "transfer"),
        ("Amazon Virtual Private Cloud", "PublicIPv4:InUseAddress", "address"),
        ("Amazon Simple Storage Service", "TimedStorage-ByteHrs", "storage"),
        ("Amazon Simple Storage Service", "Requests-Tier1", "requests"),
        ("Amazon Simple Queue Service", "Requests-Tier1", "requests"),
        (OTHER, "SomethingNew", "other"),
    ],
)
def test_a_usage_type_is_of_one_kind(service: str, usage: str, kind: str) -> None:
    """What EC2 itself bills is compute, except for transfer."""
    assert kind_of(service, usage) == kind


def a_group(service: str, usage: str, usd: float, unit: str = "USD") -> dict[str, Any]:
    """Return a group of an answer."""
    return {"Keys": [service, usage], "Metrics": {"UnblendedCost": {"Amount": str(usd), "Unit": unit}}}


def a_day(day: date, *groups: dict[str, Any]) -> dict[str, Any]:
    """Return a day of an answer."""
    return {"TimePeriod": {"Start": day.isoformat()}, "Groups": [*groups]}


def asked(*pages: dict[str, Any]) -> tuple[dict[date, dict[str, float]], list[dict[str, Any]]]:
    """Return the days, and the questions that were asked."""
    left = list(pages)
    calls = Answers(GetCostAndUsage=lambda **_: left.pop(0))
    days = explorer_days(cast(AwsCalls, calls), "lab", FIRST, TODAY)
    return days, [dict(question) for _, question in calls.asked]


def test_the_days_of_all_pages_add_up_by_kind() -> None:
    """A day without any group cost nothing; one that is not in the answer is unknown."""
    days, questions = asked(
        {
            "ResultsByTime": [
                a_day(FIRST, a_group(EC2, "BoxUsage:a", 2.0), a_group(EC2, "SpotUsage:b", 3.0)),
                a_day(date(2027, 3, 2)),
            ],
            "NextPageToken": "more",
        },
        {
            "ResultsByTime": [
                a_day(FIRST, a_group(EC2, "BoxUsage:c", 1.5), a_group(OTHER, "EBS:VolumeUsage", 0.5))
            ]
        },
    )
    assert days == {FIRST: {"compute": 6.5, "disk": 0.5}, date(2027, 3, 2): {"compute": 0.0}}
    assert questions[1]["NextPageToken"] == "more"


def test_the_question_is_about_our_tags_and_what_was_used_including_today() -> None:
    """Its end is exclusive; credits, refunds and taxes are nothing that a node costs."""
    (question,) = asked({"ResultsByTime": []})[1]
    assert question["TimePeriod"] == {"Start": "2027-03-01", "End": "2027-03-06"}
    tags, services, never = question["Filter"]["And"]
    assert {each["Tags"]["Key"] for each in tags["Or"]} == {"boa:cluster", "boa:stack", "boa:image"}
    assert all(each["Tags"]["Values"] == ["lab"] for each in tags["Or"])
    assert {EC2, OTHER} < {*services["Dimensions"]["Values"]}
    assert set(never["Not"]["Dimensions"]["Values"]) == {"Credit", "Refund", "Tax"}


def test_another_currency_or_an_answer_that_cannot_be_read_is_an_error() -> None:
    """It is never taken for dollars, or for nothing."""
    with pytest.raises(NoCostData, match="answers in EUR"):
        asked({"ResultsByTime": [a_day(FIRST, a_group(EC2, "BoxUsage", 1.0, "EUR"))]})
    with pytest.raises(CallFailed):
        asked({})


def test_each_day_from_the_first_to_today_has_its_state() -> None:
    """Today and yesterday are never final; a day without an answer is not zero."""
    ledger = {FIRST: 100.0, date(2027, 3, 2): 100.0, date(2027, 3, 3): 100.0, date(2027, 3, 4): 100.0}
    explorer = {FIRST: 97.9, date(2027, 3, 2): 102.0, date(2027, 3, 4): 0.0}
    days = compare_days(ledger, explorer, first=FIRST, now=NOW)
    assert [day.day.day for day in days] == [1, 2, 3, 4, 5]
    assert [day.note for day in days] == ["drift", "", "no data", "not final", "not final"]
    assert [day.is_drift for day in days] == [True, False, False, False, False]
    assert [day.difference_usd for day in days][1:4] == [2.0, None, -100.0]
    (late,) = compare_days({TODAY: 5.0}, {}, first=TODAY, now=NOW)
    assert (late.ledger_usd, late.explorer_usd) == (5.0, None)


@pytest.mark.parametrize(
    ("ledger", "explorer", "is_drift"),
    [(0.0, 0.05, False), (0.0, 0.051, True), (1.0, 0.951, False), (1.0, 0.94, True), (50.0, 51.1, True)],
)
def test_drift_is_above_a_fraction_and_above_some_cents(
    ledger: float, explorer: float, is_drift: bool
) -> None:
    """In both directions: money that the ledger lacks, and money that nobody billed."""
    days = compare_days({FIRST: ledger}, {FIRST: explorer}, first=FIRST, now=NOW)
    assert days[0].is_drift == is_drift


def test_zeros_on_every_day_that_cost_something_mean_that_the_tag_is_not_active() -> None:
    """One day with any cost proves that it is; days that are not final, or cost nothing, prove nothing."""

    def check(ledger: dict[date, float], explorer: dict[date, float]) -> None:
        check_known(compare_days(ledger, explorer, first=FIRST, now=NOW), "lab")

    with pytest.raises(NoCostData, match=r"boa:cluster=lab, and the ledger has \$15.* on 2 days") as error:
        check({FIRST: 10.0, date(2027, 3, 2): 5.0, TODAY: 7.0}, {FIRST: 0.0})
    assert "Activate boa:cluster" in str(error.value)
    check({FIRST: 10.0, date(2027, 3, 2): 5.0}, {date(2027, 3, 2): 4.0})
    check({TODAY: 10.0}, {})
    check({FIRST: 0.04}, {})
    check({}, {})
