"""Names of GPU types and machines are read and written in one place, and asked for their parts elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import InvalidProblem
from policies.kinds import Kind, MachineName, kind_of, machine_name_of
from policies.model import InstanceType, Width

KINDS = {
    "t4": Kind("t4"),
    "t4@spot": Kind("t4", market="spot"),
    "t4@g4dn.xlarge": Kind("t4", "g4dn.xlarge"),
    "t4@g4dn.xlarge@spot": Kind("t4", "g4dn.xlarge", "spot"),
    "t4@g4dn.12xlarge/2": Kind("t4", "g4dn.12xlarge", places=2),
    "t4@g4dn.12xlarge/2@spot": Kind("t4", "g4dn.12xlarge", "spot", 2),
    "t4@g4dn.xlarge~sa-east-1": Kind("t4", "g4dn.xlarge~sa-east-1"),
    "h100@december": Kind("h100", "december"),
    "a10g@eu@g5.2xlarge": Kind("a10g", "eu@g5.2xlarge"),
    # What has none of these forms is a name of its own.
    "": Kind(""),
    "t4/2": Kind("t4/2"),
    "t4@": Kind("t4@"),
    "t4@/2": Kind("t4", "/2"),
    "t4@m/1": Kind("t4", "m/1"),
    "t4@m/02": Kind("t4", "m/02"),
    "t4@m/²": Kind("t4", "m/²"),
    "@spot": Kind("", market="spot"),
    "spot": Kind("spot"),
}
MACHINES = {
    "g5.xlarge": MachineName("g5.xlarge"),
    "g5.xlarge@spot": MachineName("g5.xlarge", market="spot"),
    "g5.xlarge~sa-east-1": MachineName("g5.xlarge", "sa-east-1"),
    "g5.xlarge~sa-east-1@spot": MachineName("g5.xlarge", "sa-east-1", "spot"),
    "l4@2-places": MachineName("l4", places=2),
    "l4@2-places@spot": MachineName("l4", market="spot", places=2),
    "l4~eu-west-1@2-places": MachineName("l4", "eu-west-1", places=2),
    "p5.48xlarge (december)": MachineName("p5.48xlarge (december)"),
    "": MachineName(""),
    "a~": MachineName("a~"),
    "l4@1-places": MachineName("l4@1-places"),
    "@2-places": MachineName("@2-places"),
}
texts = st.lists(
    st.sampled_from(("t4", "spot", "@", "/", "~", "2", "10", "-places", "@spot", "x", "é", "²")), max_size=7
).map("".join)


@pytest.mark.parametrize(("text", "kind"), KINDS.items())
def test_a_kind_has_the_parts_of_its_name(text: str, kind: Kind) -> None:
    """A name that fits no form is a card of its own."""
    assert kind_of(text) == kind
    assert str(kind) == text


@pytest.mark.parametrize(("text", "name"), MACHINES.items())
def test_a_machine_has_the_parts_of_its_name(text: str, name: MachineName) -> None:
    """A name that fits no form is an instance type of its own."""
    assert machine_name_of(text) == name
    assert str(name) == text


@given(text=texts | st.text(max_size=12))
def test_reading_and_writing_returns_every_text(text: str) -> None:
    """Files, plans and records of today hold such names: none may change."""
    assert str(kind_of(text)) == text
    assert str(machine_name_of(text)) == text


@given(card=texts, machine=texts, is_spot=st.booleans(), places=st.integers(1, 8))
def test_a_kind_that_is_written_is_read_as_the_same_kind(
    card: str, machine: str, *, is_spot: bool, places: int
) -> None:
    """A kind whose name is that of another card or market cannot be written."""
    kind = Kind(card, machine, "spot" if is_spot else "on-demand", places)
    try:
        text = str(kind)
    except InvalidProblem:
        return
    read = kind_of(text)
    assert (read.card, read.market) == (kind.card, kind.market)
    assert read == kind or "/" in machine


def test_a_machine_may_be_called_as_a_date_is_written() -> None:
    """Blocks of today have such names; their places are those of their machine."""
    assert str(Kind("h100", "2026/12")) == "h100@2026/12"


@pytest.mark.parametrize("machine", ["spot", "x@spot"])
def test_a_machine_whose_name_has_a_meaning_is_refused(machine: str) -> None:
    """`h100@spot` is a market, so no machine and no block can be called `spot`."""
    with pytest.raises(InvalidProblem, match="another meaning"):
        str(Kind("h100", machine))


def test_a_kind_on_the_other_market_keeps_its_other_parts() -> None:
    """Asking for the market that it has changes nothing."""
    kind = kind_of("t4@g4dn.12xlarge/2")

    assert str(kind.on_spot) == "t4@g4dn.12xlarge/2@spot"
    assert kind.on_spot.on_spot == kind.on_spot
    assert kind.on_spot.on_demand == kind == kind.on_demand
    assert (kind.is_spot, kind.on_spot.is_spot) == (False, True)


def test_a_machine_on_the_other_market_and_in_another_region_keeps_its_other_parts() -> None:
    """Catalogues list it without market and places."""
    name = machine_name_of("l4~eu-west-1@2-places@spot")

    assert str(name.on_demand) == "l4~eu-west-1@2-places"
    assert name.on_demand.on_spot == name == name.on_spot
    assert str(name.listed) == "l4~eu-west-1"
    assert str(name.in_region("")) == "l4@2-places@spot"


def test_a_further_machine_comes_after_the_one_that_a_kind_has() -> None:
    """The market stays last."""
    assert str(kind_of("t4").on("g4dn.xlarge")) == "t4@g4dn.xlarge"
    assert str(kind_of("t4").on("g4dn.xlarge", places=2)) == "t4@g4dn.xlarge/2"
    assert str(kind_of("t4@eu").on("g4dn.xlarge")) == "t4@eu@g4dn.xlarge"
    assert str(kind_of("t4@spot").on("g4dn.xlarge")) == "t4@g4dn.xlarge@spot"


def test_machines_and_widths_say_their_parts() -> None:
    """Who holds one of them needs no text."""
    machine = InstanceType(name="g5.xlarge@spot", gpu_type="a10g@spot", gpus=1, usd_per_hour=1.0)

    assert machine.kind == Kind("a10g", market="spot")
    assert machine.machine_name == MachineName("g5.xlarge", market="spot")
    assert Width("a10g@g5.2xlarge", 2).kind.machine == "g5.2xlarge"
