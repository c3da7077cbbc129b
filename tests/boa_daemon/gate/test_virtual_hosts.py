"""Virtual hosts: their names and addresses differ, and it is known which jobs send through the uplink."""

from __future__ import annotations

import pytest

from boa_daemon.gate import virtual_hosts
from boa_daemon.gate.virtual_hosts import VirtualHosts, WorkerGroup, run_jobs, why_not


@pytest.mark.parametrize(
    ("seats", "takes"), [((0, 1), False), ((2, 3), False), ((0, 2), True), ((1, 2, 3), True), ((2,), False)]
)
def test_a_job_on_both_sides_sends_through_the_uplink(seats: tuple[int, ...], takes: bool) -> None:
    """Hosts 2 and 3 are behind it."""
    hosts = VirtualHosts(4, megabits=100.0, behind_uplink=(2, 3), uplink_megabits=10.0)
    assert hosts.takes_uplink(seats) is takes


def test_each_host_has_a_name_and_an_address_of_its_own() -> None:
    """Addresses of hosts begin with one: zero is the network's."""
    hosts = VirtualHosts(3, megabits=100.0)
    assert len({hosts.name(host) for host in range(3)} | {hosts.address(host) for host in range(3)}) == 6
    assert hosts.address(0).endswith(".1")


@pytest.mark.parametrize(
    ("platform", "user", "tools", "said"),
    [
        ("darwin", 0, ("ip", "tc"), "needs Linux"),
        ("linux", 1000, ("ip", "tc"), "needs root"),
        ("linux", 0, (), "there is no 'ip'"),
        ("linux", 0, ("ip",), "there is no 'tc'"),
    ],
)
def test_it_is_said_why_traffic_cannot_be_measured(
    monkeypatch: pytest.MonkeyPatch, platform: str, user: int, tools: tuple[str, ...], said: str
) -> None:
    """The first thing that is missing."""
    monkeypatch.setattr(virtual_hosts.sys, "platform", platform)
    monkeypatch.setattr(virtual_hosts.os, "geteuid", lambda: user)
    monkeypatch.setattr(virtual_hosts.shutil, "which", lambda name: name if name in tools else None)
    assert said in why_not()


class Crew:
    """The workers of a job, which note what they are told."""

    def __init__(self, name: str, log: list[tuple[str, str]]) -> None:
        self.name, self.log = name, log

    def tell(self, order: dict[str, object]) -> None:
        self.log.append((self.name, str(order["verb"])))

    def hear(self) -> dict[str, object]:
        self.log.append((self.name, "hear"))
        return {"job": self.name}


def test_no_job_goes_before_all_are_prepared() -> None:
    """They begin together; answers come in the order of the jobs, and crews without an order stay still."""
    log: list[tuple[str, str]] = []
    crews: list[WorkerGroup] = [Crew(name, log) for name in "abc"]  # type: ignore[misc]
    assert run_jobs(crews, [{"n": 1}, {"n": 2}]) == [{"job": "a"}, {"job": "b"}]
    verbs = [verb for _, verb in log]
    assert verbs == ["prepare", "prepare", "hear", "hear", "go", "go", "hear", "hear"]
    assert "c" not in {name for name, _ in log}
