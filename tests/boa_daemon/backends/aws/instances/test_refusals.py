"""`aws/instances/refusals.py`: which offers a refusal closes, and how long a throttled launch rests."""

from __future__ import annotations

import pytest
from aws_rigs import AwsRig

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.refusals import refusal_of
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Refused


class Market:
    """Three types, of which two count against one quota."""

    class settings:  # noqa: N801 - an attribute of the market
        instance_types = ("g5.xlarge", "g5.2xlarge", "p4d.24xlarge")

    def __init__(self) -> None:
        self.learnt: list[tuple[str, int | None]] = []

    def quota_code(self, name: str, market: str) -> str:
        """Return the quota of a type on a market."""
        return f"{name[0]}-{market}" if name in self.settings.instance_types else "other"

    def learn_quota(self, code: str, vcpus: int | None) -> None:
        """Note a quota."""
        self.learnt.append((code, vcpus))


def refused(code: str, offer: Offer, market: object, message: str = "no", **others: float) -> Refused:
    """Return what EC2's error means for an offer."""
    error = CallFailed("ec2:RunInstances", code, message, **others)  # type: ignore[arg-type]
    answer = refusal_of(error, offer, market)  # type: ignore[arg-type]
    assert isinstance(answer, Refused)
    return answer


def test_a_quota_closes_the_types_that_count_against_it_and_no_others() -> None:
    """In all zones of the same market; the vCPUs that the refusal names are learnt."""
    market, offer = Market(), Offer(instance_type="g5.xlarge", zone="us-east-1a", market="spot")
    said = "You have requested more vCPU capacity than your current vCPU limit of 64 allows"
    found = refused("VcpuLimitExceeded", offer, market, said)
    assert (found.kind, set(found.scopes)) == ("quota", {"g5.xlarge/*/spot", "g5.2xlarge/*/spot"})
    assert market.learnt == [("g-spot", 64)]


def test_a_type_that_the_settings_no_longer_name_is_closed_by_itself() -> None:
    """No other type has its quota."""
    offer = Offer(instance_type="p3.2xlarge", zone="us-east-1a")
    assert refused("VcpuLimitExceeded", offer, Market()).scopes == ("p3.2xlarge/*/on-demand",)


@pytest.mark.parametrize(
    ("code", "zone", "scopes"),
    [
        ("InsufficientInstanceCapacity", "us-east-1a", ("g5.xlarge/us-east-1a/spot",)),
        ("InsufficientInstanceCapacity", "", ("g5.xlarge//spot",)),
        ("RequestLimitExceeded", "us-east-1a", ("*",)),
    ],
)
def test_a_scope_becomes_the_names_of_the_offers_that_it_closes(
    code: str, zone: str, scopes: tuple[str, ...]
) -> None:
    """A market that is out of stock closes one offer; throttling closes the region."""
    offer = Offer(instance_type="g5.xlarge", zone=zone, market="spot")
    assert refused(code, offer, Market()).scopes == scopes


def test_a_throttled_launch_rests_as_long_as_ec2_says_or_else_between_one_and_two_times_the_usual() -> None:
    """Different daemons at different times, one daemon always as long."""
    offers = [Offer(instance_type="g5.xlarge", zone=f"us-east-1{zone}") for zone in "abcdefgh"]
    usual = [refused("RequestLimitExceeded", each, Market()).retry_after_seconds or 0.0 for each in offers]
    again = [refused("RequestLimitExceeded", each, Market()).retry_after_seconds or 0.0 for each in offers]
    assert usual == again
    assert len(set(usual)) == len(usual)
    assert max(usual) <= 2.0 * min(usual)
    told = refused("RequestLimitExceeded", offers[0], Market(), retry_after_seconds=0.4)
    assert told.retry_after_seconds == 0.4


def test_the_real_market_groups_types_by_their_quotas(rig: AwsRig) -> None:
    """As the catalogue has them: the offer's own type is always among those that are closed."""
    offer = rig.offer()
    found = refused("VcpuLimitExceeded", offer, rig.cloud.market)
    assert f"{offer.instance_type}/*/{offer.market}" in found.scopes
