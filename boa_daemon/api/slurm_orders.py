"""``boa slurm resume`` and ``suspend`` as Slurm calls them: an order to the daemon, and its answer in words.

Slurm waits for its programs, on a machine that may be busy. The framework of the command line takes most of
the processor time of such a call, so `answer_slurm` does without it; every other form goes the common way.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias, cast

from boa_daemon.api.client import Client, default_address
from boa_daemon.api.connection import DaemonUnreachable
from boa_daemon.errors import BoaError, exit_code_of

Order: TypeAlias = Literal["resume", "suspend"]
PATIENCE_SECONDS = 20.0
"""How long a daemon that restarts is waited for; one that comes later finds the nodes by itself."""


def send_order(order: Order, hostlist: str, config: Path | None, socket: str | None) -> Mapping[str, Any]:
    """Send an order of Slurm to the daemon; wait for one that restarts.

    A `SuspendProgram` always ends well: Slurm leaves a node POWERING_DOWN whose program fails, and the daemon
    compares both lists anyway. Then the answer has the `fault`, which standard error says, too.

    Raises:
        BoaError: when the daemon refuses nodes, or does not come back.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with Client(default_address(config, socket)) as client:
                return client.slurm_resume(hostlist) if order == "resume" else client.slurm_suspend(hostlist)
        except BoaError as error:
            if isinstance(error, DaemonUnreachable) and time.monotonic() < until:
                time.sleep(1.0)
                continue
            if order == "resume":
                raise
            _write(sys.stderr, f"boa slurm suspend: {error}\n")
            return {"jobs": [], "unknown": 0, "fault": str(error)}


def said(order: Order, answer: Mapping[str, Any]) -> list[str]:
    """Return an answer in lines."""
    count = len(answer["jobs"])
    nodes = f"{count} node{'' if count == 1 else 's'}"
    if order == "resume":
        refused = [f"{node} is refused: {why}" for node, why in answer["refused"].items()]
        return [f"{nodes} asked for, {answer['known']} asked for before", *refused]
    return [] if "fault" in answer else [f"{nodes} given back, {answer['unknown']} not known here"]


def answer_slurm(words: Sequence[str]) -> int | None:
    """Run ``boa WORDS`` if it is a call as Slurm makes it, and return its exit code; else None."""
    if len(words) < 3 or words[0] != "slurm" or words[1] not in ("resume", "suspend"):
        return None
    order = cast(Order, words[1])
    given: dict[str, str] = {}
    rest = list(words[2:])
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in ("--config", "--socket"):
            if not equals and not rest:
                return None
            given[name] = value if equals else rest.pop(0)
        elif word.startswith("-") or "" in given:
            return None
        else:
            given[""] = word
    if "" not in given:
        return None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A reason may have characters that the encoding of Slurm's daemon lacks.
            stream.reconfigure(errors="replace")
    config = Path(given["--config"]) if "--config" in given else None
    try:
        answer = send_order(order, given[""], config, given.get("--socket"))
    except BoaError as error:
        _write(sys.stderr, f"{type(error).__name__}: {error}\n")
        return exit_code_of(error)
    _write(sys.stdout, "".join(f"{line}\n" for line in said(order, answer)))
    return 0


def _write(stream: TextIO, text: str) -> None:
    """Write to a standard stream; what cannot be said, as on a full disk, does not undo the order."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        # What is left in its buffer would fail once more at the end of the program, and set its exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
