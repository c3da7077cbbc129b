"""`aws/instances/market.py`: live prices and quotas, their age, and the fallback when AWS does not answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_rigs import AwsRig, RigMaker, a_launch, ends
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

from boa_daemon.backends.aws.prices.region_prices import catalog_of
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.ports import Launched

ON_DEMAND_G = "L-DB2E81BA"


def test_the_price_of_an_offer_comes_from_the_live_price_list(make_rig: RigMaker) -> None:
    """Its age is zero right after the question."""
    rig = make_rig(Terms(list_prices={"g5.xlarge": 0.5}))

    assert rig.offer().compute_usd_per_hour == pytest.approx(0.5)
    assert rig.cloud.market.ages()["price g5.xlarge"] == 0.0


def test_a_denied_price_list_falls_back_to_the_catalogue(rig: AwsRig) -> None:
    """The catalogue's price has no age."""
    rig.fake.faults.plan("GetProducts", "error:AccessDeniedException", times=99)

    assert rig.offer().compute_usd_per_hour == pytest.approx(Catalog.load().price_of("g5.xlarge"))
    assert rig.cloud.market.ages()["price g5.xlarge"] is None


@pytest.mark.parametrize("zones", [(), ("us-east-1a", "us-east-1-atl-2a"), ("us-east-1-wl1-bos-wlz-1",)])
def test_nothing_is_rented_in_zones_with_prices_of_their_own(
    make_rig: RigMaker, monkeypatch: pytest.MonkeyPatch, zones: tuple[str, ...]
) -> None:
    """A Local Zone costs more than its region, and the caps would not know; one in the settings is told."""
    far = ("us-east-1-atl-2a", "us-east-1-wl1-bos-wlz-1")
    plain = ("us-east-1a", "us-east-1b")
    rows = [{"InstanceType": "g5.xlarge", "Location": zone} for zone in (*plain, *far)]
    monkeypatch.setitem(INSTANCE_TYPE_OFFERINGS["availability-zone"], "us-east-1", rows)
    rig = make_rig(Terms(), zones=zones, instance_types=("g5.xlarge",))
    rig.cloud.refresh()

    assert {offer.zone for offer in rig.cloud.offers()} == set(zones or plain) - set(far)
    assert {offer.zone for offer in rig.cloud.market.known_offers()} == set(zones or plain) - set(far)
    assert bool(rig.cloud.faults().get("zones")) == bool(set(zones) & set(far))


def test_an_unknown_spot_price_is_none(make_rig: RigMaker) -> None:
    """The offer has no price instead of a price of zero."""
    rig = make_rig(Terms(), market="spot")

    assert rig.offer(market="spot").usd_per_hour is None


def test_nodes_left_is_the_free_quota_divided_by_the_vcpus_of_a_node(make_rig: RigMaker) -> None:
    """The vCPUs of BOA's own nodes are subtracted."""
    rig = make_rig(Terms(vcpu_quotas={ON_DEMAND_G: 12}))
    assert rig.offer().nodes_left == 3
    rig.cloud.launch(a_launch(rig.offer(), 2))
    rig.cloud.nodes()

    assert rig.offer().nodes_left == 1


def test_a_quota_of_zero_leaves_no_node_and_an_unknown_quota_leaves_none(make_rig: RigMaker) -> None:
    """New accounts have a quota of zero; a quota that cannot be read gives `nodes_left` None."""
    rig = make_rig(Terms(vcpu_quotas={ON_DEMAND_G: 0}))

    assert rig.offer().nodes_left == 0
    assert rig.offer("p4d.24xlarge").nodes_left is None


def test_offers_are_cached_between_ticks(rig: AwsRig) -> None:
    """A second listing of offers 30 s later makes no call."""
    rig.cloud.offers()
    before = sum(rig.cloud.calls.counts.values())
    rig.pass_time(30.0)
    rig.cloud.offers()

    assert sum(rig.cloud.calls.counts.values()) == before


def test_spot_then_on_demand_offers_both_markets_in_the_zones_of_the_settings(make_rig: RigMaker) -> None:
    """Each type is offered once per market in the one zone."""
    rig = make_rig(Terms(), market="spot-then-on-demand", zones=("us-east-1b",))
    offers = [offer for offer in rig.cloud.offers() if offer.instance_type == "g5.xlarge"]

    assert {(offer.zone, offer.market) for offer in offers} == {
        ("us-east-1b", "spot"),
        ("us-east-1b", "on-demand"),
    }


def test_a_denied_zone_listing_stops_launches_and_is_reported(rig: AwsRig) -> None:
    """Offers have no nodes left; nodes are still listed."""
    rig.fake.faults.plan("DescribeInstanceTypeOfferings", "error:UnauthorizedOperation", times=99)

    assert {offer.usd_per_hour for offer in rig.cloud.offers()} == {None}
    assert "nothing can be rented now" in rig.said[0]
    assert list(rig.cloud.nodes()) == []


def test_only_a_refresh_asks_for_new_prices_and_quotas(make_rig: RigMaker) -> None:
    """After the first refresh, offers use the known price however old it is."""
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


def test_a_failed_refresh_keeps_the_known_price(make_rig: RigMaker) -> None:
    """The age of the price goes on growing."""
    rig = make_rig(Terms(list_prices={"g5.xlarge": 0.5}))
    rig.cloud.market.refresh()
    rig.fake.faults.plan("GetProducts", "error:InternalError", times=99)
    rig.pass_time(24 * 3600.0)
    rig.cloud.market.refresh()
    assert rig.offer().compute_usd_per_hour == pytest.approx(0.5)
    assert rig.cloud.market.ages()["price g5.xlarge"] == 24 * 3600.0


def test_a_second_refresh_a_minute_later_makes_no_call(make_rig: RigMaker) -> None:
    """A refresh leaves prices and quotas alone that are young."""
    rig = make_rig(Terms())
    rig.cloud.market.refresh()
    before = sum(rig.cloud.calls.counts.values())
    rig.pass_time(60.0)
    rig.cloud.market.refresh()
    assert sum(rig.cloud.calls.counts.values()) == before


def test_the_history_of_spot_prices_is_as_short_as_our_nodes_are_young(make_rig: RigMaker) -> None:
    """A node of many hours has it asked for since its launch; once it is gone, an hour is enough again."""
    rig = make_rig(Terms(boot_seconds=1.0, shutdown_seconds=1.0, spot_fraction=0.4), market="spot")
    asked: list[float] = []
    real = rig.cloud.calls._call_once

    def once(operation: str, region: str, arguments: Any) -> Any:
        if operation == "ec2:DescribeSpotPriceHistory":
            asked.append(rig.clock.now() - arguments["StartTime"].timestamp())
        return real(operation, region, arguments)

    rig.cloud.calls._call_once = once  # type: ignore[method-assign]
    outcome = rig.cloud.launch(a_launch(rig.offer(market="spot")))
    assert isinstance(outcome, Launched)
    for _ in range(3):
        rig.pass_time(4 * 3600.0)
        rig.cloud.nodes()
    assert asked[-1] == pytest.approx(12 * 3600.0, abs=2.0)
    rig.cloud.terminate(ends(*outcome.nodes))
    for _ in range(3):
        rig.pass_time(3600.0)
        rig.cloud.nodes()
        rig.cloud.offers()
        rig.cloud.bills_are_right(rig.cloud.lately_priced())
    assert asked[-1] == pytest.approx(3600.0, abs=2.0)


def test_a_price_file_that_somebody_edits_is_read_again(make_rig: RigMaker, tmp_path: Path) -> None:
    """Without the Pricing API its prices hold a minute later; a damaged one changes none, and is told."""
    file = tmp_path / "prices.toml"

    def write(text: str) -> None:
        file.write_text(text)
        rig.pass_time(60.0)
        rig.cloud.refresh()

    listed = 'as_of = 2026-11-01\nregion = "us-east-1"\ncurrency = "USD"\n[prices]\n"g5.xlarge" = {}\n'
    file.write_text(listed.format(1.5))
    rig = make_rig(prices=str(file))
    rig.cloud.market._catalog = catalog_of(rig.settings).in_region("us-east-1")
    rig.fake.faults.plan("GetProducts", "error:AccessDeniedException", times=999)
    rig.cloud.refresh()
    assert rig.offer().compute_usd_per_hour == pytest.approx(1.5)
    write(listed.format(2.5))
    assert rig.offer().compute_usd_per_hour == pytest.approx(2.5)
    for bad in (listed.format("2,5"), listed[:40], listed.format(9.0).replace("us-east-1", "eu-west-1")):
        write(bad)
        assert rig.offer().compute_usd_per_hour == pytest.approx(2.5)
        assert "prices.toml" in rig.cloud.nets()["price file"]()
    write(listed.format(0.5))
    assert rig.offer().compute_usd_per_hour == pytest.approx(2.5)
    assert "boa config apply --yes" in rig.cloud.nets()["price file"]()
    rig.cloud.ask_anew()
    rig.cloud.refresh()
    assert rig.offer().compute_usd_per_hour == pytest.approx(2.5), "a reload alone is no consent"
    rig.cloud.use(rig.settings)
    rig.cloud.refresh()
    assert rig.offer().compute_usd_per_hour == pytest.approx(0.5)
    assert any("was changed: g5.xlarge $0.50/hour, was $2.50" in said for _, said in rig.cloud.news())
    rig.cloud.use(rig.settings)
    rig.cloud.refresh()
    write(listed.format(0.25))
    assert rig.offer().compute_usd_per_hour == pytest.approx(0.5), "the consent was to another file"
    kept = file.rename(tmp_path / "away.toml")
    rig.cloud.refresh()
    assert "prices.toml" in rig.cloud.nets()["price file"]()
    kept.rename(file)
    write(listed.format(3.5))
    assert rig.offer().compute_usd_per_hour == pytest.approx(3.5)
    assert rig.cloud.nets()["price file"]() == ""
    kept = file.rename(kept)
    rig.cloud.refresh()
    assert "prices.toml" in rig.cloud.nets()["price file"]()
    kept.rename(file)
    rig.cloud.refresh()
    assert rig.offer().compute_usd_per_hour == pytest.approx(3.5)
    assert rig.cloud.nets()["price file"]() == ""
