"""The gate's listen address, as nodes see it."""

from __future__ import annotations

import socket

import pytest

from boa_daemon.gate import listen_address
from boa_daemon.job.gate.address import GateAddress


class Probe:
    """A fake socket whose own address is given."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def connect(self, _where: tuple[str, int]) -> None:
        if not self.name:
            raise OSError("no route")

    def getsockname(self) -> tuple[str, int]:
        return self.name, 1


@pytest.mark.parametrize(
    ("name", "found"),
    [("10.0.3.7", "10.0.3.7"), ("172.31.9.1", "172.31.9.1"), ("8.8.8.8", ""), ("127.0.0.1", ""), ("", "")],
)
def test_own_address_is_private_or_empty(name: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A public address, the loopback address and a missing route give no address."""
    monkeypatch.setattr(socket, "socket", lambda *_: Probe(name))
    assert listen_address.own_address() == found


def test_a_wildcard_host_becomes_the_machines_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other hosts and unix sockets are not changed."""
    monkeypatch.setattr(listen_address, "own_address", lambda: "10.0.3.7")
    assert (
        str(listen_address.address_for_nodes(GateAddress(host="0.0.0.0", port=7411))) == "tcp:10.0.3.7:7411"
    )
    assert str(listen_address.address_for_nodes(GateAddress(host="head", port=1))) == "tcp:head:1"
    assert str(listen_address.address_for_nodes(GateAddress(path="/g"))) == "unix:/g"
