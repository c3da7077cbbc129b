"""A live view of a cluster on a terminal: clock, burn rate, nodes with their GPUs, jobs."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from boa_daemon.cli.common.output import a_table
from boa_daemon.tick.facts.state import ClusterState, JobState, NodeState
from boa_daemon.tick.money.ledger import Ledger
from boa_daemon.units import counted
from policies.model import Budget, JobClass, JobId
from policies.money_text import in_dollars

COLOURS = (
    "cyan",
    "magenta",
    "green",
    "yellow",
    "blue",
    "red",
    "bright_cyan",
    "bright_magenta",
    "bright_green",
)
GAP = 4
"""Columns between two tables."""
ROWS = 12
"""Most rows of each table, so that the view fits on a terminal."""


def clock_text(seconds: float) -> str:
    """Return simulated time as hours and minutes."""
    minutes = int(seconds // 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def status_line(state: ClusterState, *, started_at: float, budget: Budget) -> str:
    """Return one line: clock, jobs, nodes, burn rate, and what is spent of the budget so far."""
    elapsed = state.now - started_at
    allowed, spent = budget.amount * elapsed / 3600.0, Ledger.of(state).committed_usd
    running = sum(job.is_running for job in state.jobs.values())
    money = (
        f"{state.usd_per_hour:.1f} GPUs now, {spent:.2f} of {allowed:.2f} GPU-hours"
        if budget.unit == "gpus"
        else f"{in_dollars(state.usd_per_hour)}/h now, {in_dollars(spent)} of {in_dollars(allowed)}"
    )
    return (
        f"{clock_text(elapsed)}  {counted(running, 'job')} running, {len(state.jobs) - running} waiting, "
        f"{counted(len(state.nodes), 'node')}, {money}"
    )


def view(
    state: ClusterState, classes: Mapping[str, JobClass], *, started_at: float, budget: Budget, finished: int
) -> RenderableType:
    """Return the view of one instant: status line, nodes and jobs."""
    header = Text(status_line(state, started_at=started_at, budget=budget), style="bold")
    colours = {job: COLOURS[_stable(job) % len(COLOURS)] for job in state.jobs}
    tables = _SideBySide(_nodes(state, colours), _jobs(state, classes, colours))
    return Group(header, Text(f"{counted(finished, 'job')} finished"), Text(), tables)


class _SideBySide:
    """Two tables beside each other, or one below the other where the terminal is too narrow."""

    def __init__(self, left: Table, right: Table) -> None:
        self._left, self._right = left, right

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield both tables."""
        widths = [Measurement.get(console, options, one).maximum for one in (self._left, self._right)]
        if sum(widths) + GAP <= options.max_width:
            tables = Table.grid(padding=(0, GAP))
            tables.add_row(self._left, self._right)
            yield tables
        else:
            yield from (self._left, Text(), self._right)


def _stable(job: JobId) -> int:
    """Return a number that depends on the job's id alone, so that the job keeps its colour."""
    return sum(map(ord, job))


def _nodes(state: ClusterState, colours: Mapping[JobId, str]) -> Table:
    """Return the nodes, one small block per GPU in the colour of its job."""
    table = a_table("Nodes", "node", "type", "GPUs", "state")
    for node in list(state.nodes.values())[:ROWS]:
        table.add_row(node.id, node.instance_type.name, _blocks(node, colours), _node_state(node))
    if len(state.nodes) > ROWS:
        table.add_row(f"and {len(state.nodes) - ROWS} more", "", "", "")
    return table


def _blocks(node: NodeState, colours: Mapping[JobId, str]) -> Text:
    """Return one block per GPU: filled where a job holds it."""
    blocks = Text()
    for job in node.gpus:
        blocks.append(
            "□ " if job is None else "■ ", style="dim" if job is None else colours.get(job, "white")
        )
    return blocks


def _node_state(node: NodeState) -> str:
    if node.phase != "ready":
        return "booting" if node.phase == "requested" else node.phase
    return "idle" if node.is_idle else f"{len(node.gpus) - node.free_gpus} used"


def _jobs(state: ClusterState, classes: Mapping[str, JobClass], colours: Mapping[JobId, str]) -> Table:
    """Return the jobs with their progress through their phases and what they hold."""
    table = a_table("Jobs", "job", "class", "phases", "holds", right=("holds",))
    for job in list(state.jobs.values())[:ROWS]:
        style = colours[job.job.id]
        table.add_row(
            Text(job.job.id, style=style),
            job.job.class_name,
            _progress(job, classes[job.job.class_name], style),
            "waits" if job.job.width is None else str(job.job.width),
        )
    if len(state.jobs) > ROWS:
        table.add_row(f"and {len(state.jobs) - ROWS} more", "", "", "")
    return table


def _progress(job: JobState, job_class: JobClass, style: str) -> ProgressBar:
    total = len(job_class.phases)
    return ProgressBar(total=total, completed=job.job.phase, width=20, complete_style=style)
