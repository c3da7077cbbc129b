"""The world file: zones, boots, stock, quotas, spot, faults, checkpoints and beliefs, in YAML.

`docs/reference/world-file.md` describes it. Every error is one `InputError` that names key, file and line.
Paths in it are files of their own (`boa_daemon.sim.step_file`), relative to the world file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.document_file import Document, KeyPath, read_document
from boa_daemon.inputs.schema import LEAST, Fraction, Name, NotNegative, Positive, Strict, a_kind, checked
from boa_daemon.sim.step_file import read_steps
from boa_daemon.sim.world_settings import (
    AWS_BOOTS,
    Boot,
    Checkpoints,
    Faults,
    Spot,
    Stock,
    Tier,
    WorldSettings,
    WrongBeliefs,
)
from policies.model import InstanceType

DEFAULT = "default"
"""The key that stands for all others."""
_Share = Annotated[float, Field(ge=LEAST, le=1.0)]
_SPOT, _FAULTS, _CHECKPOINTS = Spot(), Faults(), Checkpoints()


class _Boot(Strict):
    median_seconds: NotNegative = Field(description="seconds from launch to ready, half of the time")
    p99_seconds: NotNegative | None = Field(
        default=None, description="seconds that 1 boot in 100 exceeds; the median where left out"
    )


class _Stock(Strict):
    nodes: int | None = Field(default=None, ge=0, description="nodes while in stock; no limit if left out")
    mean_in_hours: Positive | None = Field(default=None, description="hours in stock; for ever if left out")
    mean_out_hours: Positive = Field(default=1.0, description="hours out of stock")
    file: Name | None = Field(default=None, description="a file of at_seconds,nodes, or a spot trace in JSON")


class _Spot(Strict):
    price_fraction: _Share = Field(default=_SPOT.price_fraction, description="of the on-demand price")
    price_volatility: NotNegative = Field(
        default=_SPOT.price_volatility, description="standard deviation of its logarithm"
    )
    price_memory_hours: Positive = Field(
        default=_SPOT.price_memory_hours, description="hours to return to the mean"
    )
    prices: Name | None = Field(default=None, description="a file of at_seconds,price_fraction")
    mean_interruption_hours: Positive = Field(
        default=_SPOT.mean_interruption_hours, description="hours until a node is taken back"
    )
    notice_seconds: NotNegative = Field(default=_SPOT.notice_seconds, description="seconds of warning")
    unannounced_fraction: Fraction = Field(default=0.0, description="of the interruptions, without warning")
    stock: _Stock = Field(default=_Stock(), description="as under stock, for the spot market")


class _Faults(Strict):
    boot_failure_fraction: float = Field(default=0.0, ge=0.0, lt=1.0, description="of the nodes")
    throttled_fraction: float = Field(default=0.0, ge=0.0, lt=1.0, description="of the requests")
    lost_answer_fraction: float = Field(default=0.0, ge=0.0, lt=1.0, description="of the requests")
    short_grant_fraction: Fraction = Field(default=0.0, description="of the requests for several nodes")
    slow_node_fraction: Fraction = Field(default=0.0, description="of the nodes")
    slow_speed: _Share = Field(default=_FAULTS.slow_speed, description="of the full speed")
    mean_node_failure_hours: Positive | None = Field(default=None, description="hours; never if left out")
    mean_job_failure_hours: Positive | None = Field(default=None, description="hours; never if left out")


class _Checkpoints(Strict):
    every_seconds: Positive = Field(default=_CHECKPOINTS.every_seconds, description="seconds of work")
    cost_seconds: NotNegative = Field(default=_CHECKPOINTS.cost_seconds, description="seconds for each")


class _Beliefs(Strict):
    rates: object = Field(default=None, description="believed arrivals over true ones, or by class")
    sizes: object = Field(default=None, description="believed sizes over true ones, or by class")
    speedup_exponents: object = Field(
        default=None, description="exponent on speed-ups; above 1: too good; or by class"
    )
    tells_scales: bool = Field(default=True, description="whether jobs report their scale within their class")
    size_spread: NotNegative = Field(
        default=0.0, description="spread of the logarithm of each job's size error"
    )
    boot_seconds: NotNegative | None = Field(
        default=None, description="believed boot time; the truth if left out"
    )


class _Tier(Strict):
    name: Name = Field(description="name of the tier, for example rack")
    groups: int = Field(ge=1, description="parts of this tier in each part of the tier above")
    gigabits_per_second: Positive = Field(description="capacity of the uplink of each part")


class _Factors(Strict):
    factors: dict[Name, Positive]


class _File(Strict):
    zones: list[Name] = Field(default=[], description="names of zones; one without a name if left out")
    boot: object = Field(default=None, description="aws, or a boot by instance type")
    stock: dict[Name, _Stock] = Field(default={}, description="stock in each zone by instance type")
    zone_stock: dict[Name, dict[Name, _Stock]] = Field(default={}, description="the same for one zone")
    quotas: dict[Name, int] = Field(default={}, description="most nodes by instance type")
    spot: _Spot | None = Field(default=None, description="a spot market; {} takes the defaults")
    on_demand: bool = Field(default=True, description="whether there is an on-demand market")
    faults: _Faults = Field(default=_Faults(), description="faults of nodes, requests and jobs")
    checkpoints: _Checkpoints | None = Field(default=None, description="every_seconds and cost_seconds")
    beliefs: _Beliefs = Field(default=_Beliefs(), description="what the policy believes")
    topology: list[_Tier] = Field(default=[], description="tiers of the network in a zone, the widest first")
    bursts: NotNegative = Field(
        default=0.0, description="added variance of an hour's arrival rate over mean^2"
    )


class _Boots(Strict):
    boot: dict[Name, _Boot]


def world_schema() -> dict[str, Any]:
    """Return the JSON schema of a world file, for editors."""
    return _File.model_json_schema()


def load_world(
    path: str | Path, instance_types: Collection[InstanceType], class_names: Collection[str]
) -> WorldSettings:
    """Return the world that a file describes, for runs on these machines and classes.

    Raises:
        InputError: with file and line, when it cannot be read, a key is unknown or a value is out of range.
    """
    document = read_document(path)
    return parse_world(document, instance_types, class_names)


def parse_world(
    document: Document, instance_types: Collection[InstanceType], class_names: Collection[str]
) -> WorldSettings:
    """Return the world that a document describes.

    Raises:
        InputError: as `load_world`.
    """
    if document.content is None:
        return WorldSettings()
    if not isinstance(document.content, Mapping):
        raise document.error(f"a world file is a mapping; got {a_kind(document.content)}")
    file = checked(_File, document.content, document=document)
    types = {DEFAULT, *(kind.name for kind in instance_types), *(kind.gpu_type for kind in instance_types)}
    for key in ("boot", "stock", "quotas"):
        _check_names(document, (key,), types, "instance type")
    _check_names(document, ("zone_stock",), set(file.zones), "zone")
    for zone in file.zone_stock:
        _check_names(document, ("zone_stock", zone), types, "instance type")
    if len(set(file.zones)) < len(file.zones):
        raise document.error("a zone is named twice", at=("zones",))
    if file.spot is None and not file.on_demand:
        raise document.error(
            "on_demand is false and there is no spot", at=("on_demand",), hint="Add spot: {}"
        )
    for name, quota in file.quotas.items():
        if quota < 0:
            raise document.error(f"quotas.{name} must be at least 0; got {quota}", at=("quotas", name))
    fails = file.faults
    return WorldSettings(
        zones=tuple(file.zones),
        boots=_boots(file.boot, document, instance_types),
        stock={_key(n): _stock(s, document, ("stock", n)) for n, s in file.stock.items()},
        zone_stock={
            zone: {_key(n): _stock(s, document, ("zone_stock", zone, n)) for n, s in stock.items()}
            for zone, stock in file.zone_stock.items()
        },
        quotas={_key(name): quota for name, quota in file.quotas.items()},
        spot=None if file.spot is None else _spot(file.spot, document),
        on_demand=file.on_demand,
        faults=Faults(**{key: value for key, value in fails.model_dump().items() if value is not None}),
        checkpoints=None if file.checkpoints is None else Checkpoints(**file.checkpoints.model_dump()),
        beliefs=_beliefs(file.beliefs, document, class_names),
        topology=tuple(Tier(**tier.model_dump()) for tier in file.topology),
        bursts=file.bursts,
    )


def _check_names(document: Document, at: KeyPath, known: Collection[str], what: str) -> None:
    """Refuse unknown names."""
    content = document.content
    for key in at:
        content = content.get(key) if isinstance(content, Mapping) else None
    for name in content if isinstance(content, Mapping) else ():
        if name not in known and not (at == ("boot",) and name in _Boot.model_fields):
            hint = did_you_mean(str(name), known)
            raise document.error(f"{'.'.join(map(str, at))}: no {what} {name!r}", at=(*at, name), hint=hint)


def _boots(value: object, document: Document, instance_types: Collection[InstanceType]) -> Mapping[str, Boot]:
    """Return the boots: `aws`, one for all, or one by instance type."""
    if value is None:
        return {}
    if value == "aws":
        return aws_boots(instance_types)
    if not isinstance(value, Mapping):
        hint = "Write aws, {median_seconds: 180}, or one by instance type"
        raise document.error(f"boot is {a_kind(value)}", at=("boot",), hint=hint)
    if set(value) & _Boot.model_fields.keys():
        return {"": _boot(checked(_Boot, value, document=document, at=("boot",)), document, ("boot",))}
    rows = checked(_Boots, {"boot": value}, document=document).boot
    return {_key(name): _boot(row, document, ("boot", name)) for name, row in rows.items()}


def aws_boots(instance_types: Collection[InstanceType]) -> dict[str, Boot]:
    """Return AWS's boots by the family of each type; those of G for an unknown family."""
    return {kind.name: AWS_BOOTS.get(kind.name[:1], AWS_BOOTS["g"]) for kind in instance_types}


def parse_boot(text: str, instance_types: Collection[InstanceType]) -> dict[str, Boot]:
    """Return the boots of a flag: ``aws``, ``constant:180`` or ``lognormal:180,900`` (median, p99).

    Raises:
        InputError: when it is none of these.
    """
    if text == "aws":
        return aws_boots(instance_types)
    kind, _, numbers = text.partition(":")
    try:
        seconds = [float(number) for number in numbers.split(",")]
    except ValueError:
        seconds = []
    if kind == "constant" and len(seconds) == 1:
        return {"": Boot.constant(seconds[0])}
    if kind == "lognormal" and len(seconds) == 2:
        return {"": Boot(median_seconds=seconds[0], p99_seconds=seconds[1])}
    hint = "Write aws, constant:180 or lognormal:180,900 (median and p99, seconds)"
    raise InputError(f"--boot {text!r} is not a boot time", hint=hint)


def _boot(row: _Boot, document: Document, at: KeyPath) -> Boot:
    """Return one boot."""
    p99 = row.median_seconds if row.p99_seconds is None else row.p99_seconds
    if p99 < row.median_seconds or (row.median_seconds == 0.0 < p99):
        raise document.error(
            f"p99_seconds {p99:g} does not go with a median of {row.median_seconds:g}", at=at
        )
    return Boot(median_seconds=row.median_seconds, p99_seconds=p99)


def _stock(row: _Stock, document: Document, at: KeyPath) -> Stock:
    """Return one stock."""
    if row.file is not None:
        steps = read_steps(_beside(document, row.file), "nodes")
        return Stock(path=tuple((instant, int(nodes)) for instant, nodes in steps))
    if row.mean_in_hours is None:
        return Stock(nodes=row.nodes)
    return Stock(nodes=row.nodes, mean_in_hours=row.mean_in_hours, mean_out_hours=row.mean_out_hours)


def _spot(row: _Spot, document: Document) -> Spot:
    """Return the spot market."""
    return Spot(
        price_fraction=row.price_fraction,
        price_volatility=row.price_volatility,
        price_memory_hours=row.price_memory_hours,
        prices=() if row.prices is None else read_steps(_beside(document, row.prices), "price_fraction"),
        mean_interruption_hours=row.mean_interruption_hours,
        notice_seconds=row.notice_seconds,
        unannounced_fraction=row.unannounced_fraction,
        stock=_stock(row.stock, document, ("spot", "stock")),
    )


def _beliefs(row: _Beliefs, document: Document, class_names: Collection[str]) -> WrongBeliefs:
    """Return the beliefs: each a factor for all classes, or by class."""
    factors: dict[str, Any] = {}
    for key in ("rates", "sizes", "speedup_exponents"):
        value, at = getattr(row, key), ("beliefs", key)
        if value is None:
            continue
        by_class = value if isinstance(value, Mapping) else {DEFAULT: value}
        found = checked(_Factors, {"factors": by_class}, document=document).factors
        _check_names(document, at, {DEFAULT, *class_names}, "class")
        factors[key] = {_key(name): factor for name, factor in found.items()}
    return WrongBeliefs(
        **factors,
        size_spread=row.size_spread,
        tells_scales=row.tells_scales,
        boot_seconds=row.boot_seconds,
    )


def _key(name: str) -> str:
    """Return a name as the settings use it."""
    return "" if name == DEFAULT else name


def _beside(document: Document, name: str) -> Path:
    """Return the path of a file named in a world file: relative to the world file unless absolute."""
    return Path(document.name).parent / name
