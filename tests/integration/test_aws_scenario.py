"""A cluster's life on AWS under exactly the policies that `boa iam` prints; every request fits its model."""

from __future__ import annotations

import sys
import time

import pytest
from aws_sites import AwsSite, an_aws_site

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.instances.receipt import end_everything
from boa_daemon.backends.aws.instances.sweep import Sweeper
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.clock import SystemClock


@pytest.mark.exhaustive
def test_a_life_under_the_printed_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """From launch to `boa down` no request is denied; only four statements stay unused."""
    with an_aws_site(monkeypatch, market="spot") as site:
        service = site.up()
        job = site.submit(service)
        site.until(lambda: (service.job(job).get("step") or 0) >= 5)
        site.give(2)
        site.until(lambda: service.job(job)["gpus"] == 2 and (service.job(job).get("step") or 0) >= 10)
        before = service.job(job)["generation"]
        warned = service.job(job)["nodes"][0]
        site.fake.warn(warned)
        # The one offer rests now, and the class has one width.
        site.give(1)
        site.until(
            lambda: service.job(job)["generation"] > before and warned not in service.job(job)["nodes"]
        )
        site.until(lambda: service.job(job)["gpus"] == 1)
        site.hurry()
        site.until(lambda: service.job(job)["status"] == "finished", 180.0)
        row = service.job(job)
        printed = service.logs(job)["text"]
        # EC2 ends an interrupted spot node two minutes after its warning.
        site.until(lambda: not site.fake.live(), 240.0, pause=2.0)
        assert site.daemon is not None
        site.daemon.sweep()
        receipt = down(site)
        unused = {
            (role.arn, each["Sid"])
            for role in site.roles.values()
            for document in role.documents
            for each in document["Statement"]
            if each["Effect"] == "Allow" and (role.arn, each["Sid"]) not in site.fake.iam.used
        }

    assert row["lost_steps"] == 0
    assert "step 2000 on 1 workers, 2000 done" in printed
    assert receipt.is_clean
    assert site.fake.iam.denied == []
    assert site.shapes.faults == []
    # The SSM agent makes no calls here, and only `boa doctor` asks for its own rights.
    assert {sid for _, sid in unused} == {
        "SsmAgent", "AskOwnRights", "ReadBucketSettings", "ReadRules"
    }  # fmt: skip
    assert sum(site.shapes.counts.values()) > 100
    # `pytest -s` shows these figures; they stand in docs/how-to/check-a-real-account.md.
    sys.stdout.write(
        f"{sum(site.shapes.counts.values())} requests of {len(site.shapes.counts)} operations, "
        f"{sum(site.fake.iam.checks.values())} checks of {len(site.fake.iam.checks)} kinds, "
        f"{len(site.fake.iam.used)} statements used\n"
    )


def down(site: AwsSite) -> object:
    """End everything, as `boa down --all` does."""
    settings = AwsSettings(cluster="lab", instance_types=("g5.xlarge",), endpoint=site.url)
    sweeper = Sweeper(settings, AwsCalls(settings), SystemClock())
    return end_everything(sweeper, "us-east-1", clock=SystemClock(), wait_seconds=10.0, sleep=time.sleep)


@pytest.mark.exhaustive
def test_the_printed_policies_allow_a_warm_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is stopped when its job ends and started again for the next job; no request is denied."""
    with an_aws_site(monkeypatch, warm_pool_nodes=1) as site:
        service = site.up()
        site.hurry()
        for _ in range(2):
            job = site.submit(service)
            site.until(lambda: service.job(job)["status"] == "finished", 120.0)  # noqa: B023
            site.until(lambda: [row["phase"] for row in service.instances()["instances"]] == ["stopped"])
            # While EC2 still stops a node, it refuses to start it, and the daemon would rent another node.
            site.until(lambda: all(life.stopped_at < time.time() - 1.0 for life in site.fake.live()))
        [life] = site.fake.live()
        [row] = service.instances()["instances"]
        assert row["id"] == f"{life.id}~4"
        assert service.job(job)["generation"] == 1
        assert site.daemon is not None
        site.daemon.set_down(True)
        site.until(lambda: not site.fake.live())
        site.until(lambda: not service.instances()["instances"])
        charged = site.daemon.storage.store.settled_micro_dollars() if site.daemon.storage else 0
        used = {sid for _, sid in site.fake.iam.used}

    assert len(life.runs) == 1
    assert charged > 0
    assert {"WarmPool", "ScheduleEnds", "PassPoolEndRole"} <= used
    assert site.fake.iam.denied == []
    assert site.shapes.faults == []


@pytest.mark.exhaustive
def test_a_job_goes_on_when_aws_stops_its_node_and_when_launches_never_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is billed for the failed launches, the stopped node is ended, and people are told of both."""
    with an_aws_site(monkeypatch) as site:
        service = site.up()
        site.fake.terms.failing_seconds = 1.0
        site.fake.terms.launch_failures["g5.xlarge"] = "Client.VolumeLimitExceeded: Volume limit exceeded"
        job = site.submit(service)
        site.until(lambda: any("VolumeLimitExceeded" in note for note in service.status()["notes"]))
        assert service.job(job)["status"] == "queued"
        assert site.daemon is not None
        assert site.daemon.storage is not None
        for _ in range(10):
            site.daemon.tick()
        assert len(site.fake.history()) == 1
        assert site.daemon.storage.store.settled_micro_dollars() == 0

        # The limit is raised, and somebody says so.
        site.fake.terms.launch_failures.clear()
        site.daemon.ask_anew()
        site.until(lambda: (service.job(job)["step"] or 0) > 0)
        [first] = site.fake.live()
        site.fake.stop(first.id)
        site.until(lambda: any(life.id != first.id for life in site.fake.live()))
        site.until(lambda: service.job(job)["status"] == "running", 120.0)
        site.until(lambda: first.ended_at is not None)
        site.hurry()
        site.until(lambda: service.job(job)["status"] == "finished", 120.0)
        site.daemon.set_down(True)
        site.until(lambda: not site.fake.live())
        site.until(lambda: not service.instances()["instances"])
        said = [row["sentence"] for row in site.daemon.alerts.latest(20)]

    assert any("failed at its start" in sentence for sentence in said)
    assert site.fake.iam.denied == []
