"""``--report FILE.html``: write a command's output, plots and assumptions as one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from boa_daemon.cli.common.output import plain_document, printed_by, stderr_console
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.plots import check_plot_path
from boa_daemon.planning.report_page import PageTable, Part, Picture, Report, write_page
from boa_daemon.version import __version__
from policies.money_text import price_in_dollars

ReportOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE.html", help="Write the answer as one HTML page, to share or print."
    ),
]
LONG_ROWS = 15
"""Tables with more rows stand at the end of a page."""


def check_report(path: Path | None) -> None:
    """Raise an error before any work if the page cannot be written.

    Raises:
        InputError: when the suffix is not .html or .htm, or the folder does not exist.
        MissingExtra: without matplotlib.
    """
    if path is not None:
        check_plot_path(path, "--report", (".html", ".htm"))


def write_report(
    path: Path | None,
    title: str,
    lead: str,
    *,
    document: Mapping[str, Any],
    table: Callable[[], None],
    pictures: Callable[[], Sequence[Picture]],
    assumed: Mapping[str, str],
    bad: Sequence[str] = (),
    facts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the page of an answer, if `path` is not None: its lead, the bad news, key figures, all else."""
    if path is None:
        return
    report = Report(
        title=title,
        lead=lead,
        bad=bad,
        facts=facts,
        parts=[*pictures(), *_parts(printed_by(table), said=" ".join((lead, *bad)))],
        assumed=assumed,
        answer=plain_document(document),
        made_by=f"Written by boa {__version__} on {datetime.now(UTC):%Y-%m-%d}.",
    )
    write_page(report.html, path)
    stderr_console().print(f"wrote {path}", markup=False)


def assumptions(file: ProblemFile, *, is_list: bool = False, **more: str) -> dict[str, str]:
    """Return the assumptions of an answer: files, prices with their dates, classes, and `more`."""
    found = {"classes": Path(file.path).name}
    days = {note.instance_type: note.as_of for note in file.prices}
    for kind, machine in file.instance_types.items():
        day = days.get(machine.name)
        said = "date unknown" if not day else f"as of {day}"
        found[f"price of {machine.name}"] = (
            f"{price_in_dollars(machine.usd_per_hour)} per hour for {machine.gpus} x {kind}, {said}"
        )
    for job_class in file.problem.classes:
        rate = "" if is_list else f"{job_class.arrivals_per_hour:.4g} jobs per hour, "
        found[f"class {job_class.name}"] = f"{rate}{job_class.size_gpu_hours:,.4g} GPU-hours a job"
    return found | more


def _parts(printed: Sequence[object], said: str) -> list[Part]:
    """Return what was printed on the console as parts of a page, less what its verdict has `said`.

    Long tables stand last.
    """
    found: list[Part] = []
    long: list[Part] = []
    for one in printed:
        if isinstance(one, Table):
            (found if len(one.rows) <= LONG_ROWS else long).append(_table(one))
            continue
        inner = one.renderable if isinstance(one, Padding) else one
        lines = (line.strip() for line in _plain(inner).splitlines())
        found.extend(line for line in lines if line and line not in said and not line.startswith("Next:"))
    return [*found, *long]


def _table(table: Table) -> PageTable:
    """Return a console table as a page table, without columns of bars."""
    columns = [c for c in table.columns if _plain(c.header) or "".join(map(_plain, c.cells)).strip("█ ")]
    cells = [list(column.cells) for column in columns]
    rows = [tuple(_plain(text) for text in row) for row in zip(*cells, strict=True)]
    return PageTable(
        title=_plain(table.title or ""),
        columns=tuple(_plain(column.header) for column in columns),
        rows=tuple(rows),
        right=frozenset(at for at, column in enumerate(columns) if column.justify == "right"),
        bad=frozenset(
            (number, at)
            for at, column in enumerate(cells)
            for number, text in enumerate(column)
            if "[red]" in str(text)
        ),
    )


def _plain(text: object) -> str:
    """Return text without markup."""
    return text.plain if isinstance(text, Text) else Text.from_markup(str(text), emoji=False).plain
