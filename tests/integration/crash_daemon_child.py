"""The child process of the daemon's crash suite on AWS: each order runs a daemon in a fork that kills itself.

The daemon, its database and its AWS backend are real; jobs only take time. `kill_at` numbers the points
before each call to EC2, each commit and each end of a tick.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crash_child import DyingCalls, Points, serve
from sqlalchemy import event

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.store.purses import read_purses
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

TYPE = "g5.xlarge"


def run(order: dict[str, Any], session: Any) -> None:
    """Run the ticks of an order, starting with the last instant that was reached."""
    folder = Path(order["folder"])
    points = Points(order["kill_at"], folder)
    place = {"instance_types": [TYPE], "zones": ["us-east-1a"]}
    aws = AwsSettings.model_validate({**place, "cluster": order["cluster"], "endpoint": order["endpoint"]})
    calls = DyingCalls(aws, session=session)
    calls.points = points
    now = folder / "now"
    clock = ManualClock(float(now.read_text()))
    cloud = AwsCloud(aws, catalog=Catalog.load(), clock=clock, calls=calls, ledger_id=order["cluster"])
    settings: dict[str, dict[str, Any]] = {
        "budget": {"usd_per_hour": 4.0, "usd_per_day_cap": 3.0, "max_instances": 2},
        "cloud": {"provider": "aws", **place},
        "engine": {"name": "ssm", "queue_url": "unused", "uri": "s3://unused"},
        "daemon": {"tick_seconds": 20.0, "idle_hold_seconds": 0.0},
        "teams": {"red": {"members": ["ann"], "usd_per_day_cap": order["team_cap_usd"]}},
    }
    play = DaemonInAFolder(folder, clock, settings, rented_from=cloud)
    if not play.service.jobs()["jobs"]:
        play.service.submit([job_content("a", hours=0.01), job_content("b", hours=0.02)], user="ann")
    event.listen(play.storage.store.database.engine, "commit", lambda _: points.pass_one())
    for instant in order["plan"]:
        if instant >= clock.instant:
            clock.instant = instant
            now.write_text(str(instant))
            decision = play.daemon.tick()
            points.pass_one()
            if play.daemon.standing.fault:
                raise RuntimeError(play.daemon.standing.fault)
            if play.is_over(decision):
                break
    answer = {
        "points": points.count,
        "statuses": [row["status"] for row in play.service.jobs()["jobs"]],
        "started": play.runner.started,
        "unsettled": len(play.storage.store.unsettled()),
        "settled": play.storage.store.settled_micro_dollars(),
        "purse": sum(amount for _, _, amount in read_purses(play.storage.store.database, since=0)),
        "of_jobs": play.service.cost(by="team", since=order["plan"][0])["rows"],
    }
    (folder / "done").write_text(json.dumps(answer))
    play.close()


if __name__ == "__main__":
    serve(run)
