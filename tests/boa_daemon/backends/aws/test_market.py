"""`backends/aws/market.py`: live prices and quotas, their age, and what is said when they cannot be had."""

from __future__ import annotations

import pytest
from aws_rigs import AwsRig, RigMaker, a_launch

from boa_daemon.inputs.catalog import Catalog
from boa_daemon.testing.fake_terms import Terms

ON_DEMAND_G = "L-DB2E81BA"


def test_prices_are_live(make_rig: RigMaker) -> None:
    """What the price list says today, not what the catalogue says."""
    rig = make_rig(Terms(list_prices={"g5.xlarge": 0.5}))

    assert rig.offer().compute_usd_per_hour == pytest.approx(0.5)
    assert rig.cloud.market.ages()["price g5.xlarge"] == 0.0


def test_without_the_price_list_the_catalogue_holds(rig: AwsRig) -> None:
    """Dated, and never zero."""
    rig.fake.faults.plan("GetProducts", "error:AccessDeniedException", times=99)

    assert rig.offer().compute_usd_per_hour == pytest.approx(Catalog.load().price_of("g5.xlarge"))
    assert rig.cloud.market.ages()["price g5.xlarge"] is None


def test_an_unknown_spot_price_is_not_zero(make_rig: RigMaker) -> None:
    """It is None, and such offers come last."""
    rig = make_rig(Terms(), market="spot")

    assert rig.offer(market="spot").usd_per_hour is None


def test_quotas_leave_room_for_so_many(make_rig: RigMaker) -> None:
    """vCPUs of the quota less those of our nodes, by the vCPUs of one."""
    rig = make_rig(Terms(vcpu_quotas={ON_DEMAND_G: 12}))
    assert rig.offer().nodes_left == 3
    rig.cloud.launch(a_launch(rig.offer(), 2))
    rig.cloud.nodes()

    assert rig.offer().nodes_left == 1


def test_a_quota_of_zero_is_no_node_and_an_unknown_one_is_unknown(make_rig: RigMaker) -> None:
    """Zero is what new accounts have; a failed question is not zero."""
    rig = make_rig(Terms(vcpu_quotas={ON_DEMAND_G: 0}))

    assert rig.offer().nodes_left == 0
    assert rig.offer("p4d.24xlarge").nodes_left is None


def test_facts_are_asked_for_rarely(rig: AwsRig) -> None:
    """A tick a second later asks nothing."""
    rig.cloud.offers()
    before = sum(rig.cloud.calls.counts.values())
    rig.pass_time(30.0)
    rig.cloud.offers()

    assert sum(rig.cloud.calls.counts.values()) == before


def test_both_markets_are_offered_and_zones_kept(make_rig: RigMaker) -> None:
    """Spot then on demand: the planner takes the cheaper of the two."""
    rig = make_rig(Terms(), market="spot-then-on-demand", zones=("us-east-1b",))
    offers = [offer for offer in rig.cloud.offers() if offer.instance_type == "g5.xlarge"]

    assert {(offer.zone, offer.market) for offer in offers} == {
        ("us-east-1b", "spot"),
        ("us-east-1b", "on-demand"),
    }


def test_without_zones_nothing_is_offered_and_somebody_hears(rig: AwsRig) -> None:
    """A denied question stops launching; the listing goes on."""
    rig.fake.faults.plan("DescribeInstanceTypeOfferings", "error:UnauthorizedOperation", times=99)

    assert {offer.nodes_left for offer in rig.cloud.offers()} == {0}
    assert "nothing can be rented now" in rig.said[0]
    assert list(rig.cloud.nodes()) == []


def test_after_a_refresh_nothing_else_asks(make_rig: RigMaker) -> None:
    """A tick uses prices and quotas as they are, however old; the refresh asks for new ones."""
    rig = make_rig(Terms(list_prices={"g5.xlarge": 0.5}))
    rig.cloud.market.refresh()
    rig.fake.terms.list_prices["g5.xlarge"] = 0.7
    rig.pass_time(13 * 3600.0)
    before = (
        rig.cloud.calls.counts["pricing:GetProducts"],
        rig.cloud.calls.counts["servicequotas:GetServiceQuota"],
    )
    assert rig.offer().compute_usd_per_hour == pytest.approx(0.5)
    after = (
        rig.cloud.calls.counts["pricing:GetProducts"],
        rig.cloud.calls.counts["servicequotas:GetServiceQuota"],
    )
    assert after == before
    assert rig.cloud.market.ages()["price g5.xlarge"] == 13 * 3600.0
    rig.cloud.market.refresh()
    assert rig.offer().compute_usd_per_hour == pytest.approx(0.7)
    assert rig.cloud.market.ages()["price g5.xlarge"] == 0.0


def test_a_refresh_that_fails_leaves_what_was_known(make_rig: RigMaker) -> None:
    """Stale is better than nothing, and its age says so."""
    rig = make_rig(Terms(list_prices={"g5.xlarge": 0.5}))
    rig.cloud.market.refresh()
    rig.fake.faults.plan("GetProducts", "error:InternalError", times=99)
    rig.pass_time(24 * 3600.0)
    rig.cloud.market.refresh()
    assert rig.offer().compute_usd_per_hour == pytest.approx(0.5)
    assert rig.cloud.market.ages()["price g5.xlarge"] == 24 * 3600.0


def test_a_refresh_leaves_alone_what_is_young(make_rig: RigMaker) -> None:
    """A second one a minute later asks nothing."""
    rig = make_rig(Terms())
    rig.cloud.market.refresh()
    before = sum(rig.cloud.calls.counts.values())
    rig.pass_time(60.0)
    rig.cloud.market.refresh()
    assert sum(rig.cloud.calls.counts.values()) == before
