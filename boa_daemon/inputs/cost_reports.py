"""What was paid: AWS's Cost and Usage Report (CUR) or Data Exports, in CSV or Parquet, also packed.

Names of columns are those of CUR (``lineItem/UnblendedCost``), of CUR 2.0 and Athena
(``line_item_unblended_cost``), or of FOCUS (``EffectiveCost``). Of each instance type, region and market the
price is

    sum of cost / sum of instance hours

over the hours of running instances: usage at its unblended cost, usage that a savings plan or a reservation
covers at its effective cost. Taxes, credits, refunds, fees and what was reserved and not used are left out.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.price_lists import ListedPrice, Market, PriceList
from boa_daemon.inputs.tables import TableRow, read_rows
from boa_daemon.time_text import instant_seconds

_NAMES: Mapping[str, tuple[str, ...]] = {
    "kind": ("lineitemlineitemtype", "chargecategory"),
    "usage_type": ("lineitemusagetype", "xusagetype"),
    "cost": ("lineitemunblendedcost", "billedcost"),
    "plan_cost": ("savingsplansavingsplaneffectivecost",),
    "reservation_cost": ("reservationeffectivecost",),
    "effective_cost": ("effectivecost",),
    "hours": ("lineitemusageamount", "consumedquantity"),
    "unit": ("consumedunit", "pricingunit"),
    "instance_type": ("productinstancetype", "xinstancetype"),
    "region": ("productregioncode", "productregion", "regionid"),
    "system": ("productoperatingsystem",),
    "operation": ("lineitemoperation", "xoperation"),
    "currency": ("lineitemcurrencycode", "billingcurrency"),
    "start": ("lineitemusagestartdate", "chargeperiodstart"),
    "product": ("product",),
    "class": ("chargeclass",),
}
_HINT = "Export a Cost and Usage Report or FOCUS report with line item types, usage types, amounts and costs"
_MOST = 1e15
"""No row states as much: a larger number is a fault, and the sums may have no end."""
_USAGE = ("usage", "savingsplancoveredusage", "discountedusage")
_BOX = re.compile(r"(?:(?P<region>[A-Z0-9]+)-)?(?P<kind>BoxUsage|SpotUsage):(?P<type>[a-z0-9-]+\.[a-z0-9-]+)")


@dataclass(slots=True)
class _Paid:
    """The hours and dollars of one type, region and market."""

    usd: float = 0.0
    hours: float = 0.0
    first: str = ""
    last: str = ""


def read_costs(path: Path, *, as_of: str) -> PriceList:
    """Return what an hour of each type was paid, by region and market.

    Raises:
        InputError: naming file and line, when it is no such report or a row is damaged.
    """
    found = PriceList([])
    known = Catalog.load().entries
    days: dict[str, str] = {}
    paid: dict[tuple[str, str, Market], _Paid] = defaultdict(_Paid)
    is_checked = False
    for row in read_rows(path, (), column_of=_column_of):
        line, cells = row.line, row.cells
        if not is_checked:
            _check(cells, path)
            is_checked = True
        if cells["kind"].replace(" ", "").lower() not in _USAGE:
            found.left_out["that are taxes, credits, fees or unused reservations"] += 1
            continue
        if cells.get("class", "").lower() == "correction":
            found.left_out["that correct an earlier bill"] += 1
            continue
        usage = _BOX.search(cells["usage_type"])
        if usage is None:
            found.left_out["of other usage than running instances"] += 1
            continue
        if usage["type"] not in known:
            found.left_out["of types that the catalogue lacks"] += 1
            continue
        if not _is_linux(cells):
            found.left_out["of other systems"] += 1
            continue
        if cells.get("currency", "USD").upper() not in ("USD", ""):
            problem = f"a cost in {cells['currency']}: budgets and caps count USD"
            raise InputError(problem, file=path, line=line, hint="Convert the report to USD")
        region = _of_product(cells, "region", "region_code") or _of_product(cells, "region", "region")
        if not region:
            raise InputError("the region is empty", file=path, line=line, hint="Export product/region")
        hours = row.number("hours", most=_MOST) if cells["hours"] else 0.0
        unit = cells.get("unit") or cells.get("unit_other") or "Hrs"
        if unit.lower().rstrip("s") not in ("hr", "hour"):
            raise row.refuse(f"a usage in {unit}, not in hours")
        market: Market = "spot" if usage["kind"] == "SpotUsage" else "on-demand"
        total = paid[usage["type"], region, market]
        total.usd += _cost(row)
        total.hours += hours
        day = _day(row, days)
        total.first, total.last = min(total.first or day, day), max(total.last, day)
    for (name, region, market), total in sorted(paid.items()):
        if total.hours <= 0 or total.usd <= 0:
            found.left_out["of types that cost nothing"] += 1
            continue
        usd = total.usd / total.hours
        found.prices.append(
            ListedPrice(
                instance_type=name,
                cloud="aws",
                region=region,
                market=market,
                usd_per_hour=round(usd, 6),
                usd_low=round(usd, 6),
                as_of=as_of or total.last,
                source=f"paid from {total.first} to {total.last} over {total.hours:,.6g} hours ({path.name})",
            )
        )
    if found.prices:
        found.notes.append("these are means of what was paid, with discounts, not list prices")
    return found


def _is_linux(cells: Mapping[str, str]) -> bool:
    """Return whether a row is of a machine with Linux, by its system, else by the code of its operation.

    RunInstances alone is Linux; with a code, such as RunInstances:0002, it is Windows or a paid distribution.
    Behind it spot has its zone: RunInstances:SV050 is Linux.
    """
    if system := _of_product(cells, "system", "operating_system"):
        return system.lower() == "linux"
    operation = re.sub(r":SV[0-9]+$", "", cells.get("operation", ""))
    return re.fullmatch(r"RunInstances:(?!0000$).+", operation) is None


def _day(row: TableRow, days: dict[str, str]) -> str:
    """Return the day of a row in UTC; `days` keeps those of texts that repeat."""
    text = row.text("start")
    if text not in days:
        try:
            at = instant_seconds(text)
        except (ValueError, OverflowError) as error:
            reason = "" if str(error) == "no time" else f": {error}"
            raise row.refuse(f"the start must be a time; got {text!r}{reason}") from None
        days[text] = datetime.fromtimestamp(at, UTC).date().isoformat()
    return days[text]


def _column_of(name: str) -> str:
    """Return what a column means here, from its name in CUR, CUR 2.0 or FOCUS; else its own name."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    for meaning, names in _NAMES.items():
        # product/region and product/regionCode mean the same: the first of the names that the file has.
        if plain == names[0]:
            return meaning
    for meaning, names in _NAMES.items():
        if plain in names:
            # FOCUS has the unit of the price beside that of the quantity.
            is_other = meaning in ("region", "unit") and plain != "regionid"
            return f"{meaning}_other" if is_other else meaning
    return name


def _check(cells: Mapping[str, str], path: Path) -> None:
    for meaning in ("kind", "usage_type", "cost", "hours", "start"):
        if meaning not in cells:
            spoken = " or ".join(_NAMES[meaning])
            raise InputError(
                f"no column for the {meaning.replace('_', ' ')} ({spoken})", file=path, hint=_HINT
            )


def _of_product(cells: Mapping[str, str], name: str, key: str) -> str:
    """Return a cell, or its value in the map of the product that CUR 2.0 has."""
    text = cells.get(name) or cells.get(f"{name}_other") or ""
    product = cells.get("product", "")
    if not text and product.startswith("{"):
        try:
            text = str(json.loads(product).get(key) or "")
        except (ValueError, AttributeError):
            # Athena writes a map as {instance_type=p4d.24xlarge, operating_system=Linux}.
            stated = re.search(rf"(?:^\{{|,\s*){key}=([^,}}]*)", product)
            text = stated[1].strip() if stated else ""
    return text


def _cost(row: TableRow) -> float:
    """Return what a row cost: effective cost where a plan or a reservation covers it."""
    kind = row.cells["kind"].replace(" ", "").lower()
    columns = {"savingsplancoveredusage": "plan_cost", "discountedusage": "reservation_cost"}
    column = columns.get(kind, "effective_cost" if "effective_cost" in row.cells else "cost")
    if column not in row.cells:
        problem = f"a row of {row.cells['kind']}, and no column with its effective cost"
        raise row.refuse(problem, hint=_HINT)
    return row.number(column, most=_MOST) if row.cells[column] else 0.0
