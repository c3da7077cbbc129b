"""Nodes with their own addresses on this machine: in network namespaces if allowed, else on the loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

from boa_daemon.engines.local import LocalEngine
from boa_daemon.job.unit import Unit
from policies.model import NodeId

INTERFACE = "boa0"
ETC = Path("/etc/netns")
"""What `ip netns exec` puts in the place of files in /etc."""


@dataclass(frozen=True, kw_only=True)
class NodeNetwork:
    """Each node's address and network namespace (empty: none), and environment variables for jobs."""

    addresses: Mapping[NodeId, str]
    namespaces: Mapping[NodeId, str]
    environment: Mapping[str, str]


class EngineOnNodes(LocalEngine):
    """The local engine, with each node in its own network."""

    def __init__(self, root: Path, network: NodeNetwork) -> None:
        super().__init__(root)
        self.network = network

    def _addresses(self, nodes: Iterable[NodeId]) -> dict[NodeId, str]:
        return {node: self.network.addresses[node] for node in nodes}

    def _launch(self, units: Sequence[Unit], nodes: Sequence[NodeId]) -> None:
        for unit, node in zip(units, nodes, strict=True):
            space = self.network.namespaces[node]
            within = ["ip", "netns", "exec", space] if space else []
            subprocess.run(
                [*within, sys.executable, "-m", "boa_daemon.job.keeper", str(unit.folder)],
                env={**os.environ, **self.network.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def can_make_namespaces() -> bool:
    """Return whether this process may make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"boa-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode == 0
    if made:
        _ip("netns", "del", name)
    return made


@contextmanager
def node_network(last_bytes: Sequence[int]) -> Iterator[NodeNetwork]:
    """Give the nodes n1, n2, ... addresses with these last bytes, in this order."""
    nodes = [f"n{number}" for number in range(1, len(last_bytes) + 1)]
    if not can_make_namespaces():
        addresses = {node: f"127.0.0.{last}" for node, last in zip(nodes, last_bytes, strict=True)}
        yield NodeNetwork(
            addresses=addresses,
            namespaces=dict.fromkeys(nodes, ""),
            environment={"GLOO_SOCKET_IFNAME": "lo"},
        )
        return
    mark = f"boa{os.getpid()}"
    hub, spaces = f"{mark}-hub", {node: f"{mark}-{node}" for node in nodes}
    try:
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge0", "up")
        for number, (node, last) in enumerate(zip(nodes, last_bytes, strict=True)):
            _ip("netns", "add", spaces[node])
            # As on a rented node, the host name resolves to the node's own address: c10d looks it up.
            (ETC / spaces[node]).mkdir(parents=True)
            (ETC / spaces[node] / "hosts").write_text(
                f"127.0.0.1 localhost\n10.77.0.{last} {gethostname()}\n"
            )
            port = f"port{number}"
            _ip(
                "-n",
                hub,
                "link",
                "add",
                port,
                "type",
                "veth",
                "peer",
                "name",
                INTERFACE,
                "netns",
                spaces[node],
            )
            _ip("-n", hub, "link", "set", port, "master", "bridge0", "up")
            _ip("-n", spaces[node], "addr", "add", f"10.77.0.{last}/24", "dev", INTERFACE)
            for link in (INTERFACE, "lo"):
                _ip("-n", spaces[node], "link", "set", link, "up")
        yield NodeNetwork(
            addresses={node: f"10.77.0.{last}" for node, last in zip(nodes, last_bytes, strict=True)},
            namespaces=spaces,
            environment={"GLOO_SOCKET_IFNAME": INTERFACE},
        )
    finally:
        for space in (*spaces.values(), hub):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", space)
            shutil.rmtree(ETC / space, ignore_errors=True)
