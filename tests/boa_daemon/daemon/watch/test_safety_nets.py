"""`daemon/watch/safety_nets.py`: the loss of a net is a note, an alert and a metric, as is its return."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import boto3
import pytest
from aws_fixtures import credentials, make_rig, rig
from aws_rigs import AwsRig, RigMaker, a_launch

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.events import Listener
from boa_daemon.backends.aws.rights.resource_policies import queue_policy
from boa_daemon.daemon.settings.config import AlertSettings
from boa_daemon.daemon.watch import alerts
from boa_daemon.daemon.watch.alerts import Alerts
from boa_daemon.daemon.watch.safety_nets import GRACE_SECONDS, LOOK_SECONDS, SafetyNets
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.ports import Launched, Refused

__all__ = ["credentials", "make_rig", "rig"]


class Wall:
    """Looks at nets as the daemon does, and keeps what was said."""

    def __init__(self, found: Callable[[], Mapping[str, Callable[[], str]]], clock: ManualClock) -> None:
        self.found, self.clock = found, clock
        self.said: list[str] = []
        self.metric: dict[str, bool] = {}
        self.nets = SafetyNets(lambda _key, sentence: self.said.append(sentence), self.show)

    def show(self, name: str, is_lost: bool) -> None:
        self.metric[name] = is_lost

    def until(self, is_so: Callable[[], bool], step: Callable[[], None], *, most: float = 300.0) -> float:
        """Let time pass until something is so; return how long it took."""
        began = self.clock.now()
        while not is_so():
            assert self.clock.now() - began <= most, (self.said, self.nets.notes())
            self.clock.instant += LOOK_SECONDS
            step()
            self.nets.look_at(self.found(), now=self.clock.now())
        return self.clock.now() - began


def _lose(rig: AwsRig, net: str) -> None:
    operations = {
        "leases": "CreateTags",
        "price list": "GetProducts",
        "status checks": "DescribeInstanceStatus",
        "credentials": "DescribeInstances",
        "subnets": "DescribeSubnets",
    }
    code = "ExpiredToken" if net == "credentials" else "UnauthorizedOperation"
    rig.fake.faults.plan(operations[net], f"error:{code}", times=10**6)


@pytest.mark.parametrize("net", ["leases", "price list", "status checks", "credentials"])
def test_a_net_of_the_account_that_is_lost_is_told_within_five_minutes_and_so_is_its_return(
    make_rig: RigMaker, net: str
) -> None:
    """Nothing else happens meanwhile: no lease is due, no price is old, no node is launched."""
    rig = make_rig(Terms(boot_seconds=0.0), lease_minutes=1440.0)
    outcome = rig.cloud.launch(a_launch(rig.offer()))
    assert isinstance(outcome, Launched)
    rig.fake.terms.list_prices.update({"g5.xlarge": 1.0, "p4d.24xlarge": 20.0})

    def step() -> None:
        rig.cloud.refresh()
        # A tick that fails is alerted by the loop.
        with suppress(CallFailed):
            rig.cloud.nodes()
        rig.cloud.renew(outcome.nodes)

    wall = Wall(rig.cloud.nets, rig.clock)
    for _ in range(3):
        step()
        rig.pass_time(LOOK_SECONDS)
    wall.nets.look_at(rig.cloud.nets(), now=rig.clock.now())
    assert wall.metric[net] is False
    _lose(rig, net)

    lasted = wall.until(lambda: any(said.startswith(f"{net}: lost") for said in wall.said), step, most=300.0)
    assert lasted <= 300.0
    assert wall.metric[net] is True
    assert any(note.startswith(f"{net}: ") for note in wall.nets.notes())

    rig.fake.faults.planned.clear()
    if net == "status checks":
        rig.cloud.ask_anew()
    wall.until(lambda: any(said.startswith(f"{net}: works again") for said in wall.said), step, most=400.0)
    assert wall.metric[net] is False
    assert not any(note.startswith(f"{net}: ") for note in wall.nets.notes())


def test_a_deleted_queue_of_warnings_and_a_disabled_rule_are_told(make_rig: RigMaker) -> None:
    """The queue is polled all the time, its rules every two minutes; both heal."""
    rig = make_rig()
    sqs, events = (boto3.client(name, region_name="us-east-1") for name in ("sqs", "events"))
    url = sqs.create_queue(QueueName="warnings")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    rig.cloud = rig.another(queue_url=url)
    rig.cloud.refresh()
    assert "no enabled rule" in rig.cloud.faults()["event rules"]

    pattern = (
        '{"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning", '
        '"EC2 Instance State-change Notification"]}'
    )
    events.put_rule(Name="all", EventPattern=pattern, State="ENABLED")
    events.put_targets(Rule="all", Targets=[{"Id": "queue", "Arn": arn}])
    rig.pass_time(241.0)
    rig.cloud.refresh()
    assert "does not let EventBridge send" in rig.cloud.faults()["event rules"]
    document = json.dumps(queue_policy("warnings", arn, arn.split(":")[4]))
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": document})
    rig.pass_time(241.0)
    rig.cloud.refresh()
    assert "event rules" not in rig.cloud.faults()
    events.disable_rule(Name="all")
    rig.pass_time(241.0)
    rig.cloud.refresh()
    assert "event rules" in rig.cloud.faults()

    sqs.delete_queue(QueueUrl=url)
    listener = Listener(rig.cloud._queue(), rig.said.append, wait_seconds=0)
    rig.cloud._listener = listener
    _until(lambda: "spot warnings" in rig.cloud.faults())
    listener.close()


def test_a_region_without_side_prices_is_a_note(make_rig: RigMaker) -> None:
    """It is neither silent nor a used-up quota."""
    rig = make_rig(region="ap-southeast-6", zones=())

    assert "boa prices --beside --region ap-southeast-6" in rig.cloud.faults()["side prices"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_notifier_that_loses_messages_or_is_gone_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that was deleted, a webhook whose host is gone, a message that was not taken; the cure."""
    monkeypatch.setattr(alerts, "PROBE_SECONDS", 0.0)
    program = tmp_path / "tell"
    settings = AlertSettings(command=str(program))
    found = Alerts(None, settings)
    assert "command" in found.fault()
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    assert found.fault() == ""
    found.shout("hello")
    _until(lambda: "exit code 3" in found.fault())
    program.write_text("#!/bin/sh\nexit 0\n")
    found.shout("hello")
    _until(lambda: found.fault() == "")
    found.settings = AlertSettings(webhook="http://127.0.0.1:9/secret")
    assert "webhook does not answer" in found.fault()
    assert "secret" not in found.fault()
    for url in (
        "mailto://me:secret@example.com:9?smtp=127.0.0.1&from=a@example.com",
        "json://127.0.0.1:9/secret",
    ):
        found.settings = AlertSettings(apprise=[url])
        assert "apprise[0] does not answer" in found.fault()
        assert "secret" not in found.fault()
    # A token in the place of the host, and datagrams, which no connection can try.
    for url in ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/", "rsyslog://127.0.0.1:9"):
        found.settings = AlertSettings(apprise=[url])
        assert found.fault() == found.fault().replace("apprise", "")
    found.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonInAFolder]:
    """A daemon on the simulated cloud."""
    made = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0), {"budget": {"usd_per_hour": 10.0}})
    yield made
    made.close()


def test_a_lost_net_is_in_status_metrics_and_alerts(daemon: DaemonInAFolder) -> None:
    """A fault of a moment is a note alone; one that lasts is an alert, and its end another."""
    fault = [""]
    inside = daemon.daemon
    inside.own_faults["backup"] = lambda: fault[0]
    inside.tick()

    def look(seconds: float) -> list[str]:
        daemon.clock.instant += seconds
        inside.look_at_nets()
        return [row["sentence"] for row in inside.alerts.latest(20)]

    fault[0] = "the disk is full"
    look(0.0)
    assert "backup: the disk is full" in daemon.service.status()["notes"]
    fault[0] = ""
    assert look(10.0) == []
    fault[0] = "the disk is full"
    look(0.0)
    assert any("backup: lost: the disk is full" in said for said in look(GRACE_SECONDS))
    assert 'boa_safety_net_lost{net="backup"} 1.0' in inside.metrics.text().decode()
    fault[0] = ""
    assert any("backup: works again" in said for said in look(60.0))
    assert 'boa_safety_net_lost{net="backup"} 0.0' in inside.metrics.text().decode()


def test_a_person_who_says_that_it_is_mended_ends_the_rests_of_denials(daemon: DaemonInAFolder) -> None:
    """SIGHUP opens what was denied or refused as wrong; a shortage rests on."""
    store = daemon.storage.store
    for kind, scope in (("denied", "a"), ("bad-request", "b"), ("quota", "c"), ("no-capacity", "d")):
        refused = Refused(reason="no", kind=kind, scopes=(scope,), retry_after_seconds=3600.0)  # type: ignore[arg-type]
        store.close_offers(refused, at=daemon.clock.now())
    daemon.daemon.ask_anew()

    assert set(store.cooldowns(daemon.clock.now())) == {"d"}
    store.reload()
    assert set(store.cooldowns(daemon.clock.now())) == {"d"}


def _until(is_so: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
