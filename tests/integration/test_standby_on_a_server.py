"""A leader on PostgreSQL that falls silent, and comes back after its lease: there are never two that act."""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from daemon_site import SETTINGS, Site, a_site, wait_for
from postgres_server import PostgresServer, empty_database, postgres_programs

from boa_daemon.api.client import Client
from boa_daemon.errors import BoaError
from boa_daemon.testing.daemon_in_a_folder import job_content

SOCKET = ".s.PGSQL.5432"


class Link:
    """A proxy before the server's socket, on which a network can be lost: what is sent then vanishes."""

    def __init__(self, server: Path, folder: Path) -> None:
        self._to = str(server / SOCKET)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET))
        self._listener.listen()
        self.is_cut = False
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End the proxy."""
        self._open = False
        self._listener.close()

    def _accept(self) -> None:
        while self._open:
            with suppress(OSError):
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        was_cut = self.is_cut
        with near, suppress(OSError):
            while self.is_cut and self._open:
                time.sleep(0.1)
            if was_cut:
                return
            with socket.socket(socket.AF_UNIX) as far:
                far.connect(self._to)
                while self._open:
                    ready, _, _ = select.select([near, far], [], [], 0.2)
                    if self.is_cut:
                        was_cut = True
                        continue
                    if was_cut:
                        return  # What was sent meanwhile is lost, so the connection is of no use.
                    for one in ready:
                        data = one.recv(65536)
                        if not data:
                            return
                        (far if one is near else near).sendall(data)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """How a leader falls silent, and how it comes back; None where it does not."""

    begin: Callable[[Site, Link], None]
    end: Callable[[Site, Link], None] | None = None
    answers: bool = False
    """Whether the process answers meanwhile."""


def send(number: signal.Signals) -> Callable[[Site, Link], None]:
    def now(site: Site, _link: Link) -> None:
        assert site.process is not None
        site.process.send_signal(number)

    return now


def cut(is_cut: bool) -> Callable[[Site, Link], None]:
    def now(_site: Site, link: Link) -> None:
        link.is_cut = is_cut

    return now


FAULTS = {
    "killed": Fault(begin=send(signal.SIGKILL)),
    "suspended and resumed": Fault(begin=send(signal.SIGSTOP), end=send(signal.SIGCONT)),
    "cut off from the server": Fault(begin=cut(True), end=cut(False), answers=True),
}
DOUBT = "did not confirm for too long"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as found:
        yield found


@pytest.mark.exhaustive  # two daemons and a server, and a lease that is waited for
@pytest.mark.parametrize("how", FAULTS)
def test_a_leader_that_falls_silent_is_replaced_and_never_acts_beside_its_successor(
    server: PostgresServer, how: str, tmp_path: Path
) -> None:
    """Whoever comes back refuses orders and ends; its successor leads on without a break."""
    if postgres_programs() is None:
        return
    fault = FAULTS[how]
    empty_database(server.url)
    folder = Path(server.url.partition("?host=")[2])
    link = Link(folder, tmp_path)
    text = SETTINGS.format(usd=10.0)
    own = f'{text}database = "{server.url.replace(str(folder), str(tmp_path))}"\n'
    other = f'{text}database = "{server.url}"\n'
    with a_site(own) as first, a_site(other) as second:
        try:
            first.up()
            second.process = second.start("--standby")
            wait_for(lambda: "standing by" in second.log, second)
            fault.begin(first, link)
            pid = second.process.pid
            seen: list[str] = []

            def leads() -> bool:
                if fault.answers:
                    # Asked first: its silence must have begun before the other leads.
                    seen.append(str(first.get("/status").get("fault", "")))
                return bool((second.get("/status").get("leader") or {}).get("pid") == pid)

            wait_for(leads, second)
            epoch = second.get("/status")["leader"]["epoch"]
            assert epoch == 2
            if fault.answers:
                wait_for(lambda: DOUBT in str(first.get("/status").get("fault", "")), first)
                assert orders_taken(first) == 0
            if fault.end is not None:
                fault.end(first, link)
            assert first.process is not None
            # A daemon that was replaced ends, for its state is out of date; its service starts it again.
            until = time.monotonic() + 60.0
            while first.process.poll() is None:
                assert orders_taken(first) == 0
                assert time.monotonic() < until, first.log
                time.sleep(0.2)
            assert first.process.returncode == (-signal.SIGKILL if how == "killed" else 1)
            assert how == "killed" or "another daemon" in first.log
            leader = second.get("/status")["leader"]
            assert (leader["epoch"], leader["pid"]) == (epoch, pid)
            assert orders_taken(second) == 1
            wait_for(lambda: not second.get("/status").get("fault", "?"), second)
        finally:
            if first.process is not None and first.process.poll() is None:
                first.process.send_signal(signal.SIGCONT)
            link.close()


def orders_taken(site: Site) -> int:
    """Return how many of one submission are taken."""
    try:
        with Client(site.socket) as client:
            return len(client.post("/jobs", {"jobs": [job_content("one", hours=1.0)]})["jobs"])
    except (BoaError, OSError):
        return 0
