"""`aws/instances/instance_lives.py`: which life an instance is in, and what each life costs.

Odd lives run, even ones are stopped; the tag holds the life that was ordered last.
"""

from __future__ import annotations

from typing import Any

import pytest
from ec2_rows import LAUNCHED_AT, an_instance
from hypothesis import given
from hypothesis.strategies import integers, none, one_of, sampled_from

from boa_daemon.backends.aws.instances.instance_lives import (
    LIFE_TAG,
    STOPPED_TAG,
    as_life,
    is_stop_open,
    life_before,
    life_now,
    ordered_life,
    was_stopped_by_others,
)
from boa_daemon.backends.aws.instances.launch_request import EXTRAS_TAG, PRICE_TAG
from boa_daemon.testing import a_node, an_instance_type
from boa_daemon.tick.facts.state import DISK_USD_PER_HOUR, NodeState

KINDS = {"gpu-x4": an_instance_type()}
STOP, NOW = LAUNCHED_AT + 3600.0, LAUNCHED_AT + 7200.0


def lived(life: object = "", state: str = "running", *, stopped: float | None = None, **changes: Any) -> Any:
    """Return an instance whose tags say which life was ordered, and when the last stop was."""
    tags = {LIFE_TAG: str(life), PRICE_TAG: "3", EXTRAS_TAG: "disk=0.5 address=0.1"}
    if stopped is not None:
        tags[STOPPED_TAG] = str(int(stopped))
    return an_instance(state=state, tags=tags, **changes)


@pytest.mark.parametrize(
    ("text", "life"),
    [
        *(("1", 1), ("2", 2), ("99999", 99_999)),
        *((text, 1) for text in ("", "0", "00", "-2", "2.0", "x", "١", "100000")),
    ],
)
def test_a_tag_that_is_no_life_counts_as_the_first(text: str, life: int) -> None:
    """People write tags, too."""
    assert ordered_life(lived(text)) == life


@pytest.mark.parametrize(
    ("ordered", "state", "known", "life"),
    [
        (1, "pending", None, 1),
        (1, "running", 1, 1),
        # Ordered to stop, and runs: not stopped yet, unless somebody has started it after it had stopped.
        (2, "running", None, 1),
        (2, "running", 1, 1),
        (2, "running", 2, 3),
        (2, "stopping", 1, 2),
        (2, "stopped", None, 2),
        # Ordered to run, and stopped: not started yet, unless it ran and somebody has stopped it.
        (3, "stopped", 2, 2),
        (3, "stopped", 3, 4),
        (3, "running", 2, 3),
        (1, "stopped", None, 2),
        (1, "stopped", 1, 2),
        # Beyond what we ordered: others stopped and started it.
        (1, "stopped", 2, 2),
        (1, "running", 2, 3),
        (1, "running", 3, 3),
        (1, "stopped", 3, 4),
        # It ends in the life in which it was seen last.
        (1, "terminated", None, 1),
        (2, "shutting-down", 1, 1),
        (2, "terminated", 3, 3),
        (3, "terminated", None, 3),
    ],
)
def test_the_life_follows_from_the_order_the_state_and_what_was_seen(
    ordered: int, state: str, known: int | None, life: int
) -> None:
    """A row for each way in which an order may be open, done, or undone by others."""
    assert life_now(lived(ordered, state), known) == life


def test_after_a_restart_the_launch_tells_whether_an_ordered_run_had_begun() -> None:
    """LaunchTime after the stop that we ordered: it ran, and others stopped it again."""
    before, after = STOP - 3600.0, STOP + 60.0
    assert life_now(lived(3, "stopped", stopped=STOP, launched_at=before), None) == 2
    assert life_now(lived(3, "stopped", stopped=STOP, launched_at=after), None) == 4
    assert life_now(lived(3, "stopped"), None) == 4
    # The first life is a launch: whatever a tag says, it has begun.
    assert life_now(lived(1, "stopped", stopped=STOP, launched_at=before), None) == 2


@given(
    ordered=integers(1, 9),
    known=one_of(none(), integers(1, 9)),
    state=sampled_from(["pending", "running", "stopping", "stopped"]),
)
def test_what_runs_is_in_an_odd_life_and_what_is_stopped_in_an_even_one(
    ordered: int, known: int | None, state: str
) -> None:
    """No listing takes an instance back to an earlier life, unless its order was not seen to be done."""
    life = life_now(lived(ordered, state), known)
    assert life % 2 == (state in ("pending", "running"))
    assert life >= min(known or 1, ordered)


@pytest.mark.parametrize(
    ("ordered", "state", "life", "by_others", "is_open"),
    [
        (1, "stopped", 2, True, False),
        (1, "stopping", 2, True, False),
        (2, "stopped", 2, False, False),
        (1, "terminated", 2, False, False),
        (2, "running", 1, False, True),
        (2, "stopping", 1, False, False),
        (1, "running", 1, False, False),
        (4, "running", 1, False, False),
    ],
)
def test_a_stop_is_ours_once_it_is_ordered_and_open_until_it_is_done(
    ordered: int, state: str, life: int, by_others: bool, is_open: bool
) -> None:
    """An open order is repeated; a stop of others is told to people."""
    instance = lived(ordered, state)
    assert (was_stopped_by_others(instance, life), is_stop_open(instance, life)) == (by_others, is_open)


def node(instance: Any, life: int, known: NodeState | None = None) -> NodeState:
    """Return the node of a life."""
    return as_life(instance, life, known=known, now=NOW, kinds=KINDS)


def test_a_stopped_life_costs_its_disk_from_the_stop_on() -> None:
    """Compute and address end with the run; a disk of unknown price costs what one is assumed to cost."""
    stopped = node(lived(2, "stopped", stopped=STOP), 2)
    assert (stopped.id, stopped.phase, stopped.launched_at, stopped.gpus) == ("i-1~2", "stopped", STOP, ())
    assert (stopped.prices, stopped.extras) == (((STOP, 0.0),), (("disk", 0.5),))
    bare = node(an_instance(state="stopped"), 2)
    assert (bare.extras, bare.launched_at) == ((("disk", DISK_USD_PER_HOUR),), NOW)
    running = node(lived(3), 3)
    assert (running.id, running.phase, running.usd_per_hour) == ("i-1~3", "ready", pytest.approx(3.6))


def test_a_stop_begins_as_ec2_says_or_as_we_ordered_and_once_seen_stays() -> None:
    """The tag of an earlier stop, from before the launch, says nothing of this one."""
    said = "User initiated (2027-01-15 09:30:00 GMT)"
    told = 1_800_005_400.0
    ordered = {"stopped": STOP}
    assert node(lived(2, "stopped", **ordered, StateTransitionReason=said), 2).launched_at == told
    assert node(lived(2, "stopping", **ordered), 2).launched_at == STOP
    assert node(lived(2, "stopping", stopped=LAUNCHED_AT - 60.0), 2).launched_at == NOW
    seen = a_node("i-1~2", launched_at=STOP + 5.0)
    assert node(lived(2, "stopped", **ordered, StateTransitionReason=said), 2, seen).launched_at == STOP + 5.0


def test_a_stopped_life_that_ends_is_billed_to_its_end_and_never_backwards() -> None:
    """EC2's word on the end of the instance is not the begin of the stop."""
    said = "User initiated (2027-01-15 09:30:00 GMT)"
    gone = node(lived(2, "terminated", stopped=STOP, StateTransitionReason=said), 2)
    assert (gone.phase, gone.launched_at, gone.ended_at) == ("terminated", STOP, 1_800_005_400.0)
    late = node(lived(2, "terminated", StateTransitionReason=said), 2)
    assert (late.launched_at, late.ended_at) == (1_800_005_400.0, 1_800_005_400.0)
    assert node(lived(2, "shutting-down", stopped=STOP), 2).phase == "terminating"


def test_the_life_before_ended_where_its_own_life_began() -> None:
    """A run ends at the stop, a stop at the next start; the first life has none before it."""
    stopped = node(lived(2, "stopped", stopped=STOP), 2)
    run = life_before(lived(2, "stopped", stopped=STOP), stopped, KINDS)
    assert run is not None
    assert (run.id, run.phase, run.launched_at, run.ended_at) == ("i-1", "terminated", LAUNCHED_AT, STOP)
    assert (run.usd_per_hour, run.idle_since) == (pytest.approx(3.6), None)

    again = lived(3, "running", stopped=STOP, launched_at=NOW)
    stop = life_before(again, node(again, 3), KINDS)
    assert stop is not None
    assert (stop.id, stop.phase, stop.launched_at, stop.ended_at) == ("i-1~2", "terminated", STOP, NOW)
    assert stop.usd_per_hour == 0.5
    assert life_before(lived(1), node(lived(1), 1), KINDS) is None
    assert life_before(lived(3), node(lived(3), 3), KINDS) is None


def test_the_life_before_never_ends_before_it_began() -> None:
    """A stop that was noted before the launch leaves a run of no length."""
    early = a_node("i-1~2", launched_at=LAUNCHED_AT - 60.0)
    run = life_before(lived(2, "stopped"), early, KINDS)
    assert run is not None
    assert (run.launched_at, run.ended_at) == (LAUNCHED_AT, LAUNCHED_AT)
