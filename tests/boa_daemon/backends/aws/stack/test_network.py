"""`aws/stack/network.py`: who reaches whom, and a network whose nodes have no address outside."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from boa_daemon.backends.aws.stack.network import own_network, security_groups
from boa_daemon.backends.aws.stack.settings import stack_settings_of
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.job.gate.address import PORT

SITE = stack_settings_of(AwsSettings(cluster="lab", region="eu-west-1"))
NODES = {"Fn::GetAtt": ["Nodes", "GroupId"]}


def of_kind(resources: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the properties of the resources of a kind."""
    return {
        name: each["Properties"] for name, each in resources.items() if each["Type"] == f"AWS::EC2::{kind}"
    }


def test_nothing_outside_reaches_a_node() -> None:
    """Nodes reach each other by all protocols, which EFA needs, and the daemon's gate by one port."""
    groups = security_groups(SITE, {"Ref": "VpcId"})
    within = of_kind(groups, "SecurityGroupIngress")
    assert within["NodesAmongThemselves"] == {
        "GroupId": NODES,
        "IpProtocol": "-1",
        "SourceSecurityGroupId": NODES,
    }
    gate = within["GateFromNodes"]
    assert (gate["FromPort"], gate["ToPort"], gate["IpProtocol"]) == (PORT, PORT, "tcp")
    assert (gate["GroupId"], gate["SourceSecurityGroupId"]) == ({"Fn::GetAtt": ["Control", "GroupId"]}, NODES)
    assert all("CidrIp" not in each for each in within.values())
    assert not any("SecurityGroupIngress" in each for each in of_kind(groups, "SecurityGroup").values())
    assert of_kind(groups, "SecurityGroupEgress")["NodesToThemselves"]["DestinationSecurityGroupId"] == NODES
    assert all(each["VpcId"] == {"Ref": "VpcId"} for each in of_kind(groups, "SecurityGroup").values())


@pytest.mark.parametrize("count", [1, 3, 6])
def test_each_zone_has_a_private_subnet_and_no_two_overlap(count: int) -> None:
    """All are inside the network; the public one holds the gateway alone."""
    zones = [f"eu-west-1{letter}" for letter in "abcdef"[:count]]
    found = own_network(SITE, zones)
    subnets = of_kind(found, "Subnet")
    ranges = [ip_network(each["CidrBlock"]) for each in subnets.values()]
    whole = ip_network(of_kind(found, "VPC")["Vpc"]["CidrBlock"])
    assert all(each.subnet_of(whole) for each in ranges)
    assert not any(one.overlaps(other) for one in ranges for other in ranges if one is not other)
    assert [subnets[f"Subnet{number}"]["AvailabilityZone"] for number in range(count)] == zones
    tables = of_kind(found, "SubnetRouteTableAssociation")
    assert {each["SubnetId"]["Ref"]: each["RouteTableId"]["Ref"] for each in tables.values()} == {
        "PublicSubnet": "PublicRoutes",
        **{f"Subnet{number}": "PrivateRoutes" for number in range(count)},
    }


def test_private_subnets_go_out_through_the_gateway_and_to_s3_past_it() -> None:
    """Gigabytes of checkpoints through a NAT gateway would cost money; the gateway is in the public one."""
    found = own_network(SITE, ["eu-west-1a"])
    routes = of_kind(found, "Route")
    assert (routes["PrivateRoute"]["NatGatewayId"], routes["PrivateRoute"]["RouteTableId"]) == (
        {"Ref": "Nat"},
        {"Ref": "PrivateRoutes"},
    )
    assert (routes["PublicRoute"]["GatewayId"], routes["PublicRoute"]["RouteTableId"]) == (
        {"Ref": "Internet"},
        {"Ref": "PublicRoutes"},
    )
    assert of_kind(found, "NatGateway")["Nat"]["SubnetId"] == {"Ref": "PublicSubnet"}
    endpoint = of_kind(found, "VPCEndpoint")["S3Endpoint"]
    assert (endpoint["ServiceName"], endpoint["RouteTableIds"]) == (
        "com.amazonaws.eu-west-1.s3",
        [{"Ref": "PrivateRoutes"}],
    )
