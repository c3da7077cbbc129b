"""``boa cost --reconcile``: compare the ledger with AWS Cost Explorer, day by day."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import typer

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.cost_explorer import BESIDE, check_known, compare_days, explorer_days
from boa_daemon.backends.cloud_kinds import cloud_kind
from boa_daemon.cli.common.daemon_client import a_client, say_as_of, say_next, usd
from boa_daemon.cli.common.output import OutputFormat, a_table, show, stdout_console
from boa_daemon.daemon.settings.config import aws_settings
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import DRIFT_FOUND, InputError
from boa_daemon.tick.facts.offers import EXTRAS
from boa_daemon.tick.money.ledger import COMPUTE

DEFAULT_DAYS = 14


def reconcile(
    *, days: float | None, fraction: float, config: Path | None, socket: str | None, form: OutputFormat
) -> None:
    """Compare and print; exit with code 6 if a final day differs by more than the tolerance.

    Raises:
        InputError: when the settings name no AWS cloud.
    """
    settings = load_settings(config, flags={"daemon.socket": socket}).settings
    if not cloud_kind(settings.cloud.provider).on_aws:
        raise InputError(
            f"[cloud] provider is {settings.cloud.provider!r}: there is no Cost Explorer to compare with",
            hint="Leave --reconcile out, or name the settings of the daemon with --config",
        )
    now = time.time()
    today = datetime.fromtimestamp(now, UTC).date()
    first = today - timedelta(days=max(int(DEFAULT_DAYS if days is None else days), 1))
    begins = datetime(first.year, first.month, first.day, tzinfo=UTC).timestamp()
    with a_client(config, socket) as client:
        ledger = client.cost(by="day", since=begins)
    aws = aws_settings(settings.cloud)
    ours = {date.fromisoformat(row["name"]): _kinds(row) for row in ledger["rows"]}
    theirs = explorer_days(AwsCalls(aws), aws.cluster, first, today)
    found = compare_days(
        {day: kinds[COMPUTE] for day, kinds in ours.items()},
        {day: kinds[COMPUTE] for day, kinds in theirs.items()},
        first=first,
        now=now,
        fraction=fraction,
    )
    check_known(found, aws.cluster)
    rows = [
        {
            "day": day.day.isoformat(),
            "ledger_usd": day.ledger_usd,
            "cost_explorer_usd": day.explorer_usd,
            "difference_usd": day.difference_usd,
            "tolerance_usd": day.tolerance_usd,
            "is_final": day.is_final,
            "note": day.note,
            "kinds": {
                kind: {
                    "ledger_usd": ours.get(day.day, {}).get(kind, 0.0),
                    "cost_explorer_usd": theirs[day.day].get(kind) if day.day in theirs else None,
                }
                for kind in (COMPUTE, *EXTRAS, *BESIDE)
            },
        }
        for day in found
    ]
    drifting = [day.day.isoformat() for day in found if day.is_drift]
    document = {"as_of": ledger["as_of"], "cluster": aws.cluster, "days": rows, "drift": drifting}
    plain = [{key: value for key, value in row.items() if key != "kinds"} for row in rows]
    show(form, document, rows=lambda: plain, table=lambda: _print(document, rows))
    if drifting:
        raise typer.Exit(DRIFT_FOUND)


def _kinds(row: Mapping[str, Any]) -> Mapping[str, float]:
    """Return a day of the ledger by kind; cost whose node is no longer known counts as compute."""
    kinds: dict[str, float] = {kind: float(usd) for kind, usd in row.get("kinds", {}).items()}
    rest = float(row["usd"]) - sum(kinds.values())
    return {**kinds, COMPUTE: kinds.get(COMPUTE, 0.0) + rest}


def _print(document: dict[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    numbers = ("compute", "Cost Explorer", "difference")
    table = a_table(f"Ledger and bill of cluster {document['cluster']}", "day", *numbers, "", right=numbers)
    for row in rows:
        amounts = (usd(row[name]) for name in ("ledger_usd", "cost_explorer_usd", "difference_usd"))
        table.add_row(row["day"], *amounts, row["note"])
    console = stdout_console()
    console.print(table)
    for kind in (*EXTRAS, *BESIDE):
        pairs = [row["kinds"][kind] for row in rows]
        said = [each["cost_explorer_usd"] for each in pairs if each["cost_explorer_usd"] is not None]
        estimated = sum(each["ledger_usd"] for each in pairs)
        console.print(
            f"{kind}: {usd(estimated)} in the ledger, {usd(sum(said)) if said else '-'} in Cost Explorer",
            soft_wrap=True,
        )
    if document["drift"]:
        days = ", ".join(document["drift"])
        console.print(
            f"Drift on {days}: look for resources under the cluster's tag that the ledger does not know."
        )
        say_next("boa gc --check", "boa instances --all")
    else:
        console.print("No day that is final differs by more than the tolerance.")
    say_as_of(document)
