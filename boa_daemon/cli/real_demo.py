"""``boa demo --real``: small training jobs on this machine, resized by the plan, with their logs."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from boa_daemon.cli.live_view import status_line, view
from boa_daemon.cli.output import OutputFormat, a_table, show, stdout_console
from boa_daemon.daemon.real_run import (
    ARRIVAL_SECONDS,
    KINDS,
    NODE,
    PACE,
    PLACES,
    PLANNED,
    RealRun,
    ticks,
    uninterrupted_loss,
)
from boa_daemon.engines.desk import Left
from boa_daemon.errors import PARTLY_DONE
from boa_daemon.learning.speedups import explain_curve
from boa_daemon.tick.decision import Decision
from policies.model import Budget

DEFAULT_BUDGET = Budget(amount=20.0)
MOST_SECONDS = 110.0
LOG_LINES = 6
WAITS = "has not let go yet"
"""Every resize says so once: a job lets go first and starts in a later tick."""


def real_demo(budget: Budget | None, *, jobs: int, output: OutputFormat) -> int:
    """Run the jobs, show them, and return the exit code: 0, or 4 where some did not end in time."""
    is_quiet = output is not OutputFormat.table
    budget = budget or DEFAULT_BUDGET
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="boa-demo-") as folder:
        run = RealRun(Path(folder), jobs=jobs, budget=budget)
        if not is_quiet:
            stdout_console().print(_opening(jobs, budget), soft_wrap=True)
        try:
            with _watching(run, is_quiet=is_quiet) as on_tick:
                for decision in ticks(run, most_seconds=MOST_SECONDS):
                    on_tick(decision)
            last = run.tick()
        finally:
            run.close()
        document = _document(run, last, wall_seconds=time.monotonic() - began)
    show(output, document, rows=lambda: document["jobs"], table=lambda: _print(document))
    return 0 if run.is_over and all(left.is_finished for left in run.desk.left) else PARTLY_DONE


def _opening(jobs: int, budget: Budget) -> str:
    """Return what is about to happen, and what of it is pretended."""
    return (
        f"{jobs} training jobs ({', '.join(kind.name for kind in KINDS)}) arrive here, one every "
        f"{ARRIVAL_SECONDS:.0f} s, and really run: numpy processes with checkpoints and logs. Pretended are "
        f"the money (a budget of {budget}, of which the plan aims at {PLANNED:.0%}, because booting, idle "
        f"and partly used nodes take the rest; a node of {NODE.gpus} workers is {NODE.usd_per_hour:.0f} "
        f"USD/hour, at most {PLACES} nodes), the clock of the plan (a second counts as "
        f"{PACE:.0f}) and most of each step's work, which sleeps so that width matters on any "
        "machine. It takes about a minute."
    )


@contextmanager
def _watching(run: RealRun, *, is_quiet: bool) -> Iterator[Callable[[Decision], None]]:
    """Give a callback that shows a tick: live on a terminal, else line by line, or not at all."""
    console = stdout_console()
    if is_quiet:
        yield lambda _decision: None
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda decision: live.update(_frame(run, decision), refresh=True)
    else:
        yield _lines(run)


def _frame(run: RealRun, decision: Decision) -> RenderableType:
    """Return one instant: nodes and jobs, what was done last, and what jobs print."""
    state = decision.state
    classes = run.classes
    cluster = view(state, classes, started_at=run.started_at, budget=run.budget, finished=len(run.desk.left))
    done = [said for said in run.teller.sentences if WAITS not in said][-LOG_LINES:]
    said = Text("\n".join(done), style="dim", no_wrap=True, overflow="ellipsis")
    logs = Text(no_wrap=True, overflow="ellipsis")
    for job in list(run.desk.reports())[:LOG_LINES]:
        logs.append(f"{job}: {_newest_line(run, job)}\n")
    return Group(cluster, Text("\nDone last", style="bold"), said, Text("\nLogs", style="bold"), logs)


def _newest_line(run: RealRun, job: str) -> str:
    """Return what a job printed last."""
    at = 0
    lines: list[str] = []
    while (chunk := run.desk.runner.logs(job, since=at)).text:
        lines, at = chunk.text.splitlines(), chunk.next_offset
    return lines[-1] if lines else ""


def _lines(run: RealRun) -> Callable[[Decision], None]:
    """Return a callback that prints what was done, and a status line every ten ticks."""
    console, told, count = stdout_console(), 0, 0

    def show(decision: Decision) -> None:
        nonlocal told, count
        for sentence in run.teller.sentences[told:]:
            if WAITS in sentence:
                continue
            console.print(f"  {sentence}", soft_wrap=True, markup=False)
        told = len(run.teller.sentences)
        if count % 10 == 0:
            line = status_line(decision.state, started_at=run.started_at, budget=run.budget)
            console.print(line, soft_wrap=True)
            for job in list(run.desk.reports())[:2]:
                console.print(f"  {job} | {_newest_line(run, job)}", soft_wrap=True, markup=False)
        count += 1

    return show


def _document(run: RealRun, last: Decision, *, wall_seconds: float) -> dict[str, Any]:
    """Return the figures."""
    rows = [_row(run, left) for left in run.desk.left]
    hours = (last.state.now - run.started_at) / 3600.0
    done = [row for row in rows if row["finished"]]
    return {
        "jobs": rows,
        "jobs_in_all": run.jobs_in_all,
        "mean_jct_seconds": sum(row["jct_seconds"] for row in done) / len(done) if done else None,
        "resizes": run.desk.rescales,
        "lost_steps": run.desk.lost_steps,
        "same_loss_as_uninterrupted": bool(done) and all(row["same_loss"] for row in done),
        "budget_usd_per_hour": run.budget.amount,
        "spent_usd": run.spent_usd(last.state),
        "mean_usd_per_hour": run.spent_usd(last.state) / hours,
        "pretended_hours": hours,
        "curves": [explain_curve(curve) for curve in run.curves.values()],
        "wall_seconds": wall_seconds,
    }


def _row(run: RealRun, left: Left) -> dict[str, Any]:
    """Return one job's figures."""
    job = left.ticket.spec.job
    expected = uninterrupted_loss(left.ticket.phase_ends[-1])
    return {
        "job": job,
        "finished": left.is_finished,
        "jct_seconds": (left.left_at - left.ticket.job.arrived_at) / PACE,
        "widths": " > ".join(map(str, run.widths_of(job))),
        "steps": left.report.step,
        "loss": left.report.loss,
        "same_loss": left.report.loss is not None and math.isclose(left.report.loss, expected, rel_tol=1e-9),
        "why": left.why or left.report.evidence,
    }


def _print(document: dict[str, Any]) -> None:
    """Print the figures for people."""
    table = a_table("What ran", "job", "took", "workers", "steps", "final loss", right=("took", "steps"))
    for row in document["jobs"]:
        loss = "" if row["loss"] is None else f"{row['loss']:.6g}"
        mark = " =" if row["same_loss"] else " differs"
        table.add_row(
            row["job"], f"{row['jct_seconds']:.1f} s", row["widths"], f"{row['steps']}", loss + mark
        )
    console = stdout_console()
    console.print(table)
    same = "the same as" if document["same_loss_as_uninterrupted"] else "NOT always the same as"
    console.print(
        f"{len(document['jobs'])} of {document['jobs_in_all']} jobs left in "
        f"{document['wall_seconds']:.0f} s, {document['resizes']} resizes, {document['lost_steps']} steps "
        f"lost; final losses are {same} those of uninterrupted "
        "runs. "
        f"Spent: {document['spent_usd']:.2f} pretended USD, "
        f"{document['mean_usd_per_hour']:.2f} per pretended hour, on a budget of "
        f"{document['budget_usd_per_hour']:.2f}.",
        soft_wrap=True,
    )
    for sentence in document["curves"]:
        console.print(sentence, soft_wrap=True)
    console.print("Next: boa demo, which replays 85 jobs of a real trace in simulation", soft_wrap=True)
