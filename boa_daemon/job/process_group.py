"""A process group for jobs without a communication library: one process per GPU, on all nodes of the job.

The command starts once per node. `ranks()` forks the other processes of the node, and all processes connect
to the first one at `MASTER_ADDR` and `MASTER_PORT`. They exchange bytes and never pickles, so a stranger who
finds the port cannot run code. A connection that names another job or generation is closed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from boa_daemon.job.run import current

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

MEET_SECONDS = 60.0
"""A process that has not connected after this time counts as lost."""
LAST_WORDS_SECONDS = 15.0
"""Time for the other processes of this node to print their errors after a failure; then they are killed."""
_HELLO_BYTES = 4096


class PeerLost(RuntimeError):
    """Another process of the job is gone: exit, and the next generation resumes."""


class Ranks:
    """This process among its peers: `rank` out of `width`, as in MPI or torch."""

    def __init__(self, rank: int, width: int, peers: list[Connection]) -> None:
        self.rank, self.width = rank, width
        self._peers = peers  # On rank 0: all other ranks, in order. On the others: rank 0 only.

    def gather(self, part: bytes) -> list[bytes]:
        """Return the bytes of all ranks, in the order of ranks. All ranks must call this; all get the same.

        Raises:
            PeerLost: when another rank is gone.
        """
        try:
            return self._gather(part)
        except (EOFError, OSError) as error:
            raise PeerLost(f"rank {self.rank} lost a peer: {str(error) or type(error).__name__}") from error

    def _gather(self, part: bytes) -> list[bytes]:
        """Collect the parts on rank 0 and send them to all in one message that begins with the lengths."""
        if self.rank == 0:
            parts = [part, *(peer.recv_bytes() for peer in self._peers)]
            message = struct.pack(f"!{self.width}Q", *map(len, parts)) + b"".join(parts)
            for peer in self._peers:
                peer.send_bytes(message)
            return parts
        self._peers[0].send_bytes(part)
        message = self._peers[0].recv_bytes()
        at, parts = 8 * self.width, []
        for length in struct.unpack_from(f"!{self.width}Q", message):
            parts.append(message[at : at + length])
            at += length
        return parts

    def agree(self, wish: bool) -> bool:
        """Return whether `wish` is true on any rank; pass it as `agree` to `should_checkpoint` or `steps`."""
        return any(answer == b"1" for answer in self.gather(b"1" if wish else b"0"))

    def close(self) -> None:
        """Close the connections to the other ranks."""
        for peer in self._peers:
            peer.close()


@contextmanager
def ranks() -> Iterator[Ranks]:
    """Fork one process per GPU of this node, connect all processes of the job, and yield this one's `Ranks`.

    Every process runs the script from here on; only rank 0 saves and reports. At the end, the first process
    of each node waits for the others. Outside BOA there is a single process.

    Raises:
        PeerLost: when not all processes have connected within 60 seconds, or a process of this node failed.
    """
    run = current()  # Made before the fork, so that every process catches SIGTERM.
    node, width = int(os.environ.get("BOA_NODE_RANK", "0")), int(os.environ.get("BOA_GPUS", "1"))
    local, children = _fork(int(os.environ.get("BOA_GPUS_PER_NODE", "1")))
    # Ranks are assigned when all processes have connected. Until then only the leader's rank is known.
    run.rank = 0 if (node, local) == (0, 0) else 1
    has_failed = True
    try:
        met = _lead(width) if run.is_first else _follow(node, local, width)
        run.rank = met.rank
        try:
            yield met
        finally:
            met.close()
        has_failed = False
    finally:
        codes = _see_off(children, LAST_WORDS_SECONDS if has_failed else None)
    if any(codes):
        raise PeerLost(f"processes of node {node} ended with {codes}")


def _fork(processes: int) -> tuple[int, list[int]]:
    """Fork the other processes of this node; return this process's number on the node, and its children."""
    sys.stdout.flush()
    sys.stderr.flush()
    children: list[int] = []
    for number in range(1, processes):
        child = os.fork()
        if child == 0:
            current()  # A rank, not a helper of the first one.
            return number, []
        children.append(child)
    return 0, children


def _see_off(children: list[int], seconds: float | None) -> list[int]:
    """Wait for children, kill those left after `seconds` (None: never), and return their exit codes."""
    deadline = None if seconds is None else time.monotonic() + seconds
    codes = []
    for child in children:
        ended, status = os.waitpid(child, 0 if deadline is None else os.WNOHANG)
        while deadline is not None and not ended:
            if time.monotonic() >= deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.02)
            ended, status = os.waitpid(child, os.WNOHANG)
        codes.append(os.waitstatus_to_exitcode(status))
    return codes


def _address() -> tuple[str, int]:
    return os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29400"))


def _key() -> list[str]:
    """Return the job and the generation, which every process of a group must name."""
    return [os.environ.get("BOA_JOB_ID", ""), os.environ.get("BOA_GENERATION", "0")]


def _lead(width: int) -> Ranks:
    """Wait for all other processes and send each its rank: ordered by node, then by number on the node."""
    if width == 1:
        return Ranks(0, 1, [])
    came: dict[tuple[int, int], Connection] = {}
    deadline = time.monotonic() + MEET_SECONDS
    with socket.create_server(_address(), backlog=width) as door:
        while len(came) < width - 1:
            door.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                guest, _ = door.accept()
            except socket.timeout:  # TimeoutError only from Python 3.10 on.
                raise PeerLost(f"{1 + len(came)} of {width} processes met in {MEET_SECONDS:g} s") from None
            peer = _connection(guest)
            seat = _seat_of(peer)
            if seat is None:
                peer.close()
            else:
                came[seat] = peer
    peers = [came[seat] for seat in sorted(came)]
    for rank, peer in enumerate(peers, 1):
        peer.send_bytes(str(rank).encode())
    return Ranks(0, width, peers)


def _seat_of(peer: Connection) -> tuple[int, int] | None:
    """Return (node, number on the node) of a peer, or None if it does not belong to this generation."""
    try:
        if not peer.poll(LAST_WORDS_SECONDS):
            return None
        *key, node, local = json.loads(peer.recv_bytes(_HELLO_BYTES))
        return (int(node), int(local)) if key == _key() else None
    except (OSError, EOFError, ValueError, TypeError):
        return None


def _follow(node: int, local: int, width: int) -> Ranks:
    """Connect to rank 0 and receive this process's rank."""
    deadline = time.monotonic() + MEET_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError, EOFError):
            peer = _connection(socket.create_connection(_address(), timeout=LAST_WORDS_SECONDS))
            peer.send_bytes(json.dumps([*_key(), node, local]).encode())
            return Ranks(int(peer.recv_bytes(_HELLO_BYTES)), width, [peer])
        time.sleep(0.05)
    raise PeerLost(f"no connection to the first process at {_address()} within {MEET_SECONDS:g} s")


def _connection(end: socket.socket) -> Connection:
    """Return a connection without send delay (TCP_NODELAY) and without a timeout."""
    from multiprocessing.connection import Connection  # noqa: PLC0415  a slow import that few scripts need

    end.settimeout(None)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(end.detach())
