"""What was paid: the cost of running instances over their hours, by type, region and market."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.cost_reports import read_costs
from boa_daemon.inputs.price_lists import PriceList

COLUMNS = (
    "lineItem/LineItemType", "lineItem/UsageType", "lineItem/UnblendedCost",
    "savingsPlan/SavingsPlanEffectiveCost", "reservation/EffectiveCost", "lineItem/UsageAmount",
    "product/regionCode", "product/operatingSystem", "lineItem/Operation", "lineItem/CurrencyCode",
    "lineItem/UsageStartDate",
)  # fmt: skip
ROW = {
    "lineItem/LineItemType": "Usage",
    "lineItem/UsageType": "USE1-BoxUsage:g5.xlarge",
    "lineItem/UnblendedCost": "3.0",
    "lineItem/UsageAmount": "2.0",
    "product/regionCode": "us-east-1",
    "product/operatingSystem": "Linux",
    "lineItem/Operation": "RunInstances",
    "lineItem/CurrencyCode": "USD",
    "lineItem/UsageStartDate": "2026-11-03T00:00:00Z",
}


def read(folder: Path, *changes: dict[str, str], as_of: str = "", without: str = "") -> PriceList:
    """Return what a report with these rows says, each given as its differences from `ROW`."""
    columns = [name for name in COLUMNS if name != without]
    rows = [",".join({**ROW, **change}.get(name, "") for name in columns) for change in changes]
    path = folder / "cur.csv"
    path.write_text("\n".join([",".join(columns), *rows]) + "\n")
    return read_costs(path, as_of=as_of)


def test_the_price_is_all_cost_over_all_hours(tmp_path: Path) -> None:
    """From the first day to the last, in any order; spot is a market of its own."""
    late = {"lineItem/UnblendedCost": "1.0", "lineItem/UsageStartDate": "2026-11-09T00:00:00Z"}
    early = {"lineItem/UnblendedCost": "2.0", "lineItem/UsageStartDate": "2026-11-01T00:00:00Z"}
    spot = {"lineItem/UsageType": "USE1-SpotUsage:g5.xlarge", "lineItem/UnblendedCost": "0.5"}
    found = read(tmp_path, {}, late, early, spot)
    assert [(one.market, one.usd_per_hour, one.as_of) for one in found.prices] == [
        ("on-demand", 1.0, "2026-11-09"),
        ("spot", 0.25, "2026-11-03"),
    ]
    assert "paid from 2026-11-01 to 2026-11-09 over 6 hours" in found.prices[0].source
    assert found.notes == ["these are means of what was paid, with discounts, not list prices"]
    assert read(tmp_path, {}, as_of="2026-12-01").prices[0].as_of == "2026-12-01"


def test_usage_that_a_plan_or_a_reservation_covers_costs_what_that_cost(tmp_path: Path) -> None:
    """Its unblended cost is what it would have cost."""
    plan = {"lineItem/LineItemType": "SavingsPlanCoveredUsage", "savingsPlan/SavingsPlanEffectiveCost": "1.0"}
    reserved = {"lineItem/LineItemType": "DiscountedUsage", "reservation/EffectiveCost": "0.5"}
    assert read(tmp_path, plan).prices[0].usd_per_hour == 0.5
    assert read(tmp_path, reserved).prices[0].usd_per_hour == 0.25
    with pytest.raises(InputError, match="a row of DiscountedUsage, and no column with its effective cost"):
        read(tmp_path, reserved, without="reservation/EffectiveCost")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lineItem/LineItemType": "Tax"}, "that are taxes, credits, fees or unused reservations"),
        (
            {"lineItem/LineItemType": "SavingsPlanNegation"},
            "that are taxes, credits, fees or unused reservations",
        ),
        ({"lineItem/UsageType": "USE1-EBS:VolumeUsage.gp3"}, "of other usage than running instances"),
        ({"lineItem/UsageType": "USE1-BoxUsage:z9.huge"}, "of types that the catalogue lacks"),
        ({"product/operatingSystem": "Windows"}, "of other systems"),
        ({"product/operatingSystem": "", "lineItem/Operation": "RunInstances:0002"}, "of other systems"),
        ({"lineItem/UnblendedCost": "0"}, "of types that cost nothing"),
    ],
)
def test_what_is_no_hour_of_a_running_linux_instance_is_left_out(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    """Each is counted with its reason."""
    found = read(tmp_path, change)
    assert found.prices == []
    assert found.left_out == {reason: 1}
    assert found.notes == []


@pytest.mark.parametrize("operation", ["RunInstances", "RunInstances:0000", "RunInstances:SV050", ""])
def test_linux_is_known_by_the_code_of_the_operation(tmp_path: Path, operation: str) -> None:
    """Where no column names the system."""
    row = {"product/operatingSystem": "", "lineItem/Operation": operation}
    assert len(read(tmp_path, row).prices) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lineItem/CurrencyCode": "EUR"}, "a cost in EUR: budgets and caps count USD"),
        ({"product/regionCode": ""}, "the region is empty"),
        ({"lineItem/UsageStartDate": "soon"}, "the start must be a time; got 'soon'"),
        ({"lineItem/UsageAmount": "many"}, "many"),
    ],
)
def test_a_damaged_row_is_refused_with_its_line(tmp_path: Path, change: dict[str, str], said: str) -> None:
    """The second row stands on line 3."""
    with pytest.raises(InputError, match=rf"cur\.csv:3: .*{said}"):
        read(tmp_path, {}, change)


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("lineItem/UsageAmount", "the hours"),
        ("lineItem/UsageStartDate", "the start"),
        (COLUMNS[0], "the kind"),
    ],
)
def test_a_report_without_a_column_is_refused(tmp_path: Path, without: str, said: str) -> None:
    """The error names the column as the reports do."""
    with pytest.raises(InputError, match=f"no column for {said}"):
        read(tmp_path, {}, without=without)


def test_focus_has_other_names_for_the_same(tmp_path: Path) -> None:
    """Its effective cost counts, and corrections of earlier bills do not."""
    head = (
        "ChargeCategory,x_UsageType,BilledCost,EffectiveCost,ConsumedQuantity,ConsumedUnit,PricingUnit,RegionId,"
        "ChargePeriodStart,ChargeClass,BillingCurrency"
    )
    row = "Usage,BoxUsage:g5.xlarge,9.0,3.0,2.0,{unit},Hours,us-east-1,2026-11-03T00:00:00Z,{cls},USD"
    path = tmp_path / "focus.csv"
    path.write_text(
        "\n".join([head, row.format(unit="Hrs", cls=""), row.format(unit="Hrs", cls="Correction")])
    )
    found = read_costs(path, as_of="")
    assert [one.usd_per_hour for one in found.prices] == [1.5]
    assert found.left_out == {"that correct an earlier bill": 1}
    path.write_text("\n".join([head, row.format(unit="Seconds", cls="")]))
    with pytest.raises(InputError, match="a usage in Seconds, not in hours"):
        read_costs(path, as_of="")


@pytest.mark.parametrize(
    "product",
    [
        '"{""region_code"": ""us-east-1"", ""operating_system"": ""Linux""}"',
        '"{operating_system=Linux, region_code=us-east-1}"',
    ],
)
def test_cur_2_has_a_map_of_the_product(tmp_path: Path, product: str) -> None:
    """As JSON, or as Athena writes it."""
    names = ("line_item_type", "usage_type", "unblended_cost", "usage_amount", "usage_start_date")
    head = ",".join([*(f"line_item_{name}" for name in names), "product"])
    path = tmp_path / "cur2.csv"
    path.write_text(f"{head}\nUsage,BoxUsage:g5.xlarge,3.0,2.0,2026-11-03,{product}\n")
    assert [(one.region, one.usd_per_hour) for one in read_costs(path, as_of="").prices] == [
        ("us-east-1", 1.5)
    ]
