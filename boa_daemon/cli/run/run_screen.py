"""Output of ``boa run`` for people: phases, cost meter, log, receipt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boa_daemon.cli.common.output import stderr_console, stdout_console
from boa_daemon.cli.run.run_phases import RunPhase
from policies.money_text import in_dollars, price_in_dollars

METER_SECONDS = 30.0
"""Seconds between two lines on the time and cost so far."""


@dataclass(slots=True, kw_only=True)
class Screen:
    """Output of a run; `is_quiet` prints only notes and the receipt."""

    is_quiet: bool
    max_usd: float
    _met_at: float = 0.0

    def phase(self, ended: RunPhase | None, now: RunPhase) -> None:
        """Print the phase that ended, and the one that begins."""
        if self.is_quiet:
            return
        if ended is not None:
            self._say(f"-- {ended.name}: {ended.seconds:.1f} s, {in_dollars(ended.usd)}")
        self._say(f"-- {now.name}{f': {now.note}' if now.note else ''}")

    def meter(self, seconds: float, usd: float, job: Mapping[str, Any], why: str) -> None:
        """Print time and cost so far, every `METER_SECONDS`."""
        if self.is_quiet or time.monotonic() - self._met_at < METER_SECONDS:
            return
        self._met_at = time.monotonic()
        step = "" if job["step"] is None else f", step {job['step']}"
        self._say(
            f"-- {seconds:.0f} s, {in_dollars(usd)} of "
            f"{price_in_dollars(self.max_usd)}{step}{f'; {why}' if why else ''}"
        )

    def log(self, text: str) -> None:
        """Print the job's log text."""
        for line in text.splitlines() if not self.is_quiet else ():
            stdout_console().print(f"   {line}", markup=False, soft_wrap=True)

    def note(self, sentence: str) -> None:
        """Print a note on standard error."""
        stderr_console().print(sentence, markup=False)

    def receipt(self, receipt: Mapping[str, Any]) -> None:
        """Print the receipt."""
        self._say(f"{receipt['job'] or 'no job'}: {receipt['status']}{_because(receipt)}")
        for row in receipt["phases"]:
            self._say(f"  {row['phase']:<20} {row['seconds']:>9.1f} s {in_dollars(row['usd']):>10}")
        self._say(f"  {'in all':<20} {receipt['seconds']:>9.1f} s {in_dollars(receipt['usd']):>10}")
        for row in receipt["nodes"]:
            ended = "runs on" if row["ended_at"] is None else "given back"
            parts = ", ".join(f"{kind} {in_dollars(usd)}" for kind, usd in row["kinds"].items())
            of = f" ({parts})" if len(row["kinds"]) > 1 else ""
            self._say(f"  {row['id']} {row['instance_type']}: {in_dollars(row['usd'])}{of}, {ended}")
        if receipt["left"] is None:
            self._say("The daemon keeps running, and ends nodes by its plan: see `boa instances`.")
        elif receipt["is_clean"]:
            self._say("Nothing is left running.")
        else:
            left = ", ".join(f"{count} {kind}" for kind, count in receipt["left"].items() if count)
            self._say(f"STILL RUNNING: {left}. `boa down --all` ends it.")

    @staticmethod
    def _say(line: str) -> None:
        stdout_console().print(line, markup=False, soft_wrap=True)


def _because(receipt: Mapping[str, Any]) -> str:
    """Return why a run did not finish; empty if it did."""
    if receipt["is_money_used_up"]:
        return (
            " (the money is used up: what is left of "
            f"{price_in_dollars(receipt['max_usd'])} pays for no node)"
        )
    return f" ({receipt['cause']})" if receipt["cause"] and receipt["status"] != "finished" else ""
