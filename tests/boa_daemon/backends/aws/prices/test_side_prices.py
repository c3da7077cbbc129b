"""`aws/prices/side_prices.py`: prices besides compute are those of the region, never of another region."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_rigs import CATALOG, RigMaker, a_launch
from verbs import exit_code

from boa_daemon.backends.aws.doctor.offers import OffersDoctor
from boa_daemon.backends.aws.prices.extra_costs import extras_of
from boa_daemon.backends.aws.prices.side_prices import QUESTIONS, ask_side_prices, side_prices
from boa_daemon.backends.aws.stack.settings import StackOptions
from boa_daemon.backends.aws.stack.template import monthly_costs
from boa_daemon.backends.settings import AwsSettings, SidePrices
from boa_daemon.cli.common.toml_keys import write_keys
from boa_daemon.daemon.settings.setting_layers import load_aws_settings
from boa_daemon.errors import USAGE, InputError, MissingPrice
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.ports import Refused

HOME = side_prices(AwsSettings())
IRELAND = {name: float(f"{1.25 * getattr(HOME, name):.10g}") for name in QUESTIONS}


def test_a_region_outside_the_catalogue_raises_missing_price() -> None:
    settings = AwsSettings(region="eu-west-1", instance_types=("g5.xlarge",))
    with pytest.raises(MissingPrice, match=r"eu-west-1 is not known.*boa prices --beside --region eu-west-1"):
        extras_of(settings)


def test_side_prices_in_the_settings_override_the_catalogue() -> None:
    dear = SidePrices(**IRELAND, as_of="2026-11-01")
    settings = AwsSettings(region="eu-west-1", side_prices=dear, volume_gib=100, instance_profile="p")
    plain = AwsSettings(volume_gib=100, instance_profile="p")
    for (kind, there), (same, here) in zip(extras_of(settings), extras_of(plain), strict=True):
        assert kind == same
        assert there == pytest.approx(1.25 * here, abs=2e-6)
    private = StackOptions(private_zones=("eu-west-1a",))
    assert sum(usd for _, usd, _ in monthly_costs(private, dear)) == pytest.approx(
        1.25 * sum(usd for _, usd, _ in monthly_costs(private, HOME))
    )


def test_every_side_price_is_asked_for_and_read(make_rig: RigMaker) -> None:
    rig = make_rig(Terms(side_prices={"eu-west-1": IRELAND}))
    found = ask_side_prices(rig.cloud.calls, "eu-west-1", as_of="2026-11-22")
    assert found.as_of == "2026-11-22"
    for name, usd in IRELAND.items():
        assert getattr(found, name) == pytest.approx(usd), name


def test_a_missing_side_price_is_named_in_the_error(make_rig: RigMaker) -> None:
    lacking = {name: usd for name, usd in IRELAND.items() if name != "nat_usd_per_gb"}
    rig = make_rig(Terms(side_prices={"eu-west-1": lacking}))
    with pytest.raises(InputError, match="no price for nat_usd_per_gb in eu-west-1"):
        ask_side_prices(rig.cloud.calls, "eu-west-1", as_of="2026-11-22")


def test_two_prices_for_the_same_item_are_an_error(
    make_rig: RigMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(Terms(side_prices={"eu-west-1": IRELAND}))
    calls, inner = rig.cloud.calls, rig.cloud.calls.call

    def doubled(operation: str, **arguments: Any) -> dict[str, Any]:
        answer = inner(operation, **arguments)
        if arguments["ServiceCode"] == "AmazonVPC":
            (one,) = answer["PriceList"]
            answer["PriceList"] = [one, one.replace("0.00625", "0.00725")]
        return answer

    monkeypatch.setattr(calls, "call", doubled)
    with pytest.raises(InputError, match=r"2 prices \(0.00625 to 0.00725\) for address_usd_per_hour"):
        ask_side_prices(calls, "eu-west-1", as_of="2026-11-22")


def test_side_prices_in_the_settings_file_price_the_launched_node(tmp_path: Path, make_rig: RigMaker) -> None:
    path = tmp_path / "boa.toml"
    path.write_text('[cloud]\nprovider = "aws"\ninstance_types = ["g5.xlarge"]\n')
    found = SidePrices(**IRELAND, transfer_usd_per_gb=0.02, as_of="2026-11-22", source="the AWS Pricing API")
    values = found.model_dump()
    write_keys(path, {"cloud": {"region": "eu-west-1", "side_prices": values}})
    settings = load_aws_settings(path)
    assert settings.side_prices is not None
    assert settings.side_prices.model_dump() == values
    rig = make_rig(region="eu-west-1", zones=("eu-west-1a",), side_prices=settings.side_prices)
    offer = next(each for each in rig.cloud.offers() if each.instance_type == "g5.xlarge")
    rig.cloud.launch(a_launch(offer))
    (life,) = rig.fake.history()
    assert life.tags["boa:extra-usd-per-hour"] == "disk=0.027397 address=0.006250"
    assert CATALOG.price_of("g5.xlarge") > 0


def test_without_side_prices_nothing_is_rented_and_the_doctor_names_the_command(make_rig: RigMaker) -> None:
    """No offer has a price, and even a launch that is ordered all the same is not sent to EC2."""
    rig = make_rig(region="eu-west-1", zones=("eu-west-1a",))
    offers = rig.cloud.offers()
    assert offers
    assert {each.usd_per_hour for each in offers} == {None}
    assert "boa prices --beside --region eu-west-1" in rig.said[0]
    refused = rig.cloud.launch(a_launch(offers[0]))
    assert isinstance(refused, Refused)
    assert (refused.kind, "boa prices --beside" in refused.reason) == ("no-price", True)
    assert rig.fake.faults.counts["RunInstances"] == 0
    assert list(rig.cloud.nodes()) == []
    (check,) = OffersDoctor(rig.cloud, CATALOG, rig.clock).prices()
    assert (check.name, check.status) == ("prices beside", "failed")
    assert "boa prices --beside --region eu-west-1" in check.fix


def test_boa_up_in_another_region_needs_boa_prices_beside_first(
    make_rig: RigMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_rig(Terms(side_prices={"eu-west-1": IRELAND}))
    monkeypatch.chdir(tmp_path)
    site = ("up", "--type", "g5.xlarge", "--region", "eu-west-1", "--private", "--json")
    assert exit_code(monkeypatch, *site, "--yes") == USAGE
    assert "boa prices --beside --region eu-west-1" in capsys.readouterr().err
    assert not (tmp_path / "boa.toml").exists()
    assert exit_code(monkeypatch, "prices", "--beside", "--region", "eu-west-1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["side_prices"]["nat_usd_per_gb"] == 0.05625
    assert exit_code(monkeypatch, *site) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["usd_per_month"] == pytest.approx(730 * 1.25 * 0.05, abs=0.01)
    assert document["nodes"][0]["disk_usd_per_hour"] == pytest.approx(200 * 0.1 / 730, abs=1e-4)
