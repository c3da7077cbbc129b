"""`instances/node_states.py`: each row of the table, tried on the fake AWS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_rigs import AwsRig, RigMaker, a_launch, ends
from benchmark_modules import benchmark_module

import boa_daemon
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.instances.events import Notice
from boa_daemon.backends.aws.instances.node_states import NODE_STATES
from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing.fake_terms import Lifetime, Terms
from boa_daemon.tick.facts.pending_ends import PendingEnds
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.ledger import bill, charge_for

DOCS = Path(boa_daemon.__file__).parents[1] / "docs" / "reference" / "node-states.md"


def _launched(rig: AwsRig, *, market: str = "on-demand", seconds: float = 120.0) -> str:
    """Launch a node, let it boot, and return its name."""
    order = f"t{len(rig.fake.history())}-launch"
    outcome = rig.cloud.launch(a_launch(rig.offer(market=market), name=order))
    assert isinstance(outcome, Launched)
    rig.cloud.nodes()
    rig.pass_time(seconds)
    rig.cloud.nodes()
    return outcome.nodes[0]


def _only(rig: AwsRig) -> NodeState:
    (node,) = rig.cloud.nodes()
    return node


def _named(rig: AwsRig, name: str) -> NodeState:
    return next(node for node in rig.cloud.nodes() if node.id == name)


def _life(rig: AwsRig, name: str) -> Lifetime:
    return next(life for life in rig.fake.history() if life.id == name)


def _booting(rig: AwsRig) -> None:
    rig.fake.terms.boot_seconds = 1e9
    name = _launched(rig)
    assert _only(rig).phase == "requested"
    rig.pass_time(901.0)
    rig.cloud.nodes()
    assert rig.fake.live() == []
    assert any("pending for" in said for said in rig.said)
    rig.pass_time(120.0)
    node = _named(rig, name)
    assert charge_for(node).micro_dollars == 0
    ((key, refused),) = rig.cloud.failed_launches()
    assert key == "g5.xlarge/us-east-1a/on-demand"
    assert refused.scopes == (key,)


def _running(rig: AwsRig) -> None:
    _launched(rig)
    assert _only(rig).phase == "ready"


def _impaired(rig: AwsRig) -> None:
    for check in ("system", "instance", "attachedEbs"):
        name = _launched(rig)
        rig.fake.terms.impaired[name] = check
        rig.pass_time(120.0)
        rig.cloud.refresh()
        assert _named(rig, name).phase == "ready"
        assert any(name in said and "impaired" in said for said in rig.said)
        for _ in range(8):
            rig.pass_time(60.0)
            rig.cloud.refresh()
            rig.cloud.nodes()
        assert _life(rig, name).ended_at is not None
        rig.pass_time(120.0)


def _scheduled(rig: AwsRig) -> None:
    for code in ("instance-retirement", "instance-stop", "system-reboot", "system-maintenance"):
        name = _launched(rig)
        rig.fake.terms.events[name] = (code, rig.clock.now() + 3600.0)
        rig.pass_time(120.0)
        rig.cloud.refresh()
        assert _named(rig, name).phase == "ready"
        assert any(name in said and code in said for said in rig.said)
        rig.pass_time(3600.0 - 120.0 - 600.0)
        rig.cloud.refresh()
        assert _named(rig, name).phase == "terminating"
        assert _life(rig, name).ended_at is None
        rig.pass_time(160.0)
        rig.cloud.nodes()
        assert _life(rig, name).ended_at is not None


def _announced(rig: AwsRig) -> None:
    name = _launched(rig)
    assert rig.cloud.rehearse_end(name) is not None
    assert _only(rig).phase == "terminating"
    rig.pass_time(155.0)
    rig.cloud.nodes()
    assert rig.fake.live() == []


def _not_stopped(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.fake.faults.plan("StopInstances", "drop", times=99)
    rig.cloud.pool.stop([name])
    for _ in range(7):
        rig.pass_time(60.0)
        rig.cloud.nodes()
    assert rig.fake.live() == []


def _not_ended(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.fake.faults.plan("TerminateInstances", "drop", times=1)
    rig.cloud.terminate(ends(name))
    assert len(rig.fake.live()) == 1
    rig.pass_time(61.0)
    rig.cloud.nodes()
    assert rig.fake.live() == []


def _end_refused(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.fake.faults.plan("TerminateInstances", "error:OperationNotPermitted", times=1)
    (outcome,) = rig.cloud.terminate(ends(name)).values()
    assert isinstance(outcome, Refused)
    refused = PendingEnds()
    refused.note([(name, outcome)], at=rig.clock.now())
    assert refused.lasting(rig.clock.now()).keys() == {name}
    assert _only(rig).phase == "ready", "it is not ended, and costs on"
    assert isinstance(rig.cloud.terminate(ends(name))[name], Accepted)
    assert rig.fake.live() == []


def _listed(rig: AwsRig, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change how EC2 lists each instance from now on."""
    real = rig.cloud.calls._call_once

    def once(operation: str, region: str, arguments: Any) -> Any:
        answer = real(operation, region, arguments)
        if operation == "ec2:DescribeInstances":
            for row in answer["Reservations"]:
                for each in row["Instances"]:
                    edit(each)
        return answer

    rig.cloud.calls._call_once = once  # type: ignore[method-assign]


def _tags_copied(rig: AwsRig) -> None:
    name = _launched(rig)
    (ours,) = rig.cloud._instances
    request = {"ImageId": ours["ImageId"], "InstanceType": ours["InstanceType"], "MinCount": 1, "MaxCount": 1}
    tags = [{"ResourceType": "instance", "Tags": ours["Tags"]}]
    made = rig.cloud.calls.call("ec2:RunInstances", **request, TagSpecifications=tags)
    copy = made["Instances"][0]["InstanceId"]
    _listed(rig, lambda each: each.update(ClientToken="a-uuid" if each["InstanceId"] == copy else "boa-x"))
    assert [node.id for node in rig.cloud.nodes()] == [name]
    assert copy in rig.cloud.nets()["tags"]()
    rig.pass_time(3 * 3600.0)
    rig.cloud.nodes()
    assert copy not in rig.cloud.sweep()
    assert copy in [life.id for life in rig.fake.live()]


def _made_another_type(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.pass_time(3600.0)
    rig.fake.restart(name)
    rig.fake.backend(_life(rig, name).region).get_instance(name).instance_type = "g5.12xlarge"
    rig.cloud.nodes()
    (node,) = [node for node in rig.cloud.nodes() if node.ended_at is None]
    usd = rig.cloud.market.list_price("g5.12xlarge")
    assert usd is not None
    assert node.prices[-1][1] == pytest.approx(usd)
    assert any("somebody has made it a g5.12xlarge" in said for said in rig.said)


def _own_tenancy(rig: AwsRig) -> None:
    _launched(rig)
    _listed(rig, lambda each: each["Placement"].update(Tenancy="dedicated"))
    for _ in range(3):
        rig.cloud.nodes()
    assert sum("has tenancy dedicated" in said for said in rig.said) == 1


def _pooled(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.cloud.pool.stop([name])
    rig.pass_time(120.0)
    node = _named(rig, f"{name}~2")
    assert (node.phase, node.prices[-1][1]) == ("stopped", 0.0)


def _stopping(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.fake.terms.shutdown_seconds = 1e9
    rig.cloud.pool.stop([name])
    rig.cloud.nodes()
    rig.pass_time(901.0)
    rig.cloud.nodes()
    assert _life(rig, name).ended_at is not None
    assert any("stopping for" in said for said in rig.said)


def _stopped_by_others(rig: AwsRig) -> None:
    for by_aws in (True, False):
        name = _launched(rig)
        rig.pass_time(3600.0)
        stopped_at = rig.clock.now()
        if by_aws:
            rig.fake.stop(name)
        else:
            rig.cloud.calls.call("ec2:StopInstances", InstanceIds=[name])
        rig.pass_time(120.0)
        run, stop = _named(rig, name), _named(rig, f"{name}~2")
        assert run.ended_at is not None
        assert run.ended_at == pytest.approx(stopped_at, abs=121.0 if by_aws else 1.0)
        assert (stop.phase, stop.prices[-1][1]) == ("stopped", 0.0)
        assert any(name in said and "not by us" in said for said in rig.said)
        # It stays so in later listings and after a restart, and is not billed as running.
        again = rig.another()
        again.remember([stop])
        for cloud in (rig.cloud, again):
            rig.pass_time(7200.0)
            later = next(node for node in cloud.nodes() if node.id == f"{name}~2")
            assert (later.phase, later.prices[-1][1]) == ("stopped", 0.0)
            assert not any(node.id == name and node.ended_at is None for node in cloud.nodes())
        rig.cloud.terminate(ends(f"{name}~2"))
        rig.pass_time(120.0)
        assert _life(rig, name).ended_at is not None


def _started_by_others(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.fake.stop(name)
    rig.pass_time(120.0)
    rig.cloud.nodes()
    rig.cloud.calls.call("ec2:StartInstances", InstanceIds=[name])
    rig.pass_time(120.0)
    live = [node for node in rig.cloud.nodes() if node.ended_at is None]
    assert [(node.id, node.phase) for node in live] == [(f"{name}~3", "ready")]
    rig.fake.stop(name)
    rig.pass_time(120.0)
    live = [node for node in rig.cloud.nodes() if node.ended_at is None]
    assert [(node.id, node.phase) for node in live] == [(f"{name}~4", "stopped")]


def _restarted_by_others(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.pass_time(3600.0)
    rig.cloud.nodes()
    again = rig.another()
    again.remember([_only(rig)])
    rig.pass_time(30.0)
    rig.fake.restart(name)
    rig.pass_time(120.0)
    # Also after a restart of ours, and in every later listing.
    for cloud in (rig.cloud, rig.cloud, again, again):
        found = {node.id: node for node in cloud.nodes()}
        assert charge_for(found[name]).micro_dollars == pytest.approx(3750.0 / 3600.0 * 1.033e6, rel=0.01)
        later = found[f"{name}~3"]
        assert (later.phase, later.launched_at) == ("ready", found[name].ended_at)
        rig.pass_time(30.0)
    assert [said for key, said in rig.cloud.news() if "stopped and started again" in said]


def _ended_by_others(rig: AwsRig) -> None:
    for seconds, refusals in ((60.0, 0), (60.0, 1), (600.0, 0)):
        name = _launched(rig)
        rig.pass_time(seconds)
        rig.cloud.nodes()
        rig.fake.end(name, "Client.UserInitiatedShutdown: User initiated shutdown")
        # Quiet ticks may use the listing before for a while.
        rig.pass_time(110.0 if seconds == 600.0 else 1.0)
        rig.cloud.nodes()
        assert [said for _, said in rig.cloud.news() if name in said and "ended, and not by us" in said]
        rig.pass_time(120.0)
        node = _named(rig, name)
        assert charge_for(node).micro_dollars > 0
        failed = rig.cloud.failed_launches()
        assert len(failed) == refusals
        for key, refused in failed:
            assert refused.scopes == (key,) == ("g5.xlarge/us-east-1a/on-demand",)
            assert "CloudTrail" in refused.reason
    # What we end is ours, and so are leaks.
    name = _launched(rig)
    rig.cloud.terminate(ends(name))
    rig.pass_time(120.0)
    rig.cloud.nodes()
    assert rig.cloud.news() == []


def _ending(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.fake.terms.shutdown_seconds = 1e9
    rig.fake.end(name)
    at = rig.clock.now()
    node = _only(rig)
    before = bill(node, until=at)
    rig.pass_time(1000.0)
    node = _only(rig)
    extras = sum(usd for _, usd in node.extras) * 1000.0 / 3600.0 * 1e6
    assert node.phase == "terminating"
    assert bill(node, until=rig.clock.now()) == pytest.approx(before + extras, abs=5)
    assert any("shutting down for" in said for said in rig.said)


def _never_ran(rig: AwsRig) -> None:
    scopes = {
        "Server.InsufficientInstanceCapacity": "g5.xlarge/us-east-1a/on-demand",
        "Server.InternalError": "g5.xlarge/us-east-1a/on-demand",
        "Client.InternalError": "g5.xlarge",
        "Client.VolumeLimitExceeded": "*",
        "Client.InvalidSnapshot.NotFound": "g5.xlarge",
        "Client.SomethingNew": "g5.xlarge/us-east-1a/on-demand",
    }
    for number, (reason, scope) in enumerate(scopes.items()):
        rig.fake.terms.launch_failures["g5.xlarge"] = f"{reason}: said by EC2"
        rig.cloud.launch(a_launch(rig.offer(), name=f"t{number}-launch"))
        rig.cloud.nodes()
        rig.pass_time(15.0)
        node = next(each for each in rig.cloud.nodes() if each.launched_by == f"t{number}-launch")
        assert node.ended_at is not None
        assert charge_for(node).micro_dollars == 0
        ((key, refused),) = rig.cloud.failed_launches()
        assert key == "g5.xlarge/us-east-1a/on-demand"
        assert scope in refused.scopes
        assert reason in refused.reason
        assert rig.cloud.failed_launches() == []
    # A daemon that was restarted knows the same.
    assert all(charge_for(node).micro_dollars == 0 for node in rig.another().nodes())


def _not_started(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.cloud.pool.stop([name])
    rig.pass_time(120.0)
    assert _named(rig, f"{name}~2").phase == "stopped"
    rig.fake.terms.launch_failures["g5.xlarge"] = "Server.InsufficientInstanceCapacity: none left"
    order = replace(a_launch(rig.offer(), name="again"), starts=(f"{name}~2",))
    assert rig.cloud.launch(order) == Launched(nodes=(f"{name}~3",))
    rig.pass_time(5.0)
    assert _named(rig, f"{name}~3").phase == "requested"
    rig.pass_time(120.0)
    run, stop = _named(rig, f"{name}~3"), _named(rig, f"{name}~4")
    assert charge_for(run).micro_dollars == 0
    assert (stop.phase, stop.prices[-1][1]) == ("stopped", 0.0)
    ((key, refused),) = rig.cloud.failed_launches()
    assert refused.scopes == (key,)


def _ended_early(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.fake.end(name)
    rig.pass_time(120.0)
    assert charge_for(_only(rig)).micro_dollars > 0
    ((key, refused),) = rig.cloud.failed_launches()
    assert refused.scopes == (key,) == ("g5.xlarge/us-east-1a/on-demand",)


def _interrupted_early(rig: AwsRig) -> None:
    for seconds, is_free in ((600.0, True), (4000.0, False)):
        name = _launched(rig, market="spot")
        rig.pass_time(seconds)
        rig.cloud.nodes()
        rig.fake.end(name, "Server.SpotInstanceTermination")
        rig.pass_time(120.0)
        node = _named(rig, name)
        extras = sum(usd for _, usd in node.extras)
        assert node.ended_at is not None
        hours = (node.ended_at - node.launched_at) / 3600.0
        assert (charge_for(node).micro_dollars == pytest.approx(extras * hours * 1e6, abs=3)) == is_free
        assert not rig.cloud.failed_launches()


def _ended(rig: AwsRig) -> None:
    name = _launched(rig)
    rig.pass_time(1000.0)
    rig.cloud.terminate(ends(name))
    at = rig.clock.now()
    rig.pass_time(120.0)
    assert _only(rig).ended_at == pytest.approx(at, abs=1.0)
    other = _launched(rig)
    rig.pass_time(1000.0)
    rig.fake.end(other, "Server.InternalError")
    rig.pass_time(120.0)
    assert charge_for(_named(rig, other)).micro_dollars > 0
    assert any(other in said and "not by us" in said for said in rig.said)


def _hidden(rig: AwsRig) -> None:
    rig.fake.terms.invisible_seconds = 1e9
    outcome = rig.cloud.launch(a_launch(rig.offer()))
    assert isinstance(outcome, Launched)
    assert rig.cloud.nodes() == []
    rig.fake.terms.invisible_seconds = 0.0
    assert _only(rig).ended_at is None
    rig.fake.terms.invisible_seconds = 1e9
    for _ in range(2):
        rig.pass_time(61.0)
        assert _only(rig).ended_at is None
    rig.pass_time(400.0)
    rig.cloud.nodes()
    rig.pass_time(61.0)
    assert _only(rig).ended_at is not None


_TRIES: dict[str, Callable[[AwsRig], None]] = {
    "booting": _booting,
    "running": _running,
    "impaired": _impaired,
    "scheduled": _scheduled,
    "announced": _announced,
    "not stopped": _not_stopped,
    "not ended": _not_ended,
    "end refused": _end_refused,
    "tags copied": _tags_copied,
    "made another type": _made_another_type,
    "own tenancy": _own_tenancy,
    "pooled": _pooled,
    "stopping": _stopping,
    "stopped by others": _stopped_by_others,
    "started by others": _started_by_others,
    "restarted by others": _restarted_by_others,
    "ended by others": _ended_by_others,
    "ending": _ending,
    "never ran": _never_ran,
    "not started": _not_started,
    "ended early": _ended_early,
    "interrupted early": _interrupted_early,
    "ended": _ended,
    "hidden": _hidden,
}


@pytest.mark.parametrize("row", sorted(NODE_STATES))
def test_each_row_of_the_table_holds_on_the_fake_cloud(make_rig: RigMaker, row: str) -> None:
    """What is done, by when, and what it costs from then on, is as the table says."""
    rig = make_rig(
        Terms(boot_seconds=90.0, shutdown_seconds=60.0, spot_fraction=0.4), market="spot-then-on-demand"
    )
    _TRIES[row](rig)


def test_launches_that_never_run_come_ever_more_rarely_and_are_free(make_rig: RigMaker) -> None:
    """Ten minutes with a launch whenever the offer is open: three launches, and nothing is charged."""
    rig = make_rig(zones=("us-east-1a",))
    rig.fake.terms.launch_failures["g5.xlarge"] = "Client.InternalError: Client error on launch"
    store, launches, spent = MemoryStore(), 0, 0
    for second in range(0, 600, 8):
        now = rig.clock.now()
        ended = [node for node in rig.cloud.nodes() if node.ended_at is not None]
        spent = sum(charge_for(node).micro_dollars for node in ended)
        for _, refused in rig.cloud.failed_launches():
            store.close_offers(refused, at=now)
        live = [node for node in rig.cloud.nodes() if node.ended_at is None]
        if not live and not store.cooldowns(now):
            launches += isinstance(
                rig.cloud.launch(a_launch(rig.offer(), name=f"t{second}-launch")), Launched
            )
        rig.pass_time(8.0)
    assert launches <= 3
    assert spent == 0


def test_health_is_asked_for_every_two_minutes_and_only_while_nodes_run(rig: AwsRig) -> None:
    """Twenty ticks and refreshes in two minutes make one call; without nodes there is none."""
    rig.cloud.refresh()
    assert rig.fake.faults.counts["DescribeInstanceStatus"] == 0
    rig.pass_time(120.0)
    _launched(rig)
    for _ in range(20):
        rig.cloud.refresh()
        rig.cloud.nodes()
        rig.pass_time(6.0)
    assert rig.fake.faults.counts["DescribeInstanceStatus"] == 1


def test_the_page_has_the_table_of_the_code() -> None:
    """`docs/reference/node-states.md` is what `benchmarks/aws_tables.py` prints."""
    lines = benchmark_module("aws_tables").state_lines()

    assert "\n".join(lines) in DOCS.read_text(encoding="utf-8")


def test_a_refusal_after_the_launch_rests_its_scopes_only() -> None:
    """The store closes what the refusal names, and it opens again."""
    store = MemoryStore()
    refused = Refused(reason="no", kind="no-capacity", scopes=("a/b/spot",), retry_after_seconds=180.0)
    store.close_offers(refused, at=0.0)

    assert set(store.cooldowns(179.0)) == {"a/b/spot"}
    assert store.cooldowns(181.0) == {}


def _ran_before_the_restart(rig: AwsRig) -> AwsCloud:
    """The earlier process saw it run, and wrote it down as ready."""
    _launched(rig)
    again = rig.another()
    again.remember([_only(rig)])
    return again


def _left_before_the_restart(rig: AwsRig) -> AwsCloud:
    """The earlier process saw it run, and wrote it down as leaving."""
    rig.cloud.rehearse_end(_launched(rig))
    again = rig.another()
    again.remember([_only(rig)])
    return again


def _ran_while_we_were_down(rig: AwsRig) -> AwsCloud:
    """The earlier process saw it pending at last."""
    rig.cloud.launch(a_launch(rig.offer()))
    again = rig.another()
    again.remember([_only(rig)])
    return again


def _ran_before_we_knew_it(rig: AwsRig) -> AwsCloud:
    """The earlier process ended right after its order, and no record names the instance."""
    rig.cloud.launch(a_launch(rig.offer()))
    return rig.another()


def _ran_while_ec2_did_not_answer(rig: AwsRig) -> AwsCloud:
    """The process goes on, and has no listing between `pending` and the end."""
    rig.cloud.launch(a_launch(rig.offer()))
    rig.cloud.nodes()
    return rig.cloud


@pytest.mark.parametrize("reason", ["Server.InternalError", "Client.SomethingNew"])
@pytest.mark.parametrize(
    "begin",
    [
        _ran_before_the_restart,
        _left_before_the_restart,
        _ran_while_we_were_down,
        _ran_before_we_knew_it,
        _ran_while_ec2_did_not_answer,
    ],
)
def test_a_node_that_ran_unseen_is_charged(
    make_rig: RigMaker, begin: Callable[[AwsRig], AwsCloud], reason: str
) -> None:
    """Ten minutes of a node that ended with the reason of a failed launch are paid, in every listing."""
    rig = make_rig(Terms(boot_seconds=90.0, shutdown_seconds=60.0))
    cloud = begin(rig)
    rig.pass_time(600.0)
    rig.fake.end(rig.fake.history()[0].id, reason)
    rig.pass_time(70.0)
    # A daemon lists its nodes once when it starts; the bill is made from the listing of the first tick.
    for _ in range(3):
        (node,) = cloud.nodes()
        assert node.ended_at is not None
        assert node.ended_at - node.launched_at >= 600.0
        assert charge_for(node).micro_dollars > 100_000
        rig.pass_time(30.0)


def test_a_start_that_ran_unseen_is_charged(make_rig: RigMaker) -> None:
    """A node from the warm pool ran for an hour, and was stopped with such a reason while we were down."""
    rig = make_rig(Terms(boot_seconds=90.0, shutdown_seconds=60.0))
    name = _launched(rig)
    rig.cloud.pool.stop([name])
    rig.pass_time(120.0)
    rig.cloud.nodes()
    rig.cloud.launch(replace(a_launch(rig.offer(), name="again"), starts=(f"{name}~2",)))
    rig.pass_time(120.0)
    run = _named(rig, f"{name}~3")
    assert run.phase == "ready"
    again = rig.another()
    again.remember([run])
    rig.pass_time(3600.0)
    rig.fake.stop(name, "Server.InternalError: said by EC2")
    rig.pass_time(120.0)
    for _ in range(2):
        found = {node.id: node for node in again.nodes()}
        assert charge_for(found[f"{name}~3"]).micro_dollars > 1_000_000


@pytest.mark.parametrize("is_told", [True, False])
def test_a_node_that_ran_between_two_looks_is_charged_if_the_queue_told_so(
    make_rig: RigMaker, is_told: bool
) -> None:
    """It is seen `pending`, runs for 40 s, and ends as a failed launch does before the next look."""
    rig = make_rig(Terms(boot_seconds=20.0, shutdown_seconds=10.0))
    name = _launched(rig, seconds=0.0)
    if is_told:
        at = rig.clock.now() + 20.0
        rig.cloud.notices.add(Notice(kind="state-change", node=name, at=at, state="running"))
    rig.pass_time(60.0)
    rig.fake.end(name, "Server.InternalError: Server.InternalError: Internal error on launch")
    rig.pass_time(20.0)
    (node,) = rig.cloud.nodes()

    assert (charge_for(node).micro_dollars > 0) == is_told
