"""Find whether nodes of a subnet reach AWS's services. A node without SSM, S3 and SQS costs money in vain.

A node reaches them through a NAT or another gateway that its subnet routes to, through an internet gateway
if it has a public address, or through endpoints of the services. EC2 gives no public address to an instance
with several interfaces, so P4d and P5 with EFA reach nothing from a default subnet.

In a subnet with IPv6 alone the services' names give IPv4 addresses: nodes reach them where DNS64 and a route
of its prefix translate, or through endpoints that have IPv6 addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls

NEEDED = ("ssm", "ssmmessages", "sqs", "s3")
"""Services that a node calls: SSM's agent calls the first two, the engine's scripts the others."""
_DNS64, _ALL_IPV6, _ALL_IPV4 = "64:ff9b::/96", "::/0", "0.0.0.0/0"
_WITH_IPV6 = ("ipv6", "dualstack")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetEgress:
    """A subnet's ways out: `gateway` is its default route (empty: none), `endpoints` are services.

    Of a subnet that `is_ipv6_only` the gateway is that to IPv4, by DNS64.
    """

    subnet: str
    zone: str
    gives_public_addresses: bool
    gateway: str
    endpoints: frozenset[str]
    is_ipv6_only: bool = False

    def lacks(self, interfaces: int) -> tuple[str, ...]:
        """Return the services that a node with this many interfaces does not reach."""
        is_public = self.gateway.startswith("igw-")
        if self.gateway and not is_public:
            return ()
        if is_public and self.gives_public_addresses and interfaces <= 1:
            return ()
        return tuple(name for name in NEEDED if name not in self.endpoints)

    def why(self, interfaces: int) -> str:
        """Return why a node in this subnet lacks services; empty if it reaches all of them."""
        lacking = self.lacks(interfaces)
        if not lacking:
            return ""
        if self.is_ipv6_only:
            reason = (
                "it has IPv6 alone. Enable DNS64 in it and route 64:ff9b::/96 to a NAT gateway, or make "
                "dual-stack endpoints"
            )
        elif not self.gateway:
            reason = "it routes to no gateway"
        elif interfaces > 1:
            reason = f"EC2 gives no public address to an instance with {interfaces} interfaces"
        else:
            reason = "it gives no public addresses"
        return f"nodes in {self.subnet} do not reach {', '.join(lacking)}: {reason}"


def egress_by_subnet(calls: AwsCalls, subnets: Sequence[Mapping[str, Any]]) -> dict[str, SubnetEgress]:
    """Return the ways out of each subnet, by its id; `subnets` are rows of DescribeSubnets.

    Raises:
        CallFailed: when EC2 cannot be asked.
    """
    vpcs = sorted({row["VpcId"] for row in subnets})
    within = [{"Name": "vpc-id", "Values": vpcs}]
    tables = list(calls.pages("ec2:DescribeRouteTables", "RouteTables", Filters=within))
    endpoints = list(calls.pages("ec2:DescribeVpcEndpoints", "VpcEndpoints", Filters=within))
    found = {}
    for row in subnets:
        table, is_ipv6_only = _table_of(row, tables), bool(row.get("Ipv6Native"))
        gateway = _gateway(table, _ALL_IPV4)
        if is_ipv6_only:
            gateway = _translating(row, table)
        found[row["SubnetId"]] = SubnetEgress(
            subnet=row["SubnetId"],
            zone=row["AvailabilityZone"],
            gives_public_addresses=bool(row.get("MapPublicIpOnLaunch")),
            gateway=gateway,
            endpoints=frozenset(_services(row["VpcId"], table, endpoints, is_ipv6_only=is_ipv6_only)),
            is_ipv6_only=is_ipv6_only,
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


def _translating(subnet: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """Return what translates to IPv4 for a subnet without it; empty if nothing does."""
    if not subnet.get("EnableDns64"):
        return ""
    way = _gateway(table, _DNS64) or _gateway(table, _ALL_IPV6)
    # The internet does not know the prefix: a gateway to it translates nothing.
    return "" if way.startswith(("igw-", "eigw-")) else way


def _gateway(table: Mapping[str, Any], block: str) -> str:
    """Return the target of a table's route to a block of addresses; empty if it has none."""
    for route in table.get("Routes", ()):
        blocks = (route.get("DestinationCidrBlock"), route.get("DestinationIpv6CidrBlock"))
        if block in blocks and route.get("State") != "blackhole":
            named = (value for key, value in route.items() if key.endswith("Id") and key != "InstanceOwnerId")
            return str(next(named, ""))
    return ""


def _services(
    vpc: str, table: Mapping[str, Any], endpoints: Sequence[Mapping[str, Any]], *, is_ipv6_only: bool
) -> list[str]:
    """Return the services with an endpoint in a network; gateway endpoints serve only their route tables."""
    return [
        str(each["ServiceName"]).rpartition(".")[2]
        for each in endpoints
        if each["VpcId"] == vpc
        and str(each.get("State", "")).lower() == "available"
        and (not is_ipv6_only or each.get("IpAddressType") in _WITH_IPV6)
        and (
            each.get("VpcEndpointType", "Gateway") != "Gateway"
            or table.get("RouteTableId") in each.get("RouteTableIds", ())
        )
    ]
