"""The gate as a part of the daemon: started with it, checked every second, and restarted if it died.

Nothing here stops the daemon. If the gate cannot be started, the status shows a fault, and jobs send without
asking.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boa_daemon.gate.companion import start_gate, tell_plan
from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, GateView
from policies.model import JobId

_LOG = logging.getLogger("boa.gate")


class GateSupervisor:
    """Keeps one gate alive; call `keep` every second or so. Thread-safe."""

    def __init__(self, settings: GateSettings, folder: Path, *addresses: GateAddress) -> None:
        self.settings, self.addresses = settings, addresses
        self.fault = ""
        self.starts = 0
        self.gate: GateThread | None = None
        self._folder = folder
        self._lock = threading.Lock()
        self._state: ClusterState | None = None

    def keep(self) -> None:
        """Start the gate if there is none, or if it no longer listens."""
        with self._lock:
            if self.gate is not None:
                if self.gate.is_listening():
                    return
                _LOG.warning("the gate died and is started again; until then jobs send without asking")
                self._let_go()
            self._start()

    def follow(self, state: ClusterState, _plan: Plan | None = None) -> None:
        """Send the gate each job's remaining work; a restarted gate gets the newest state at once."""
        with self._lock:
            self._state = state
            if self.gate is not None:
                tell_plan(self.gate, state)

    def look(self) -> GateView | None:
        """Return the gate's links and jobs; None if the gate is down or does not answer."""
        with self._lock:
            return None if self.gate is None else self.gate.view(patience_seconds=0.5)

    def status(self) -> Mapping[str, Any]:
        """Return a short status of the gate; `boa gate status` shows each card.

        `ungated` are the jobs that span nodes but do not ask. Possible causes: their nodes cannot reach the
        gate, they do not use DDP, or they have opted out.
        """
        with self._lock:
            document: dict[str, Any] = {
                "is_up": self.gate is not None,
                "fault": self.fault,
                "starts": self.starts,
                "policy": self.settings.policy,
                "listens": [str(address) for address in self.addresses],
            }
            found = None if self.gate is None else self.gate.status(patience_seconds=0.5)
            spanning = [] if self._state is None else _spanning(self._state)
        if found is None:
            return document | ({"ungated": spanning} if self.gate is None else {})
        asking = {row["job"]: row for row in found["jobs"]}
        return document | {
            "jobs": len(found["jobs"]),
            "nics": len(found["nics"]),
            "nics_ordered": sum(nic["is_on"] for nic in found["nics"]),
            "grants": found["counts"]["grants"],
            "ungated": [job for job in spanning if job not in asking],
            "refusals": found["refusals"],
            "measured": {
                job: {key: row[key] for key in ("exposed_fraction", "gain_fraction", "mean_wait_seconds")}
                for job, row in asking.items()
            },
        }

    def close(self) -> None:
        """Stop the gate; jobs go on without it."""
        with self._lock:
            self._let_go()

    def _start(self) -> None:
        try:
            gate = start_gate(self.settings, self._folder, *self.addresses)
            gate.__enter__()
        except (OSError, ValueError) as error:
            if self.fault != str(error):
                _LOG.error("the gate cannot be started: %s", error)
            self.fault = str(error)
            return
        self.gate, self.fault = gate, ""
        self.starts += 1
        if self._state is not None:
            tell_plan(gate, self._state)

    def _let_go(self) -> None:
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.close()


def _spanning(state: ClusterState) -> list[JobId]:
    return [job for job, entry in state.jobs.items() if len({slot.node for slot in entry.slots}) > 1]
