"""`backends/aws/subnet_egress.py`: who gets out of a subnet, and that nobody is rented who does not."""

from __future__ import annotations

import boto3
import pytest
from aws_rigs import AwsRig, RigMaker, a_launch

from boa_daemon.backends.aws.subnet_egress import SubnetEgress
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.ports import Launched, Refused


def a_way(gateway: str = "igw-1", *, public: bool = True, endpoints: tuple[str, ...] = ()) -> SubnetEgress:
    """Return how a subnet gets out."""
    return SubnetEgress(
        subnet="subnet-1",
        zone="us-east-1a",
        gives_public_addresses=public,
        gateway=gateway,
        endpoints=frozenset(endpoints),
    )


@pytest.mark.parametrize(
    ("way", "interfaces", "lacks"),
    [
        (a_way(), 1, ()),
        (a_way(), 4, ("ssm", "ssmmessages", "sqs", "s3")),
        (a_way(public=False), 1, ("ssm", "ssmmessages", "sqs", "s3")),
        (a_way("nat-1", public=False), 32, ()),
        (a_way("tgw-1", public=False), 1, ()),
        (a_way("", endpoints=("s3",)), 1, ("ssm", "ssmmessages", "sqs")),
        (a_way("", endpoints=("ssm", "ssmmessages", "sqs", "s3")), 32, ()),
    ],
)
def test_who_gets_out(way: SubnetEgress, interfaces: int, lacks: tuple[str, ...]) -> None:
    """A NAT serves all; an internet gateway those with a public address, so with one interface."""
    assert way.lacks(interfaces) == lacks
    assert bool(way.why(interfaces)) == bool(lacks)


def profiled(make_rig: RigMaker, **settings: object) -> AwsRig:
    """Return AWS with nodes that SSM is to reach."""
    rig = make_rig(Terms(), instance_profile="boa-node", zones=("us-east-1d",), **settings)
    iam = boto3.client("iam", region_name="us-east-1")
    iam.create_instance_profile(InstanceProfileName="boa-node")
    return rig


def test_a_p4d_with_efa_is_not_rented_in_a_default_subnet(make_rig: RigMaker) -> None:
    """It would have four interfaces and no public address: refused, before a cent is spent."""
    rig = profiled(make_rig)
    zone = next(offer.zone for offer in rig.cloud.offers() if offer.instance_type == "p4d.24xlarge")
    outcome = rig.cloud.launch(a_launch(Offer(instance_type="p4d.24xlarge", zone=zone)))

    assert isinstance(outcome, Refused)
    assert "no public address to an instance with 4 interfaces" in outcome.reason
    assert rig.fake.history() == []


def test_without_efa_it_is(make_rig: RigMaker) -> None:
    """One interface has a public address."""
    rig = profiled(make_rig, efa=False)
    zone = next(offer.zone for offer in rig.cloud.offers() if offer.instance_type == "p4d.24xlarge")

    assert isinstance(rig.cloud.launch(a_launch(Offer(instance_type="p4d.24xlarge", zone=zone))), Launched)


NO_EFA = "EFA is not checked: it was launched without a card of g5.8xlarge's, as [cloud] efa is false"


@pytest.mark.parametrize(
    ("efa", "name", "expected"),
    [(True, "g5.8xlarge", (1, "")), (False, "g5.8xlarge", (0, NO_EFA)), (True, "g5.xlarge", (0, ""))],
)
def test_a_node_has_to_show_the_cards_it_was_launched_with_in_a_default_subnet_too(
    make_rig: RigMaker, efa: bool, name: str, expected: tuple[int, str]
) -> None:
    """One card needs no subnet of its own; without EFA the reason is said, and other types have none."""
    rig = profiled(make_rig, efa=efa, instance_types=(name,))
    zone = next(offer.zone for offer in rig.cloud.offers() if offer.instance_type == name)
    outcome = rig.cloud.launch(a_launch(Offer(instance_type=name, zone=zone)))
    assert isinstance(outcome, Launched)
    rig.pass_time(60.0)
    rig.cloud.nodes()

    assert rig.cloud.efa_cards(outcome.nodes[0]) == expected


def test_a_subnet_behind_a_nat_will_do(make_rig: RigMaker) -> None:
    """A private subnet with a route to a NAT gateway reaches everything."""
    rig = profiled(make_rig)
    ec2 = boto3.client("ec2", region_name="us-east-1")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/20", AvailabilityZone="us-east-1d")["Subnet"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=subnet["SubnetId"], AllocationId=address)["NatGateway"]
    [table] = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
    ec2.create_route(
        RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat["NatGatewayId"]
    )
    cloud = rig.another(subnets=(subnet["SubnetId"],))

    assert cloud.launcher.why_cut_off(subnet["SubnetId"], 32) == ""
    [way] = cloud.launcher.ways().values()
    assert way.gateway == nat["NatGatewayId"]
