"""The network part of the stack: security groups, and optionally a network of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boa_daemon.backends.aws.stack.settings import StackSettings, stack_tags
from boa_daemon.job.gate.address import PORT as GATE_PORT


def security_groups(site: StackSettings, vpc: object) -> dict[str, Any]:
    """Return the security groups of the nodes and of the daemon's machine.

    Nodes reach each other, which EFA needs, and the outside; nothing outside reaches them. If the daemon's
    machine is in its group, jobs on nodes reach its gate and nothing else.
    """
    itself = {"Fn::GetAtt": ["Nodes", "GroupId"]}
    return {
        "Nodes": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {
                "GroupDescription": f"BOA nodes of {site.settings.cluster}",
                "VpcId": vpc,
                "SecurityGroupEgress": [
                    {"IpProtocol": "-1", "CidrIp": "0.0.0.0/0", "Description": "anywhere"}
                ],
                "Tags": stack_tags(site),
            },
        },
        "NodesAmongThemselves": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {"GroupId": itself, "IpProtocol": "-1", "SourceSecurityGroupId": itself},
        },
        "NodesToThemselves": {
            "Type": "AWS::EC2::SecurityGroupEgress",
            "Properties": {"GroupId": itself, "IpProtocol": "-1", "DestinationSecurityGroupId": itself},
        },
        "Control": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {
                "GroupDescription": f"BOA daemon of {site.settings.cluster}",
                "VpcId": vpc,
                "SecurityGroupEgress": [
                    {"IpProtocol": "-1", "CidrIp": "0.0.0.0/0", "Description": "anywhere"}
                ],
                "Tags": stack_tags(site),
            },
        },
        "GateFromNodes": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {
                "GroupId": {"Fn::GetAtt": ["Control", "GroupId"]},
                "IpProtocol": "tcp",
                "FromPort": GATE_PORT,
                "ToPort": GATE_PORT,
                "SourceSecurityGroupId": itself,
            },
        },
    }


def own_network(site: StackSettings, zones: Sequence[str]) -> dict[str, Any]:
    """Return a network: a private subnet per zone, one NAT gateway, and a gateway endpoint for S3."""
    vpc, tags = {"Ref": "Vpc"}, stack_tags(site)
    anywhere = "0.0.0.0/0"
    found: dict[str, Any] = {
        "Vpc": {
            "Type": "AWS::EC2::VPC",
            "Properties": {
                "CidrBlock": "10.64.0.0/16",
                "EnableDnsHostnames": True,
                "EnableDnsSupport": True,
                "Tags": tags,
            },
        },
        "Internet": {"Type": "AWS::EC2::InternetGateway", "Properties": {"Tags": tags}},
        "InternetOfVpc": {
            "Type": "AWS::EC2::VPCGatewayAttachment",
            "Properties": {"VpcId": vpc, "InternetGatewayId": {"Ref": "Internet"}},
        },
        "PublicSubnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {
                "VpcId": vpc,
                "CidrBlock": "10.64.0.0/24",
                "AvailabilityZone": zones[0],
                "Tags": tags,
            },
        },
        "PublicRoutes": {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": vpc, "Tags": tags}},
        "PublicRoute": {
            "Type": "AWS::EC2::Route",
            "DependsOn": "InternetOfVpc",
            "Properties": {
                "RouteTableId": {"Ref": "PublicRoutes"},
                "DestinationCidrBlock": anywhere,
                "GatewayId": {"Ref": "Internet"},
            },
        },
        "PublicRoutesOfSubnet": {
            "Type": "AWS::EC2::SubnetRouteTableAssociation",
            "Properties": {"SubnetId": {"Ref": "PublicSubnet"}, "RouteTableId": {"Ref": "PublicRoutes"}},
        },
        "NatAddress": {
            "Type": "AWS::EC2::EIP",
            "DependsOn": "InternetOfVpc",
            "Properties": {"Domain": "vpc", "Tags": tags},
        },
        "Nat": {
            "Type": "AWS::EC2::NatGateway",
            "Properties": {
                "AllocationId": {"Fn::GetAtt": ["NatAddress", "AllocationId"]},
                "SubnetId": {"Ref": "PublicSubnet"},
                "Tags": tags,
            },
        },
        "PrivateRoutes": {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": vpc, "Tags": tags}},
        "PrivateRoute": {
            "Type": "AWS::EC2::Route",
            "Properties": {
                "RouteTableId": {"Ref": "PrivateRoutes"},
                "DestinationCidrBlock": anywhere,
                "NatGatewayId": {"Ref": "Nat"},
            },
        },
        "S3Endpoint": {
            "Type": "AWS::EC2::VPCEndpoint",
            "Properties": {
                "VpcId": vpc,
                "ServiceName": f"com.amazonaws.{site.settings.region}.s3",
                "VpcEndpointType": "Gateway",
                "RouteTableIds": [{"Ref": "PrivateRoutes"}],
            },
        },
    }
    for number, zone in enumerate(zones):
        found[f"Subnet{number}"] = {
            "Type": "AWS::EC2::Subnet",
            "Properties": {
                "VpcId": vpc,
                "CidrBlock": f"10.64.{16 * (number + 1)}.0/20",
                "AvailabilityZone": zone,
                "Tags": tags,
            },
        }
        found[f"RoutesOfSubnet{number}"] = {
            "Type": "AWS::EC2::SubnetRouteTableAssociation",
            "Properties": {
                "SubnetId": {"Ref": f"Subnet{number}"},
                "RouteTableId": {"Ref": "PrivateRoutes"},
            },
        }
    return found
