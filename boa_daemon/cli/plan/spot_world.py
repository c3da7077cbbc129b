"""``boa prices import --world``: a spot price history as a world of the simulator."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from boa_daemon.backends.aws.prices.spot_history import spot_prices
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.job.whole_files import write_whole
from boa_daemon.sim.price_history import PriceHistory, cheapest_zone, price_history
from boa_daemon.units import counted
from policies.money_text import price_in_dollars


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldChoice:
    """What of a history a world is made of; `prices` are files with the price on demand."""

    instance_type: str | None = None
    zone: str | None = None
    region: Sequence[str] = ()
    prices: Sequence[Path] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """The machine of a world, its price on demand and the region of that price, and its zone."""

    instance_type: str
    usd_on_demand: float
    price_region: str
    region: str
    zone: str
    history: PriceHistory


def write_spot_world(path: Path, world: Path, choice: WorldChoice) -> dict[str, Any]:
    """Write the world file and the CSV of its prices beside it; return what was written and assumed.

    Raises:
        InputError: when the history has several machines and none is chosen, or a file cannot be written.
    """
    if world.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(f"--world {world}: the world is YAML", hint=f"Write {world.with_suffix('.yaml')}")
    found = _chosen(path, choice)
    history = found.history
    beside = world.with_name(f"{world.stem}-prices.csv")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("at_seconds", "price_fraction"))
    writer.writerows((f"{at:.10g}", f"{fraction:.6g}") for at, fraction in history.steps)
    hours = float(f"{history.mean_interruption_hours:.6g}")
    content = {"spot": {"prices": beside.name, "mean_interruption_hours": hours}}
    first, last = (f"{at:%Y-%m-%d}" for at in (history.begins_at, history.ends_at))
    said = f"# The spot price of {found.instance_type} in {found.zone} from {first} to {last}.\n"
    try:
        write_whole(beside, text.getvalue())
        write_whole(world, said + yaml.safe_dump(content, sort_keys=False))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=world) from error
    return {
        "file": str(world),
        "prices": str(beside),
        "instance_type": found.instance_type,
        "zone": found.zone,
        "mean_price_fraction": history.mean_fraction,
        "hours": history.hours,
        "reached_on_demand": history.reached,
        "mean_interruption_hours": hours,
        "notes": _notes(found, hours),
    }


def _notes(found: _Chosen, hours: float) -> list[str]:
    """Return what the world is made of, and what it assumes."""
    history = found.history
    reached = f"came to it {counted(history.reached, 'time')}" if history.reached else "never came to it"
    is_shown = history.reached and history.hours / history.reached <= hours
    why = (
        ", as often as the price came to that on demand"
        if is_shown
        else ": prices do not show how often AWS needs its machines; set mean_interruption_hours if you know"
    )
    notes = [
        f"the world has the price of {found.instance_type} in {found.zone} over {history.hours:.4g} h, on "
        f"average {history.mean_fraction:.1%} of "
        f"{price_in_dollars(found.usd_on_demand)}/h on demand; it {reached}",
        f"a node is taken back after {hours:g} h on average{why}",
    ]
    if found.price_region not in ("", found.region):
        notes.append(
            f"the price on demand is that of {found.price_region}: add --prices FILE of {found.region}"
        )
    return notes


def _chosen(path: Path, choice: WorldChoice) -> _Chosen:
    """Return the machine and the zone."""
    found, _ = spot_prices(path)
    kept = {key: prices for key, prices in found.items() if not choice.region or key[1] in choice.region}
    names = sorted({name for name, _, _ in kept})
    if choice.instance_type is not None and choice.instance_type not in names:
        hint = did_you_mean(choice.instance_type, names) or f"It has {', '.join(names[:12])}"
        raise InputError(f"no spot price of {choice.instance_type}", file=path, hint=hint if names else "")
    if choice.instance_type is None and len(names) != 1:
        problem = f"a world has the prices of one machine, and this history those of {len(names)}"
        hint = f"Add --instance-type: {', '.join(names[:12])}" if names else ""
        raise InputError(problem, file=path, hint=hint)
    name = choice.instance_type or names[0]
    regions = sorted({region for one, region, _ in kept if one == name})
    if len(regions) > 1 and choice.zone is None:
        problem = f"{name} has prices in {', '.join(regions)}"
        raise InputError(problem, file=path, hint="Add --region, or --zone")
    zones = {zone: (region, prices) for (one, region, zone), prices in kept.items() if one == name}
    if choice.zone is not None and choice.zone not in zones:
        problem = f"no spot price of {name} in {choice.zone}"
        raise InputError(problem, file=path, hint=f"It has {', '.join(sorted(zones))}")
    region = regions[0] if choice.zone is None else zones[choice.zone][0]
    entry = Catalog.load(*choice.prices, region=region if choice.prices else "").entries[name]
    if entry.usd_per_hour is None:
        raise InputError(f"the price of {name} on demand is not known", file=path, hint="Add --prices FILE")
    histories = {
        zone: price_history(list(prices.items()), entry.usd_per_hour) for zone, (_, prices) in zones.items()
    }
    zone = choice.zone or cheapest_zone(histories)
    return _Chosen(
        instance_type=name,
        usd_on_demand=entry.usd_per_hour,
        price_region=entry.region,
        region=region,
        zone=zone,
        history=histories[zone],
    )
