"""The table of price lists that are read: each kind with its reader, its cloud, and its row of the page.

A new kind is a module and an entry in `PRICE_KINDS`; the choices of the command line, the reference page and
the tests come from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from boa_daemon.backends.aws.prices.offer_file import read_offers
from boa_daemon.backends.aws.prices.spot_history import read_spot_history
from boa_daemon.errors import InputError
from boa_daemon.inputs.azure_prices import read_azure
from boa_daemon.inputs.cost_reports import read_costs
from boa_daemon.inputs.gcp_prices import read_gcp
from boa_daemon.inputs.price_lists import PriceList
from boa_daemon.inputs.price_table import read_price_table
from boa_daemon.inputs.skypilot_catalog import read_skypilot


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFlags:
    """The day of the prices and their cloud, as the command line states them; empty where it does not."""

    as_of: str = ""
    cloud: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceKind:
    """A kind of price list: its reader, the cloud that it is always of, and its row of the page.

    `file` to `refused` are the cells of its row in ``docs/reference/imports.md``; `example` is a file
    of the tests.
    """

    reader: Callable[[Path, PriceFlags], PriceList]
    file: str
    columns: str
    left_out: str
    refused: str
    example: str
    cloud: str = ""


def _spot_history(path: Path, flags: PriceFlags) -> PriceList:
    if flags.as_of:
        raise InputError("--as-of does not apply to --from spot-history: its entries have times")
    return read_spot_history(path)


def _skypilot(path: Path, flags: PriceFlags) -> PriceList:
    """Return SkyPilot's prices; its files are in a folder with the name of the cloud."""
    found = read_skypilot(path, as_of=flags.as_of)
    cloud = flags.cloud or (path.resolve().parent.name if path.name.startswith("vms.csv") else "")
    if not cloud:
        found.notes.append("the file names no cloud: give --cloud NAME, so that boa plan --cloud finds it")
    return replace(found, prices=[replace(price, cloud=cloud) for price in found.prices])


PRICE_KINDS: Mapping[str, PriceKind] = {
    "skypilot": PriceKind(
        reader=_skypilot,
        file="`catalogs/vN/CLOUD/vms.csv` of SkyPilot's catalogue, any cloud",
        columns=(
            "`InstanceType`, `AcceleratorName`, `AcceleratorCount`, `Price`, `Region`; `SpotPrice`, "
            "`AvailabilityZone`, `vCPUs`, `MemoryGiB`, `GpuInfo`"
        ),
        left_out=(
            "machines without GPUs, GPUs without their machine (GCP), other accelerators, parts of GPUs, "
            "rows without a price"
        ),
        refused="two prices of a type in one zone; other currencies",
        example="skypilot-aws.csv",
    ),
    "aws": PriceKind(
        reader=lambda path, flags: read_offers(path, as_of=flags.as_of),
        file=(
            "an offer file of AmazonEC2 (`index.csv`, `index.json`), or the output of `aws pricing "
            "get-products`, one answer, several or their list"
        ),
        columns=(
            "instance type, region code, unit, price, currency, effective date, and what tells prices apart"
        ),
        left_out=(
            "all but Linux, shared, no preinstalled software, on demand, in a region, in USD, in effect; "
            "types that the catalogue lacks"
        ),
        refused="two prices with one effective date",
        example="aws-offers.csv",
        cloud="aws",
    ),
    "cur": PriceKind(
        reader=lambda path, flags: read_costs(path, as_of=flags.as_of),
        file="AWS's Cost and Usage Report, CUR 2.0 or FOCUS (Data Exports), CSV or Parquet: what was paid",
        columns=(
            "line item type, usage type, usage amount and its unit, unblended and effective costs, region, "
            "system or operation, currency, start"
        ),
        left_out=(
            "taxes, credits, refunds, fees, corrections, what was reserved and not used, other systems and "
            "types"
        ),
        refused="other currencies, usage that is not in hours",
        example="cur.csv",
        cloud="aws",
    ),
    "spot-history": PriceKind(
        reader=_spot_history,
        file="`aws ec2 describe-spot-price-history`: JSON, text or table, an object a line, CSV or tabs",
        columns="`InstanceType`, `AvailabilityZone`, `SpotPrice`, `Timestamp`, `ProductDescription`",
        left_out="all but Linux; older prices of a zone; types that the catalogue lacks",
        refused="two prices of a zone at one time",
        example="spot-history.json",
        cloud="aws",
    ),
    "azure": PriceKind(
        reader=lambda path, flags: read_azure(path, as_of=flags.as_of),
        file="answers of Azure's Retail Prices API (JSON), one or a list of all pages",
        columns=(
            "`armSkuName`, `armRegionName`, `retailPrice`, `currencyCode`, `type`, `unitOfMeasure`, "
            "`skuName`, `productName`, `effectiveStartDate`"
        ),
        left_out="reservations, Windows, low priority, not in effect; machines without known GPUs",
        refused="other currencies; two prices of a type, region and market since one day",
        example="azure.json",
        cloud="azure",
    ),
    "gcp": PriceKind(
        reader=lambda path, flags: read_gcp(path, as_of=flags.as_of),
        file="SKUs of Compute Engine from Google's Cloud Billing Catalog (JSON), one page or a list of all",
        columns="`description`, `category.usageType`, `serviceRegions`, `pricingInfo`; GPUs + cores + memory",
        left_out="other parts, commitments, reserved capacity, machines of which a part has no price",
        refused="other currencies; two prices of a part in a region",
        example="gcp.json",
        cloud="gcp",
    ),
    "table": PriceKind(
        reader=lambda path, flags: read_price_table(path, as_of=flags.as_of, cloud=flags.cloud),
        file="a table of a small cloud (Lambda, RunPod, ...), CSV or Parquet",
        columns=(
            "machine or GPU, GPUs, price per hour of the machine or of a GPU (`$2.49/hr`), also spot; "
            "region, cloud, currency, day, cores, memory"
        ),
        left_out=(
            "rows without GPUs or a price, of terms, of other systems, sums; columns of money that are not "
            "dollars per hour"
        ),
        refused=(
            "amounts with two readings (`1,250`), bounds, ranges, footnotes, other currencies and units, two "
            "prices of one machine"
        ),
        example="lambda.csv",
    ),
}
