"""A report page: one self-contained HTML file, for the screen and for print.

The page has the command's output, plots, assumptions, and the exact JSON answer in the element `answer`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.job.whole_files import write_whole

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; background: #fff; max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } svg { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #e4e7eb; text-align: right; white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; white-space: normal; }
tr.boa td { font-weight: 600; color: #1769aa; } p.note { color: #52606d; }
"""
DARK = """
:root { color-scheme: light dark; }
@media screen and (prefers-color-scheme: dark) { body { color: #e4e7eb; background: #14191f; }
  th, td { border-color: #323f4b; } p.note, footer { color: #9aa5b1; } tr.boa td { color: #62b0e8; }
  svg { filter: invert(.92) hue-rotate(180deg); mix-blend-mode: lighten; } td.bad { color: #ff8787; } }
"""
REPORT_STYLE = """
p.lead { font-size: 1.25rem; font-weight: 600; } .table { overflow-x: auto; margin: 0 0 1rem; }
th.text, td.text { text-align: left; white-space: normal; } td.text { overflow-wrap: anywhere; }
td.text.short { white-space: nowrap; }
th:not(.text), td:not(.text) { text-align: right; white-space: nowrap; }
footer { color: #52606d; font-size: .85rem; }
td.bad { color: #c92a2a; font-weight: 600; }
@media print { body { margin: 0; max-width: none; font-size: 10pt; } @page { size: A4; margin: 15mm; }
  h2, h3 { break-after: avoid; } tr, svg { break-inside: avoid; } .table { overflow: visible; }
  svg { max-height: 24cm; } th, td { padding: .15rem .3rem; } thead { display: table-header-group; } }
"""
SHORT = 22
"""Texts up to this length, such as instants, stay on one line."""
JCT = "JCT is job completion time: from the submission of a job to its end, waiting included."


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """A table of a page: columns in `right` hold numbers, cells in `bad` are highlighted."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    bad: frozenset[tuple[int, int]] = frozenset()

    @property
    def html(self) -> str:
        """The table as HTML."""

        def one(tag: str, at: int, text: str, row: int = -1) -> str:
            names = [] if at in self.right else ["text"]
            names += ["bad"] if (row, at) in self.bad else []
            names += ["short"] if row >= 0 and at not in self.right and len(text) <= SHORT else []
            kind = f' class="{" ".join(names)}"' if names else ""
            return f"<{tag}{kind}>{escape(text)}</{tag}>"

        head = "".join(one("th", at, name) for at, name in enumerate(self.columns))
        body = "".join(
            f"<tr>{''.join(one('td', at, text, number) for at, text in enumerate(row))}</tr>"
            for number, row in enumerate(self.rows)
        )
        # Keep the title outside the scrolling box, so that it is readable on a narrow screen.
        title = f"<h3>{escape(self.title)}</h3>" if self.title else ""
        return (
            f'{title}<div class="table"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Content of a page: a lead sentence, SVG plots, the printed output, assumptions, and the answer."""

    title: str
    lead: str
    pictures: Sequence[str]
    printed: Sequence[str | PageTable]
    assumed: Mapping[str, str]
    answer: Mapping[str, Any]
    made_by: str

    @property
    def html(self) -> str:
        """The page as HTML."""
        parts = [f"<h1>{escape(self.title)}</h1>", f'<p class="lead">{escape(self.lead)}</p>', *self.pictures]
        parts += [one.html if isinstance(one, PageTable) else f"<p>{escape(one)}</p>" for one in self.printed]
        assumed = PageTable(title="", columns=("what", "value"), rows=tuple(self.assumed.items()))
        parts += ["<h2>What was assumed</h2>", assumed.html, f"<p>{escape(JCT)}</p>"]
        parts.append(f"<footer>{escape(self.made_by)}</footer>")
        # A name in the answer may contain "</script>".
        answer = json.dumps(self.answer, allow_nan=False).replace("<", "\\u003c")
        parts.append(f'<script type="application/json" id="answer">{answer}</script>')
        return whole_page(self.title, parts, style=STYLE + REPORT_STYLE)


def whole_page(title: str, parts: Iterable[str], *, style: str = STYLE) -> str:
    """Return an HTML page made of parts."""
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title><style>{style}{DARK}</style></head><body>\n"
    )
    return head + "\n".join(parts) + "\n</body></html>\n"


def write_page(text: str, path: Path) -> None:
    """Write a page to a temporary file and rename it, so that no reader sees half a file.

    Raises:
        InputError: when the file cannot be written.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise InputError(f"cannot write the report: {error.strerror}", file=path) from error
