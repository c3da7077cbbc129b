"""Recent acts, sorted by kind and target."""

from __future__ import annotations

from boa_daemon.tick.facts.limits import Act, ActKind
from boa_daemon.tick.facts.recent_acts import RecentActs

KINDS: tuple[ActKind, ...] = ("stop", "launch", "terminate", "launch", "stop", "end", "give-up")
ACTS = [Act(kind=kind, target="x", at=float(at)) for at, kind in enumerate(KINDS)]


def test_acts_are_found_by_kind_and_target_from_an_instant_on() -> None:
    """The instant itself is included."""
    history = RecentActs.of(ACTS)
    assert history.since("stop", "x", 0.0) == [0.0, 4.0]
    assert history.since("stop", "x", 4.0) == [4.0]
    assert history.since("stop", "x", 4.5) == []
    assert history.since("terminate", "x", 0.0) == [2.0]
    assert history.since("stop", "y", 0.0) == []
    assert history.stops == [0.0, 4.0]


def test_a_start_of_any_job_clears_the_launches_of_all_types() -> None:
    """Later launches count again; other acts clear nothing."""
    assert RecentActs.of(ACTS).launches_without_start == {"x": [1.0, 3.0]}
    later = [Act(kind="start", target="job", at=7.0), Act(kind="launch", target="y", at=8.0)]
    assert RecentActs.of([*ACTS, *later]).launches_without_start == {"y": [8.0]}
    assert RecentActs.of([*ACTS, later[0]]).launches_without_start == {}
