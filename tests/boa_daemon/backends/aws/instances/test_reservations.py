"""Reservations and blocks: one offer each, at the price of one more node; they cost money when idle too."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_rigs import START, AwsRig, RigMaker, a_launch, a_rig, ends

from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.testing.fake_terms import Block, Capacity, Terms
from boa_daemon.tick.facts.offers import Cooldown, Offer, covers, open_offers, room_to_rent
from boa_daemon.tick.facts.ports import Launched, Refused

TYPE, PRICE, HOUR = "g5.xlarge", 1.006, 3600.0
OURS = {"team": "ml"}


def of_type(offers: list[Offer], market: str = "reserved") -> dict[str, Offer]:
    """Return the offers of the type on a market, by pool."""
    return {each.pool: each for each in offers if (each.instance_type, each.market) == (TYPE, market)}


def reserved_rig(make_rig: RigMaker, named: str = "tag:team=ml", **more: object) -> AwsRig:
    """Return a rig with several reservations behind one tag, in two zones, partly used by others."""
    capacity = {
        "cr-a1": Capacity(TYPE, "us-east-1a", 2, OURS),
        "cr-a2": Capacity(TYPE, "us-east-1a", 3, OURS, used_by_others=2),
        "cr-b": Capacity(TYPE, "us-east-1b", 1, OURS),
        "cr-full": Capacity(TYPE, "us-east-1b", 4, OURS, used_by_others=4),
        "cr-theirs": Capacity(TYPE, "us-east-1a", 9, {"team": "other"}),
        "cr-p4": Capacity("p4d.24xlarge", "us-east-1a", 1, OURS),
    }
    terms = Terms(capacity=capacity, boot_seconds=60.0, shutdown_seconds=30.0, spot_fraction=0.4)
    return make_rig(terms, reservations={TYPE: named}, market="spot-then-on-demand", **more)


def test_each_reservation_behind_a_tag_is_an_offer(make_rig: RigMaker) -> None:
    """Of each the free nodes count, in its own zone; other teams' and other types' are left out."""
    rig = reserved_rig(make_rig)
    found = of_type(list(rig.cloud.offers()))

    assert {pool: (each.zone, each.nodes_left) for pool, each in found.items()} == {
        "cr-a1": ("us-east-1a", 2),
        "cr-a2": ("us-east-1a", 1),
        "cr-b": ("us-east-1b", 1),
        "cr-full": ("us-east-1b", 0),
    }
    assert len({each.key for each in found.values()}) == 4


def test_several_ids_may_be_named(make_rig: RigMaker) -> None:
    """They stand in one setting, separated by commas."""
    assert of_type(list(reserved_rig(make_rig, "cr-a1, cr-b").cloud.offers())).keys() == {"cr-a1", "cr-b"}


def test_an_id_that_ec2_does_not_know_hides_no_other(make_rig: RigMaker) -> None:
    """EC2 refuses the whole question; the others are offers all the same, and the wrong one is named."""
    rig = reserved_rig(make_rig, "cr-a1,cr-gone, cr-b")

    assert of_type(list(rig.cloud.offers())).keys() == {"cr-a1", "cr-b"}
    assert "cr-gone" in rig.cloud.faults()["reservations"]
    assert "cr-b" not in rig.cloud.faults()["reservations"]


def test_one_wrong_id_alone_leaves_the_other_markets(make_rig: RigMaker) -> None:
    """Nothing is reserved then, and spot and on demand are offered."""
    rig = reserved_rig(make_rig, "cr-gone")
    offers = list(rig.cloud.offers())

    assert {each.market for each in offers} == {"spot", "on-demand"}
    assert "cr-gone" in rig.cloud.faults()["reservations"]


def test_what_is_paid_comes_before_spot_and_on_demand(make_rig: RigMaker) -> None:
    """The marginal price is the disk alone; four nodes fit in all."""
    rig = reserved_rig(make_rig)
    offers = list(rig.cloud.offers())
    ordered = open_offers(TYPE, offers, {}, now=START)

    assert [each.market for each in ordered[:3]] == ["reserved"] * 3
    assert all(each.compute_usd_per_hour == pytest.approx(1e-6) for each in ordered[:3])
    reserved = [each for each in offers if each.market == "reserved"]
    assert room_to_rent(TYPE, reserved, {}, now=START) == (4.0, 2.0)


def test_each_launch_names_its_reservation_and_leaves_the_others(make_rig: RigMaker) -> None:
    """Nodes of two reservations in one zone are told apart, and a full one closes nothing beside it."""
    rig = reserved_rig(make_rig)
    offers = of_type(list(rig.cloud.offers()))
    for number, pool in enumerate(("cr-a1", "cr-a2", "cr-b")):
        assert isinstance(rig.cloud.launch(a_launch(offers[pool], name=f"t1-{number}")), Launched)
    again = rig.cloud.launch(a_launch(offers["cr-a2"], name="t1-again"))

    assert sorted(life.tags["boa:reservation"] for life in rig.fake.history()) == ["cr-a1", "cr-a2", "cr-b"]
    assert isinstance(again, Refused)
    assert again.kind == "no-capacity"
    closed = {scope: Cooldown(until=START + 60) for scope in again.scopes}
    assert next(each.pool for each in open_offers(TYPE, list(offers.values()), closed, now=START)) == "cr-a1"
    assert covers(f"{TYPE}/us-east-1a/reserved", offers["cr-a1"].key)


def test_a_reservation_costs_the_same_used_or_idle(make_rig: RigMaker) -> None:
    """What others use is theirs; what we use and what is idle is in the ledger, and shown in dollars."""
    rig = reserved_rig(make_rig)
    idle = dict(rig.cloud.standing())["reservations"]
    rig.cloud.launch(a_launch(of_type(list(rig.cloud.offers()))["cr-a1"], 2))
    nodes = rig.cloud.nodes()
    at_once = dict(rig.cloud.standing())["reservations"]
    rig.pass_time(61.0)
    used = dict(rig.cloud.standing())["reservations"]

    assert idle == used == at_once == pytest.approx(4 * PRICE)
    assert all(node.prices[-1][1] == pytest.approx(1e-6) for node in nodes)
    assert rig.cloud.idle_usd_per_hour() == pytest.approx(2 * PRICE)
    assert sum("paid for nothing" in note for note in rig.cloud.notes()) == 2
    assert "1 of 1 g5.xlarge of reservation cr-b in us-east-1b are idle: $1.01/hour" in " ".join(
        rig.cloud.notes()
    )


@pytest.mark.parametrize("how", ["expires", "is cancelled"])
def test_a_node_whose_reservation_is_over_is_billed_on_demand(make_rig: RigMaker, how: str) -> None:
    """EC2 lets the node run on, and bills it: no dollar is missing, from the end of the reservation on."""
    rig = reserved_rig(make_rig, "cr-a1")
    one = rig.fake.terms.capacity["cr-a1"]
    one.ends_at = START + 4 * HOUR if how == "expires" else None
    rig.cloud.launch(a_launch(of_type(list(rig.cloud.offers()))["cr-a1"], 2))
    rig.pass_time(3 * HOUR)
    assert {node.prices[-1][1] for node in rig.cloud.nodes()} == {1e-6}
    rig.pass_time(1 * HOUR)
    one.is_cancelled = how == "is cancelled"
    rig.cloud.offers()
    nodes = rig.cloud.nodes()
    rig.pass_time(600.0)

    assert [node.prices[-1] for node in nodes] == [(START + 4 * HOUR, PRICE)] * 2
    assert [node.prices for node in rig.cloud.nodes()] == [node.prices for node in nodes]
    assert of_type(list(rig.cloud.offers())) == {}
    assert dict(rig.cloud.standing()).get("reservations", 0.0) == 0.0


def test_an_offer_of_a_reservation_that_is_gone_is_never_launched_on_demand(make_rig: RigMaker) -> None:
    """Without its id in the request EC2 would bill an ordinary node."""
    rig = reserved_rig(make_rig, "cr-a1")
    offer = of_type(list(rig.cloud.offers()))["cr-a1"]
    rig.fake.terms.capacity["cr-a1"].is_cancelled = True
    rig.pass_time(61.0)
    outcome = rig.cloud.launch(a_launch(offer))

    assert isinstance(outcome, Refused)
    assert "cr-a1 is not active" in outcome.reason
    assert rig.fake.history() == []


def test_blocks_follow_one_another(make_rig: RigMaker) -> None:
    """Two blocks of a type, one after the other: each is offered in its time, and its nodes leave in time."""
    blocks = {
        "first": Block(TYPE, "us-east-1a", 1, START, START + 24 * HOUR, 20.0, 1),
        "second": Block(TYPE, "us-east-1b", 1, START + 24 * HOUR, START + 48 * HOUR, 20.0, 1),
    }
    rig = make_rig(Terms(blocks=blocks, boot_seconds=60.0), reservations={TYPE: "cr-first,cr-second"})
    assert of_type(list(rig.cloud.offers())).keys() == {"cr-first"}
    rig.cloud.launch(a_launch(of_type(list(rig.cloud.offers()))["cr-first"]))
    rig.pass_time(23.45 * HOUR)
    leaving = rig.cloud.nodes()[0].ends_by
    rig.pass_time(0.6 * HOUR)
    rig.cloud.nodes()

    assert leaving == START + 23.5 * HOUR
    assert of_type(list(rig.cloud.offers())).keys() == {"cr-second"}
    assert isinstance(
        rig.cloud.launch(a_launch(of_type(list(rig.cloud.offers()))["cr-second"], name="t2")), Launched
    )


def test_a_daemon_fills_its_reservation_first_and_its_ledger_has_the_idle_part(tmp_path: Path) -> None:
    """One job of two nodes' worth: the reserved node first, then on demand; the hours are charged whole."""
    capacity = {"cr-1": Capacity(TYPE, "us-east-1a", 1, OURS)}
    settings = {
        "budget": {"usd_per_hour": 5.0, "usd_per_day_cap": 200.0, "max_instances": 4},
        "cloud": {"provider": "aws", "instance_types": [TYPE]},
        "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
    }
    with a_rig(
        "process", Terms(capacity=capacity, boot_seconds=60.0), instance_types=(TYPE,),
        zones=("us-east-1a",), reservations={TYPE: "tag:team=ml"},
    ) as rig:  # fmt: skip
        play = DaemonInAFolder(tmp_path, rig.clock, settings, rented_from=rig.cloud)
        play.daemon.tick()
        idle = play.service.status()
        play.service.submit([job_content("a", hours=2.0), job_content("b", hours=2.0)], user="ann")
        for _ in range(20):
            play.daemon.tick()
            rig.pass_time(30.0)
        markets = [life.market for life in rig.fake.history()]
        kinds = {row["name"]: row["usd"] for row in play.service.cost(by="kind", since=0.0)["rows"]}
        busy = play.service.status()
        play.close()

    assert idle["idle_reserved_usd_per_hour"] == pytest.approx(PRICE)
    assert any("are paid for nothing" in note for note in idle["notes"])
    assert markets[0] == "reserved"
    assert markets.count("reserved") == 1
    assert kinds["reservations"] == pytest.approx(PRICE)
    assert busy["idle_reserved_usd_per_hour"] == 0.0


def test_nodes_of_reservations_end_like_others(make_rig: RigMaker) -> None:
    """Ending one frees its place in the reservation."""
    rig = reserved_rig(make_rig, "cr-a1")
    outcome = rig.cloud.launch(a_launch(of_type(list(rig.cloud.offers()))["cr-a1"]))
    assert isinstance(outcome, Launched)
    rig.pass_time(90.0)
    rig.cloud.nodes()
    rig.cloud.terminate(ends(*outcome.nodes))
    rig.pass_time(120.0)
    rig.cloud.nodes()

    assert rig.fake.live() == []
    assert of_type(list(rig.cloud.offers()))["cr-a1"].nodes_left == 2
