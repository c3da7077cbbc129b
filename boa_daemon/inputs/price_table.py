"""Tables of prices as small clouds publish them (Lambda, RunPod, CoreWeave, Vast ...), in CSV or Parquet.

Columns are known by the names that people give them; a row is a machine. A price per GPU is multiplied by its
GPUs. A table states its cloud in a column, or the flag ``--cloud`` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from boa_daemon.errors import InputError
from boa_daemon.inputs.money_cells import usd_cell
from boa_daemon.inputs.price_lists import OTHER_ACCELERATORS, ListedPrice, Market, PriceList, gpu_name
from boa_daemon.inputs.tables import TableRow, read_rows
from boa_daemon.number_text import NotOneNumber, number_of, other_currency
from boa_daemon.time_text import days_in, instant_seconds
from policies.money_text import price_in_dollars
from policies.speedup import MAX_GPUS

_NAMES: Mapping[str, tuple[str, ...]] = {
    "instance_type": (
        "instancetype",
        "instance",
        "name",
        "machine",
        "machinetype",
        "type",
        "sku",
        "shape",
        "plan",
    ),
    # Vast's and RunPod's names of prices.
    "machine_price": ("dphtotal",),
    "gpu_price": ("secureprice",),
    "gpu_model": (
        "gpumodel",
        "displayname",
        "gpu",
        "gputype",
        "gpuname",
        "accelerator",
        "acceleratorname",
        "card",
    ),
    "gpus": ("gpus", "gpucount", "numgpus", "ngpus", "acceleratorcount", "count", "qty", "numberofgpus"),
    "region": ("region", "location", "datacenter", "zone", "country", "geolocation"),
    "cloud": ("cloud", "provider", "vendor"),
    "market": ("market", "purchaseoption", "pricingmodel"),
    "term": ("term", "terms", "commitment", "commitmentterm", "contract", "contractlength", "reservation"),
    "unit": ("unit", "per", "period", "priceunit", "pricingunit", "billingunit", "unitofmeasure"),
    "system": ("os", "operatingsystem"),
    "currency": ("currency", "currencycode"),
    "as_of": ("asof", "date", "day", "updated", "updatedat"),
    "vcpus": ("vcpus", "vcpu", "cpus", "cores"),
    "memory_gib": ("memorygib", "memorygb", "ram", "ramgb", "ramgib", "memory"),
    "gpu_memory_gib": ("gpumemorygib", "gpumemorygb", "vram", "vramgb", "vramgpu", "vrampergpu", "gpumemory"),
}
_MONEY = re.compile(
    r"price|pricing|usd|cost|rate|ondemand|hourly|\bhr\b|perhour|spot|interruptible|preemptible|dph"
    r"|dollar|discount|surcharge"
)
_WORDS_OF_PRICES = frozenset(
    (
        *(
            "price",
            "prices",
            "pricing",
            "cost",
            "costs",
            "rate",
            "list",
            "usd",
            "us",
            "dph",
            "dollar",
            "dollars",
        ),
        *("hourly", "hr", "hrs", "hour", "hours", "h", "per", "a", "an", "the", "of", "for", "in"),
        *("on", "demand", "ondemand", "spot", "interruptible", "preemptible", "linux"),
        *("instance", "machine", "node", "server", "vm", "gpu", "gpus", "card", "accelerator"),
    )
)
"""Words that leave a column dollars per hour; with any other it may be a month's, a bound, or in cents."""
_PER_GPU = re.compile(r"(?:/|\bper\b)\s*(?:1\s*)?(?:gpu|card|accelerator)", re.IGNORECASE)
_COUNT_FIRST = re.compile(r"^\s*(?P<number>\d{1,3})\s*(?:[x\u00d7*]\s*(?=\D)|\s(?=[a-z]))", re.IGNORECASE)
_COUNT_LAST = re.compile(
    r"\s*(?:[\s(][x\u00d7*]\s*(?P<number>\d{1,3})\)?|\u00d7\s*(?P<sign>\d{1,3})|(?<=\d)x(?P<close>\d{1,2})"
    r"|\s(?P<before>\d{1,3})\s*[x\u00d7]|\((?P<bare>\d{1,3})\))\s*$",
    re.IGNORECASE,
)
_SPOT = re.compile(r"spot|interruptible|preemptible|bid", re.IGNORECASE)
_ON_DEMAND = re.compile(
    r"|-|none|no(?: commitment| contract)?|0(?: ?(?:hours?|months?|years?))?|n/?a|standard|hourly|linux"
    r"|on[- _]?demand|pay[- ]as[- ]you[- ]go|payg|consumption",
    re.IGNORECASE,
)
_MARKET_WORDS = re.compile(
    r"spot|interruptible|preemptible|on[- _]?demand|reserved.*|savings plan.*", re.IGNORECASE
)
"""What a column `type` says that is no type of machine."""
_LINUX = re.compile(r"|-|n/?a|any|all|none|(?:linux|ubuntu|debian|unix).*", re.IGNORECASE)
_HOURS = re.compile(
    r"|(?:usd|us\$|\$)?\s*(?:/|per\b)?\s*(?:1\s*)?(?:gpu|instance|machine|node|vm)?[-/\s]*(?:h|hrs?|hours?|hourly)"
    r"(?:\s*(?:/|per)\s*(?:gpu|instance|machine|node|vm))?",
    re.IGNORECASE,
)
_SUMS = ("total", "subtotal", "grand total", "sum", "average", "mean", "median")
_SLASHED = re.compile(r"(\d{1,2})[/.-](\d{1,2})[/.-]\d{4}", re.ASCII)
_NO_DAY = ("", "-", "n/a", "na", "none", "null", "nan", "nat", "unknown", "?")
_DAY_HINT = "Write days as YYYY-MM-DD, or give --as-of YYYY-MM-DD for all rows"
_HINT = "A table of prices has a machine, its gpu and gpus, and a price per hour of it or of one GPU"


def read_price_table(path: Path, *, as_of: str, cloud: str) -> PriceList:
    """Return the prices of a table.

    Raises:
        InputError: naming file and line, when a column is missing or two mean the same, a price is none or
            ambiguous, or two rows are of one machine, region and market.
    """
    found = PriceList([])
    unread: list[str] = []
    lines: dict[tuple[str, str, str, Market], int] = {}
    rows = list(read_rows(path, (), column_of=_columns(path, unread)))
    day_comes_first = None if as_of else _day_comes_first(rows)
    for row in rows:
        line, cells = row.line, row.cells
        if not lines and not found.left_out:
            _check(cells, path, unread)
        gpus = _gpus(row)
        if gpus is None:
            found.left_out["without GPUs"] += 1
            continue
        if cells.get("gpu_model", "").lower() in _SUMS:
            found.left_out["that are sums"] += 1
            continue
        market = _market(cells)
        if market is None:
            found.left_out["of other terms than on demand and spot"] += 1
            continue
        if not _LINUX.fullmatch(cells.get("system", "")):
            found.left_out["of other systems"] += 1
            continue
        if _plain_model(cells).lower().startswith(OTHER_ACCELERATORS):
            found.left_out["with other accelerators"] += 1
            continue
        name = " ".join(cells.get("instance_type", "").split())
        name = "" if _MARKET_WORDS.fullmatch(name) else name
        name = name or f"{gpus}x-{_plain_model(cells)}".lower().replace(" ", "-")
        own = (cells.get("cloud") or cloud).strip().lower()
        if not own:
            hint = "Give --cloud NAME, such as lambda"
            raise InputError("the table does not say whose prices these are", file=path, line=line, hint=hint)
        if (currency := cells.get("currency", "")) and currency.upper() not in ("USD", "US$", "$"):
            problem = f"a price in {currency}: budgets and caps count USD"
            raise InputError(problem, file=path, line=line, hint="Convert the list to USD")
        region = cells.get("region", "") or "any"
        prices = _prices(row, gpus, market)
        if not prices:
            found.left_out["without a price"] += 1
        for kind, usd in prices:
            first = lines.setdefault((own, name, region, kind), line)
            if first != line:
                problem = f"a second price of {name} in {region}; the first is on line {first}"
                raise InputError(problem, file=path, line=line, hint="Keep the row that you pay by")
            memory, gpu_memory = (_number(row, key) for key in ("memory_gib", "gpu_memory_gib"))
            vcpus = _number(row, "vcpus")
            found.prices.append(
                ListedPrice(
                    instance_type=name,
                    cloud=own,
                    region=region,
                    market=kind,
                    usd_per_hour=usd,
                    usd_low=usd,
                    as_of=as_of or _day(row, day_comes_first=day_comes_first),
                    source=f"{own}'s prices {path.name}",
                    gpus=gpus,
                    gpu_model=_model(row),
                    gpu_memory_mib=None if gpu_memory is None else round(gpu_memory * 1024),
                    vcpus=None if vcpus is None else int(vcpus),
                    memory_mib=None if memory is None else round(memory * 1024),
                )
            )
    if unread:
        found.notes.append(
            f"columns that may not be dollars per hour are not read: {', '.join(map(repr, unread))}"
        )
    if not all(price.as_of for price in found.prices):
        found.notes.append(
            "rows name no day such as 2026-11-28: give --as-of YYYY-MM-DD, so that plans say how old they are"
        )
    return found


def _columns(path: Path, unread: list[str]) -> Callable[[str], str]:
    """Return what a column means, from its name, and refuse a second one that means the same.

    Columns of money that are not dollars per hour are added to `unread`.
    """
    seen: dict[str, str] = {}

    def column_of(name: str) -> str:
        meaning = _meaning(name)
        if meaning is None:
            if name and _MONEY.search(name.lower()):
                unread.append(name)
            return name
        if meaning in seen:
            problem = f"columns {seen[meaning]!r} and {name!r} both say the {meaning.replace('_', ' ')}"
            raise InputError(problem, file=path, line=1, hint="Remove the one that does not count")
        seen[meaning] = name
        return meaning

    return column_of


def _meaning(name: str) -> str | None:
    """Return what a column means, from its name; None where it means nothing here."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower().replace("$", "usd"))
    for meaning, names in _NAMES.items():
        if plain == meaning.replace("_", "") or plain in names:
            return meaning
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower().replace("$", " usd ")
    said = re.findall(r"[^\W\d_]+|\d+|[^\w\s]", words.replace("_", " "))
    if (
        {one for one in said if one.isalnum()} - _WORDS_OF_PRICES
        or re.search(r"[%\u00a2-\u00a5\u20a0-\u20bf]", name)
        or other_currency(name)
    ):
        return None
    if not _MONEY.search(" ".join(said)) and not _MONEY.search(plain) and plain not in ("h", "hr"):
        return None
    is_spot = re.search(r"spot|interruptible|preemptible", plain)
    is_each = re.search(r"gpu|card|accelerator", plain)
    return f"{'spot_' if is_spot else ''}{'gpu' if is_each else 'machine'}_price"


def _check(cells: Mapping[str, str], path: Path, unread: Sequence[str]) -> None:
    """Refuse a table without the columns that it needs."""
    if "gpu_model" not in cells and "instance_type" not in cells:
        raise InputError("no column with the machine or its GPU", file=path, line=1, hint=_HINT)
    if "gpu_model" not in cells:
        raise InputError("no column with the GPU", file=path, line=1, hint=_HINT)
    if not any(name.endswith("_price") for name in cells) and unread:
        problem = f"no column with dollars per hour: {', '.join(map(repr, unread))} may be something else"
        hint = "Name the column usd_per_hour, or usd_per_gpu_hour, once it is that"
        raise InputError(problem, file=path, line=1, hint=hint)
    if not any(name.endswith("_price") for name in cells):
        raise InputError("no column with a price", file=path, line=1, hint=_HINT)


def _gpus(row: TableRow) -> int | None:
    """Return the GPUs of a row, None for none.

    They are those of its column, else of the model (``8x A100``, ``A100 x8``), else of the machine's name
    (``gpu_8x_a100``).
    """
    cells = row.cells
    stated = _number_in(row)
    text = cells.get("gpus", "")
    if not text:
        return (stated or 1) if cells.get("gpu_model", "") else None
    try:
        value = number_of(
            re.sub(r"^[x×]\s*|\s*(?:[x×]|gpus?)$", "", text.lower()),
            has_decimal_commas=row.has_decimal_commas,
        )
    except NotOneNumber as error:
        raise row.refuse(f"gpus must be a whole number; got {text!r}", hint=error.hint) from None
    if not 0 <= value <= MAX_GPUS or value != int(value):
        raise row.refuse(f"gpus must be a whole number; got {text!r}")
    if stated is not None and stated != value:
        problem = f"{int(value)} GPUs in their column, and {stated}x in the name of the GPU"
        raise row.refuse(problem, hint="Write the model alone, and how many in the other column")
    return int(value) or None


def _number_in(row: TableRow) -> int | None:
    """Return the number of GPUs that the model or the machine's name states."""
    model = row.cells.get("gpu_model", "")
    first, last = _COUNT_FIRST.match(model), _COUNT_LAST.search(model)
    if last is not None and last["bare"]:
        if row.cells.get("gpus", ""):
            return None
        hint = "Write the number of GPUs into a column of its own: gpus"
        raise row.refuse(f"{last['bare']} in {model!r} may be a number of GPUs, or something else", hint=hint)
    if first is not None:
        return int(first["number"])
    if last is not None:
        return int(next(number for number in last.groups() if number))
    # The name says it where the model follows: 12xlarge is no number of GPUs.
    card = re.search(r"[a-z]*\d+[a-z]*", model, re.IGNORECASE)
    if card is None:
        return None
    name = row.cells.get("instance_type", "")
    found = re.search(
        rf"(?<![a-z0-9])(\d{{1,3}})x[\s_-]*(?:nvidia|amd|gpu)?[\s_-]*{card[0]}", name, re.IGNORECASE
    )
    return None if found is None else int(found[1])


def _market(cells: Mapping[str, str]) -> Market | None:
    """Return the market of a row's price; None for one that is bound to a term."""
    stated = [cells.get(column, "").strip() for column in ("market", "term")]
    if _MARKET_WORDS.fullmatch(name := cells.get("instance_type", "").strip()):
        stated.append(name)
    if any(_SPOT.search(text) for text in stated):
        return "spot"
    return "on-demand" if all(_ON_DEMAND.fullmatch(text) for text in stated) else None


def _model(row: TableRow) -> str:
    """Return the maker and name of a GPU: ``NVIDIA A100`` for ``8x A100 SXM4 (40 GB)``."""
    name = _plain_model(row.cells)
    if not name:
        raise row.refuse("the GPU is empty")
    return gpu_name(name)


def _plain_model(cells: Mapping[str, str]) -> str:
    """Return the GPU's name without its number."""
    return " ".join(_COUNT_LAST.sub("", _COUNT_FIRST.sub("", cells.get("gpu_model", ""), 1)).split())


def _prices(row: TableRow, gpus: int, market: Market) -> list[tuple[Market, float]]:
    """Return (market, dollars per hour of the machine) of a row."""
    cells = row.cells
    unit = cells.get("unit", "").strip()
    if not _HOURS.fullmatch(unit):
        raise row.refuse(f"a price per {unit!r}", hint="Write the price of an hour")

    def usd(column: str, name: str) -> float | None:
        text = cells.get(column, "")
        found = usd_cell(text, name, row.path, row.line, has_decimal_commas=row.has_decimal_commas)
        # A cell may say what its column does not: $2.49 / GPU / hr.
        is_each = "machine" in column and (_PER_GPU.search(text) or "gpu" in unit.lower())
        return found * gpus if is_each and found is not None else found

    whole, each = usd("machine_price", "the price"), usd("gpu_price", "the price of a GPU")
    if whole is not None and each is not None and abs(whole - each * gpus) > 0.02 * whole:
        problem = (
            f"{price_in_dollars(whole)} for the machine, and "
            f"{price_in_dollars(each)} for each of its {gpus} GPUs"
        )
        raise row.refuse(problem, hint="Keep the column that you pay by")
    whole = whole if whole is not None else None if each is None else each * gpus
    spot, each = usd("spot_machine_price", "the spot price"), usd("spot_gpu_price", "the spot price of a GPU")
    if spot is not None and "machine_price" not in cells and "gpu_price" in cells:
        # A table of prices per GPU has spot prices per GPU.
        spot *= gpus
    spot = spot if spot is not None else None if each is None else each * gpus
    found: list[tuple[Market, float]] = []
    if whole:
        found.append((market, whole))
    if spot:
        found.append(("spot", spot))
    return found


def _day_comes_first(rows: Sequence[TableRow]) -> bool | None:
    """Return whether days such as 03/01/2026 have the day first, by those that have but one reading.

    None where all have two, or none is of this form.
    """
    first: dict[bool, TableRow] = {}
    for row in rows:
        found = _SLASHED.match(row.cells.get("as_of", ""))
        if found and len(days_in(row.cells["as_of"])) == 1 and found[1] != found[2]:
            first.setdefault(int(found[1]) > 12, row)
    if len(first) > 1:
        day, month = (first[key].cells["as_of"] for key in (True, False))
        last = max(first.values(), key=lambda row: row.line)
        raise last.refuse(f"{day!r} has the day first, and {month!r} the month", hint=_DAY_HINT)
    return next(iter(first), None)


def _day(row: TableRow, *, day_comes_first: bool | None) -> str:
    """Return the day of a row as an ISO date; empty where it names none.

    Raises:
        InputError: when it is no day, or may be two and no other row says which.
    """
    text = row.cells.get("as_of", "")
    if text.lower() in _NO_DAY:
        return ""
    days = days_in(text)
    if len(days) == 2:
        if day_comes_first is None:
            raise row.refuse(f"the day {text!r} may be {days[0]} or {days[1]}", hint=_DAY_HINT)
        return days[0] if day_comes_first else days[1]
    try:
        return datetime.fromtimestamp(instant_seconds(text), UTC).date().isoformat()
    except (ValueError, OverflowError) as error:
        reason = "" if str(error) == "no time" else f": {error}"
        raise row.refuse(f"{text!r} is no day{reason}", hint=_DAY_HINT) from None


def _number(row: TableRow, name: str) -> float | None:
    """Return a number of a column that is no price; None where it is none."""
    text = re.sub(r"\s*(gib|gb|g)$", "", row.cells.get(name, "").strip(), flags=re.IGNORECASE)
    try:
        return number_of(text, has_decimal_commas=row.has_decimal_commas)
    except NotOneNumber:
        return None
