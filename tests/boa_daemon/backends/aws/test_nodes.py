"""`aws/cloud.py`, listing and ending: ownership, bills, leases and ends of nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aws_rigs import START, AwsRig, RigMaker, a_launch, ends

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.descriptions import instances_of
from boa_daemon.backends.aws.instances.events import Notice
from boa_daemon.backends.aws.instances.node_from_instance import lease_of
from boa_daemon.backends.aws.instances.sweep import Sweeper
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused, Unknown
from boa_daemon.tick.money.ledger import bill_by_kind, charge_for


def launched(rig: AwsRig, count: int = 1, **named: object) -> tuple[str, ...]:
    """Launch nodes and return their ids."""
    outcome = rig.cloud.launch(a_launch(rig.offer(), count, **named))  # type: ignore[arg-type]
    assert isinstance(outcome, Launched)
    return outcome.nodes


def leases(rig: AwsRig) -> dict[str, float]:
    """Return the end of each instance's lease by its tag."""
    return {
        each["InstanceId"]: lease_of(each) or 0.0
        for each in instances_of(rig.cloud.calls, rig.settings.cluster)
    }


def test_a_bill_runs_from_launch_to_termination(rig: AwsRig) -> None:
    """The times are EC2's own, and a restarted daemon reads the same bill."""
    launched(rig)
    rig.pass_time(1000.0)
    rig.cloud.terminate(ends(*[node.id for node in rig.cloud.nodes()]))
    rig.pass_time(500.0)
    [node] = rig.another().nodes()
    charge = charge_for(node)

    assert (charge.started_at, charge.ended_at) == (START, START + 1000.0)
    by_kind = bill_by_kind(node, until=START + 1000.0)
    assert by_kind["compute"] == round(1000.0 / 3600.0 * 1.006 * 1e6)
    assert by_kind["disk"] == round(1000.0 / 3600.0 * 200 * 0.08 / 730.0 * 1e6)
    assert by_kind["address"] == round(1000.0 / 3600.0 * 0.005 * 1e6)
    assert charge.micro_dollars == sum(by_kind.values())


def test_a_node_that_is_shutting_down_is_terminating_without_an_end(rig: AwsRig) -> None:
    """Its bill goes on until EC2 reports its end."""
    launched(rig)
    rig.pass_time(200.0)
    rig.cloud.terminate(ends(*[node.id for node in rig.cloud.nodes()]))
    [node] = rig.cloud.nodes()

    assert (node.phase, node.ended_at) == ("terminating", None)


def test_a_failed_listing_raises_an_error(rig: AwsRig) -> None:
    """Otherwise the daemon would take it for an empty list."""
    launched(rig)
    rig.fake.faults.plan("DescribeInstances", "error:UnauthorizedOperation", times=9)

    with pytest.raises(CallFailed, match="boa iam"):
        rig.cloud.nodes()


def test_all_pages_are_read(rig: AwsRig) -> None:
    """Twelve launches on pages of five take three calls."""
    for number in range(12):
        launched(rig, name=f"n{number}")
    original = rig.cloud.calls.call

    def small_pages(operation: str, **arguments: object) -> dict[str, object]:
        if "MaxResults" in arguments:
            arguments["MaxResults"] = 5
        return original(operation, **arguments)  # type: ignore[arg-type]

    rig.cloud.calls.call = small_pages  # type: ignore[method-assign, assignment]
    before = rig.cloud.calls.counts["ec2:DescribeInstances"]

    assert len(rig.cloud.nodes()) == 12
    assert rig.cloud.calls.counts["ec2:DescribeInstances"] - before == 3


def test_instances_of_another_cluster_are_neither_listed_nor_ended(rig: AwsRig) -> None:
    """The cluster's tag decides."""
    other = rig.another(cluster="theirs")
    outcome = other.launch(a_launch(rig.offer(), name="theirs"))
    assert isinstance(outcome, Launched)
    said = rig.cloud.terminate(ends(*outcome.nodes))

    assert list(rig.cloud.nodes()) == []
    assert isinstance(said[outcome.nodes[0]], Refused)
    assert len(rig.fake.live()) == 1


def test_a_missing_instance_does_not_stop_the_end_of_the_others(rig: AwsRig) -> None:
    """EC2 refuses the whole call for one unknown id, so each instance is then ended by its own call."""
    names = launched(rig, 3)
    rig.pass_time(100.0)
    rig.cloud.nodes()
    rig.fake._lives.pop(names[1])  # EC2 forgets the instance between the listing and the call.
    said = rig.cloud.terminate(ends(*names))

    assert said[names[0]] == said[names[2]] == Accepted()
    assert isinstance(said[names[1]], Unknown)


def test_a_protected_instance_is_refused_and_the_others_end(rig: AwsRig) -> None:
    """The reason names termination protection."""
    names = launched(rig, 2)
    rig.cloud.nodes()
    next(life for life in rig.fake.history() if life.id == names[0]).is_protected = True
    said = rig.cloud.terminate(ends(*names))

    assert isinstance(said[names[0]], Refused)
    assert "termination protection" in said[names[0]].reason
    assert said[names[1]] == Accepted()


def test_a_dropped_termination_is_repeated_and_reported(make_rig: RigMaker) -> None:
    """It is repeated each minute until EC2 obeys; an alarm comes once, after a quarter of an hour."""
    rig = make_rig(Terms())
    names = launched(rig)
    rig.cloud.nodes()
    rig.fake.faults.plan("TerminateInstances", "drop", times=20)
    assert isinstance(rig.cloud.terminate(ends(*names))[names[0]], Unknown)
    for minute in range(1, 20):
        rig.pass_time(60.0)
        assert [node.phase for node in rig.cloud.nodes()] == ["terminating"]
        assert rig.cloud.calls.counts["ec2:TerminateInstances"] == 1 + minute
        alarms = [said for said in rig.said if f"{names[0]} was told to end 900 s ago" in said]
        assert len(alarms) == (1 if minute >= 15 else 0)
    assert [said for _, said in rig.cloud.news()] == alarms

    rig.pass_time(60.0)
    rig.cloud.nodes()
    assert rig.fake.live() == []


def test_a_node_missing_from_the_listing_is_ended_only_after_some_listings(rig: AwsRig) -> None:
    """Answers may leave it out for minutes, so the node is still alive after five and ended after that."""
    [name] = launched(rig)
    rig.pass_time(400.0)
    rig.cloud.nodes()
    rig.fake.terms.invisible_seconds = 1e9
    phases = []
    for _ in range(13):
        rig.pass_time(30.0)
        phases.append([(node.id, node.ended_at is None) for node in rig.cloud.nodes()])

    assert phases[:10] == [[(name, True)]] * 10
    assert phases[12] == [(name, False)]


def test_a_recorded_node_that_is_no_longer_listed_gets_an_end(rig: AwsRig) -> None:
    """The end gives a bill for a node of an earlier process."""
    [name] = launched(rig)
    rig.pass_time(400.0)
    [node] = rig.cloud.nodes()
    restarted = rig.another()
    restarted.remember([replace(node, id="i-longgone"), node])
    ended = []
    for _ in range(10):
        rig.pass_time(40.0)
        ended = [each.id for each in restarted.nodes() if each.ended_at is not None]

    assert ended == ["i-longgone"]
    assert name not in ended


def test_leases_are_renewed_in_one_call(rig: AwsRig) -> None:
    """The call is made only when more than a quarter of the lease is over."""
    names = launched(rig, 5)
    rig.pass_time(100.0)
    rig.cloud.nodes()
    rig.cloud.renew(names)
    assert rig.cloud.calls.counts["ec2:CreateTags"] == 0
    rig.pass_time(1300.0)
    rig.cloud.nodes()
    rig.cloud.renew(names)

    assert rig.cloud.calls.counts["ec2:CreateTags"] == 1
    assert leases(rig) == dict.fromkeys(names, START + 1400.0 + 5400.0)


def test_the_sweep_ends_a_node_whose_lease_is_not_renewed(rig: AwsRig) -> None:
    """A listing renews no lease; only `renew` does, for the nodes it is given."""
    wanted, unwanted = launched(rig, 2)
    rig.pass_time(1500.0)
    rig.cloud.nodes()
    rig.cloud.renew([wanted])
    assert leases(rig) == {wanted: START + 1500.0 + 5400.0, unwanted: START + 5400.0}
    rig.pass_time(3600.0 + 5400.0)
    assert list(rig.cloud.sweep()) == [unwanted]


def test_a_lease_written_by_a_wrong_clock_is_shortened(rig: AwsRig) -> None:
    """After the clock is set back forty days, the lease is its usual length from now."""
    [name] = launched(rig)
    rig.pass_time(40 * 86_400.0)
    rig.cloud.nodes()
    rig.cloud.renew([name])
    rig.clock.instant = START + 100.0
    rig.cloud.nodes()
    rig.cloud.renew([name])
    assert leases(rig) == {name: START + 100.0 + 5400.0}


def test_a_node_that_is_listed_again_is_alive_again(rig: AwsRig) -> None:
    """Its recorded end is dropped, its lease is renewed and it can be ended."""
    [name] = launched(rig)
    rig.pass_time(400.0)
    rig.cloud.nodes()
    rig.fake.terms.invisible_seconds = 1e9
    for _ in range(10):
        rig.pass_time(40.0)
        rig.cloud.nodes()
    assert [node.ended_at is None for node in rig.cloud.nodes()] == [False]
    rig.fake.terms.invisible_seconds = 0.0
    [node] = rig.cloud.nodes()
    assert (node.id, node.phase, node.ended_at) == (name, "ready", None)
    assert any("lists it again" in sentence for sentence in rig.said)
    rig.pass_time(2000.0)
    rig.cloud.nodes()
    rig.cloud.renew([name])
    assert leases(rig)[name] == rig.clock.now() + 5400.0
    rig.cloud.terminate(ends(name))
    assert rig.cloud.calls.counts["ec2:TerminateInstances"] == 1


def test_an_instance_that_lost_its_tag_is_found_by_its_id(rig: AwsRig) -> None:
    """The node stays in the listing without an end."""
    [name] = launched(rig)
    rig.pass_time(400.0)
    rig.cloud.nodes()
    client = rig.cloud.calls._client("ec2:DescribeInstances", "")
    client.delete_tags(Resources=[name], Tags=[{"Key": "boa:cluster"}])
    for _ in range(6):
        rig.pass_time(60.0)
        assert [(node.id, node.ended_at) for node in rig.cloud.nodes()] == [(name, None)]


def test_a_daemon_of_another_database_lists_and_ends_no_nodes(rig: AwsRig) -> None:
    """The database with the oldest instance owns the cluster; the other daemon is told the owner."""
    [name] = launched(rig)
    rig.pass_time(100.0)
    other = rig.another()
    other._ledger_id = "other"
    assert list(other.nodes()) == []
    assert "rented by another database (test; ours is other)" in other.elsewhere()
    assert isinstance(other.terminate(ends(name))[name], Refused)
    assert other.sweep() == {}
    assert [node.id for node in rig.cloud.nodes()] == [name]
    assert rig.cloud.elsewhere() == ""


def test_instances_in_the_database_belong_to_it_whatever_its_name(rig: AwsRig) -> None:
    """`boa recover` gives the database another name and records the instances."""
    [name] = launched(rig)
    [node] = rig.cloud.nodes()
    recovered = rig.another()
    recovered._ledger_id = "other"
    recovered.remember([node])
    assert [each.id for each in recovered.nodes()] == [name]
    assert recovered.elsewhere() == ""


def test_a_cluster_is_free_once_the_leases_of_its_instances_are_over(rig: AwsRig) -> None:
    """A daemon of another database then ends the instances in its sweep."""
    [name] = launched(rig)
    other = rig.another()
    other._ledger_id = "other"
    rig.pass_time(5400.0 + 200.0)
    assert list(other.nodes()) == []
    assert other.elsewhere() == ""
    assert list(other.sweep()) == [name]


@pytest.mark.parametrize("text", ["", "\u00b2", "1e9", "nan", "-5", "9" * 200, "tomorrow"])
def test_malformed_tags_do_not_break_the_listing(rig: AwsRig, text: str) -> None:
    """The price falls back to the catalogue, and the lease can be renewed."""
    [name] = launched(rig)
    client = rig.cloud.calls._client("ec2:DescribeInstances", "")
    for key in ("boa:lease", "boa:usd-per-hour", "boa:market", "boa:intent"):
        client.create_tags(Resources=[name], Tags=[{"Key": key, "Value": text}])
    [node] = rig.cloud.nodes()
    assert 0.0 < node.prices[0][1] < 100.0
    rig.cloud.renew([name])
    assert leases(rig)[name] == START + 5400.0


def test_a_read_only_cloud_renews_no_leases(rig: AwsRig) -> None:
    """Otherwise a look at the nodes would keep them alive after the daemon has died."""
    launched(rig)
    looker = rig.another()
    looker._touches = False
    rig.pass_time(1700.0)
    looker.renew([node.id for node in looker.nodes()])

    assert looker.calls.counts["ec2:CreateTags"] == 0


def test_a_spot_warning_makes_the_node_terminating(rig: AwsRig) -> None:
    """The node carries the instant at which EC2 takes it back."""
    [name] = launched(rig)
    rig.pass_time(100.0)
    rig.cloud.nodes()
    rig.cloud.notices.add(Notice(kind="spot-warning", node=name, at=rig.clock.now()))
    [node] = rig.cloud.nodes()

    assert node.phase == "terminating"
    assert node.ends_by == rig.clock.now() + 120.0


def test_a_rehearsed_spot_warning_ends_the_node_after_its_deadline(rig: AwsRig) -> None:
    """EC2 does not end the node in a rehearsal, so BOA ends it once, half a minute after the deadline."""
    [name] = launched(rig)
    wakes: list[int] = []
    rig.cloud.listen(lambda: wakes.append(1))
    rig.pass_time(100.0)
    assert rig.cloud.rehearse_end("i-unknown") is None
    assert rig.cloud.rehearse_end(name) is None
    rig.cloud.nodes()
    assert rig.cloud.rehearse_end(name) == rig.clock.now() + 120.0
    [node] = rig.cloud.nodes()
    assert (node.phase, node.ends_by, wakes) == ("terminating", rig.clock.now() + 120.0, [1])
    rig.pass_time(125.0)
    rig.cloud.nodes()
    assert rig.cloud.calls.counts["ec2:TerminateInstances"] == 0
    rig.pass_time(30.0)
    rig.cloud.nodes()
    rig.pass_time(60.0)
    rig.cloud.nodes()
    assert rig.fake.live() == []
    assert rig.cloud.calls.counts["ec2:TerminateInstances"] == 1


def test_a_spot_node_is_billed_at_the_market_prices_over_time(make_rig: RigMaker) -> None:
    """A restarted daemon reads the same prices."""
    path = [(START - 500.0, 0.40), (START + 1000.0, 0.60)]
    rig = make_rig(Terms(spot_paths={("g5.xlarge", "us-east-1a"): path}), market="spot")
    outcome = rig.cloud.launch(a_launch(rig.offer(market="spot")))
    assert isinstance(outcome, Launched)
    rig.pass_time(2000.0)
    expected = ((START, 0.4), (START + 1000.0, 0.6))

    assert [node.prices for node in rig.cloud.nodes()] == [expected]
    assert [node.prices for node in rig.another().nodes()] == [expected]


def test_an_outbid_spot_node_is_ended_two_minutes_after_its_warning(make_rig: RigMaker) -> None:
    """EC2 gives no time for the end of an outbid node."""
    path = [(START - 500.0, 0.40), (START + 300.0, 0.90)]
    terms = Terms(spot_paths={("g5.xlarge", "us-east-1a"): path})
    rig = make_rig(terms, market="spot", spot_max_usd_per_hour={"g5.xlarge": 0.5})
    rig.cloud.launch(a_launch(rig.offer(market="spot")))
    rig.pass_time(310.0)
    assert [node.phase for node in rig.cloud.nodes()] == ["ready"]
    rig.pass_time(130.0)
    [node] = rig.cloud.nodes()

    assert node.phase == "terminated"
    assert node.ended_at == START + 440.0


def test_an_operation_outside_the_table_is_refused(rig: AwsRig) -> None:
    """The policies are made from the table, so they allow every call."""
    with pytest.raises(ValueError, match="not in the table"):
        rig.cloud.calls.call("ec2:RebootInstances", InstanceIds=["i-1"])


def test_moto_raises_not_implemented_error_for_a_missing_feature(rig: AwsRig) -> None:
    """No broad exception handler hides what moto cannot do."""
    launched(rig)
    client = rig.cloud.calls._client("ec2:DescribeInstances", "")

    with pytest.raises(NotImplementedError):
        client.describe_instances(Filters=[{"Name": "client-token", "Values": ["x"]}])


def test_an_instance_whose_intent_is_not_recorded_is_a_leak(rig: AwsRig) -> None:
    """A young instance is not a leak yet."""
    [name] = launched(rig, name="t9-launch-0")
    sweeper = Sweeper(rig.settings, rig.cloud.calls, rig.clock)

    def leaks() -> list[tuple[str, str]]:
        found = sweeper.find(known_intents=lambda intent: intent == "t1-launch-0")
        return [(each.id, each.leak) for each in found if each.leak]

    assert leaks() == []
    rig.pass_time(60.0)
    assert leaks() == [(name, "its intent t9-launch-0 is in no record")]
