"""What a tick knows of waiting jobs is kept from tick to tick, and is what it would read anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boa_daemon.daemon.jobs.job_facts import JobFacts
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

STEPS = st.lists(
    st.sampled_from(["plain", "limited", "group", "after", "ticks", "cancel"]), min_size=1, max_size=8
)


def submitted(play: DaemonInAFolder, step: str, name: str, last: str) -> str:
    """Submit a job that depends on nothing, its money, its group's money, or another job; return its id."""
    content: dict[str, Any] = job_content(name, hours=0.3)
    if step == "limited":
        content |= {"max_usd": 0.2}
    if step == "group":
        content |= {"count": 2, "max_usd": 0.2}
    if step == "after" and last:
        content |= {"after": [last]}
    return str(play.service.submit([content], user="ann")["jobs"][0])


@given(steps=STEPS)
@settings(max_examples=4)
def test_the_kept_states_of_waiting_jobs_are_those_read_anew(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """Jobs with and without limits and predecessors come, run out of money, are cancelled and end."""
    folder: Path = tmp_path_factory.mktemp("facts")
    budget = {"usd_per_hour": 4.0, "max_instances": 1}
    play = DaemonInAFolder(folder, ManualClock(1_800_000_000.0), {"budget": budget})
    last = ""
    for number, step in enumerate(steps):
        if step == "cancel" and last:
            play.service.cancel(last, user="ann", is_admin=True)
        elif step not in ("ticks", "cancel"):
            last = submitted(play, step, f"j{number}", last)
        for _ in range(6):
            play.daemon.tick()
            play.clock.instant += 300.0
            facts, now = play.daemon.work.facts, play.clock.now()
            anew = JobFacts(facts._queue, class_of=facts._class_of, spread_of=facts._spread_of)
            anew.stopping, anew.silences, anew.refused = facts.stopping, facts.silences, facts.refused
            assert facts.jobs(now) == anew.jobs(now)
    play.close()
