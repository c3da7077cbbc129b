"""A report page: one self-contained HTML file, for the screen, for a phone, for print, and to be forwarded.

The verdict comes first, with the bad news in it; then pictures, tables and assumptions, and the exact JSON
answer in the element `answer`. Boxes that scroll sideways can be reached by keyboard.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

from boa_daemon.errors import InputError
from boa_daemon.inputs.plain_text import plain_text
from boa_daemon.job.whole_files import write_whole

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; background: #fff; max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h1 { font-size: 1.7rem; margin-bottom: .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin-top: 2.2rem; } h2.title { font-size: 1rem; margin: 1.5rem 0 .3rem; }
p { max-width: 46rem; } p.lead { font-size: 1.25rem; font-weight: 600; line-height: 1.35; }
p.note, figcaption { color: #52606d; } figcaption { font-size: .9rem; max-width: 46rem; }
ul.bad { list-style: none; margin: 1rem 0; padding: .6rem 1rem; border-left: .3rem solid #c92a2a;
  background: #fff5f5; max-width: 46rem; } ul.bad li { margin: .2rem 0; overflow-wrap: anywhere; }
ul.bad li::before { content: "! "; font-weight: 700; color: #c92a2a; }
dl.facts { display: flex; flex-wrap: wrap; gap: .6rem 2.2rem; margin: 1rem 0; }
dl.facts dt { color: #52606d; font-size: .85rem; }
dl.facts dd { margin: 0; font-size: 1.5rem; font-weight: 600; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; }
/* A shade at the edge behind which more is: it goes once that edge is reached. */
.wide { overflow-x: auto; margin: 0 0 1rem; --paper: #fff; --shade: rgb(31 41 51 / .22);
  background: linear-gradient(90deg, var(--paper) 40%, transparent) left / 2.4rem 100% no-repeat local,
    linear-gradient(270deg, var(--paper) 40%, transparent) right / 2.4rem 100% no-repeat local,
    radial-gradient(farthest-side at 0 50%, var(--shade), transparent) left / .8rem 100% no-repeat scroll,
    radial-gradient(farthest-side at 100% 50%, var(--shade), transparent) right / .8rem 100% no-repeat; }
.wide:focus-visible { outline: 2px solid #1769aa; outline-offset: 2px; }
svg { width: 100%; min-width: 36rem; height: auto; display: block; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #e4e7eb; text-align: right; white-space: nowrap; }
th.text, td.text { text-align: left; white-space: normal; } td.text { overflow-wrap: anywhere; }
td.text.short { white-space: nowrap; } td.text:not(.short) { min-width: 9rem; }
td.bad { color: #c92a2a; font-weight: 600; }
tr.mine td { font-weight: 600; color: #1769aa; }
summary { cursor: pointer; padding: .3rem 0; } details { margin-bottom: 1rem; }
footer { color: #52606d; font-size: .85rem; margin-top: 2rem; }
@media (max-width: 34rem) { th, td { padding: .3rem; } }
"""
DARK = """
:root { color-scheme: light dark; }
@media screen and (prefers-color-scheme: dark) { body { color: #e4e7eb; background: #14191f; }
  th, td { border-color: #323f4b; } p.note, footer, figcaption, dl.facts dt { color: #9aa5b1; }
  .wide { --paper: #14191f; --shade: rgb(228 231 235 / .3); }
  tr.mine td { color: #62b0e8; } td.bad, ul.bad li::before { color: #ff8787; }
  ul.bad { background-color: #2b1d20; border-color: #ff8787; }
  svg { filter: invert(.92) hue-rotate(180deg); mix-blend-mode: lighten; } }
"""
PRINT = """
@media print { body { margin: 0; max-width: none; font-size: 10pt; } @page { size: A4; margin: 15mm; }
  h2 { break-after: avoid; } tr, svg, figure, ul.bad { break-inside: avoid; }
  .wide { overflow: visible; background: none; }
  svg { max-height: 17cm; min-width: 0; }
  th, td, td.text:not(.short) { padding: .15rem .3rem; white-space: normal; min-width: 0; }
  thead { display: table-header-group; } ul.bad, dl.facts { print-color-adjust: exact; } }
"""
SHORT = 22
"""Texts up to this length, such as instants, stay on one line."""
MOST_ROWS = 60
"""Rows of a table that are shown at once; the others are folded."""
JCT = "JCT is job completion time: from the submission of a job to its end, waiting included."


def _safe(text: str) -> str:
    """Return a text for HTML: names have no markup, and nothing that turns the direction of what follows."""
    return escape(plain_text(text))


def _scrolling(name: str, inner: str) -> str:
    """Return a box that scrolls sideways on a narrow screen, for the mouse and for the keyboard."""
    return f'<div class="wide" role="group" tabindex="0" aria-label="{_safe(name)}">{inner}</div>'


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """A table of a page: columns in `right` hold numbers; cells in `bad`, rows in `mine` are highlighted."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    bad: frozenset[tuple[int, int]] = frozenset()
    mine: frozenset[int] = frozenset()

    @property
    def html(self) -> str:
        """The table as HTML."""

        def one(tag: str, at: int, text: str, row: int = -1) -> str:
            names = [] if at in self.right else ["text"]
            names += ["bad"] if (row, at) in self.bad else []
            names += ["short"] if row >= 0 and at not in self.right and len(text) <= SHORT else []
            kind = f' class="{" ".join(names)}"' if names else ""
            # A header without text is no header: screen readers would announce an empty one.
            tag = "td" if tag == "th" and not text else tag
            scope = ' scope="col"' if tag == "th" else ""
            return f"<{tag}{kind}{scope}>{_safe(text)}</{tag}>"

        head = "".join(one("th", at, name) for at, name in enumerate(self.columns))

        def whole(rows: range) -> str:
            body = []
            for number in rows:
                kind = ' class="mine"' if number in self.mine else ""
                cells = "".join(one("td", at, text, number) for at, text in enumerate(self.rows[number]))
                body.append(f"<tr{kind}>{cells}</tr>")
            inner = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
            return _scrolling(self.title or "table", inner)

        shown, folded = range(min(len(self.rows), MOST_ROWS)), range(MOST_ROWS, len(self.rows))
        more = f"{len(folded):,} more row{'s' if len(folded) > 1 else ''}"
        rest = f"<details><summary>{more}</summary>{whole(folded)}</details>" if folded else ""
        # Keep the title outside the scrolling box, so that it is readable on a narrow screen.
        title = f'<h2 class="title">{_safe(self.title)}</h2>' if self.title else ""
        return f"{title}{whole(shown)}{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A drawing: an SVG element, and what it shows in words, as its caption and for who does not see it."""

    svg: str
    words: str

    @property
    def html(self) -> str:
        """The drawing with its caption."""
        named = self.svg.replace("<svg ", f'<svg role="img" aria-label="{_safe(self.words)}" ', 1)
        caption = f"<figcaption>{_safe(self.words)}</figcaption>"
        return f"<figure>{_scrolling('drawing', named)}{caption}</figure>"


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a section."""

    text: str

    @property
    def html(self) -> str:
        """The title as HTML."""
        return f"<h2>{_safe(self.text)}</h2>"


Part: TypeAlias = str | PageTable | Picture | Heading
"""Part of a page; a string is a paragraph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Content of a page: the verdict (lead sentence, bad news, key figures), parts, assumptions, the answer.

    `answer` is None for a page without an answer for programs.
    """

    title: str
    lead: str
    parts: Sequence[Part]
    made_by: str
    bad: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    assumed: Mapping[str, str] = field(default_factory=dict)
    answer: Mapping[str, Any] | None = None

    @property
    def html(self) -> str:
        """The page as HTML."""
        parts = [f"<h1>{_safe(self.title)}</h1>", f'<p class="lead">{_safe(self.lead)}</p>']
        if self.bad:
            items = "".join(f"<li>{_safe(one)}</li>" for one in self.bad)
            parts.append(f'<ul class="bad" aria-label="what is not well">{items}</ul>')
        if self.facts:
            cards = "".join(
                f"<div><dt>{_safe(name)}</dt><dd>{_safe(said)}</dd></div>"
                for name, said in self.facts.items()
            )
            parts.append(f'<dl class="facts">{cards}</dl>')
        parts += [f"<p>{_safe(one)}</p>" if isinstance(one, str) else one.html for one in self.parts]
        if self.assumed:
            assumed = PageTable(title="", columns=("what", "value"), rows=tuple(self.assumed.items()))
            parts += ["<h2>What was assumed</h2>", assumed.html]
        parts += [f'<p class="note">{_safe(JCT)}</p>'] if "JCT" in " ".join(parts) else []
        parts.append(f"<footer>{_safe(self.made_by)}</footer>")
        if self.answer is not None:
            # A name in the answer may contain "</script>".
            answer = json.dumps(self.answer, allow_nan=False).replace("<", "\\u003c")
            parts.append(f'<script type="application/json" id="answer">{answer}</script>')
        return _whole_page(self.title, parts)


def _whole_page(title: str, parts: Iterable[str]) -> str:
    """Return an HTML page made of parts."""
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{_safe(title)}</title><style>{STYLE}{DARK}{PRINT}</style></head><body><main>\n"
    )
    return head + "\n".join(parts) + "\n</main></body></html>\n"


def write_page(text: str, path: Path) -> None:
    """Write a page to a temporary file and rename it, so that no reader sees half a file.

    Raises:
        InputError: when the file cannot be written.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise InputError(f"cannot write the report: {error.strerror}", file=path) from error
