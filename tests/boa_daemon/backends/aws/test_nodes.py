"""`backends/aws/cloud.py` listing and ending: what is ours, has ended, vanished, and what is not touched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aws_rigs import START, AwsRig, RigMaker, a_launch, ends

from boa_daemon.backends.aws.descriptions import instances_of
from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.backends.aws.events import Notice
from boa_daemon.backends.aws.node_from_instance import lease_of
from boa_daemon.backends.aws.sweep import Sweeper
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.ledger import bill_by_kind, charge_for
from boa_daemon.tick.ports import Accepted, Launched, Refused, Unknown


def launched(rig: AwsRig, count: int = 1, **named: object) -> tuple[str, ...]:
    """Launch nodes and return their ids."""
    outcome = rig.cloud.launch(a_launch(rig.offer(), count, **named))  # type: ignore[arg-type]
    assert isinstance(outcome, Launched)
    return outcome.nodes


def leases(rig: AwsRig) -> dict[str, float]:
    """Return until when each instance may live, by its tag."""
    return {
        each["InstanceId"]: lease_of(each) or 0.0
        for each in instances_of(rig.cloud.calls, rig.settings.cluster)
    }


def test_a_bill_runs_from_launch_to_the_order_to_end(rig: AwsRig) -> None:
    """By EC2's own clock, whenever the listing is read, and after a restart too."""
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


def test_a_node_that_ends_is_billed_until_ec2_says_so(rig: AwsRig) -> None:
    """While it shuts down it counts as terminating, without an end."""
    launched(rig)
    rig.pass_time(200.0)
    rig.cloud.terminate(ends(*[node.id for node in rig.cloud.nodes()]))
    [node] = rig.cloud.nodes()

    assert (node.phase, node.ended_at) == ("terminating", None)


def test_no_list_is_not_an_empty_list(rig: AwsRig) -> None:
    """A failed listing is an error, so that nothing is decided on it."""
    launched(rig)
    rig.fake.faults.plan("DescribeInstances", "error:UnauthorizedOperation", times=9)

    with pytest.raises(CallFailed, match="boa iam"):
        rig.cloud.nodes()


def test_all_pages_are_read(rig: AwsRig) -> None:
    """Each launch is a reservation, and a page ends after so many of them."""
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


def test_foreign_instances_are_not_seen_and_not_ended(rig: AwsRig) -> None:
    """Only what bears our cluster's tag is ours, whoever asks."""
    other = rig.another(cluster="theirs")
    outcome = other.launch(a_launch(rig.offer(), name="theirs"))
    assert isinstance(outcome, Launched)
    said = rig.cloud.terminate(ends(*outcome.nodes))

    assert list(rig.cloud.nodes()) == []
    assert isinstance(said[outcome.nodes[0]], Refused)
    assert len(rig.fake.live()) == 1


def test_one_missing_id_does_not_keep_the_others(rig: AwsRig) -> None:
    """EC2 refuses the whole call for it, so each is ended by itself."""
    names = launched(rig, 3)
    rig.pass_time(100.0)
    rig.cloud.nodes()
    rig.fake._lives.pop(names[1])  # EC2 forgets it between the listing and the call.
    said = rig.cloud.terminate(ends(*names))

    assert said[names[0]] == said[names[2]] == Accepted()
    assert isinstance(said[names[1]], Unknown)


def test_a_protected_instance_is_cried_about(rig: AwsRig) -> None:
    """It is refused as denied, with the fix; the others end."""
    names = launched(rig, 2)
    rig.cloud.nodes()
    next(life for life in rig.fake.history() if life.id == names[0]).is_protected = True
    said = rig.cloud.terminate(ends(*names))

    assert isinstance(said[names[0]], Refused)
    assert "termination protection" in said[names[0]].reason
    assert said[names[1]] == Accepted()


def test_an_end_is_ordered_again_and_cried_about(make_rig: RigMaker) -> None:
    """Each minute until EC2 obeys; after a quarter of an hour somebody hears of it."""
    rig = make_rig(Terms())
    names = launched(rig)
    rig.cloud.nodes()
    rig.fake.faults.plan("TerminateInstances", "drop", times=20)
    assert isinstance(rig.cloud.terminate(ends(*names))[names[0]], Unknown)
    for _ in range(19):
        rig.pass_time(60.0)
        assert [node.phase for node in rig.cloud.nodes()] == ["terminating"]

    assert any("told to end" in sentence for sentence in rig.said)
    rig.pass_time(60.0)
    rig.cloud.nodes()
    assert rig.fake.live() == []


def test_what_fell_out_of_the_list_is_gone_after_two_listings_and_a_minute(rig: AwsRig) -> None:
    """Not at once, and never while young: listings lag."""
    [name] = launched(rig)
    rig.pass_time(400.0)
    rig.cloud.nodes()
    rig.fake.terms.invisible_seconds = 1e9
    phases = []
    for _ in range(4):
        rig.pass_time(30.0)
        phases.append([(node.id, node.ended_at is None) for node in rig.cloud.nodes()])

    assert phases[:2] == [[(name, True)]] * 2
    assert phases[3] == [(name, False)]


def test_nodes_of_an_earlier_process_do_not_vanish_unbilled(rig: AwsRig) -> None:
    """What was recorded and is no longer listed gets an end and a bill."""
    [name] = launched(rig)
    rig.pass_time(400.0)
    [node] = rig.cloud.nodes()
    restarted = rig.another()
    restarted.remember([replace(node, id="i-longgone"), node])
    ended = []
    for _ in range(4):
        rig.pass_time(40.0)
        ended = [each.id for each in restarted.nodes() if each.ended_at is not None]

    assert ended == ["i-longgone"]
    assert name not in ended


def test_leases_are_renewed_in_one_call(rig: AwsRig) -> None:
    """When more than a quarter is over, for all nodes together; else no call is made."""
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


def test_the_lease_of_what_nobody_wants_runs_out_and_the_sweep_ends_it(rig: AwsRig) -> None:
    """A listing renews nothing: the tick does, by name; what it wants outlives an hour apart."""
    wanted, unwanted = launched(rig, 2)
    rig.pass_time(1500.0)
    rig.cloud.nodes()
    rig.cloud.renew([wanted])
    assert leases(rig) == {wanted: START + 1500.0 + 5400.0, unwanted: START + 5400.0}
    rig.pass_time(3600.0 + 5400.0)
    assert list(rig.cloud.sweep()) == [unwanted]


def test_a_lease_that_a_wrong_clock_wrote_is_shortened(rig: AwsRig) -> None:
    """Forty days ahead: at most now and its length remains."""
    [name] = launched(rig)
    rig.pass_time(40 * 86_400.0)
    rig.cloud.nodes()
    rig.cloud.renew([name])
    rig.clock.instant = START + 100.0
    rig.cloud.nodes()
    rig.cloud.renew([name])
    assert leases(rig) == {name: START + 100.0 + 5400.0}


def test_a_listing_that_shows_a_live_instance_wins_over_its_end(rig: AwsRig) -> None:
    """It fell out for minutes and was taken for ended: listed again it lives, is renewed, and ended."""
    [name] = launched(rig)
    rig.pass_time(400.0)
    rig.cloud.nodes()
    rig.fake.terms.invisible_seconds = 1e9
    for _ in range(4):
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


def test_an_instance_without_its_tag_is_asked_for_by_its_id(rig: AwsRig) -> None:
    """An operator's slip, or an index of tags that lags: it lives and is billed as long as EC2 knows it."""
    [name] = launched(rig)
    rig.pass_time(400.0)
    rig.cloud.nodes()
    client = rig.cloud.calls._client("ec2:DescribeInstances", "")
    client.delete_tags(Resources=[name], Tags=[{"Key": "boa:cluster"}])
    for _ in range(6):
        rig.pass_time(60.0)
        assert [(node.id, node.ended_at) for node in rig.cloud.nodes()] == [(name, None)]


def test_two_daemons_with_two_databases_end_nothing_of_each_other(rig: AwsRig) -> None:
    """The one with the oldest instance has the cluster; the other ends nothing and says whose it is."""
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


def test_what_our_database_knows_is_ours_whoever_rented_it(rig: AwsRig) -> None:
    """After `boa recover` the database has another name, and the instances are in it."""
    [name] = launched(rig)
    [node] = rig.cloud.nodes()
    recovered = rig.another()
    recovered._ledger_id = "other"
    recovered.remember([node])
    assert [each.id for each in recovered.nodes()] == [name]
    assert recovered.elsewhere() == ""


def test_a_dead_daemons_instances_are_anybodys_once_their_lease_is_over(rig: AwsRig) -> None:
    """Nobody renewed them: the cluster is free, and the sweep ends them as leaks."""
    [name] = launched(rig)
    other = rig.another()
    other._ledger_id = "other"
    rig.pass_time(5400.0 + 200.0)
    assert list(other.nodes()) == []
    assert other.elsewhere() == ""
    assert list(other.sweep()) == [name]


@pytest.mark.parametrize("text", ["", "\u00b2", "1e9", "nan", "-5", "9" * 200, "tomorrow"])
def test_tags_that_others_wrote_break_no_listing(rig: AwsRig, text: str) -> None:
    """Lease and price are read where they are numbers; else the lease is over, the price the catalogue's."""
    [name] = launched(rig)
    client = rig.cloud.calls._client("ec2:DescribeInstances", "")
    for key in ("boa:lease", "boa:usd-per-hour", "boa:market", "boa:intent"):
        client.create_tags(Resources=[name], Tags=[{"Key": key, "Value": text}])
    [node] = rig.cloud.nodes()
    assert 0.0 < node.prices[0][1] < 100.0
    rig.cloud.renew([name])
    assert leases(rig)[name] == START + 5400.0


def test_a_verb_that_looks_renews_nothing(rig: AwsRig) -> None:
    """Or looking would keep a fleet alive whose daemon is dead."""
    launched(rig)
    looker = rig.another()
    looker._touches = False
    rig.pass_time(1700.0)
    looker.renew([node.id for node in looker.nodes()])

    assert looker.calls.counts["ec2:CreateTags"] == 0


def test_a_spot_warning_moves_the_jobs_at_once(rig: AwsRig) -> None:
    """The node counts as terminating, with the instant at which it goes."""
    [name] = launched(rig)
    rig.pass_time(100.0)
    rig.cloud.nodes()
    rig.cloud.notices.add(Notice(kind="spot-warning", node=name, at=rig.clock.now()))
    [node] = rig.cloud.nodes()

    assert node.phase == "terminating"
    assert node.ends_by == rig.clock.now() + 120.0


def test_a_rehearsed_warning_goes_the_way_of_a_real_one(rig: AwsRig) -> None:
    """EC2 takes nothing back then: half a minute after its time the node is given back, and only then."""
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


def test_spot_is_billed_at_the_prices_of_its_time(make_rig: RigMaker) -> None:
    """The price at launch, then those that the market asked; the same after a restart."""
    path = [(START - 500.0, 0.40), (START + 1000.0, 0.60)]
    rig = make_rig(Terms(spot_paths={("g5.xlarge", "us-east-1a"): path}), market="spot")
    outcome = rig.cloud.launch(a_launch(rig.offer(market="spot")))
    assert isinstance(outcome, Launched)
    rig.pass_time(2000.0)
    expected = ((START, 0.4), (START + 1000.0, 0.6))

    assert [node.prices for node in rig.cloud.nodes()] == [expected]
    assert [node.prices for node in rig.another().nodes()] == [expected]


def test_an_outbid_spot_node_is_warned_and_taken(make_rig: RigMaker) -> None:
    """Two minutes after the warning it ends, without a word about when."""
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


def test_nothing_is_called_that_is_not_in_the_table(rig: AwsRig) -> None:
    """So the policies that are made from it cannot lack anything."""
    with pytest.raises(ValueError, match="not in the table"):
        rig.cloud.calls.call("ec2:RebootInstances", InstanceIds=["i-1"])


def test_moto_without_an_operation_fails_loudly(rig: AwsRig) -> None:
    """`NotImplementedError` reaches the test: no broad handler hides what moto cannot do."""
    launched(rig)
    client = rig.cloud.calls._client("ec2:DescribeInstances", "")

    with pytest.raises(NotImplementedError):
        client.describe_instances(Filters=[{"Name": "client-token", "Values": ["x"]}])


def test_the_sweep_knows_what_the_records_do_not(rig: AwsRig) -> None:
    """An instance whose intent is in no record is a leak, but not while it is young."""
    [name] = launched(rig, name="t9-launch-0")
    sweeper = Sweeper(rig.settings, rig.cloud.calls, rig.clock)

    def leaks() -> list[tuple[str, str]]:
        found = sweeper.find(known_intents=lambda intent: intent == "t1-launch-0")
        return [(each.id, each.leak) for each in found if each.leak]

    assert leaks() == []
    rig.pass_time(60.0)
    assert leaks() == [(name, "its intent t9-launch-0 is in no record")]
