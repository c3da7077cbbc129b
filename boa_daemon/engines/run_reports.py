"""Combines the statuses of a generation's units into one report; pure, and shared by all engines with units.

A generation has one unit per node. It runs while one unit runs, ends when all have ended, and fails when one
has failed. Exit codes are only evidence: torchrun exits with 1 after every SIGTERM. What counts is the
manifest, and at the end the job's mark that it is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from boa_daemon.engines.causes import cause_of, last_line
from boa_daemon.job.failures import PEER_LOST
from boa_daemon.tick.facts.ports import Manifest, RunPhase, RunReport
from boa_daemon.tick.facts.retries import FailureCause
from boa_daemon.units import counted
from policies.model import JobId

UnitStatus: TypeAlias = Mapping[str, Any]
"""The status of a unit, from `boa_daemon.job.unit.status_of`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A started generation: its width, and the orders since."""

    job: JobId
    number: int
    gpus: int
    is_stop_ordered: bool = False
    is_kill_ordered: bool = False


def report_of(run: Generation, units: Sequence[UnitStatus | None]) -> RunReport:
    """Return the report of a generation from its units' statuses; None is a unit that could not be read."""
    if not units:
        return _report(run, "unknown", {}, evidence="the folder of its processes is gone")
    known = [unit for unit in units if unit is not None]
    facts = _progress(run, known)
    ends = [unit["exit"] for unit in known if unit["exit"] is not None]
    if len(ends) == len(units):
        return _ended(run, known, facts)
    if len(known) < len(units):
        missing = len(units) - len(known)
        evidence = f"the status of {missing} of {len(units)} units cannot be read"
        return _report(run, "unknown", facts, evidence=evidence)
    if any(not unit["was_kept"] for unit in known):
        return _report(run, "starting", facts, evidence="its processes are being started")
    phase: RunPhase = "stopping" if run.is_stop_ordered or run.is_kill_ordered else "running"
    where = "" if facts["step"] is None else f"; step {facts['step']} is done"
    evidence = f"{len(units) - len(ends)} of {len(units)} units run{where}"
    return _report(run, phase, facts, evidence=evidence)


def folder_deleted(run: Generation) -> RunReport:
    """Return the report of a generation that was ended because somebody had deleted its folder."""
    evidence = "its folder was deleted while it ran, and its processes were killed"
    return _report(run, "failed", {}, cause="agent-lost", evidence=evidence)


def is_broken(units: Sequence[UnitStatus | None]) -> bool:
    """Return whether a unit has failed while others run; these should be ended, as they wait for it."""
    ends = [unit["exit"] for unit in units if unit is not None and unit["exit"] is not None]
    return 0 < len(ends) < len(units) and any(_has_failed(end) for end in ends)


def _has_failed(end: Mapping[str, Any]) -> bool:
    """Return whether a unit lost its keeper, or ended with an error without being asked to stop."""
    return bool(end.get("agent_lost")) or (not end["stop_asked"] and end["code"] != 0)


def _progress(run: Generation, units: Sequence[UnitStatus]) -> dict[str, Any]:
    """Return the newest progress report of this generation; rank 0 writes it, on any of the nodes."""
    records = [unit["progress"] for unit in units if unit["progress"]]
    own = [record for record in records if record.get("generation") == run.number]
    record: Mapping[str, Any] = max(own, key=lambda found: found.get("step") or 0, default={})
    names = (
        "step",
        "samples",
        "seconds",
        "loss",
        "gradient_noise",
        "save_seconds",
        "gap_seconds",
        "checkpoint_bytes",
        "gpu_use",
    )
    quiet = [unit["quiet_seconds"] for unit in units if unit.get("quiet_seconds") is not None]
    facts = {"reported_at": record.get("at"), "quiet_seconds": min(quiet, default=None)}
    return {**{name: record.get(name) for name in names}, **facts}


def _ended(run: Generation, units: Sequence[UnitStatus], facts: dict[str, Any]) -> RunReport:
    leader = _leader(run, units)
    manifest = _manifest(leader)
    step = facts["step"]
    lost = 0 if step is None else max(0, step - (manifest.step if manifest else 0))
    facts |= {"manifest": manifest, "lost_steps": lost}
    phase, cause, evidence = _verdict(run, units, facts)
    guilty = next((unit for unit in _by_guilt(units) if _has_failed(unit["exit"])), leader)
    facts |= {"exit_code": _code_of(units), "last_lines": tuple(guilty["last_lines"])}
    notes = [evidence, leader["wrong_manifest"], _lost_note(units, facts["lost_steps"]), _linger_note(units)]
    return _report(run, phase, facts, cause=cause, evidence="; ".join(note for note in notes if note))


def _verdict(
    run: Generation, units: Sequence[UnitStatus], facts: dict[str, Any]
) -> tuple[RunPhase, FailureCause | None, str]:
    """Return how a generation ended, the cause if it failed, and a sentence of evidence."""
    ends = [unit["exit"] for unit in units]
    code = _code_of(units)
    said = _said(code)
    lacks_result = all(end["lacks_result"] for end in ends)
    if any(end["is_done"] for end in ends) and not lacks_result:
        facts["lost_steps"] = 0
        return "finished", None, f"the job said that it is done and ended with {said}"
    if run.is_kill_ordered and all(end["killed"] or end.get("agent_lost") for end in ends):
        return "failed", "killed", "ended at once, as ordered"
    if any(end.get("agent_lost") for end in ends):
        never_kept = next((why for end in ends if (why := end.get("never_kept"))), "")
        if never_kept:
            return "failed", "agent-lost", f"the keeper of a unit could not start: {never_kept}"
        return "failed", "agent-lost", "the keeper of a unit died, and the job's processes were killed"
    if any(end["stop_asked"] for end in ends):
        return "stopped", None, _stop_evidence(run, facts, is_hard=any(end["killed"] for end in ends))
    if code == 0:
        return _clean_exit(facts, lacks_result=lacks_result)
    sick = next((unit for unit in units if unit.get("node_faults")), None)
    if sick is not None:
        found = ", ".join(sick["node_faults"])
        return "failed", "node-fault", f"its node is unfit: {found}; the job ended with {said}"
    suspects = _by_guilt(units)
    guilty = next(unit for unit in suspects if _has_failed(unit["exit"]))
    # A node that recorded an exception or an out-of-memory kill knows more about the cause than others.
    telling = next((unit for unit in suspects if unit.get("failure")), None)
    killed = next((unit for unit in suspects if unit["exit"]["out_of_memory"]), None)
    unfetched = next((unit for unit in suspects if unit["exit"].get("before_failed")), None)
    teller = unfetched or telling or killed or guilty
    cause, line = cause_of(teller["exit"], teller.get("failure"))
    line = line or last_line(guilty["last_lines"])
    return "failed", cause, f"ended with {_said(guilty['exit']['code'])}{': ' + line if line else ''}"


def _by_guilt(units: Sequence[UnitStatus]) -> list[UnitStatus]:
    """Return the units sorted by responsibility: the unit that caused the others' ends comes first.

    Units that were killed, and units that only lost a peer, come later. The others are sorted by the time of
    their exception or end, by the clocks of their nodes.
    """

    def rank_of(unit: UnitStatus) -> tuple[bool, bool, float]:
        failure, end = unit.get("failure") or {}, unit["exit"]
        instants = [at for at in (failure.get("at"), end.get("ended_at")) if at is not None]
        return end["killed"], PEER_LOST in failure.get("kinds", ()), min(instants, default=math.inf)

    return sorted(units, key=rank_of)


def _code_of(units: Sequence[UnitStatus]) -> int | None:
    """Return the exit code of the unit that failed first, or 0."""
    return next((unit["exit"]["code"] for unit in _by_guilt(units) if unit["exit"]["code"] != 0), 0)


def _clean_exit(facts: Mapping[str, Any], *, lacks_result: bool) -> tuple[RunPhase, FailureCause | None, str]:
    """Judge exit code 0: a job that reports its steps must also report that it is done."""
    if lacks_result:
        return "failed", "no-result", "ended with exit code 0, but its result file is not there"
    if facts["step"] is not None or facts["manifest"] is not None:
        return "failed", "no-result", "ended with exit code 0 without reporting that it is done"
    return "finished", None, "ended with exit code 0; it reports no steps, so nothing else can be checked"


def _stop_evidence(run: Generation, facts: Mapping[str, Any], *, is_hard: bool) -> str:
    how = "ended by force when its grace was over" if is_hard else "stopped"
    manifest: Manifest | None = facts["manifest"]
    if manifest is None:
        return f"{how}, without a checkpoint"
    if manifest.generation == run.number:
        return f"{how}, with a checkpoint of step {manifest.step}"
    return f"{how}; the newest checkpoint is step {manifest.step} of generation {manifest.generation}"


def _said(code: int | None) -> str:
    if code is None:
        return "no exit code"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _lost_note(units: Sequence[UnitStatus], lost: int) -> str:
    """Return how many steps were lost and, if a keeper knows it, why and what to change."""
    why = next((str(unit["exit"]["why_lost"]) for unit in units if unit["exit"].get("why_lost")), "")
    return f"{counted(lost, 'step')} lost{': ' if why else ''}{why}" if lost else ""


def _linger_note(units: Sequence[UnitStatus]) -> str:
    count = sum(int(unit["exit"].get("lingering", 0)) for unit in units)
    if not count:
        return ""
    said = (
        "1 process outlived it and was ended"
        if count == 1
        else f"{count} processes outlived it and were ended"
    )
    is_ordered = any(unit["exit"]["stop_asked"] for unit in units)
    return said if is_ordered else f"{said} (a command that works in the background ends with `wait`)"


def _leader(run: Generation, units: Sequence[UnitStatus]) -> UnitStatus:
    """Return the unit with the newest checkpoint; among equals, the one that reported, else the first."""

    def rank_of(unit: UnitStatus) -> tuple[int, int, bool, int]:
        manifest, record = unit["manifest"] or {}, unit["progress"] or {}
        newest = manifest.get("generation", -1), manifest.get("step", -1)
        return *newest, record.get("generation") == run.number, -int(unit["rank"])

    return max(units, key=rank_of)


def _manifest(leader: UnitStatus) -> Manifest | None:
    """Return the checkpoint that a unit has verified."""
    found = leader["manifest"]
    return None if found is None else Manifest(**found)


def _report(
    run: Generation,
    phase: RunPhase,
    facts: Mapping[str, Any],
    *,
    evidence: str,
    cause: FailureCause | None = None,
) -> RunReport:
    return RunReport(
        job=run.job,
        generation=run.number,
        gpus=run.gpus,
        phase=phase,
        evidence=evidence,
        cause=cause,
        **facts,
    )
