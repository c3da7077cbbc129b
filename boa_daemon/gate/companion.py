"""The gate beside the daemon: started with it, told its plan, and made known to its jobs. Three calls.

    with start_gate(settings, folder) as gate:                          # when the daemon starts
        tell_plan(gate, decision.state)                                 # after each tick
        environment = gate_environment(environment, folder, job)        # for a job with the hook

The state's remaining work is in GPU-hours of the reference type; only the order of the jobs matters.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from boa_daemon.gate.address import GateAddress
from boa_daemon.gate.inject import hooked
from boa_daemon.gate.nouns import GateSettings
from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.token import issue_token, read_or_make_secret
from boa_daemon.state import ClusterState
from policies.model import JobId


def start_gate(settings: GateSettings, folder: Path, *addresses: GateAddress) -> GateThread:
    """Return a gate, to be entered with `with`: on `gate.sock` in the folder unless addresses are given.

    Raises:
        OSError: when the secret cannot be read or made.
    """
    secret = read_or_make_secret(folder / "gate.secret")
    return GateThread(settings, secret, *(addresses or (GateAddress(path=str(folder / "gate.sock")),)))


def tell_plan(gate: GateThread, state: ClusterState) -> None:
    """Tell the gate what is left of each job."""
    gate.take_plan({job: entry.job.remaining_gpu_hours * 3600.0 for job, entry in state.jobs.items()})


def gate_environment(
    environment: Mapping[str, str],
    folder: Path,
    job: JobId,
    *,
    address: GateAddress | None = None,
    hook: bool = True,
) -> dict[str, str]:
    """Return a job's environment with the gate in it, after writing its token to the folder.

    With `hook` every DDP model asks without a line in the script; without, the script calls `gate` itself.

    Raises:
        OSError: when the token cannot be written.
        ValueError: when the job's id cannot be a file's name.
    """
    if not job or job in (".", "..") or "/" in job or "\0" in job:
        raise ValueError(f"{job!r} cannot be the name of a token file")
    tokens = folder / "gate-tokens"
    tokens.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = tokens / f"{job}.token"
    handle = os.open(token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(issue_token(read_or_make_secret(folder / "gate.secret"), job=job) + "\n")
    where = address or GateAddress(path=str(folder / "gate.sock"))
    value = str(
        GateAddress(path=where.path, host=where.host, port=where.port, token_file=str(token.resolve()))
    )
    return hooked(environment, gate=value) if hook else {**environment, "BOA_GATE": value}
