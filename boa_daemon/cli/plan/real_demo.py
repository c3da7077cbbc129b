"""``boa demo --real``: run small training jobs on this machine, resized by the plan, and show their logs."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from boa_daemon.cli.common.live_view import status_line, view
from boa_daemon.cli.common.output import OutputFormat, a_table, show, stdout_console
from boa_daemon.daemon.service.real_run import (
    ARRIVAL_SECONDS,
    JOB_KINDS,
    LOCAL_NODES,
    NODE,
    PACE,
    RealRun,
    ticks,
    uninterrupted_loss,
)
from boa_daemon.errors import PARTLY_DONE
from boa_daemon.learning.speedups import explain_curve
from boa_daemon.tick.decide.decision import Decision
from policies.model import Budget
from policies.money_text import in_dollars

DEFAULT_BUDGET = Budget(amount=20.0)
MOST_SECONDS = 110.0
LOG_LINES = 6
LEFT_OUT = ("has yet to let go", "planning by what was seen", "re-attached")
"""Log sentences not shown. Every resize logs the first: a job stops one tick before it restarts."""


def real_demo(budget: Budget | None, *, jobs: int, output: OutputFormat) -> int:
    """Run and show the jobs; return the exit code: 0, or 4 if some job did not finish in time."""
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
            document = _document(run, run.tick(), wall_seconds=time.monotonic() - began)
        finally:
            run.close()
    show(output, document, rows=lambda: document["jobs"], table=lambda: _print(document))
    return (
        0
        if len(document["jobs"]) == jobs and all(row["finished"] for row in document["jobs"])
        else PARTLY_DONE
    )


def _opening(jobs: int, budget: Budget) -> str:
    """Return the introduction: what runs, and what is pretended."""
    return (
        f"{jobs} training jobs ({', '.join(kind.name for kind in JOB_KINDS)}) arrive here, one every "
        f"{ARRIVAL_SECONDS:.0f} s, and really run under the daemon, as numpy processes with checkpoints and "
        f"logs. Pretended are the money (a budget of {budget}; a node of {NODE.gpus} workers is "
        f"${NODE.usd_per_hour:.0f}/hour, at most {LOCAL_NODES} nodes), the clock (a second counts as "
        f"{PACE:.0f}) and most of each step's work, which sleeps so that width matters on any "
        "machine. It takes about a minute."
    )


@contextmanager
def _watching(run: RealRun, *, is_quiet: bool) -> Iterator[Callable[[Decision], None]]:
    """Yield a callback that shows a tick: live on a terminal, else line by line; quiet shows nothing."""
    console = stdout_console()
    if is_quiet:
        yield lambda _decision: None
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda decision: live.update(_frame(run, decision), refresh=True)
    else:
        yield _lines(run)


def _frame(run: RealRun, decision: Decision) -> RenderableType:
    """Return the view of one instant: nodes, jobs, the last actions, and the jobs' newest log lines."""
    state, finished = decision.state, sum(job["status"] == "finished" for job in run.jobs)
    classes = run.daemon.planner.planned
    cluster = view(state, classes, started_at=run.started_at, budget=run.budget, finished=finished)
    done = [said for said in run.sentences.said if _is_shown(said)][-LOG_LINES:]
    said = Text("\n".join(done), style="dim", no_wrap=True, overflow="ellipsis")
    logs = Text(no_wrap=True, overflow="ellipsis")
    for job in [name for name, job in state.jobs.items() if job.slots][:LOG_LINES]:
        logs.append(f"{job}: {_newest_line(run, job)}\n")
    return Group(cluster, Text("\nDone last", style="bold"), said, Text("\nLogs", style="bold"), logs)


def _is_shown(sentence: str) -> bool:
    """Return whether a log sentence of the daemon is shown."""
    return not any(part in sentence for part in LEFT_OUT)


def _newest_line(run: RealRun, job: str) -> str:
    """Return what a job printed last."""
    return (run.lines_of(job) or [""])[-1]


def _lines(run: RealRun) -> Callable[[Decision], None]:
    """Return a callback that prints the daemon's actions, and a status line every ten ticks."""
    console, told, count = stdout_console(), 0, 0

    def show(decision: Decision) -> None:
        nonlocal told, count
        for sentence in run.sentences.said[told:]:
            if _is_shown(sentence):
                console.print(f"  {sentence}", soft_wrap=True, markup=False)
        told = len(run.sentences.said)
        if count % 10 == 0:
            line = status_line(decision.state, started_at=run.started_at, budget=run.budget)
            console.print(line, soft_wrap=True)
            for job in [name for name, job in decision.state.jobs.items() if job.slots][:2]:
                console.print(f"  {job} | {_newest_line(run, job)}", soft_wrap=True, markup=False)
        count += 1

    return show


def _document(run: RealRun, last: Decision, *, wall_seconds: float) -> dict[str, Any]:
    jobs, spent = run.jobs, run.spent_usd
    rows = [_row(run, job) for job in jobs if job["ended_at"] is not None]
    hours = (last.state.now - run.started_at) / 3600.0
    done = [row for row in rows if row["finished"]]
    return {
        "jobs": rows,
        "jobs_in_all": run.jobs_in_all,
        "mean_jct_seconds": sum(row["jct_seconds"] for row in done) / len(done) if done else None,
        "resizes": sum(max(job["generation"] - 1, 0) for job in jobs),
        "lost_steps": sum(job["lost_steps"] for job in jobs),
        "same_loss_as_uninterrupted": bool(done) and all(row["same_loss"] for row in done),
        "budget_usd_per_hour": run.budget.amount,
        "spent_usd": spent,
        "mean_usd_per_hour": spent / hours,
        "pretended_hours": hours,
        "curves": [explain_curve(curve) for curve in run.daemon.planner.curves.values()],
        "wall_seconds": wall_seconds,
    }


def _row(run: RealRun, job: Mapping[str, Any]) -> dict[str, Any]:
    (kind,) = (kind for kind in JOB_KINDS if kind.name == job["class"])
    loss = run.loss_of(job["id"], job["generation"])
    return {
        "job": job["id"],
        "finished": job["status"] == "finished",
        "jct_seconds": (job["ended_at"] - job["arrived_at"]) / PACE,
        "widths": " > ".join(map(str, run.widths_of(job["id"]))),
        "steps": job["step"],
        "loss": loss,
        "same_loss": loss is not None and math.isclose(loss, uninterrupted_loss(kind.steps), rel_tol=1e-9),
        "why": job["cause"],
    }


def _print(document: dict[str, Any]) -> None:
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
        f"{len(document['jobs'])} of {document['jobs_in_all']} jobs ended in "
        f"{document['wall_seconds']:.0f} s, {document['resizes']} resizes, {document['lost_steps']} steps "
        f"lost; final losses are {same} those of uninterrupted "
        "runs. "
        f"Spent: {in_dollars(document['spent_usd'])} (pretended), "
        f"{document['mean_usd_per_hour']:.2f} per pretended hour, on a budget of "
        f"{document['budget_usd_per_hour']:.2f}.",
        soft_wrap=True,
    )
    for sentence in document["curves"]:
        console.print(sentence, soft_wrap=True)
    console.print("Next: boa demo, which replays 85 jobs of a real trace in simulation", soft_wrap=True)
