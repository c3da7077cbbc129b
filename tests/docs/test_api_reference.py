"""docs/reference/api.md equals what the docstrings and signatures of the public names give.

To record a wanted change: ``BOA_RECORD_DOCS=1 pytest tests/docs``, then read the difference.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boa_daemon
from boa_daemon import job
from boa_daemon.library import results
from boa_daemon.testing import contracts

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/api.md"
HEAD = """# Public names

Signatures and docstrings, as the code has them. [The library](library.md) and [the client](python.md) say how
they are used, [write a plug-in](../how-to/write-a-plugin.md) what the kit is for, and [write a
job](../how-to/write-a-job.md) what a script calls.
"""
ANSWERS = ("Solved", "Planned", "Frontier", "Committed", "Simulated", "Compared")


class Written:
    """An annotation as written in the code, without the quotes of a string."""

    def __init__(self, words: object) -> None:
        self.words = words

    def __repr__(self) -> str:
        return str(self.words)


def signature_of(thing: Callable[..., Any]) -> str:
    """Return the parameters and the return annotation of a function, as written in the code."""
    found = inspect.signature(thing)
    shown = [
        one if one.annotation is one.empty else one.replace(annotation=Written(one.annotation))
        for one in found.parameters.values()
        if one.name != "self"
    ]
    answer = found.return_annotation
    return str(found.replace(parameters=shown, return_annotation=Written(answer) if answer else answer))


def described(title: str, thing: Callable[..., Any], *, level: int) -> Iterator[str]:
    """Yield the lines of one function, method or class."""
    yield f"\n{'#' * level} {title}\n\n```python\n{title.rpartition('.')[2]}{signature_of(thing)}\n```\n\n"
    said = inspect.getdoc(thing) or ""
    body, _, raises = said.partition("\nRaises:\n")
    yield body.strip() + "\n"
    errors = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", raises, re.MULTILINE)
    if errors:
        yield "\nRaises:\n\n" + "".join(f"- `{name}` {' '.join(why.split())}\n" for name, why in errors)


def methods_of(kind: type[Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public methods of a class that have docstrings, inherited ones included."""
    for name, member in inspect.getmembers(kind):
        function = getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function) and inspect.getdoc(function):
            yield name, member


def page() -> str:
    """Return the text that the page must have."""
    parts = [HEAD, "\n## boa_daemon\n"]
    for name in sorted(set(boa_daemon.__all__) - {"__version__"}):
        thing = getattr(boa_daemon, name)
        parts += described(name, thing, level=3)
        if inspect.isclass(thing):
            for method, function in methods_of(thing):
                parts += described(f"{name}.{method}", function, level=4)
    parts.append("\n## What they return\n")
    for name in ANSWERS:
        kind = getattr(results, name)
        parts.append(f"\n### {name}\n\n{(inspect.getdoc(kind) or '').strip()}\n")
        for method, function in methods_of(kind):
            parts += described(f"{name}.{method}", function, level=4)
    for title, module in (("boa_daemon.job", job), ("boa_daemon.testing.contracts", contracts)):
        parts.append(f"\n## {title}\n")
        for name, thing in inspect.getmembers(module, inspect.isfunction):
            if not name.startswith("_") and thing.__module__.startswith(title):
                parts += described(name, thing, level=3)
    return "".join(parts)


def test_the_page_equals_the_signatures_and_docstrings_of_the_public_names() -> None:
    """The page has each public name with its signature, docstring and errors."""
    if os.environ.get("BOA_RECORD_DOCS"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_public_name_has_a_docstring() -> None:
    """No signature on the page is followed by an empty description."""
    assert not re.search(r"```\n\n\n", page())
