"""Virtual hosts: network namespaces joined by rate-limited links, and training jobs that run on them.

Needs root and iproute2 (Linux). Each host's network card is a veth into a common bridge, and a token bucket
limits what leaves the host to the link's speed. Acknowledgements have priority, and the ranks pass the gate's
answers on over a second interface, so that neither queues behind gradients. A real cluster does this by class
of service.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from boa_daemon.extras import install_command

ROOT = Path(__file__).resolve().parents[2]
WORKER = ROOT / "boa_daemon" / "data" / "demo" / "gate_worker.py"
NICENESS = -15
"""The benchmark and its workers mostly sleep and send; their little computing goes before other work."""
QUEUE_BYTES = 16_000_000
"""More than all connections can have in flight, so nothing is dropped, as on a lossless fabric."""
WINDOW_BYTES = 524_288
TCP = {
    "tcp_rmem": f"4096 {WINDOW_BYTES} {WINDOW_BYTES}",
    "tcp_wmem": f"4096 {WINDOW_BYTES} {WINDOW_BYTES}",
    "tcp_slow_start_after_idle": "0",
}
"""Equal TCP windows for all, and no slow start after a pause for computing."""


def why_not() -> str:
    """Return why real traffic cannot be measured here; empty if it can."""
    if sys.platform != "linux":
        return "needs Linux: hosts are network namespaces"
    if os.geteuid() != 0:
        return "needs root: hosts are network namespaces (try sudo)"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"needs iproute2: there is no {tool!r} here"
    try:
        import torch.distributed as dist  # noqa: PLC0415  # optional, and slow to import
    except ImportError:
        return f"needs PyTorch: {install_command('torch')}"
    if not dist.is_gloo_available():
        return "needs PyTorch with gloo"
    probe = f"boa{os.getpid()}p"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    try:
        _ip("-n", probe, "link", "set", "lo", "up")
        shaped = _run(
            "ip", "netns", "exec", probe, "tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb"
        )
    finally:
        _ip("netns", "del", probe)
    return f"links cannot be shaped here: {shaped.stderr.strip()}" if shaped.returncode else ""


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return _run("ip", *words)


def _must(*words: str) -> None:
    """Run a command; raise `RuntimeError` if it fails."""
    done = _run(*words)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def _shape(namespace: str, device: str, megabits: float) -> None:
    """Limit a device's outgoing traffic to a rate, with priority for acknowledgements."""
    rate = f"{megabits:g}mbit"
    tc = ("ip", "netns", "exec", namespace, "tc")
    one = (*tc, "class", "add", "dev", device, "parent")
    _must(*tc, "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "20", "r2q", "1000")
    _must(*one, "1:", "classid", "1:1", "htb", "rate", rate, "burst", "32k")
    _must(*one, "1:1", "classid", "1:10", "htb", "rate", "5mbit", "ceil", rate, "prio", "0", "burst", "32k")
    _must(*one, "1:1", "classid", "1:20", "htb", "rate", rate, "ceil", rate, "prio", "1", "burst", "32k")
    _must(*tc, "qdisc", "add", "dev", device, "parent", "1:20", "bfifo", "limit", str(QUEUE_BYTES))
    _must(
        *(*tc, "filter", "add", "dev", device, "parent", "1:", "protocol", "ip", "prio", "1", "u32"),
        *("match", "u16", "0x0000", "0xffc0", "at", "2", "flowid", "1:10"),
    )


class VirtualHosts:
    """Virtual hosts on a switch; those `behind_uplink` are on a second switch, which a slower link joins.

    Use it with `with`. `megabits` is the speed of each host's card in Mbit/s, `uplink_megabits` that of the
    link between the switches, each way.
    """

    def __init__(
        self, count: int, *, megabits: float, behind_uplink: Sequence[int] = (), uplink_megabits: float = 0.0
    ) -> None:
        self.count, self.megabits = count, megabits
        self.behind_uplink, self.uplink_megabits = frozenset(behind_uplink), uplink_megabits
        self._prefix = f"boa{os.getpid()}"
        self._net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self._control = f"10.{150 + os.getpid() % 50}.{os.getpid() // 50 % 250}"

    def name(self, host: int) -> str:
        """Return a host's namespace."""
        return f"{self._prefix}h{host}"

    def address(self, host: int) -> str:
        """Return a host's address."""
        return f"{self._net}.{host + 1}"

    def __enter__(self) -> VirtualHosts:
        switch = f"{self._prefix}s"
        try:
            _must("ip", "netns", "add", switch)
            for bridge in ("br0", "br1", "br2"):
                _must("ip", "-n", switch, "link", "add", bridge, "type", "bridge")
                _must("ip", "-n", switch, "link", "set", bridge, "up")
            if self.behind_uplink:
                self._join_switches(switch)
            for host in range(self.count):
                self._add(host, switch)
        except BaseException:
            self._remove()
            raise
        return self

    def takes_uplink(self, seats: Collection[int]) -> bool:
        """Return whether a job on these hosts sends through the uplink."""
        behind = sum(seat in self.behind_uplink for seat in seats)
        return 0 < behind < len(seats)

    def _join_switches(self, switch: str) -> None:
        """Join the two switches by the uplink, shaped both ways."""
        _must("ip", "-n", switch, "link", "add", "u0", "type", "veth", "peer", "name", "u2")
        for device, bridge in (("u0", "br0"), ("u2", "br2")):
            _must("ip", "-n", switch, "link", "set", device, "master", bridge, "up")
            _shape(switch, device, self.uplink_megabits)

    def _add(self, host: int, switch: str) -> None:
        name, port = self.name(host), f"p{host}"
        bridge = "br2" if host in self.behind_uplink else "br0"
        _must("ip", "netns", "add", name)
        _must("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", switch)
        _must("ip", "-n", switch, "link", "set", port, "master", bridge, "up")
        _must(
            "ip",
            "-n",
            name,
            "link",
            "add",
            "eth1",
            "type",
            "veth",
            "peer",
            "name",
            f"c{host}",
            "netns",
            switch,
        )
        _must("ip", "-n", switch, "link", "set", f"c{host}", "master", "br1", "up")
        _must("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _must("ip", "-n", name, "addr", "add", f"{self._control}.{host + 1}/24", "dev", "eth1")
        for device in ("lo", "eth0", "eth1"):
            _must("ip", "-n", name, "link", "set", device, "up")
        for key, value in TCP.items():
            _must("ip", "netns", "exec", name, "sh", "-c", f"echo '{value}' > /proc/sys/net/ipv4/{key}")
        _shape(name, "eth0", self.megabits)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in (f"{self._prefix}s", *(self.name(host) for host in range(self.count))):
            _ip("netns", "del", name)


@dataclass(slots=True)
class WorkerGroup:
    """The workers of one job, one per host; they outlive a run, because importing PyTorch takes seconds."""

    hosts: VirtualHosts
    seats: tuple[int, ...]
    port: int
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self) -> None:
        """Start the workers, with the first host as the rendezvous."""
        for rank, host in enumerate(self.seats):
            place = {
                "MASTER_ADDR": self.hosts.address(self.seats[0]),
                "MASTER_PORT": str(self.port),
                "RANK": str(rank),
                "WORLD_SIZE": str(len(self.seats)),
                "GLOO_SOCKET_IFNAME": "eth0",
                "BOA_NODE_ID": f"host-{host}",
                "BOA_CONTROL_INTERFACE": "eth1",
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
            }
            self.workers.append(
                subprocess.Popen(
                    [*("ip", "netns", "exec", self.hosts.name(host)), sys.executable, str(WORKER)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **place},
                )
            )

    def tell(self, order: dict[str, Any]) -> None:
        """Send an order to all workers."""
        for worker in self.workers:
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(order) + "\n")
            worker.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for all workers' answers; return that of rank 0."""
        answers = []
        for worker in self.workers:
            assert worker.stdout is not None
            line = worker.stdout.readline()
            if not line:
                raise RuntimeError("a worker died; its output is above")
            answers.append(json.loads(line))
        return dict(answers[0])

    def stop(self) -> None:
        """End the workers."""
        for worker in self.workers:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.close()
            try:
                worker.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            worker.stdout.close()


def start_worker_groups(hosts: VirtualHosts, seats: list[tuple[int, ...]]) -> list[WorkerGroup]:
    """Start the workers of all jobs, and wait until they are connected."""
    crews = [WorkerGroup(hosts, seat, 29500 + number) for number, seat in enumerate(seats)]
    try:
        for crew in crews:
            crew.start()
        for crew in crews:
            crew.hear()
    except BaseException:
        for crew in crews:
            crew.stop()
        raise
    return crews


def run_jobs(
    crews: list[WorkerGroup], orders: list[dict[str, Any]], *, lead_seconds: float = 0.15
) -> list[dict[str, Any]]:
    """Run one job per worker group, all at once; return their answers in order."""
    for crew, order in zip(crews, orders, strict=False):
        crew.tell({**order, "verb": "prepare"})
    for crew, _ in zip(crews, orders, strict=False):
        crew.hear()
    start_at = time.monotonic() + lead_seconds
    for crew, _ in zip(crews, orders, strict=False):
        crew.tell({"verb": "go", "start_at": start_at})
    return [crew.hear() for crew, _ in zip(crews, orders, strict=False)]
