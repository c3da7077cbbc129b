"""`aws/instances/receipt.py`: what `down` and `gc` ended, what is left, and when billing stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from boa_daemon.backends.aws.instances.receipt import Receipt, end_everything, iso_time
from boa_daemon.backends.aws.instances.sweep import OwnedResource
from boa_daemon.testing import ManualClock

NODE = OwnedResource(kind="instance", id="i-1", region="r")
STOPPED = OwnedResource(kind="instance", id="i-2", region="r", is_stopped=True)
DISK = OwnedResource(kind="volume", id="vol-1", region="r")


class Rounds:
    """A sweeper whose finds of each round are given; the last one stays."""

    def __init__(self, *rounds: Sequence[OwnedResource], fails: Sequence[dict[str, str]] = ()) -> None:
        self._rounds, self._fails = list(rounds), list(fails)
        self.released: list[list[str]] = []
        self.asked_of: list[str] = []

    def find(self, *, region: str) -> list[OwnedResource]:
        """Return what is found in a round."""
        assert region == "r"
        return list(self._rounds.pop(0) if len(self._rounds) > 1 else self._rounds[0])

    def release(self, found: Sequence[OwnedResource]) -> dict[str, str]:
        """End resources; return those that could not be, with the reason."""
        self.released.append([each.id for each in found])
        return self._fails.pop(0) if self._fails else {}

    def billing_stopped_at(self, names: Sequence[str], *, region: str) -> float:
        """Return an instant."""
        assert region == "r"
        self.asked_of = list(names)
        return 90.0


def ended(rounds: Rounds, *, wait_seconds: float = 300.0, **others: Any) -> tuple[Receipt, list[float]]:
    """End everything on a clock of its own; return the receipt and the pauses."""
    clock, pauses = ManualClock(100.0), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.instant += max(seconds, 0.1)

    receipt = end_everything(
        rounds,  # type: ignore[arg-type]
        "r",
        clock=clock,
        wait_seconds=wait_seconds,
        sleep=sleep,
        **others,
    )
    return receipt, pauses


def test_an_ended_instance_and_the_disk_that_it_leaves_are_counted_once() -> None:
    """The disk shows in the second round, and is ended as well; then nothing is left."""
    rounds = Rounds([NODE, STOPPED], [NODE, DISK], [])
    receipt, pauses = ended(rounds)
    assert rounds.released == [["i-1", "i-2"], ["i-1", "vol-1"]]
    assert (receipt.ended, receipt.of_warm_pool, receipt.is_clean) == (3, 1, True)
    assert (receipt.stopped_at, rounds.asked_of) == (90.0, ["i-1", "i-2"])
    assert pauses == [5.0, 5.0]


def test_everything_is_ended_once_even_without_any_time() -> None:
    """What is still there is left, by kind, and the receipt is not clean."""
    rounds = Rounds([NODE, DISK])
    receipt, _ = ended(rounds, wait_seconds=0.0)
    assert rounds.released == [["i-1", "vol-1"]]
    assert receipt.left == {"instance": 1, "volume": 1, "network-interface": 0, "spot-request": 0}
    assert not receipt.is_clean


def test_pauses_end_with_the_time_that_is_given() -> None:
    """The last one is shorter."""
    _, pauses = ended(Rounds([NODE]), wait_seconds=12.0)
    assert pauses[:3] == [5.0, 5.0, 2.0]


def test_a_failure_is_told_only_while_its_resource_is_there() -> None:
    """One that was ended by the second try has not failed, nor has one that is gone by itself."""
    rounds = Rounds([NODE, DISK], [NODE], [], fails=[{"vol-1": "in use"}, {"i-1": "protected"}])
    receipt, _ = ended(rounds)
    assert (receipt.failed, receipt.is_clean, receipt.left["instance"]) == ({}, True, 0)

    stays = Rounds([DISK], fails=[{"vol-1": "in use"}] * 9)
    receipt, _ = ended(stays, wait_seconds=6.0)
    assert (receipt.failed, receipt.is_clean, receipt.ended) == ({"vol-1": "in use"}, False, 0)


@pytest.mark.parametrize(
    ("which", "released"), [(lambda each: each.kind == "volume", [["vol-1"]]), (lambda _: False, [])]
)
def test_only_what_is_wanted_is_ended(
    which: Callable[[OwnedResource], bool], released: list[list[str]]
) -> None:
    """Of other resources the receipt says nothing; without an instance nothing was billed."""
    rounds = Rounds([NODE, DISK], [NODE])
    receipt, _ = ended(rounds, which=which)
    assert rounds.released == released
    assert (receipt.is_clean, receipt.stopped_at, receipt.row()["billing_stopped_at"]) == (True, None, None)


def test_instants_are_in_utc_to_the_second() -> None:
    """In the row of a receipt, too."""
    assert iso_time(90.9) == "1970-01-01T00:01:30Z"
