"""``boa prices``: show the age of prices, or write a fresh price file from AWS or a saved price list."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.prices.list_prices import ask_price
from boa_daemon.backends.aws.prices.offer_file import read_offers
from boa_daemon.backends.aws.prices.side_prices import QUESTIONS, ask_side_prices
from boa_daemon.cli.common.aws_options import DEFAULT_CONFIG, ConfigOption, RegionOption, settings_of
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    a_table,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.common.planning_options import PricesOption
from boa_daemon.cli.common.toml_keys import write_keys
from boa_daemon.cli.plan.import_prices import import_prices
from boa_daemon.errors import CloudFailed, InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.price_age import STALE_DAYS, days_old
from boa_daemon.job.whole_files import write_whole

app = typer.Typer(
    name="prices",
    help="Show how old each price is, fetch current prices, or read the price lists of others.",
    invoke_without_command=True,
)
app.command("import")(import_prices)


@app.callback()
def prices(
    context: typer.Context,
    *,
    refresh: Annotated[Path | None, typer.Option("--refresh", hidden=True)] = None,
    source: Annotated[Path | None, typer.Option("--from", hidden=True)] = None,
    beside: Annotated[
        bool,
        typer.Option(
            "--beside", help="Fetch prices of disks, addresses, buckets and queues; write them to --config."
        ),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    prices: PricesOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show how old each price is."""
    if context.invoked_subcommand is not None:
        return
    if beside:
        _beside(config, region, datetime.now(UTC).date(), output)
    elif refresh is not None:
        # The name of before, for one release.
        stderr_console().print("[yellow]note[/] boa prices --refresh FILE is now boa prices refresh FILE")
        fetch(refresh, source=source, config=config, region=region, prices=prices, output=output)
    elif source is not None:
        raise InputError("--from is of boa prices refresh", hint="Name the file to write: refresh FILE.toml")
    else:
        _show(_rows(Catalog.load(*(prices or ())), datetime.now(UTC).date()), None, output)


@app.command("refresh")
def fetch(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The price file to write.")],
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Read the saved output of `aws pricing get-products` instead."
        ),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    prices: PricesOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Fetch current prices from AWS, or from a saved price list, and write them as a price file."""
    if file.suffix != ".toml":
        raise InputError(f"refresh {file}: a price file ends in .toml")
    catalog, today = Catalog.load(*(prices or ())), datetime.now(UTC).date()
    _show(_refresh(file, source, catalog, today, config=config, region=region), file, output)


def _show(rows: list[dict[str, Any]], written: Path | None, output: OutputFormat) -> None:
    """Print prices with their ages, and the file that they were written to."""
    show(
        output,
        {"stale_days": STALE_DAYS, "prices": rows, "file": None if written is None else str(written)},
        rows=lambda: rows,
        table=lambda: _print(rows, written),
    )


def _beside(config: Path, region: str | None, today: date, form: OutputFormat) -> None:
    """Fetch the region's prices of disks, addresses, gateways, buckets and queues into the settings."""
    settings = settings_of(config, region=region)
    try:
        found = ask_side_prices(AwsCalls(settings), settings.region, as_of=today.isoformat())
    except CallFailed as error:
        names = ", ".join(QUESTIONS)
        hint = f"{error.hint}. Or write [cloud.side_prices] by hand, from AWS's price pages: {names}, as_of"
        raise CloudFailed(error.problem, code=error.code, hint=hint) from error
    values = found.model_dump(exclude_none=True)
    write_keys(config, {"cloud": {"region": settings.region, "side_prices": values}})
    rows = [{"what": name, "value": value} for name, value in values.items()]

    def printed() -> None:
        table = a_table(f"Beside instances, {settings.region}", "what", "price", right=("price",))
        for name, value in values.items():
            table.add_row(name, value if isinstance(value, str) else f"${value}")
        stdout_console().print(table)
        stdout_console().print(f"  Wrote side_prices under [cloud] to {config}.")

    document = {"region": settings.region, "side_prices": values, "file": str(config)}
    show(form, document, rows=lambda: rows, table=printed)


def _refresh(
    path: Path, source: Path | None, catalog: Catalog, today: date, *, config: Path, region: str | None
) -> list[dict[str, Any]]:
    """Write a price file, and return its prices with the old ones."""
    if source is not None:
        place = region or settings_of(config, region=None).region
        listed = read_offers(source, as_of="", region=place).prices
        found = {one.instance_type: one.usd_per_hour for one in listed}
        day = min(one.as_of for one in listed)
        said = f"{source.name}, {place}"
    else:
        settings = settings_of(config, region=region)
        calls, day, found = AwsCalls(settings), today.isoformat(), {}
        place, said = settings.region, f"the AWS Pricing API, {settings.region}"
        for name in [entry.name for entry in catalog.select()]:
            try:
                found[name] = ask_price(calls, settings.region, name)
            except CallFailed as error:
                # A type that the region does not sell has no price there; any other failure ends the command.
                if error.code != "NoPrice":
                    raise
    if not found:
        raise InputError("no price of an instance type in the catalogue was found", file=source)
    lines = [f"# From {said}.", f"as_of = {day}", f'region = "{place}"', 'currency = "USD"', "[prices]"]
    lines += [f'"{name}" = {price!r}' for name, price in sorted(found.items())]
    write_whole(path, "\n".join(lines) + "\n")
    fresh = Catalog.load(path)
    return [
        row | {"usd_per_hour_before": catalog.entries[row["instance_type"]].usd_per_hour}
        for row in _rows(fresh, today)
        if row["instance_type"] in found
    ]


def _rows(catalog: Catalog, today: date) -> list[dict[str, Any]]:
    """Return the prices of types on sale, with their ages."""
    return [
        {
            "instance_type": entry.name,
            "usd_per_hour": entry.usd_per_hour,
            "as_of": entry.as_of or None,
            "days_old": days_old(entry.as_of, today),
            "source": entry.source or None,
        }
        for entry in catalog.select()
        if entry.usd_per_hour is not None
    ]


def _print(rows: list[dict[str, Any]], refresh: Path | None) -> None:
    extra = () if refresh is None else ("before",)
    columns = ("per hour", *extra, "days old")
    table = a_table("Prices on demand", "type", *columns, "as of", right=columns)
    for row in rows:
        before = row.get("usd_per_hour_before")
        middle = () if refresh is None else ("" if before is None else f"${before:.3f}",)
        age = "" if row["days_old"] is None else str(row["days_old"])
        table.add_row(row["instance_type"], f"${row['usd_per_hour']:.3f}", *middle, age, row["as_of"] or "")
    stdout_console().print(table)
    if refresh is not None:
        stdout_console().print(
            f"  Wrote {refresh}. Use it with --prices {refresh}, and in the daemon with [cloud] prices."
        )
