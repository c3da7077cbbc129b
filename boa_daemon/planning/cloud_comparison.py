"""What a budget buys on each cloud and in each region, from price files alone.

A place is a cloud, a region and a market. There, each GPU type of the class file is the machine with the same
GPU: of the file's own size if there is one, else of the next larger, else of the largest; the cheapest of
these. Speed-ups are those of the file's machines: other hosts and networks are not in a price list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.catalog import HOME_REGION, Catalog
from boa_daemon.inputs.price_file import read_price_file
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.curve import Curve
from policies.errors import InfeasibleBudget
from policies.kinds import kind_of
from policies.model import Budget, GpuType, InstanceType, Problem
from policies.money_text import in_dollars
from policies.optimum.solution import ProblemTooLarge, Version

_DEFAULT_LINK = 10.0
_WITH_NUMBER = ("rtx", "quadro", "geforce", "titan", "gtx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A machine at a price, in a place."""

    cloud: str
    region: str
    market: str
    instance_type: str
    gpu_model: str
    gpus: int
    usd_per_hour: float
    as_of: str
    source: str
    link_gigabits_per_second: float = _DEFAULT_LINK


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceAnswer:
    """What the budget buys in a place; `mean_jct_hours` is None where it cannot run every class."""

    cloud: str
    region: str
    market: str
    machines: Mapping[str, Offer]
    why_not: str = ""
    mean_jct_hours: float | None = None
    spend_usd_per_hour: float | None = None
    least_usd_per_hour: float | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return {
            "cloud": self.cloud,
            "region": self.region,
            "market": self.market,
            "mean_jct_hours": self.mean_jct_hours,
            "spend_usd_per_hour": self.spend_usd_per_hour,
            "cheapest_feasible_spend": self.least_usd_per_hour,
            "why_not": self.why_not or None,
            "machines": {
                kind: {
                    "instance_type": offer.instance_type,
                    "gpu_model": offer.gpu_model,
                    "gpus": offer.gpus,
                    "usd_per_hour": offer.usd_per_hour,
                    "as_of": offer.as_of or None,
                    "source": offer.source,
                }
                for kind, offer in self.machines.items()
            },
        }


def read_offers(prices: Sequence[Path]) -> list[Offer]:
    """Return the machines of price files, and those of the shipped catalogue in its region.

    A row of a file replaces that of the catalogue; rows without a cloud are AWS's if AWS has such a type.

    Raises:
        InputError: when a file cannot be read, or a row says neither its cloud nor its GPUs.
    """
    shipped = Catalog.load()
    found: dict[tuple[str, str, str, str], Offer] = {}
    for entry in shipped.entries.values():
        if entry.usd_per_hour is not None and not entry.is_retired:
            place = ("aws", HOME_REGION, "on-demand", entry.name)
            found[place] = Offer(
                cloud="aws",
                region=HOME_REGION,
                market="on-demand",
                instance_type=entry.name,
                gpu_model=entry.gpu_model,
                gpus=entry.gpus,
                usd_per_hour=entry.usd_per_hour,
                as_of=entry.as_of,
                source=entry.source,
                link_gigabits_per_second=entry.link_gigabits_per_second,
            )
    for path in prices:
        file, document = read_price_file(path)
        for index, row in enumerate(file.types):
            known = shipped.entries.get(row.instance_type)
            cloud = (row.cloud or ("aws" if known else "")).lower()
            gpus, model = (
                row.gpus or (known.gpus if known else None),
                row.gpu_model or (known.gpu_model if known else None),
            )
            if not cloud or gpus is None or model is None:
                problem = f"{row.instance_type} has no {'cloud' if not cloud else 'gpus and gpu_model'}"
                hint = "`boa prices import --cloud NAME` writes it"
                raise document.error(problem, at=(index,), hint=hint)
            market = row.market or "on-demand"
            usd = row.usd_per_hour or (row.spot_usd_per_hour_max if market == "spot" else None)
            if usd is None:
                continue
            region = row.region or file.region or (HOME_REGION if cloud == "aws" else "any")
            found[cloud, region, market, row.instance_type] = Offer(
                cloud=cloud,
                region=region,
                market=market,
                instance_type=row.instance_type,
                gpu_model=model,
                gpus=gpus,
                usd_per_hour=usd,
                as_of=row.as_of or file.as_of or row.spot_as_of or "",
                source=row.source or f"set in {document.name}",
                link_gigabits_per_second=row.link_gigabits_per_second
                or (known.link_gigabits_per_second if known else _DEFAULT_LINK),
            )
    return list(found.values())


def chosen(
    offers: Iterable[Offer], *, clouds: Sequence[str], regions: Sequence[str], market: str
) -> dict[tuple[str, str], list[Offer]]:
    """Return the offers by (cloud, region), of these clouds (``all``: every one), regions and market.

    Raises:
        InputError: when a cloud or a region has no price.
    """
    offers = [offer for offer in offers if offer.market == market]
    for what, names, known in (
        ("cloud", [name for name in clouds if name != "all"], {offer.cloud for offer in offers}),
        ("region", regions, {offer.region for offer in offers}),
    ):
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known) or "Import its prices: boa prices import --from KIND FILE"
                raise InputError(f"no {market} price of {what} {name!r} in the price files", hint=hint)
    found: dict[tuple[str, str], list[Offer]] = {}
    for offer in offers:
        if ("all" in clouds or offer.cloud in clouds) and (not regions or offer.region in regions):
            found.setdefault((offer.cloud, offer.region), []).append(offer)
    return dict(sorted(found.items()))


def compare_places(
    file: ProblemFile,
    budget: Budget,
    version: Version,
    places: Mapping[tuple[str, str], Sequence[Offer]],
    *,
    market: str,
) -> list[PlaceAnswer]:
    """Return what a budget in dollars buys in each place, the shortest completion time first.

    Cost: one frontier for each place.
    """
    found = [
        _answer(file, budget, version, cloud, region, market, offers)
        for (cloud, region), offers in places.items()
    ]
    worst = float("inf")
    return sorted(
        found,
        key=lambda one: (
            one.mean_jct_hours if one.mean_jct_hours is not None else worst,
            one.spend_usd_per_hour or one.least_usd_per_hour or worst,
        ),
    )


def base_card(model: str) -> str:
    """Return the GPU without maker, memory and form: ``a100`` for ``NVIDIA A100-80GB`` and ``A100 SXM4``."""
    words = [
        word for word in re.split(r"[-_ (/]+", model.lower()) if word not in ("nvidia", "amd", "tesla", "")
    ]
    number = 2 if words and words[0] in _WITH_NUMBER else 1
    return "-".join(words[:number])


def _answer(  # noqa: PLR0917 - a place is named by three words
    file: ProblemFile,
    budget: Budget,
    version: Version,
    cloud: str,
    region: str,
    market: str,
    offers: Sequence[Offer],
) -> PlaceAnswer:
    machines: dict[str, Offer] = {}
    for kind, machine in file.instance_types.items():
        card = base_card(machine.kind.card)
        if machine.places_per_gpu > 1 or any(base_card(kind_of(other).card) == card for other in machines):
            continue
        if (offer := _machine(card, machine.gpus, offers)) is not None:
            machines[kind] = offer
    place: dict[str, Any] = {"cloud": cloud, "region": region, "market": market, "machines": machines}
    problem = _problem(file, machines)
    if isinstance(problem, str):
        return PlaceAnswer(**place, why_not=problem)
    curve = Curve.of(problem, version)
    try:
        solution = curve.solution_at(budget.amount)
    except ProblemTooLarge as error:
        solution = error.best
    except InfeasibleBudget as error:
        least = error.least_spend
        return PlaceAnswer(
            **place, why_not=f"needs at least {in_dollars(least)}/hour", least_usd_per_hour=least
        )
    return PlaceAnswer(
        **place,
        mean_jct_hours=solution.mean_jct_hours,
        spend_usd_per_hour=solution.mean_spend,
        least_usd_per_hour=solution.cheapest_feasible_spend,
    )


def _machine(card: str, gpus: int, offers: Sequence[Offer]) -> Offer | None:
    """Return the machine that stands for one of `gpus` GPUs in a place."""
    able = [offer for offer in offers if base_card(offer.gpu_model) == card]
    if not able:
        return None
    larger = [offer.gpus for offer in able if offer.gpus >= gpus]
    size = min(larger) if larger else max(offer.gpus for offer in able)
    return min(
        (offer for offer in able if offer.gpus == size), key=lambda one: (one.usd_per_hour, one.instance_type)
    )


def _problem(file: ProblemFile, machines: Mapping[str, Offer]) -> Problem | str:
    """Return the problem on the machines of a place, or the reason why a class cannot run there."""
    classes = []
    for job_class in file.problem.classes:
        phases = []
        for phase in job_class.phases:
            speedups = {kind: curve for kind, curve in phase.speedups.items() if kind in machines}
            if not speedups:
                cards = ", ".join(sorted({kind_of(kind).card for kind in phase.speedups}))
                return f"has no {cards} for class {job_class.name}"
            phases.append(replace(phase, speedups=speedups))
        classes.append(replace(job_class, phases=tuple(phases)))
    rented = {
        kind: InstanceType(
            name=offer.instance_type,
            gpu_type=kind,
            gpus=offer.gpus,
            usd_per_hour=offer.usd_per_hour,
            link_gigabits_per_second=offer.link_gigabits_per_second,
        )
        for kind, offer in machines.items()
    }
    return Problem(
        classes=tuple(classes),
        gpu_types=tuple(
            GpuType(name=kind, usd_per_gpu_hour=machine.usd_per_gpu_hour) for kind, machine in rented.items()
        ),
        budget_unit="usd_per_hour",
    )
