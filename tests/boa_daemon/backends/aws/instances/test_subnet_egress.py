"""`aws/instances/subnet_egress.py`: a node is launched only where it reaches AWS's services."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from aws_rigs import AwsRig, RigMaker, a_launch

from boa_daemon.backends.aws.instances.subnet_egress import NEEDED, SubnetEgress, egress_by_subnet
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Launched, Refused


def a_way(gateway: str = "igw-1", *, public: bool = True, endpoints: tuple[str, ...] = ()) -> SubnetEgress:
    """Return a subnet's way out."""
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
def test_the_services_that_a_subnet_cannot_reach(
    way: SubnetEgress, interfaces: int, lacks: tuple[str, ...]
) -> None:
    """A NAT serves every node; an internet gateway serves only nodes with one interface."""
    assert way.lacks(interfaces) == lacks
    assert bool(way.why(interfaces)) == bool(lacks)


def profiled(make_rig: RigMaker, **settings: object) -> AwsRig:
    """Return AWS with nodes that SSM is to reach."""
    rig = make_rig(Terms(), instance_profile="boa-node", zones=("us-east-1d",), **settings)
    iam = boto3.client("iam", region_name="us-east-1")
    iam.create_instance_profile(InstanceProfileName="boa-node")
    return rig


def test_a_p4d_with_efa_is_refused_in_a_default_subnet(make_rig: RigMaker) -> None:
    """A node with four interfaces gets no public address."""
    rig = profiled(make_rig)
    zone = next(offer.zone for offer in rig.cloud.offers() if offer.instance_type == "p4d.24xlarge")
    outcome = rig.cloud.launch(a_launch(Offer(instance_type="p4d.24xlarge", zone=zone)))

    assert isinstance(outcome, Refused)
    assert "no public address to an instance with 4 interfaces" in outcome.reason
    assert rig.fake.history() == []


def test_a_p4d_without_efa_is_launched_in_a_default_subnet(make_rig: RigMaker) -> None:
    """A node with one interface gets a public address."""
    rig = profiled(make_rig, efa=False)
    zone = next(offer.zone for offer in rig.cloud.offers() if offer.instance_type == "p4d.24xlarge")

    assert isinstance(rig.cloud.launch(a_launch(Offer(instance_type="p4d.24xlarge", zone=zone))), Launched)


NO_EFA = "EFA is not checked: it was launched without a card of g5.8xlarge's, as [cloud] efa is false"


@pytest.mark.parametrize(
    ("efa", "name", "expected"),
    [(True, "g5.8xlarge", (1, "")), (False, "g5.8xlarge", (0, NO_EFA)), (True, "g5.xlarge", (0, ""))],
)
def test_a_node_is_expected_to_have_the_efa_cards_of_its_launch(
    make_rig: RigMaker, efa: bool, name: str, expected: tuple[int, str]
) -> None:
    """Without EFA the reason is given; a type without EFA has no cards and no reason."""
    rig = profiled(make_rig, efa=efa, instance_types=(name,))
    zone = next(offer.zone for offer in rig.cloud.offers() if offer.instance_type == name)
    outcome = rig.cloud.launch(a_launch(Offer(instance_type=name, zone=zone)))
    assert isinstance(outcome, Launched)
    rig.pass_time(60.0)
    rig.cloud.nodes()

    assert rig.cloud.efa_cards(outcome.nodes[0]) == expected


def test_a_private_subnet_with_a_nat_gateway_reaches_everything(make_rig: RigMaker) -> None:
    """Even a node with 32 interfaces is not cut off."""
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


NAT = {"NatGatewayId": "nat-1", "State": "active"}
IGW, EGRESS = {"GatewayId": "igw-1", "State": "active"}, {"EgressOnlyInternetGatewayId": "eigw-1"}
V4, V6, PREFIX = (
    {"DestinationCidrBlock": "0.0.0.0/0"},
    {"DestinationIpv6CidrBlock": "::/0"},
    {"DestinationIpv6CidrBlock": "64:ff9b::/96"},
)
ALL_V6 = [{"service": name, "IpAddressType": "dualstack"} for name in NEEDED]


class Network:
    """AWS's description of a network with one subnet, its routes and its endpoints."""

    def __init__(self, routes: list[dict[str, str]], endpoints: list[dict[str, str]]) -> None:
        self.routes, self.endpoints = routes, endpoints

    def pages(self, operation: str, items: str, **arguments: object) -> Iterator[dict[str, Any]]:
        """Yield rows."""
        if items == "RouteTables":
            main = [{"Main": True}]
            yield {"VpcId": "vpc-1", "RouteTableId": "rtb-1", "Associations": main, "Routes": self.routes}
        for each in self.endpoints if items == "VpcEndpoints" else ():
            yield {
                "VpcId": "vpc-1",
                "ServiceName": f"com.amazonaws.us-east-1.{each['service']}",
                "State": "available",
                "VpcEndpointType": "Interface",
                "IpAddressType": each.get("IpAddressType", "ipv4"),
            }


@pytest.mark.parametrize(
    ("routes", "dns64", "endpoints", "lacks"),
    [
        ([PREFIX | NAT, V6 | EGRESS], True, [], ()),
        ([PREFIX | NAT], True, [], ()),
        ([V6 | {"TransitGatewayId": "tgw-1"}], True, [], ()),
        ([PREFIX | NAT], False, [], NEEDED),
        ([PREFIX | NAT | {"State": "blackhole"}], True, [], NEEDED),
        ([V4 | NAT], True, [], NEEDED),
        ([V4 | NAT], False, [], NEEDED),
        ([V4 | IGW, V6 | IGW], True, [], NEEDED),
        ([V6 | EGRESS], True, [], NEEDED),
        ([], False, [], NEEDED),
        ([], False, [{"service": name} for name in NEEDED], NEEDED),
        ([], False, ALL_V6, ()),
        ([V6 | EGRESS], False, [{"service": "s3", "IpAddressType": "ipv6"}], ("ssm", "ssmmessages", "sqs")),
    ],
)  # fmt: skip
def test_a_subnet_with_ipv6_alone_needs_a_translation_or_endpoints(
    routes: list[dict[str, str]], dns64: bool, endpoints: list[dict[str, str]], lacks: tuple[str, ...]
) -> None:
    """A NAT gateway for IPv4 serves none of its nodes, and the internet gateway does not translate."""
    row = {
        "SubnetId": "subnet-1", "VpcId": "vpc-1", "AvailabilityZone": "us-east-1a",
        "MapPublicIpOnLaunch": False, "Ipv6Native": True, "EnableDns64": dns64,
    }  # fmt: skip
    way = egress_by_subnet(Network(routes, endpoints), [row])["subnet-1"]  # type: ignore[arg-type]

    assert way.lacks(1) == lacks
    assert ("DNS64" in way.why(1)) == bool(lacks)
    assert not way.gives_public_addresses
    # The same network with IPv4 as well is judged by IPv4 alone.
    both = egress_by_subnet(Network(routes, endpoints), [row | {"Ipv6Native": False}])["subnet-1"]  # type: ignore[arg-type]
    assert (both.lacks(1) == ()) == (V4 | NAT in routes or len(endpoints) == len(NEEDED))
