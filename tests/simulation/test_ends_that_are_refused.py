"""Ends that the cloud refuses or does not answer, and ticks that come late, on a whole daemon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.actions import TerminateNode
from boa_daemon.tick.facts.ports import Accepted, Outcome, Refused, Unknown
from policies.model import NodeId
from policies.money_text import in_dollars

START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
TICK = 30.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0, "usd_per_day_cap": 50.0},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": TICK, "idle_hold_seconds": 60.0},
}
THROTTLED = Refused(reason="too many requests", kind="throttled", retry_after_seconds=60.0)
PROTECTED = Refused(reason="OperationNotPermitted: disableApiTermination", kind="denied")
SILENT = Unknown(reason="no answer within 20 s")


@dataclass
class Cloud:
    """A cloud that answers an order to end in its own way; `answer` None ends the node."""

    inner: Any
    clock: ManualClock
    answer: Outcome | Exception | None = None
    tried: list[float] = field(default_factory=list)
    listings: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def nodes(self) -> Any:
        self.listings += 1
        return self.inner.nodes()

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Outcome]:
        self.tried.append(self.clock.now())
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            ended: Mapping[NodeId, Accepted] = self.inner.terminate(actions)
            return ended
        return dict.fromkeys([action.node for action in actions], self.answer)


@dataclass
class Stage:
    """A daemon with an idle node, its cloud, and the wake-ups that it requests."""

    play: DaemonInAFolder
    cloud: Cloud
    clock: ManualClock
    wakes: list[float] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Tick when the daemon asks for it, and each period."""
        until = self.clock.instant + seconds
        while self.clock.instant < until:
            self.wakes.clear()
            self.play.daemon.tick()
            self.clock.instant += max(min([TICK, *self.wakes]), 0.5)

    def alerts(self) -> list[str]:
        """Return the alerts about nodes that do not end."""
        return [one["sentence"] for one in self.play.service.alerts()["alerts"] if "not ended" in one["key"]]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    clock, clouds = ManualClock(START), list[Cloud]()

    def wrapped(inner: Any) -> Cloud:
        clouds.append(Cloud(inner=inner, clock=clock))
        return clouds[0]

    play = DaemonInAFolder(tmp_path, clock, SETTINGS, wrap_cloud=wrapped)
    found = Stage(play=play, cloud=clouds[0], clock=clock)
    play.daemon.wake = found.wakes.append
    play.service.submit([job_content(hours=0.1)], user="ann")
    found.run(240.0)
    assert clouds[0].tried == []
    yield found
    play.close()


@pytest.mark.parametrize("answer", [THROTTLED, PROTECTED, SILENT, TimeoutError("no answer")])
def test_an_end_that_was_not_done_is_tried_again_in_seconds(
    stage: Stage, answer: Outcome | Exception
) -> None:
    """The first four tries come within a tick or two, and not at one tick each."""
    stage.cloud.answer = answer
    while not stage.cloud.tried:
        stage.run(1.0)
    stage.run(3 * TICK)
    first = stage.cloud.tried[0]
    assert len([at for at in stage.cloud.tried if at - first <= TICK]) >= 4
    stage.cloud.answer = None
    stage.run(2 * TICK)
    assert [node.id for node in stage.cloud.nodes() if node.ended_at is None] == []
    assert stage.play.daemon.ends.lasting(stage.clock.now()) == {}


@pytest.mark.parametrize(("answer", "seconds"), [(PROTECTED, 2.0), (THROTTLED, 60.0), (SILENT, 60.0)])
def test_people_are_told_why_a_node_does_not_end_and_what_it_costs(
    stage: Stage, answer: Outcome, seconds: float
) -> None:
    """At once where only they can mend it, after a minute else; what passes sooner is told to nobody."""
    stage.cloud.answer = answer
    while not stage.cloud.tried:
        stage.run(1.0)
    stage.run(seconds - 4.0 if seconds > 4.0 else 1.0)
    assert bool(stage.alerts()) is (seconds < 4.0)
    stage.run(TICK + seconds)
    (said,) = stage.alerts()
    assert answer.reason in said  # type: ignore[union-attr]
    (node,) = [node for node in stage.cloud.nodes() if node.ended_at is None]
    assert f"{node.id} is not ended" in said
    assert f"It costs {in_dollars(node.usd_per_hour)}/hour until it ends" in said
    assert "end it in the cloud's own console" in said


def test_in_peace_no_more_calls_are_made(stage: Stage) -> None:
    """One listing a tick, and one order for the end."""
    stage.cloud.listings, before = 0, stage.clock.now()
    stage.run(40 * TICK)
    ticks = (stage.clock.now() - before) / TICK
    assert len(stage.cloud.tried) == 1
    assert stage.cloud.listings <= ticks + 1


def test_late_ticks_are_measured_set_aside_for_and_told(stage: Stage) -> None:
    """Four times the period is set aside for unseen; gaps of ten minutes for a day from when they came."""
    caps = stage.play.daemon.planner.rules().caps
    assert caps is not None
    assert caps.gap_seconds == 4 * TICK
    for _ in range(2):
        assert stage.play.daemon.planner.rules().caps == caps, "once is no habit"
        stage.clock.instant += 600.0
        stage.play.daemon.tick()
    late = stage.play.daemon.planner.rules().caps
    assert late is not None
    assert 600.0 <= late.gap_seconds <= 640.0
    notes = stage.play.service.status()["notes"]
    assert any("s apart or more, twice" in note for note in notes)
    for _ in range(int(25 * 3600.0 / TICK)):
        stage.clock.instant += TICK
        stage.play.daemon.tick_gaps.note(began=stage.clock.instant, ended=stage.clock.instant)
    stage.play.daemon.tick()
    again = stage.play.daemon.planner.rules().caps
    assert again is not None
    assert again.gap_seconds == 4 * TICK
    assert not any("s apart or more, twice" in note for note in stage.play.service.status()["notes"])
