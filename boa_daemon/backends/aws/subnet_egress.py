"""Do nodes get out?  A node that reaches neither SSM nor S3 nor SQS is rented, paid for, and of no use.

A node gets out through a NAT or another gateway that its subnet routes to, through an internet gateway where
it has a public address, or through endpoints of the services. EC2 gives no public address to an instance with
several interfaces, so P4d and P5 with EFA do not get out of a default subnet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boa_daemon.backends.aws.calls import AwsCalls

NEEDED = ("ssm", "ssmmessages", "sqs", "s3")
"""What a node talks to: SSM's agent to two, the scripts of the engine to the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetEgress:
    """How a subnet gets out: by `gateway` (its route to everywhere, empty: none) and `endpoints`."""

    subnet: str
    zone: str
    gives_public_addresses: bool
    gateway: str
    endpoints: frozenset[str]

    def lacks(self, interfaces: int) -> tuple[str, ...]:
        """Return the services that a node with so many interfaces does not reach."""
        is_public = self.gateway.startswith("igw-")
        if self.gateway and not is_public:
            return ()
        if is_public and self.gives_public_addresses and interfaces <= 1:
            return ()
        return tuple(name for name in NEEDED if name not in self.endpoints)

    def why(self, interfaces: int) -> str:
        """Return why a node here reaches nothing; empty where it does."""
        lacking = self.lacks(interfaces)
        if not lacking:
            return ""
        if not self.gateway:
            reason = "it routes to no gateway"
        elif interfaces > 1:
            reason = f"EC2 gives no public address to an instance with {interfaces} interfaces"
        else:
            reason = "it gives no public addresses"
        return f"nodes in {self.subnet} do not reach {', '.join(lacking)}: {reason}"


def egress_by_subnet(calls: AwsCalls, subnets: Sequence[Mapping[str, Any]]) -> dict[str, SubnetEgress]:
    """Return how each subnet, as DescribeSubnets shows it, gets out.

    Raises:
        CallFailed: when EC2 cannot be asked.
    """
    vpcs = sorted({row["VpcId"] for row in subnets})
    within = [{"Name": "vpc-id", "Values": vpcs}]
    tables = list(calls.pages("ec2:DescribeRouteTables", "RouteTables", Filters=within))
    endpoints = list(calls.pages("ec2:DescribeVpcEndpoints", "VpcEndpoints", Filters=within))
    found = {}
    for row in subnets:
        table = _table_of(row, tables)
        found[row["SubnetId"]] = SubnetEgress(
            subnet=row["SubnetId"],
            zone=row["AvailabilityZone"],
            gives_public_addresses=bool(row.get("MapPublicIpOnLaunch")),
            gateway=_gateway(table),
            endpoints=frozenset(_services(row["VpcId"], table, endpoints)),
        )
    return found


def _table_of(subnet: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the route table of a subnet: its own, else the main one of its network."""
    main: Mapping[str, Any] = {}
    for table in tables:
        for link in table.get("Associations", ()):
            if link.get("SubnetId") == subnet["SubnetId"]:
                return table
            if link.get("Main") and table.get("VpcId") == subnet["VpcId"]:
                main = table
    return main


def _gateway(table: Mapping[str, Any]) -> str:
    """Return where a table sends what is for elsewhere; empty where nowhere."""
    for route in table.get("Routes", ()):
        if route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("State") != "blackhole":
            named = (value for key, value in route.items() if key.endswith("Id") and key != "InstanceOwnerId")
            return str(next(named, ""))
    return ""


def _services(vpc: str, table: Mapping[str, Any], endpoints: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the services that endpoints bring into a network; gateways only to the tables they are in."""
    return [
        str(each["ServiceName"]).rpartition(".")[2]
        for each in endpoints
        if each["VpcId"] == vpc
        and str(each.get("State", "")).lower() == "available"
        and (
            each.get("VpcEndpointType", "Gateway") != "Gateway"
            or table.get("RouteTableId") in each.get("RouteTableIds", ())
        )
    ]
