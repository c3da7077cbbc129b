"""Everything that the daemon keeps on disk."""

from __future__ import annotations

from dataclasses import dataclass

from boa_daemon.store.decisions import DaemonStore
from boa_daemon.store.queue import JobQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The jobs that people submitted, and everything else that a tick reads and records."""

    store: DaemonStore
    queue: JobQueue
