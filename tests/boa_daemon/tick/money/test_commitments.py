"""Commitments on another clock, and as rows of JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

from boa_daemon.testing import a_node, an_instance_type
from boa_daemon.tick.facts.limits import FixedCost
from boa_daemon.tick.money.commitments import CommitmentLevel, SiteCommitments, at_list_prices
from boa_daemon.tick.money.ledger import bill

KIND = an_instance_type()
PAID = SiteCommitments.of(
    [
        CommitmentLevel(
            cost=FixedCost(name="ours", usd_per_hour=0.75 * KIND.usd_per_hour, begins_at=100.0, ends_at=9e4),
            rates={KIND.name: 0.75 * KIND.usd_per_hour},
        ),
        CommitmentLevel(
            cost=FixedCost(name="a block", usd_per_hour=2.0), rates={KIND.name: 2.0}, is_block=True
        ),
    ],
    [KIND],
)


def test_rows_of_commitments_are_read_back_after_json() -> None:
    """Instants, rates and kinds survive."""
    assert SiteCommitments.of_rows(json.loads(json.dumps(PAID.to_rows())), [KIND]) == PAID


def test_on_a_clock_that_began_earlier_everything_is_later() -> None:
    """Ten seconds on, both instants move by ten; what is open stays open."""
    later = {level.cost.name: level.cost for level in PAID.later(10.0).levels}

    assert (later["ours"].begins_at, later["ours"].ends_at) == (110.0, 90_010.0)
    assert (later["a block"].begins_at, later["a block"].ends_at) == (None, None)


def test_a_covered_node_costs_nothing_more_from_the_begin_of_the_commitment() -> None:
    """Before it the node has its price on demand; a block covers no node."""
    nodes = [a_node("n", kind=KIND, launched_at=0.0)]

    before = PAID.priced(nodes, {}, 50.0)
    after = PAID.priced(nodes, before, 200.0)
    assert before["n"].usd_per_hour == KIND.usd_per_hour
    assert (after["n"].usd_per_hour, after["n"].prices[0][1]) == (0.0, KIND.usd_per_hour)


def test_what_is_not_covered_follows_the_list_price_and_what_never_ran_is_free() -> None:
    """Half of a node is covered: the other half costs half of what the cloud lists now."""
    level = CommitmentLevel(
        cost=FixedCost(name="half", usd_per_hour=0.5 * KIND.usd_per_hour),
        rates={KIND.name: KIND.usd_per_hour},
    )
    paid = SiteCommitments.of([level], [KIND])
    plain = replace(a_node("n", kind=KIND, launched_at=0.0), prices=((0.0, KIND.usd_per_hour),))
    before = paid.priced([plain], {}, 50.0)
    dearer = replace(plain, prices=(*plain.prices, (60.0, 3.0 * KIND.usd_per_hour)))
    after = paid.priced([dearer], before, 100.0)
    never = replace(plain, phase="terminated", ended_at=0.0, prices=((0.0, 0.0),))

    assert before["n"].usd_per_hour == 0.5 * KIND.usd_per_hour
    assert after["n"].prices == (*before["n"].prices, (60.0, 1.5 * KIND.usd_per_hour)), "since its date"
    assert bill(paid.priced([never], after, 200.0)["n"], until=200.0) == 0


def test_the_part_that_was_paid_stays_while_list_prices_become_known() -> None:
    """A quarter was paid, then all, then nothing; the list price doubles in the middle of each."""
    paid = ((0.0, 1.0), (100.0, 4.0), (200.0, 0.0))
    node = replace(a_node("n", kind=KIND, launched_at=0.0), prices=paid, list_prices=((0.0, 4.0),))
    for at in (50.0, 150.0, 250.0):
        late = at_list_prices(node, ((0.0, 4.0), (at, 8.0)))
        assert late.list_prices == ((0.0, 4.0), (at, 8.0))
        assert at_list_prices(late, ((0.0, 4.0),)).prices == paid, "and back again"
        for instant in (0.0, 50.0, 100.0, 150.0, 200.0, 250.0):
            before = next(usd for since, usd in reversed(paid) if since <= instant)
            after = next(usd for since, usd in reversed(late.prices) if since <= instant)
            assert after == before * (2.0 if instant >= at else 1.0)
        assert all(first[1] != second[1] for first, second in pairwise(late.prices))


def test_a_node_of_an_older_record_keeps_what_it_was_charged() -> None:
    """Its list prices were not written down; they are from now on."""
    node = replace(a_node("n", kind=KIND, launched_at=0.0), prices=((0.0, 1.0),))
    late = at_list_prices(node, ((0.0, 4.0), (50.0, 8.0)))
    assert (late.prices, late.list_prices) == (node.prices, ((0.0, 4.0), (50.0, 8.0)))
