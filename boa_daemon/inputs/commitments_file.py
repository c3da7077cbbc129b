"""Offers of commitments and existing commitments, in TOML, YAML or JSON.

```toml
as_of = 2026-11-01
source = "the cost console, our account"
[[offers]]
name = "ec2-1y"
kind = "family"                  # "compute": every family; "reserved": whole instances of one type
family = "p4d"
term_years = 1
discount = 0.27                  # off the price on demand
[[commitments]]
name = "ours"
kind = "compute"
discounts = {p4d = 0.2, g5 = 0.15}
usd_per_hour = 12.0              # what is paid always; of kind reserved: instances = 4
begins = 2026-03-01
ends = 2027-03-01
term_years = 1
```
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.document_file import Document, KeyPath, read_document
from boa_daemon.inputs.schema import Name, Positive, Strict, checked, spoken
from boa_daemon.tick.facts.limits import FixedCost
from boa_daemon.tick.money.commitments import CommitmentLevel
from boa_daemon.units import counted
from policies.model import InstanceType
from policies.optimum.commitments import Commitment

Kind: TypeAlias = Literal["family", "compute", "reserved"]
_Discount = Annotated[float, Field(ge=0.0, lt=1.0, description="a fraction off the price on demand")]
_Day = Annotated[str, BeforeValidator(lambda day: day.isoformat() if isinstance(day, date) else day)]


class _Terms(Strict):
    name: Name = Field(description="text")
    kind: Kind = Field(description="family, compute or reserved")
    family: Name | None = Field(default=None, description="of kind family: such as p4d, or a GPU type")
    instance_type: Name | None = Field(default=None, description="of kind reserved: such as p4d.24xlarge")
    discount: _Discount | None = Field(default=None, description="a fraction off the price on demand")
    discounts: dict[Name, _Discount] = Field(default={}, description="of kind compute: fractions by family")
    term_years: Literal[1, 3] = Field(default=1, description="years, 1 or 3")


class _Commitment(_Terms):
    usd_per_hour: Positive | None = Field(default=None, description="dollars per hour, paid always")
    instances: int | None = Field(default=None, ge=1, description="of kind reserved: whole instances")
    begins: _Day | None = Field(default=None, description="the first day, YYYY-MM-DD")
    ends: _Day | None = Field(default=None, description="the day after the last, YYYY-MM-DD")


class _File(Strict):
    as_of: _Day | None = Field(default=None, description="the day of the rates, YYYY-MM-DD")
    source: Name | None = Field(default=None, description="where the rates come from")
    offers: list[_Terms] = Field(default=[], description="commitments on offer")
    commitments: list[_Commitment] = Field(default=[], description="existing commitments")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentTerms:
    """The coverage of a commitment: discounts by family, instance type or GPU type."""

    name: str
    kind: Kind
    discounts: Mapping[str, float]
    term_years: int

    def discount_of(self, machine: InstanceType) -> float | None:
        """Return the discount on a machine; None if the commitment does not cover it."""
        if self.kind == "reserved":
            return self.discounts.get(machine.name)
        names = (machine.name.partition(".")[0], machine.gpu_type)
        return next((self.discounts[name] for name in names if name in self.discounts), None)

    def on(self, machines: Sequence[InstanceType]) -> Commitment | None:
        """Return the commitment for loads on these machines; None if it covers none of them."""
        offs = [self.discount_of(machine) for machine in machines]
        if all(off is None for off in offs):
            return None
        rates = [
            None if off is None else machine.usd_per_hour / machine.gpus * (1.0 - off)
            for machine, off in zip(machines, offs, strict=True)
        ]
        step = 0.0
        if self.kind == "reserved":
            step = next(
                m.usd_per_hour * (1.0 - off) for m, off in zip(machines, offs, strict=True) if off is not None
            )
        return Commitment(name=self.name, rates=tuple(rates), step=step)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCommitment:
    """An existing commitment between two days: a level in dollars per hour, or whole instances."""

    terms: CommitmentTerms
    usd_per_hour: float | None
    instances: int | None
    begins: date | None
    ends: date | None

    def is_active(self, day: date) -> bool:
        """Whether the commitment is paid on a day."""
        return (self.begins is None or self.begins <= day) and (self.ends is None or day < self.ends)

    def level(self, commitment: Commitment) -> float:
        """Return the dollars per hour that are paid whether used or not."""
        return self.usd_per_hour if self.instances is None else self.instances * commitment.step  # type: ignore[return-value]

    def on(self, machines: Sequence[InstanceType]) -> CommitmentLevel | None:
        """Return its cost and its rates by instance; None for one to instances that are not rented."""
        rates = {
            machine.name: machine.usd_per_hour * (1.0 - off)
            for machine in machines
            if (off := self.terms.discount_of(machine)) is not None
        }
        usd = self.usd_per_hour
        if usd is None:
            commitment = self.terms.on(machines)
            if commitment is None:
                return None
            usd = self.level(commitment)
        begins, ends = (None if day is None else _midnight(day) for day in (self.begins, self.ends))
        cost = FixedCost(name=self.terms.name, usd_per_hour=usd, begins_at=begins, ends_at=ends)
        return CommitmentLevel(cost=cost, rates=rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentsFile:
    """Offers and commitments, with the day and the source of their rates."""

    path: str
    offers: tuple[CommitmentTerms, ...]
    held: tuple[HeldCommitment, ...]
    as_of: date | None
    source: str

    def levels(self, machines: Sequence[InstanceType]) -> list[CommitmentLevel]:
        """Return the commitments as a daemon counts them, without those to instances that are not rented."""
        return [level for one in self.held if (level := one.on(machines)) is not None]


def offers_schema() -> dict[str, Any]:
    """Return the JSON schema of a file of offers and commitments, for editors."""
    return _File.model_json_schema()


def read_commitments(
    path: str | Path, machines: Collection[InstanceType], catalog: Catalog | None = None
) -> CommitmentsFile:
    """Return the offers and commitments of a file, checked against the known families and types.

    Raises:
        InputError: with file and line, when the file cannot be read, a family is unknown, a commitment is
            longer than its term or overlaps another of its name, or a discount is not from 0 to less than 1.
    """
    return parse_commitments(read_document(path), machines, catalog)


def parse_commitments(
    document: Document, machines: Collection[InstanceType], catalog: Catalog | None = None
) -> CommitmentsFile:
    """Return the offers and commitments of a document, as `read_commitments` does.

    Raises:
        InputError: when the document is wrong, with the line if it is known.
    """
    file = checked(_File, document.content, document=document)
    known = _Known.of(machines, catalog or Catalog.load())
    offers: list[CommitmentTerms] = []
    for index, row in enumerate(file.offers):
        at: KeyPath = ("offers", index)
        if row.name in {offer.name for offer in offers}:
            raise document.error(f"offer {row.name!r} is given twice", at=(*at, "name"))
        offers.append(_terms(row, known, document, at))
    if file.offers and (file.as_of is None or file.source is None):
        missing = "as_of" if file.as_of is None else "source"
        hint = "Rates change: give their day and their source"
        raise document.error(f"{missing} is missing", hint=hint)
    held: list[HeldCommitment] = []
    for index, row in enumerate(file.commitments):
        held.append(_held(row, known, held, document, ("commitments", index)))
    return CommitmentsFile(
        path=document.name,
        offers=tuple(offers),
        held=tuple(held),
        as_of=_day(file.as_of, document, ("as_of",)),
        source=file.source or "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Families and instance types that discounts may name."""

    families: frozenset[str]
    types: frozenset[str]

    @classmethod
    def of(cls, machines: Collection[InstanceType], catalog: Catalog) -> _Known:
        """Return the names in the catalogue and those of the machines of a file."""
        families = {name for entry in catalog.entries.values() for name in (entry.family, entry.gpu_type)}
        families |= {name for m in machines for name in (m.name.partition(".")[0], m.gpu_type)}
        return cls(
            families=frozenset(families), types=frozenset({*catalog.entries, *(m.name for m in machines)})
        )


_NEEDS: Mapping[Kind, tuple[str, ...]] = {
    "family": ("family", "discount"),
    "compute": ("discounts",),
    "reserved": ("instance_type", "discount"),
}


def _terms(row: _Terms, known: _Known, document: Document, at: KeyPath) -> CommitmentTerms:
    where = spoken(at, document.content)
    for key in ("family", "instance_type", "discount", "discounts"):
        value: Any = getattr(row, key)
        is_given = value is not None and value != {}
        if is_given is not (key in _NEEDS[row.kind]):
            says = (
                f"does not go with kind {row.kind!r}"
                if is_given
                else f"is missing: kind {row.kind!r} needs it"
            )
            raise document.error(f"{where}.{key} {says}", at=(*at, key) if is_given else at)
    if row.kind == "compute":
        for name in row.discounts:
            _check(name, known.families, "family", document, (*at, "discounts"))
        return CommitmentTerms(
            name=row.name, kind=row.kind, discounts=row.discounts, term_years=row.term_years
        )
    key = _NEEDS[row.kind][0]
    name = str(getattr(row, key))
    names = known.families if key == "family" else known.types
    _check(name, names, key.replace("_", " "), document, (*at, key))
    return CommitmentTerms(
        name=row.name, kind=row.kind, discounts={name: float(row.discount or 0.0)}, term_years=row.term_years
    )


def _check(name: str, known: Collection[str], what: str, document: Document, at: KeyPath) -> None:
    """Refuse an unknown name."""
    if name not in known:
        raise document.error(f"unknown {what} {name!r}", at=at, hint=did_you_mean(name, known))


def _held(
    row: _Commitment, known: _Known, before: Sequence[HeldCommitment], document: Document, at: KeyPath
) -> HeldCommitment:
    """Return one existing commitment."""
    terms, where = _terms(row, known, document, at), spoken(at, document.content)
    wanted, other = ("instances", "usd_per_hour") if row.kind == "reserved" else ("usd_per_hour", "instances")
    if getattr(row, wanted) is None or getattr(row, other) is not None:
        raise document.error(f"{where} needs {wanted}, and not {other}: its kind is {row.kind!r}", at=at)
    begins, ends = (_day(getattr(row, key), document, (*at, key)) for key in ("begins", "ends"))
    if (begins is None) is not (ends is None):
        raise document.error(f"{where} needs both begins and ends, or neither", at=at)
    if begins is not None and ends is not None:
        if ends <= begins:
            raise document.error(f"{where} ends on {ends}, before it begins", at=(*at, "ends"))
        if ends > _years_after(begins, row.term_years):
            term = counted(row.term_years, "year")
            problem = f"{where} lasts from {begins} to {ends}, longer than its term of {term}"
            raise document.error(problem, at=(*at, "ends"), hint="A renewal is a commitment of its own")
    held = HeldCommitment(
        terms=terms, usd_per_hour=row.usd_per_hour, instances=row.instances, begins=begins, ends=ends
    )
    for other_held in before:
        if other_held.terms.name == row.name and _overlap(held, other_held):
            problem = f"commitment {row.name!r} is given twice for the same time"
            hint = "Two of one kind at the same time have two names"
            raise document.error(problem, at=(*at, "name"), hint=hint)
    return held


def _overlap(one: HeldCommitment, other: HeldCommitment) -> bool:
    """Whether two commitments are paid on the same day."""
    starts_in_time = one.begins is None or other.ends is None or one.begins < other.ends
    ends_in_time = one.ends is None or other.begins is None or other.begins < one.ends
    return starts_in_time and ends_in_time


def _years_after(day: date, years: int) -> date:
    """Return the same day some years later; 29 February becomes the 28th."""
    try:
        return day.replace(year=day.year + years)
    except ValueError:
        return day.replace(year=day.year + years, day=28)


def _midnight(day: date) -> float:
    """Return the instant at which a day begins (UTC)."""
    return datetime.combine(day, time(), UTC).timestamp()


def _day(text: str | None, document: Document, at: KeyPath) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise document.error(
            f"{spoken(at, document.content)} is no day: {text!r}", at=at, hint="Write 2026-11-01"
        ) from None


def active_commitments(
    file: CommitmentsFile, machines: Sequence[InstanceType], day: date
) -> tuple[tuple[Commitment, ...], tuple[float, ...]]:
    """Return the commitments that are paid on a day, with their levels in dollars per hour.

    Raises:
        InputError: when a commitment covers none of the machines, and so would be paid for nothing.
    """
    found, levels = [], []
    for held in file.held:
        if not held.is_active(day):
            continue
        commitment = held.terms.on(machines)
        if commitment is None:
            names = ", ".join(machine.name for machine in machines)
            hint = "Leave it out, or add a GPU type that it covers"
            raise InputError(
                f"commitment {held.terms.name!r} covers none of {names}", file=file.path, hint=hint
            )
        found.append(commitment)
        levels.append(held.level(commitment))
    return tuple(found), tuple(levels)
