"""Names of GPU types and machines as values: `t4@g4dn.xlarge/2` is a `Kind`, `g5.xlarge@spot` a machine's.

Plans, files, records and answers hold these names as text, which is the key of every mapping by GPU type.
This module alone knows how the text is written: `kind_of` and `machine_name_of` read it, `str` writes it. All
others ask for fields.

    text                        kind                                             machine name
    t4                          the card's first machine, on demand
    t4@g4dn.xlarge              a further machine with the card
    t4@g4dn.12xlarge/2          a machine with 2 places on each GPU
    t4@g4dn.xlarge@spot         the same on the spot market
    g5.xlarge~sa-east-1@spot                                                     in a region, on spot
    l4@2-places                                                                  with 2 places on each GPU

A text that has none of these forms is a name of its own, so reading and writing return every text unchanged.

Cost: that of a dictionary look-up for a text that was read before.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from policies.errors import InvalidProblem

PlannedMarket: TypeAlias = Literal["on-demand", "spot"]
"""A market that plans choose; reserved nodes are the cloud's business."""
_AT, _IN, _ON_SPOT, _PLACES = "@", "~", "@spot", "-places"
_MOST_DIGITS = 3
_MOST_KNOWN = 65_536


class Kind(NamedTuple):
    """A GPU type of a plan: a card, the machine that carries it, the market, and the places on each GPU.

    `machine` is empty for the first machine of a card. `places` counts the jobs that may share one GPU.
    """

    card: str
    machine: str = ""
    market: PlannedMarket = "on-demand"
    places: int = 1

    @property
    def is_spot(self) -> bool:
        """Whether the kind is rented on the spot market."""
        return self.market == "spot"

    @property
    def on_spot(self) -> Kind:
        """The same kind on the spot market."""
        return self if self.market == "spot" else Kind(self.card, self.machine, "spot", self.places)

    @property
    def on_demand(self) -> Kind:
        """The same kind on demand."""
        return self if self.market == "on-demand" else Kind(self.card, self.machine, places=self.places)

    def on(self, machine: str, *, places: int = 1) -> Kind:
        """Return the kind of a further machine with this GPU; a machine that the kind has comes first."""
        both = f"{self.machine}{_AT}{machine}" if self.machine else machine
        return self._replace(machine=both, places=places)

    def __str__(self) -> str:
        """Return the name in plans and files.

        Raises:
            InvalidProblem: when the name would be read as another kind, such as a machine called `spot`.
        """
        return _written_kind(self)


class MachineName(NamedTuple):
    """A machine's name in plans: the cloud's instance type, the region, the market, and the places on a GPU.

    `region` is empty in the home region.
    """

    instance_type: str
    region: str = ""
    market: PlannedMarket = "on-demand"
    places: int = 1

    @property
    def is_spot(self) -> bool:
        """Whether the machine is rented on the spot market."""
        return self.market == "spot"

    @property
    def on_spot(self) -> MachineName:
        """The same machine on the spot market."""
        return self if self.market == "spot" else self._replace(market="spot")

    @property
    def on_demand(self) -> MachineName:
        """The same machine on demand."""
        return self if self.market == "on-demand" else self._replace(market="on-demand")

    @property
    def listed(self) -> MachineName:
        """The machine as catalogues list it: in its region, without market and places."""
        return MachineName(self.instance_type, self.region)

    def in_region(self, region: str) -> MachineName:
        """Return the machine in another region; empty for the home region."""
        return self._replace(region=region)

    def __str__(self) -> str:
        """Return the name in plans."""
        return _written_machine(self)


@lru_cache(maxsize=_MOST_KNOWN)
def kind_of(text: str) -> Kind:
    """Return the kind that a text names: `str(kind_of(text)) == text`."""
    market, text = _market_of(text)
    card, _, machine = text.partition(_AT)
    if not machine:
        return Kind(text, market=market)
    before, _, count = machine.rpartition("/")
    places = _places_of(count) if before else 1
    return Kind(card, before if places > 1 else machine, market, places)


@lru_cache(maxsize=_MOST_KNOWN)
def machine_name_of(text: str) -> MachineName:
    """Return the machine that a text names: `str(machine_name_of(text)) == text`."""
    market, text = _market_of(text)
    before, _, count = text.removesuffix(_PLACES).rpartition(_AT)
    places = _places_of(count) if before and text.endswith(_PLACES) else 1
    text = before if places > 1 else text
    instance_type, _, region = text.partition(_IN)
    return MachineName(instance_type if region else text, region, market, places)


def _places_of(count: str) -> int:
    """Return the places that a text counts; 1 if it is no such count, as `01` and `1` are not."""
    is_count = count.isascii() and count.isdecimal() and len(count) <= _MOST_DIGITS
    return int(count) if is_count and count == str(int(count)) and int(count) > 1 else 1


def _market_of(text: str) -> tuple[PlannedMarket, str]:
    """Return the market in a name, and the name without it."""
    return ("spot", text.removesuffix(_ON_SPOT)) if text.endswith(_ON_SPOT) else ("on-demand", text)


@lru_cache(maxsize=_MOST_KNOWN)
def _written_kind(kind: Kind) -> str:
    machine = f"{_AT}{kind.machine}" if kind.machine else ""
    places = f"/{kind.places}" if kind.places > 1 else ""
    text = f"{kind.card}{machine}{places}{_ON_SPOT if kind.is_spot else ''}"
    read = kind_of(text)
    # A machine or block may be called `2026/12`: whoever needs the places has them from its `InstanceType`.
    if (read.card, read.market) != (kind.card, kind.market):
        raise InvalidProblem(
            f"GPU type {kind.card!r} on machine {kind.machine!r} would be named {text!r}, which has another "
            "meaning. Choose another name for the machine"
        )
    return text


@lru_cache(maxsize=_MOST_KNOWN)
def _written_machine(name: MachineName) -> str:
    region = f"{_IN}{name.region}" if name.region else ""
    places = f"{_AT}{name.places}{_PLACES}" if name.places > 1 else ""
    return f"{name.instance_type}{region}{places}{_ON_SPOT if name.is_spot else ''}"
