"""Every kind of price list: what its example says by hand, what is refused, and that files survive damage."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.cli.plan.price_kinds import PRICE_KINDS, PriceFlags
from boa_daemon.errors import BoaError, InputError
from boa_daemon.inputs.cloud_machines import machines_of
from boa_daemon.inputs.money_cells import usd_cell
from boa_daemon.inputs.price_file import read_price_file

ROOT = Path(__file__).resolve().parents[4]
DATA = ROOT / "tests" / "data" / "prices"

Rows = dict[tuple[str, str, str], float]

BY_HAND: dict[str, tuple[str, str, str, Rows]] = {
    # 10 h for 219.57642 and 30 h that a savings plan covers for 360.42358: 580 / 40. Spot: 40 / 100.
    "cur": (
        "cur",
        "cur.csv",
        "",
        {("p4d.24xlarge", "us-east-1", "on-demand"): 14.5, ("g5.xlarge", "us-west-2", "spot"): 0.4},
    ),
    # (40 + 20) / 4: two hours at the list price, two at the effective cost of a reservation.
    "cur 2.0": ("cur", "cur2.csv", "", {("p4d.24xlarge", "us-east-1", "on-demand"): 15.0}),
    # 26 since June, not 28; neither Windows, nor a reservation, nor a machine without GPUs.
    "azure": (
        "azure",
        "azure.json",
        "",
        {
            ("Standard_ND96asr_v4", "eastus", "on-demand"): 26.0,
            ("Standard_ND96asr_v4", "eastus", "spot"): 12.0,
            ("Standard_NC24ads_A100_v4", "westeurope", "on-demand"): 4.0,
        },
    ),
    # 8 x 3 + 96 x 0.03 + 680 x 0.004 for a2-highgpu-8g; the spot GPU alone makes no machine.
    "gcp": (
        "gcp",
        "gcp.json",
        "",
        {
            (name, region, "on-demand"): usd
            for region in ("us-central1", "us-east1")
            for name, usd in {
                "a2-highgpu-1g": 3.7,
                "a2-highgpu-2g": 7.4,
                "a2-highgpu-4g": 14.8,
                "a2-highgpu-8g": 29.6,
                "a2-megagpu-16g": 16 * 3 + 96 * 0.03 + 1360 * 0.004,
            }.items()
        },
    ),
    "a table of machines": (
        "table",
        "lambda.csv",
        "lambda",
        {
            ("gpu_1x_a100", "us-west-2", "on-demand"): 1.99,
            ("gpu_8x_a100", "us-west-2", "on-demand"): 15.92,
            ("gpu_8x_h100_sxm5", "us-east-1", "on-demand"): 31.92,
        },
    ),
    "a table of GPUs": (
        "table",
        "runpod.csv",
        "runpod",
        {
            ("1x-h100-sxm", "any", "on-demand"): 2.99,
            ("1x-h100-sxm", "any", "spot"): 1.75,
            ("1x-a100-pcie", "any", "on-demand"): 1.64,
        },
    ),
}


@pytest.mark.parametrize(("kind", "name", "cloud", "rows"), BY_HAND.values(), ids=BY_HAND)
def test_the_example_by_hand(kind: str, name: str, cloud: str, rows: Rows) -> None:
    """Dollars per hour of a machine, by type, region and market."""
    found = PRICE_KINDS[kind].reader(DATA / name, PriceFlags(cloud=cloud, as_of=""))
    got = {(one.instance_type, one.region, one.market): one.usd_per_hour for one in found.prices}
    assert got == pytest.approx(rows)


@pytest.mark.parametrize(("kind", "key"), [("azure", "Items"), ("gcp", "skus")])
def test_pages_that_were_appended_say_the_same(kind: str, key: str, tmp_path: Path) -> None:
    """The answers come in pages, which a loop of curl appends to a file."""
    source = DATA / PRICE_KINDS[kind].example
    content = json.loads(source.read_text(encoding="utf-8"))
    entries = [one for page in (content if isinstance(content, list) else [content]) for one in page[key]]
    path = tmp_path / source.name
    path.write_text("\n".join(json.dumps({key: some}, indent=4) for some in (entries[:2], entries[2:])))
    plain, appended = (PRICE_KINDS[kind].reader(one, PriceFlags()).prices for one in (source, path))
    assert appended == plain


@pytest.mark.parametrize("kind", PRICE_KINDS)
def test_a_list_may_come_from_a_pipe(kind: str, tmp_path: Path) -> None:
    """A shell gives ``<(zcat ...)`` as a pipe, which can be read once; ``-`` is standard input."""
    example, pipe = DATA / PRICE_KINDS[kind].example, tmp_path / "pipe"
    os.mkfifo(pipe)
    raw = example.read_bytes()
    found = []
    for given in (str(example), str(pipe), "-"):
        out = tmp_path / "prices.csv"
        flags = ["--cloud", PRICE_KINDS[kind].cloud or "x", "--out", str(out)]
        writer = threading.Thread(target=pipe.write_bytes, args=(raw,), daemon=True)
        if given == str(pipe):
            writer.start()
        done = CliRunner().invoke(app, ["prices", "import", "--from", kind, given, *flags], input=raw)
        assert done.exit_code == 0, done.output
        # The last column names the file.
        found.append([line.rpartition(",")[0] for line in out.read_text().splitlines()])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("packed", ["gz", "xz", "utf-16"])
@pytest.mark.parametrize("kind", PRICE_KINDS)
def test_packed_lists_say_the_same(kind: str, packed: str, tmp_path: Path) -> None:
    """What a file is, is read from its first bytes, whatever it is called."""
    source = DATA / PRICE_KINDS[kind].example
    raw = source.read_bytes()
    pack: dict[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "xz": lzma.compress,
        "utf-16": lambda one: one.decode().encode("utf-16"),
    }
    path = tmp_path / f"{source.name}.{packed}"
    path.write_bytes(pack[packed](raw))
    flags = PriceFlags(cloud="x")
    plain, unpacked = (PRICE_KINDS[kind].reader(one, flags) for one in (source, path))
    assert [replace(one, source="") for one in unpacked.prices] == [
        replace(one, source="") for one in plain.prices
    ]
    assert unpacked.left_out == plain.left_out


@pytest.mark.parametrize("kind", PRICE_KINDS)
def test_what_is_written_is_read_back(kind: str, tmp_path: Path) -> None:
    """Cloud, region, market, currency and day stay columns; the price file is one that plans read."""
    out = tmp_path / "prices.csv"
    flags = ["--from", kind, str(DATA / PRICE_KINDS[kind].example), "--out", str(out), "-o", "json"]
    if not PRICE_KINDS[kind].cloud:
        flags += ["--cloud", "lambda" if kind == "table" else "aws"]
    done = CliRunner().invoke(app, ["prices", "import", *flags])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)["prices"]
    file, _ = read_price_file(out)
    back = {
        (row.cloud, row.instance_type, row.region, row.market): row.usd_per_hour or row.spot_usd_per_hour_max
        for row in file.types
    }
    assert back == {
        (row["cloud"], row["instance_type"], row["region"], row["market"]): row["usd_per_hour"]
        for row in said
    }
    assert {row.currency for row in file.types} == {"USD"}


def test_the_page_lists_every_kind() -> None:
    """The rows of the reference page are those of the table."""
    page = (ROOT / "docs" / "reference" / "imports.md").read_text(encoding="utf-8")
    for kind, entry in PRICE_KINDS.items():
        assert f"| `{kind}` | {entry.file} | {entry.columns} | {entry.left_out} | {entry.refused} |" in page


TABLE = "Instance,GPU,GPUs,Price/hr,Region\n"
REFUSED: dict[str, tuple[str, str, str]] = {
    "two readings": ("table", TABLE + 'a,A100,1,"1,250",x\n', "'1,250' may be 1250 or 1.250"),
    "euros": ("table", TABLE + "a,A100,1,2.49 €,x\n", "is in €: budgets and caps count USD"),
    "a currency column": (
        "table",
        "Instance,GPU,GPUs,Price/hr,Currency\na,A100,1,2,EUR\n",
        "a price in EUR: budgets and caps count USD",
    ),
    "two rows of a machine": (
        "table",
        TABLE + "a,A100,1,2,x\na,A100,1,3,x\n",
        ":3: a second price of a in x; the first is on line 2",
    ),
    "two columns of a price": (
        "table",
        "Instance,GPU,GPUs,Price,Price per hour\na,A100,1,2,3\n",
        "columns 'Price' and 'Price per hour' both say the machine price",
    ),
    "prices that contradict each other": (
        "table",
        "Instance,GPU,GPUs,Price,Price per GPU\na,A100,8,16,3\n",
        r"\$16.00 for the machine, and \$3.00 for each of its 8 GPUs",
    ),
    "no price": ("table", "Instance,GPU,GPUs\na,A100,1\n", "no column with a price"),
    "no GPU": ("table", "Instance,Price\na,1\n", "no column with the GPU"),
    "a month": (
        "table",
        "Instance,GPU,Price per month\na,A100,1\n",
        "no column with dollars per hour: 'Price per month' may be something else",
    ),
    "half a GPU": ("table", TABLE + "a,A100,0.5,2,x\n", "gpus must be a whole number; got '0.5'"),
    "an answer in euros": (
        "azure",
        json.dumps(
            {
                "armSkuName": "Standard_ND96asr_v4",
                "armRegionName": "x",
                "retailPrice": 1,
                "currencyCode": "EUR",
                "type": "Consumption",
                "unitOfMeasure": "1 Hour",
                "skuName": "s",
            }
        ),
        "a price in EUR",
    ),
    "another JSON": ("azure", '{"Items": [{"sku": 1}]}', "armSkuName is missing"),
    "SKUs without prices": (
        "gcp",
        '{"skus": [{"skuId": "A", "description": "Nvidia L4 GPU running in X", '
        '"category": {"usageType": "OnDemand"}, "serviceRegions": ["r"], "pricingInfo": []}]}',
        r"SKU 0 \(A\): its pricingInfo is not whole",
    ),
    "a report without costs": ("cur", "a,b\n1,2\n", "no column for the kind"),
}


GCP = (DATA / "gcp.json").read_text(encoding="utf-8")
HUGE = "1" + "0" * 400
REFUSED |= {
    "more GPUs than a float": ("table", TABLE + "a,A100,1e999,2,x\n", "gpus must be a whole number"),
    "GPUs that are no number": ("table", TABLE + "a,A100,nan,2,x\n", "gpus must be a whole number"),
    "a price with no end per machine": (
        "table",
        "Instance,GPU,GPUs,Price per GPU hour\na,A100,8,1e308\n",
        "must be dollars per hour; got '1e308'",
    ),
} | {
    f"{key}: {value[:9]}": ("gcp", re.sub(rf'"{key}": *"?[0-9]+"?', f'"{key}": {value}', GCP), said)
    for key in ("units", "nanos")
    for value, said in {
        "Infinity": "pricingInfo is not whole",
        "1e400": "pricingInfo is not whole",
        HUGE: "pricingInfo is not whole",
        "1e30": "must be dollars",
    }.items()
}


@pytest.mark.parametrize(("kind", "text", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(kind: str, text: str, said: str, tmp_path: Path) -> None:
    """A sentence says what is wrong, and where."""
    path = tmp_path / f"list.{'json' if text.startswith('{') else 'csv'}"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said.replace("(ask", r"\(ask")):
        PRICE_KINDS[kind].reader(path, PriceFlags(cloud="x"))


CELLS: dict[str, float | None] = {
    "2.49": 2.49,
    "$2.49": 2.49,
    "$2.49/hr": 2.49,
    "$ 2.49 / GPU / hr": 2.49,
    "2.49 per hour": 2.49,
    "USD 2.49": 2.49,
    "1,99": 1.99,
    "1.234,56": 1234.56,
    "12,345.67": 12345.67,
    "": None,
    "-": None,
    "N/A": None,
    "Sold out": None,
}


@pytest.mark.parametrize(("text", "usd"), CELLS.items())
def test_cells_of_money(text: str, usd: float | None) -> None:
    """As people write them; a comma before two digits is decimal."""
    assert usd_cell(text, "the price", Path("a.csv")) == usd


@pytest.mark.parametrize("cell", ["1e999", "nan", "-", "many"])
def test_specifications_that_are_no_numbers_are_unknown(cell: str, tmp_path: Path) -> None:
    """The price counts; cores and memory are then not known."""
    path = tmp_path / "a.csv"
    path.write_text(f"Instance,GPU,GPUs,Price/hr,vCPUs,RAM,VRAM\na,A100,8,20,{cell},{cell},{cell}\n")
    (price,) = PRICE_KINDS["table"].reader(path, PriceFlags(cloud="x")).prices
    assert (price.usd_per_hour, price.vcpus, price.memory_mib, price.gpu_memory_mib) == (
        20.0,
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("cell", "day"),
    {
        "2026-11-20": "2026-11-20",
        "2026-11-20T08:00:00Z": "2026-11-20",
        "20.11.2026": "2026-11-20",
        "11/20/2026": "2026-11-20",
        "2026-02-30": "'2026-02-30' is no day",
        "2 days ago": "'2 days ago' is no day",
        "": "",
    }.items(),
)
def test_the_day_of_a_row(cell: str, day: str, tmp_path: Path) -> None:
    """A day with one reading is taken; a price file writes it as ISO does."""
    path, out = tmp_path / "a.csv", tmp_path / "prices.csv"
    path.write_text(f"Instance,GPU,GPUs,Price/hr,Updated\na,A100,8,20,{cell}\n")
    flags = ["prices", "import", "--from", "table", str(path), "--cloud", "x", "--out", str(out)]
    done = CliRunner().invoke(app, flags)
    if "is no day" in day:
        assert day in str(done.exception)
        assert not out.exists()
        return
    assert done.exit_code == 0, done.output
    (row,) = read_price_file(out)[0].types
    assert (row.as_of or "") == day
    assert ("--as-of YYYY-MM-DD" in done.output) == (not day)


def test_machines_of_other_clouds_are_whole() -> None:
    """Each has GPUs, memory and cores."""
    for cloud in ("azure", "gcp"):
        for machine in machines_of(cloud).values():
            assert machine["gpus"] >= 1
            assert machine["gpu_model"].startswith("NVIDIA ")
            assert min(machine["vcpus"], machine["memory_mib"], machine["gpu_memory_mib"]) > 0


def test_parquet_and_gzip_reports_say_the_same(tmp_path: Path) -> None:
    """Data Exports write Parquet or packed CSV; CUR 2.0 has the product as a map."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    source = DATA / "cur2.csv"
    table = pandas.read_csv(source)
    whole = tmp_path / "cur.parquet"
    table.assign(product=[json.loads(text) for text in table["product"]]).to_parquet(whole)
    packed = tmp_path / "cur.csv.gz"
    table.to_csv(packed, index=False)
    prices: list[Any] = [
        [
            (one.instance_type, one.usd_per_hour)
            for one in PRICE_KINDS["cur"].reader(path, PriceFlags()).prices
        ]
        for path in (source, whole, packed)
    ]
    assert prices[0] == prices[1] == prices[2]


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """Return bytes with one to three faults such as editors and transfers make."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(raw)) if raw else 0
        to = min(len(raw), at + chance.randint(1, 40))
        other = chance.choice([b"", b"\0", b"\xff", b'"', b",", b"\n", b"-1", b"1e999", b"nan", b"{", b"\r"])
        choices = [raw[:at] + other + raw[to:], raw[:at], raw[:to] + raw[at:], raw[:at] + other + raw[at:]]
        raw = chance.choice(choices)
    return raw


@pytest.mark.parametrize("kind", PRICE_KINDS)
def test_damaged_lists_are_read_or_refused_in_a_sentence(kind: str, tmp_path: Path) -> None:
    """Mutated bytes, cut and doubled lines: no other error than one for the user."""
    chance = random.Random(kind)
    example = DATA / PRICE_KINDS[kind].example
    path = tmp_path / example.name
    refused = 0
    for _ in range(40):
        path.write_bytes(mutated(example.read_bytes(), chance))
        try:
            PRICE_KINDS[kind].reader(path, PriceFlags(cloud="x"))
        except BoaError:
            refused += 1
    assert refused > 0


_CUR = (
    "lineItem/LineItemType,lineItem/UsageStartDate,lineItem/UsageType,lineItem/Operation,lineItem/UsageAmount,"
    "lineItem/UnblendedCost,product,product/regionCode\n"
)
_FOCUS = (
    "BilledCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ConsumedQuantity,ConsumedUnit,EffectiveCost,"
    "PricingUnit,RegionId,x_UsageType\n"
)
_AZURE = {
    "currencyCode": "USD",
    "retailPrice": 27.0,
    "armRegionName": "eastus",
    "effectiveStartDate": "2021-06-01T00:00:00Z",
    "skuName": "ND96asr A100 v4",
    "productName": "Virtual Machines NDasrA100 v4 Series",
    "unitOfMeasure": "1 Hour",
    "type": "Consumption",
    "armSkuName": "Standard_ND96asr_v4",
}
_ROW = "Usage,2026-10-01T00:00:00Z,BoxUsage:p4d.24xlarge,RunInstances,2,40,,us-east-1\n"
_SPOT = "Usage,2026-10-01T00:00:00Z,USE2-SpotUsage:p4d.24xlarge,RunInstances:{},2,40,,us-east-2\n"
LISTS = {
    "CUR": ("cur", _CUR + _ROW, [20.0]),
    "Windows by its operation": ("cur", _CUR + _ROW + _ROW.replace("Instances", "Instances:0002"), [20.0]),
    "spot with its zone, and Windows there": (
        "cur",
        _CUR + _SPOT.format("SV050") + _SPOT.format("0002:SV050") + _SPOT.format("0000:SV012"),
        [20.0],
    ),
    "Windows in Athena's map": (
        "cur",
        _CUR + _ROW + _ROW.replace("40,,", '90,"{instance_type=p4d.24xlarge, operating_system=Windows}",'),
        [20.0],
    ),
    "FOCUS with both units": (
        "cur",
        _FOCUS + "0,USD,Usage,2026-10-01T00:00:00Z,10,Hours,145,Hrs,us-east-1,BoxUsage:p4d.24xlarge\n",
        [14.5],
    ),
    "FOCUS with another unit": (
        "cur",
        _FOCUS + "0,USD,Usage,2026-10-01T00:00:00Z,10,Seconds,145,Hrs,us-east-1,BoxUsage:p4d.24xlarge\n",
        ":2: a usage in Seconds",
    ),
    "a day with two readings": (
        "cur",
        _CUR + _ROW.replace("2026-10-01T00:00:00Z", "01/10/2026"),
        ":2: the start",
    ),
    "Azure's price of the past": (
        "azure",
        json.dumps([_AZURE, _AZURE | {"retailPrice": 9.0, "effectiveEndDate": "2022-01-01T00:00:00Z"}]),
        [27.0],
    ),
    "Azure without a region": (
        "azure",
        json.dumps([_AZURE | {"armRegionName": ""}]),
        "armRegionName is empty",
    ),
    "Azure's table": ("azure", "armSkuName,retailPrice\nx,1\n", "Save what https://prices.azure.com"),
    "Azure, a page of several": (
        "azure",
        json.dumps({"Items": [_AZURE], "NextPageLink": "https://x"}),
        ["the file lacks pages: its last answer names a further one (NextPageLink)"],
    ),
    "Azure, the last page": ("azure", json.dumps({"Items": [_AZURE], "NextPageLink": None}), [27.0]),
    "AMD without its maker": (
        "skypilot",
        "InstanceType,AcceleratorName,AcceleratorCount,Price,Region\na,MI300X,8.0,16,null\n",
        [16.0],
    ),
}


@pytest.mark.parametrize(("kind", "text", "expected"), LISTS.values(), ids=LISTS)
def test_lists_of_strangers(kind: str, text: str, expected: list[float | str] | str, tmp_path: Path) -> None:
    """Prices, a note, or a refusal in one sentence."""
    path = tmp_path / "list"
    path.write_text(text)
    flags = PriceFlags(cloud="", as_of="")
    if isinstance(expected, str):
        with pytest.raises(InputError) as refused:
            PRICE_KINDS[kind].reader(path, flags)
        assert expected in str(refused.value)
        return
    found = PRICE_KINDS[kind].reader(path, flags)
    if isinstance(expected[0], str):
        assert found.notes == expected
    else:
        assert [one.usd_per_hour for one in found.prices] == expected
        assert not any("pages" in note for note in found.notes)
        assert all((one.gpu_model or "AMD").startswith("AMD") for one in found.prices if kind == "skypilot")
