"""The gate's listen addresses: a unix socket for jobs of this machine, a port for jobs on other nodes.

By default, a port is opened only on a private address, in the network that nodes share with the daemon; the
security group of both protects it.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from ipaddress import ip_address

from boa_daemon.job.gate.address import GateAddress

_ELSEWHERE = ("10.255.255.255", 9)
"""A private address to which nothing is sent; it makes the kernel choose our own private address."""


def own_address() -> str:
    """Return the private address of this machine; empty if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            found = str(probe.getsockname()[0])
        except OSError:
            return ""
    address = ip_address(found)
    return found if address.is_private and not address.is_loopback else ""


def address_for_nodes(address: GateAddress) -> GateAddress:
    """Return the address at which nodes reach the gate: a wildcard host becomes our private address."""
    if address.path or not is_wildcard_host(address.host):
        return address
    return replace(address, host=own_address() or address.host)


def is_wildcard_host(host: str) -> bool:
    """Return whether a host stands for all addresses of this machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
