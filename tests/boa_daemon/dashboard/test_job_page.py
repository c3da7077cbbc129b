"""The page's document of a job: its starts in order, its class, and who may read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from daemon_time import pass_time

from boa_daemon.dashboard.job_page import job_document
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

SETTINGS = {"budget": {"usd_per_hour": 10.0, "max_instances": 1}, "cloud": {"boot_seconds": 30.0}}


def test_a_job_has_its_starts_oldest_first_and_the_curve_of_its_class(tmp_path: Path) -> None:
    """Its weight while it is active; whoever may not read it sees that."""
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0), SETTINGS)
    (job,) = play.service.submit([job_content(hours=4.0, weight=3.0)], user="ann")["jobs"]
    waiting = job_document(play.service, job, may_read=lambda user: user == "ann")
    assert (waiting["generations"], waiting["weight"], waiting["held_by"]) == ([], 3.0, "")
    assert waiting["is_readable"]
    pass_time(play, 120.0)
    running = job_document(play.service, job, may_read=lambda _user: False)
    assert not running["is_readable"]
    assert [row["generation"] for row in running["generations"]] == [1]
    assert running["generations"][0]["ended_at"] is None
    assert running["speedups"]
    assert running["why"]
    play.service.cancel(job, user="ann", is_admin=False)
    pass_time(play, 90.0)
    over = job_document(play.service, job, may_read=lambda _user: True)
    assert over["generations"][0]["ended_at"] is not None
    assert over["weight"] is None
    with pytest.raises(InputError, match="no job 'nobody-7'"):
        job_document(play.service, "nobody-7", may_read=lambda _user: True)
    play.close()
