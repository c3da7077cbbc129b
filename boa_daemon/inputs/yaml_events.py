"""A YAML reader on parser events: values in one pass, and the line of a path in another.

PyYAML's own constructor takes six times as long on large files, lets a repeated key win silently and reads
``1e3`` as text. This reader follows the core schema of YAML 1.2, in decimal: ``1e3`` is a number, ``no`` and
``12:30`` are text, ``true`` and ``false`` are the only booleans. Anchors and aliases work; tags, merge keys
and several documents in one file are errors. Cost: O(file), 1.5 µs for each scalar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import yaml

MAX_NESTING = 100
"""Most nested levels of lists and mappings; files usually have five."""
MAX_NODES = 20_000_000
"""Most values in one file with aliases expanded: ten times the largest problem in the benchmarks."""

# The C parser is fifteen times faster; PyYAML wheels carry it, distribution packages may not.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WHOLE = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NO_KEY = object()


class YamlProblem(Exception):
    """Text that this reader refuses, with its line (counted from 1) if known."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.line = line


class BrokenYaml(YamlProblem):
    """Text that is not YAML: a typing error, or a file that breaks off."""


def whole_number(digits: str) -> int | float:
    """Return an int, or a float for more than 18 digits."""
    return int(digits) if len(digits) <= 18 else float(digits)


def plain_value(text: str) -> object:
    """Return the value of an unquoted scalar in the core schema of YAML 1.2."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "0123456789+-.":
        return text
    if _WHOLE.fullmatch(text):
        return whole_number(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if _SPECIAL.fullmatch(text) else text


def parse_yaml(text: str) -> object:
    """Return the one value that the text holds; None for an empty document.

    Raises:
        YamlProblem: when the text breaks off, repeats a key, nests too deeply or uses tags or merge keys.
    """
    return _Builder().build(_events(text))


def line_in_yaml(text: str, path: Sequence[object]) -> int | None:
    """Return the line (from 1) of the value at `path`, or of the deepest part of the path that exists.

    Keys compare as text, so ``1`` finds ``"1"``. A path through an alias ends at the alias. JSON is read
    too, being YAML in flow style. Cost: one pass over the parser's events, for use in error messages.
    """
    wanted = [str(key) for key in path]
    best: tuple[int, int | None] = (-1, None)
    try:
        for trail, event, _ in _nodes(_events(text)):
            # A value has the path of its key, which comes first and is where people look.
            if len(trail) > best[0] and trail == wanted[: len(trail)]:
                best = (len(trail), _line(event))
                if len(trail) == len(wanted):
                    break
    except YamlProblem:
        pass  # The deepest part found before the text breaks off is still the best answer.
    return best[1]


def typed_in_yaml(text: str) -> dict[tuple[str, ...], str]:
    """Return the unquoted scalars of a text as they were typed, by their paths.

    Cost: one pass over the parser's events.
    """
    found: dict[tuple[str, ...], str] = {}
    try:
        for trail, event, is_key in _nodes(_events(text)):
            if not is_key and isinstance(event, yaml.ScalarEvent) and not event.style:
                found[tuple(trail)] = str(event.value)
    except YamlProblem:
        pass  # What breaks off later has no typed value.
    return found


def _events(text: str) -> Iterator[Any]:
    """Yield the parser's events; its errors become `BrokenYaml`."""
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is not None and _is_tab(text, mark.line):
            raise BrokenYaml(
                "not valid YAML: this line is indented by a TAB; use spaces", mark.line + 1
            ) from None
        problem = f"not valid YAML: {error.problem or error.context}"
        raise BrokenYaml(problem, None if mark is None else mark.line + 1) from None
    except yaml.reader.ReaderError as error:
        found = yaml.reader.Reader.NON_PRINTABLE.search(text)
        line = None if found is None else text.count("\n", 0, found.start()) + 1
        raise BrokenYaml(f"not valid YAML: {error.reason}", line) from None


def _is_tab(text: str, line: int) -> bool:
    """Whether a line (from 0) has a TAB before its first word, or after its dash."""
    lines = text.splitlines()
    head = lines[line][: len(lines[line]) - len(lines[line].lstrip(" \t-"))] if line < len(lines) else ""
    return "\t" in head


def _line(event: Any) -> int:
    """Return the line (from 1) on which an event begins."""
    return int(event.start_mark.line) + 1


class _Frame:
    """A list or mapping that is still open."""

    __slots__ = ("anchor", "container", "key", "nodes_before")

    def __init__(self, container: Any, anchor: str | None, nodes_before: int) -> None:
        self.container, self.anchor, self.nodes_before = container, anchor, nodes_before
        self.key: object = _NO_KEY


class _Builder:
    """Builds one value from events, and refuses ambiguous text."""

    def __init__(self) -> None:
        self.roots: list[object] = []
        self.frames = [_Frame(self.roots, None, 0)]
        self.nodes = 0
        self.anchored: dict[str, tuple[object, int]] = {}
        self.plain: dict[str, object] = {}

    def build(self, events: Iterator[Any]) -> object:
        """Return the value of the single document in `events`."""
        for event in events:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent:
                self._open({}, event)
            elif kind is yaml.SequenceStartEvent:
                self._open([], event)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._close()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent and self.roots:
                self._fail("a second document begins; one is expected in a file", event)
        return self.roots[0] if self.roots else None

    def _scalar(self, event: Any) -> None:
        """Add a scalar: quoted scalars are text, plain scalars are parsed."""
        text: str = event.value
        if event.tag is not None and not event.implicit[0] and not event.implicit[1]:
            self._fail(f"the tag {event.tag} is not read", event)
        if event.style:
            value: object = text
        elif text in self.plain:
            value = self.plain[text]
        else:
            value = self.plain[text] = plain_value(text)
        if event.anchor is not None:
            self.anchored[event.anchor] = (value, 1)
        self._add(value, event)

    def _add(self, value: Any, event: Any) -> None:
        """Add a value to the innermost open container."""
        self.nodes += 1
        frame = self.frames[-1]
        container = frame.container
        if type(container) is list:
            container.append(value)
        elif frame.key is not _NO_KEY:
            container[frame.key] = value
            frame.key = _NO_KEY
        elif isinstance(value, dict | list):
            self._fail("a key must be one word or number, not a list or mapping", event)
        elif value in container:
            self._fail(f"the key {event.value!r} is given twice", event)
        elif value == "<<" and not event.style:
            self._fail(
                "merge keys (<<) are not read; repeat the keys, or use an alias for a whole value", event
            )
        else:
            frame.key = value

    def _open(self, container: Any, event: Any) -> None:
        """Open a list or mapping inside the innermost one."""
        if event.tag is not None and not event.implicit:
            self._fail(f"the tag {event.tag} is not read", event)
        if len(self.frames) > MAX_NESTING:
            self._fail(f"lists and mappings are nested more than {MAX_NESTING} deep", event)
        if event.anchor is not None:
            self.anchored.pop(event.anchor, None)
        nodes_before = self.nodes
        self._add(container, event)
        self.frames.append(_Frame(container, event.anchor, nodes_before))

    def _close(self) -> None:
        """Close the innermost list or mapping; its anchor may be used from here on."""
        frame = self.frames.pop()
        if frame.anchor is not None:
            self.anchored[frame.anchor] = (frame.container, self.nodes - frame.nodes_before)

    def _alias(self, event: Any) -> None:
        """Add the value of an anchor again, counting everything in it."""
        if event.anchor not in self.anchored:
            self._fail(f"the alias *{event.anchor} names no value that is complete before it", event)
        value, nodes = self.anchored[event.anchor]
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            self._fail(f"aliases make this file longer than {MAX_NODES:,} values", event)
        event.value, event.style = f"*{event.anchor}", None
        self._add(value, event)

    def _fail(self, problem: str, event: Any) -> NoReturn:
        """Refuse the text at an event."""
        raise YamlProblem(problem, _line(event))


def _nodes(events: Iterator[Any]) -> Iterator[tuple[list[str], Any, bool]]:
    """Yield path and event of each key and value in the order of the text, and whether it is a key."""
    keys: list[str | None] = []
    in_list: list[bool] = []
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            keys.pop()
            in_list.pop()
        elif not isinstance(event, yaml.NodeEvent):
            continue
        else:
            awaits_key = bool(keys) and keys[-1] is None and not in_list[-1]
            if keys and in_list[-1]:
                keys[-1] = "0" if keys[-1] is None else str(int(keys[-1]) + 1)
            elif awaits_key:
                keys[-1] = getattr(event, "value", "")
            yield [key for key in keys if key is not None], event, awaits_key
            if awaits_key:
                continue
            if isinstance(event, yaml.CollectionStartEvent):
                keys.append(None)
                in_list.append(isinstance(event, yaml.SequenceStartEvent))
                continue
        if keys and not in_list[-1]:
            keys[-1] = None
