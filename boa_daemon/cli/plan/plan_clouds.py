"""``boa plan --cloud``: what the budget buys on each cloud and in each region, from price files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boa_daemon.cli.common.output import OutputFormat, a_table, show, stdout_console
from boa_daemon.cli.common.planning_options import MarketName, cell, money
from boa_daemon.errors import INFEASIBLE, InputError
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.cloud_comparison import chosen, compare_places, read_offers
from boa_daemon.units import Per, format_hours
from policies.model import Budget
from policies.optimum.solution import Version


def plan_clouds(
    file: ProblemFile,
    budget: Budget,
    version: Version,
    *,
    clouds: str,
    regions: Sequence[str],
    market: MarketName | None,
    prices: Sequence[Path],
    per: Per,
    output: OutputFormat,
) -> int:
    """Show a row for each place, the fastest first; return the exit code.

    Raises:
        InputError: when the budget is in GPUs, or a cloud or region has no price.
    """
    if budget.unit == "gpus":
        raise InputError("--cloud compares prices: it needs a budget in dollars", hint="For example 40/h")
    names = [name.strip().lower() for name in clouds.split(",") if name.strip()]
    where = market.value if market is not None else "on-demand"
    places = chosen(read_offers(prices), clouds=names or ["all"], regions=regions, market=where)
    answers = compare_places(file, budget, version, places, market=where)
    rows = [answer.to_document() for answer in answers]
    notes = ["speed-ups are those of the class file's machines; hosts and networks of other clouds differ"]
    if where == "spot":
        notes.append("spot prices are paid as they stand in the files, and no interruption is counted")
    document: dict[str, Any] = {
        "budget": budget.amount,
        "budget_unit": budget.unit,
        "market": where,
        "places": rows,
        "notes": notes,
    }
    flat = [
        {key: value for key, value in row.items() if key != "machines"}
        | {"machines": " ".join(one["instance_type"] for one in row["machines"].values())}
        for row in rows
    ]
    show(output, document, rows=lambda: flat, table=lambda: _print(document, per))
    return 0 if any(answer.mean_jct_hours is not None for answer in answers) else INFEASIBLE


def _print(document: dict[str, Any], per: Per) -> None:
    numbers = ("mean JCT", "spent", "least")
    title = f"What {money(document['budget'], 'usd', per)} buys, {document['market']}"
    table = a_table(
        title, "cloud", "region", "machines", *numbers, "", right=numbers, optional=("least", "machines")
    )
    for row in document["places"]:
        hours, spend = row["mean_jct_hours"], row["spend_usd_per_hour"]
        least = row["cheapest_feasible_spend"]
        table.add_row(
            cell(row["cloud"]),
            cell(row["region"]),
            cell(
                ", ".join(
                    f"{one['instance_type']} ({one['usd_per_hour']:.4g}/h)"
                    for one in row["machines"].values()
                )
            ),
            "" if hours is None else format_hours(hours),
            "" if spend is None else money(spend, "usd", per),
            "" if least is None else money(least, "usd", per),
            cell(row["why_not"] or ""),
        )
    console = stdout_console()
    console.print(table)
    for note in document["notes"]:
        console.print(f"Note: {note}.", markup=False)
