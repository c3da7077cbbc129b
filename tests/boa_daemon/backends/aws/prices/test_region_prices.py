"""`aws/prices/region_prices.py`: a type is rented at its region's price, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_rigs import AwsRig, RigMaker, a_launch

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.doctor.offers import OffersDoctor
from boa_daemon.backends.aws.prices.region_prices import catalog_of
from boa_daemon.backends.settings import AwsSettings, SidePrices
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.testing import ManualClock
from boa_daemon.testing.fake_terms import Terms

REGION = "sa-east-1"
SIDES = SidePrices(
    gp3_usd_per_gib_month=0.152, gp3_usd_per_mb_month=0.076, snapshot_usd_per_gb_month=0.068,
    address_usd_per_hour=0.005, nat_usd_per_hour=0.093, nat_usd_per_gb=0.093, s3_usd_per_gb_month=0.0405,
    s3_usd_per_1000_writes=0.007, sqs_usd_per_million=0.6, as_of="2026-11-01",
)  # fmt: skip


def a_rig_in(
    make_rig: RigMaker, *, denied: bool = True, prices: str = "", market: str = "on-demand"
) -> AwsRig:
    """Return a rig in sa-east-1; the Pricing API is denied, if so."""
    rig = make_rig(
        Terms(spot_fraction=0.4), region=REGION, zones=(), instance_types=("g5.xlarge",), side_prices=SIDES,
        market=market, prices=prices,
    )  # fmt: skip
    if denied:
        rig.fake.faults.plan("GetProducts", "error:AccessDeniedException", times=10**6)
    rig.cloud = AwsCloud(
        rig.settings, catalog=catalog_of(rig.settings), clock=rig.clock, calls=rig.cloud.calls,
        say=rig.said.append, sleep=lambda seconds: None,
    )  # fmt: skip
    return rig


def a_file(folder: Path, text: str) -> str:
    """Write a price file."""
    path = folder / "prices.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("market", ["on-demand", "spot", "spot-then-on-demand"])
def test_no_type_is_rented_at_the_price_of_another_region(make_rig: RigMaker, market: str) -> None:
    """Without a price of the region no offer has one, on any market, and the remedy is said."""
    rig = a_rig_in(make_rig, market=market)
    offers = rig.cloud.offers()

    assert offers
    assert [offer.usd_per_hour for offer in offers] == [None] * len(offers)
    assert rig.cloud.list_prices() == {}
    [said] = rig.said
    assert "g5.xlarge is not rented: its price in sa-east-1 is not known" in said
    assert "$1.006 is the price in us-east-1" in said
    assert "boa prices refresh prices.toml --region sa-east-1" in said
    assert '[cloud] prices = "prices.toml"' in said


def test_the_doctor_fails_on_a_region_without_prices(make_rig: RigMaker) -> None:
    """The check names the command."""
    rig = a_rig_in(make_rig)
    checks = {each.name: each for each in OffersDoctor(rig.cloud, Catalog.load(), rig.clock).prices()}

    assert checks["price g5.xlarge"].status == "failed"
    assert "boa prices refresh" in checks["price g5.xlarge"].fix


@pytest.mark.parametrize("market", ["on-demand", "spot"])
def test_a_price_file_of_the_region_is_the_explicit_statement(
    make_rig: RigMaker, tmp_path: Path, market: str
) -> None:
    """With it nodes are rented at the stated price, though the Pricing API is denied."""
    file = a_file(tmp_path, 'as_of = 2026-11-01\nregion = "sa-east-1"\n[prices]\n"g5.xlarge" = 1.611\n')
    rig = a_rig_in(make_rig, prices=file, market=market)
    offer = rig.cloud.offers()[0]

    assert rig.cloud.list_prices() == {"g5.xlarge": 1.611}
    assert offer.compute_usd_per_hour == pytest.approx(1.611 if market == "on-demand" else 0.4 * 1.006)
    assert rig.cloud.launch(a_launch(offer))
    assert rig.said == []


def test_a_price_file_without_a_region_is_of_us_east_1(make_rig: RigMaker, tmp_path: Path) -> None:
    """A file that does not say its region prices nothing elsewhere."""
    rig = a_rig_in(make_rig, prices=a_file(tmp_path, '[prices]\n"g5.xlarge" = 1.611\n'))

    assert rig.cloud.offers()[0].usd_per_hour is None
    assert "for no stated region" in rig.said[0]


def test_a_price_file_of_another_region_is_refused_with_the_command(tmp_path: Path) -> None:
    """The error names file, line, both regions and what to type."""
    file = a_file(tmp_path, 'region = "eu-west-1"\n[prices]\n"g5.xlarge" = 1.1\n')
    with pytest.raises(InputError, match=r"prices\.toml:1: prices of eu-west-1, but .* sa-east-1") as caught:
        catalog_of(AwsSettings(region=REGION, prices=file))

    assert f"boa prices refresh {file} --region sa-east-1" in caught.value.hint


def test_the_live_price_of_the_region_wins(make_rig: RigMaker) -> None:
    """Where the Pricing API answers, nothing else is needed."""
    rig = a_rig_in(make_rig, denied=False)

    assert rig.cloud.offers()[0].usd_per_hour is not None
    assert rig.said == []


def test_the_home_region_has_the_catalogue(make_rig: RigMaker) -> None:
    """In us-east-1 the shipped prices are the region's own."""
    rig = make_rig(Terms(), instance_types=("g5.xlarge",))
    rig.fake.faults.plan("GetProducts", "error:AccessDeniedException", times=10**6)

    assert rig.cloud.list_prices() == {"g5.xlarge": 1.006}


def test_a_price_that_comes_later_opens_the_offers(make_rig: RigMaker) -> None:
    """The Pricing API is asked again: nobody restarts anything once it is allowed."""
    rig = a_rig_in(make_rig)
    assert rig.cloud.offers()[0].usd_per_hour is None
    rig.fake.faults.planned.clear()
    assert isinstance(rig.clock, ManualClock)
    rig.pass_time(601.0)

    assert rig.cloud.offers()[0].usd_per_hour is not None
