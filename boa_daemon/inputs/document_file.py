"""Strict readers of YAML, JSON, TOML and CSV files; errors name the file and the line.

`read_document` refuses ambiguous files: a repeated key, a second document, a file that breaks off. One fast
pass reads the value; the line of a key is looked up only when an error needs it.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
import select
import stat
import sys
import tomllib
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

from boa_daemon.csv_text import csv_reader, delimiter_of
from boa_daemon.errors import InputError, near_files
from boa_daemon.inputs.yaml_events import (
    BrokenYaml,
    YamlProblem,
    line_in_yaml,
    parse_yaml,
    plain_value,
    typed_in_yaml,
    whole_number,
)
from boa_daemon.number_text import NotOneNumber, number_readings, without_dollars

KeyPath: TypeAlias = tuple[str | int, ...]
"""A path into a document: keys of mappings, and positions in lists from 0."""
Language: TypeAlias = Literal["yaml", "json", "toml", "csv"]

MAX_BYTES = 256 * 2**20
"""Largest input file; this keeps out devices and core dumps."""
WRITER_SECONDS = 5.0
"""Longest wait for somebody to open a named pipe for writing."""

_LANGUAGES: dict[str, Language] = {".json": "json", ".toml": "toml", ".csv": "csv"}
_SPACE = re.compile(r"\s*")
_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_TOML_DATE = re.compile(r"\d{1,4}-\d{1,2}-\d{1,4}")
_TOML_COLON = re.compile(r"[\w.-]+\s*:(\s|$)")
_TOML_WORD = re.compile(r"[^\s\"'\[{#][^\"'#]*")
_TOML_HEADER = re.compile(r"\s*\[(\[?)([^\[\]]+)\]?\]")
_TOML_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_UNSEEN, _CURLED = ("Cc", "Cf", "Zs", "Zl", "Zp"), frozenset("\u2018\u2019\u201c\u201d\u201e")
_TOML_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")


class RepeatedKey(Exception):
    """A JSON object has a key twice: it is the text of the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The value in a file, and the file's text."""

    name: str
    content: Any
    language: Language = "yaml"
    text: str = field(default="", repr=False)

    def line_of(self, at: Sequence[str | int]) -> int | None:
        """Return the line (from 1) of the value at a path, or of the deepest part of the path that exists."""
        if not self.text:
            return None
        find = {"toml": _line_in_toml, "csv": _line_in_csv}.get(self.language, line_in_yaml)
        return find(self.text, at)

    def typed(self, at: Sequence[str | int]) -> str | None:
        """Return the unquoted value at a path as it was typed, such as ``3.10``; None if not known."""
        if not self.text or self.language == "csv":
            return None
        if self.language == "toml":
            return _typed_in_toml(self.text, at)
        return typed_in_yaml(self.text).get(tuple(map(str, at)))

    def error(
        self, problem: str, *, at: KeyPath = (), hint: str = "", kind: type[InputError] = InputError
    ) -> InputError:
        """Return the error to raise for a problem at a path, naming the file and the line."""
        return kind(problem, file=self.name, line=self.line_of(at), hint=hint)


def read_document(path: str | Path, *, otherwise: Language = "yaml") -> Document:
    """Return the value in a file: JSON, TOML, CSV or YAML by its suffix, `otherwise` with another one.

    ``-`` is standard input.

    CSV becomes a list of mappings, one for each row under the header; empty cells are left out.

    Raises:
        InputError: when the file cannot be read, is empty, not UTF-8, breaks off or repeats a key.
    """
    return parse_document(read_text(path), path, otherwise=otherwise)


def parse_document(text: str, path: str | Path, *, otherwise: Language = "yaml") -> Document:
    """Return the content of a file's text.

    Raises:
        InputError: when it is empty, breaks off or repeats a key.
    """
    name = name_of(path)
    if not text.strip():
        raise InputError("the file is empty", file=name)
    language = _LANGUAGES.get(Path(path).suffix.lower(), otherwise)
    parse = {"yaml": _parse_yaml, "json": parse_json, "toml": _parse_toml, "csv": _parse_csv}[language]
    return Document(name=name, content=parse(text, name), language=language, text=text)


def name_of(path: str | Path) -> str:
    """Return how errors name a file; ``-`` is standard input."""
    return "standard input" if str(path) == "-" else str(path)


def read_text(path: str | Path) -> str:
    """Return a file's text; ``-`` is standard input.

    Raises:
        InputError: when the file is missing, a directory, not readable, too large or not UTF-8.
    """
    name = name_of(path)
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if str(path) == "-" else _read_bytes(Path(path))
    except FileNotFoundError:
        if Path(path).is_symlink():
            target = os.readlink(path)
            raise InputError(f"it is a link to {target}, and nothing is there", file=name) from None
        raise InputError("there is no such file", file=name, hint=near_files(path)) from None
    except IsADirectoryError:
        raise InputError("this is a folder", file=name, hint="Name a file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", file=name) from error
    if len(data) > MAX_BYTES:
        raise InputError(f"the file is larger than {MAX_BYTES // 2**20} MiB", file=name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        hint = _SAVE_AS_UTF8 if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""
        raise InputError("the file is not UTF-8 text", file=name, line=line, hint=hint) from None
    if "\0" in text:
        # Every other byte of UTF-16; a run of them where a crash left a file of the right length.
        hint = _NOT_WHOLE if "\0\0" in text or text.count("\0") * 3 < len(text) else _SAVE_AS_UTF8
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError("the file has zero bytes in its text", file=name, line=line, hint=hint)
    return text


_SAVE_AS_UTF8 = "It looks like UTF-16: save it as UTF-8"
_NOT_WHOLE = "It was not written whole, as before a crash, or is no text"


def _read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, of which there may be more than `MAX_BYTES`, and of a pipe all.

    A pipe that somebody writes to, as the shell's ``<(command)``, is waited for; one that nobody opens for
    writing is given up.

    Raises:
        OSError: when it cannot be read.
        InputError: when it is a pipe that nobody writes to.
    """
    # Opening a pipe would wait for a writer otherwise, and no signal would end that.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        descriptor = file.fileno()
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.set_blocking(descriptor, True)
            return file.read(MAX_BYTES + 1)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        has_news = poll.poll(1000.0 * WRITER_SECONDS)
        try:
            first = os.read(descriptor, 1)
        except BlockingIOError:
            first = b""  # Somebody has it open, and has not written yet.
        else:
            if not first and not has_news:
                said = f"it is a pipe, and nobody opened it for writing within {WRITER_SECONDS:g} s"
                raise InputError(said, file=str(path))
        os.set_blocking(descriptor, True)
        return first + file.read(MAX_BYTES)


def _parse_yaml(text: str, name: str) -> object:
    try:
        content = parse_yaml(text)
    except BrokenYaml as problem:
        line, hint = _cut_short(text, problem.line)
        raise InputError(str(problem), file=name, line=line, hint=hint) from None
    except YamlProblem as problem:
        raise InputError(str(problem), file=name, line=problem.line) from None
    if content is None:
        raise InputError("the file holds nothing but comments", file=name)
    return content


def parse_json(text: str, name: str) -> object:
    """Return the value of JSON text; `name` is the file's in errors.

    Raises:
        InputError: when it is not valid, breaks off, repeats a key or is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=distinct_keys, parse_int=whole_number)
    except json.JSONDecodeError as error:
        line, hint = _cut_short(text, error.lineno)
        raise InputError(f"not valid JSON: {error.msg}", file=name, line=line, hint=hint) from None
    except RepeatedKey as error:
        _blame_repeated_key(text, name, str(error))
    except RecursionError:
        raise InputError("lists and objects are nested too deeply", file=name) from None


def json_pages(text: str, name: str, *, hint: str) -> list[Any]:
    """Return the values of JSON text, and of arrays their entries, in order.

    Values stand on lines of their own or follow each other. Whole numbers are exact.

    Raises:
        InputError: when the text is empty, not valid, breaks off, repeats a key or is nested too deeply.
    """
    return [
        one
        for value in _json_values(text, name, hint)
        for one in (value if isinstance(value, list) else [value])
    ]


def names_next_page(pages: Sequence[Any], key: str) -> bool:
    """Return whether the last answer of an API names a further page, which the file then lacks."""
    return bool(pages) and isinstance(pages[-1], dict) and bool(pages[-1].get(key))


def entries_of(pages: Sequence[Any], lists: Sequence[str]) -> list[Any]:
    """Return the entries of answers: those of the array under one of the keys `lists`, else the answer."""
    found: list[Any] = []
    for one in pages:
        key = next((key for key in lists if isinstance(one, dict) and isinstance(one.get(key), list)), None)
        found += [one] if key is None else one[key]
    return found


def _json_values(text: str, name: str, hint: str) -> Iterator[Any]:
    """Yield the values of JSON text, one after the other."""
    decoder = json.JSONDecoder(object_pairs_hook=distinct_keys, parse_int=exact_number)
    at = len(text) - len(text.lstrip())
    if at == len(text):
        raise InputError("the file is empty", file=name, hint=hint)
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            line, cut = _cut_short(text, error.lineno)
            # A text that does not begin as JSON is another kind of file.
            said = cut if text.lstrip().startswith(("{", "[")) else hint
            raise InputError(f"not valid JSON: {error.msg}", file=name, line=line, hint=said) from None
        except RepeatedKey as error:
            line = text.count("\n", 0, at) + 1
            raise InputError(f"the key {str(error)!r} is given twice", file=name, line=line) from None
        except RecursionError:
            raise InputError("lists and objects are nested too deeply", file=name) from None
        yield value
        at = _SPACE.match(text, end).end()  # type: ignore[union-attr]  # it matches no sign, too


def exact_number(digits: str) -> int | float:
    """Return an int, or infinity for one that no float holds."""
    return int(digits) if len(digits) <= 300 else float(digits)


def distinct_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object's pairs as a dictionary, refusing a repeated key."""
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise RepeatedKey(next(key for key in keys if keys.count(key) > 1))
    return result


def _blame_repeated_key(text: str, name: str, key: str) -> NoReturn:
    """Raise the error for a repeated JSON key, with its line if the YAML reader can parse the text."""
    line = None
    try:
        parse_yaml(text)
    except YamlProblem as problem:
        line = problem.line
    raise InputError(f"the key {key!r} is given twice", file=name, line=line)


def _parse_toml(text: str, name: str) -> object:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError("lists and tables are nested too deeply", file=name) from None
    except ValueError as error:
        found = _TOML_LINE.search(str(error))
        reason = _TOML_LINE.sub("", str(error)).strip()
        line = int(found[1]) if found else text.count("\n") + 1 if "end of document" in reason else None
        said = text.split("\n")[line - 1] if found and line else ""
        if "overwrite" in reason or "twice" in reason:
            raise InputError(
                f"{said.partition('=')[0].strip()} is given twice", file=name, line=line
            ) from None
        raise InputError(f"not valid TOML: {reason}", file=name, line=line, hint=_toml_hint(said)) from None


def _toml_hint(line: str) -> str:
    """Return a hint for a line that is not TOML."""
    if line.startswith(("<<<<<<<", "=======", ">>>>>>>")):
        return "These are the marks of an unfinished merge"
    begin = line.lstrip()
    if begin.startswith(("{", "```", "---", "%YAML")):
        return "It looks like JSON, YAML or Markdown: TOML has sections as [budget], and lines KEY = VALUE"
    if begin.startswith((";", "//", "--", "/*", "!")):
        return "A comment begins with #"
    odd = next((sign for sign in line.rstrip("\r") if unicodedata.category(sign) in _UNSEEN), " ")
    if odd not in " \t":
        said = (
            "The line ends are lone carriage returns" if odd == "\r" else f"It has an unseen U+{ord(odd):04X}"
        )
        return f"{said}, as some programs write: replace it"
    if set(line) & _CURLED and '"' not in line:
        return "The quotes are typographic: write straight ones"
    if begin.startswith(("export ", "set ", "env ")):
        return "Variables of a shell are no settings: write KEY = VALUE in a section such as [budget]"
    if "=" not in begin and _TOML_COLON.match(begin):
        return "TOML writes KEY = VALUE in a section such as [budget], and no colon"
    if begin.startswith("[") and "@" in begin and '"' not in begin:
        return 'A name with other signs than letters, digits, - and _ stands in quotes: [users."ann@x.org"]'
    if begin.rstrip().endswith(("{", ",")) and "=" in begin and "{" in begin:
        return "A table in braces stands on one line"
    key, _, value = (part.strip() for part in line.partition("="))
    value = value.partition("#")[0].strip()
    if value.lower() in ("true", "yes", "on", "false", "no", "off"):
        return f"Write {key} = {'true' if value.lower() in ('true', 'yes', 'on') else 'false'}"
    if value.lower() in ("null", "none", "nil", "~"):
        return "TOML has no empty value: leave the key out"
    bare = value
    with suppress(NotOneNumber):  # An amount in another currency stays what it is.
        bare = without_dollars(value) if "usd" in key else value
    if readings := number_readings(bare):
        plain = [_bare_number(one) for one in readings]
        return f"Write {key} = {plain[0]}" + (f", or {plain[1]} if the comma is decimal" if plain[1:] else "")
    if _TOML_DATE.match(value):
        return f"There is no day {value}: write year-month-day"
    if '"' in value and "\\" in value:
        return "A backslash is written twice, or the text stands in single quotes"
    if _TOML_WORD.fullmatch(value):
        return f'Text stands in quotes: {key} = "{value}"'
    return ""


def _bare_number(text: str) -> str:
    """Return a number as TOML reads it: no zeros before it, and a digit on both sides of the point."""
    text = re.sub(r"^([+-]?)0+(?=\d)", r"\1", text)
    text = re.sub(r"^([+-]?)\.", r"\g<1>0.", text)
    return f"{text}0" if text.endswith(".") else text


def _parse_csv(text: str, name: str) -> object:
    """Return the rows of CSV text as mappings; cells that look like numbers become numbers."""
    reader = csv_reader(text)
    try:
        header = [column.strip() for column in next(reader, [])] or [""]
        if len(set(header)) < len(header):
            raise InputError("a column is named twice", file=name, line=1)
        if (mark := delimiter_of(header[0])) != "," and mark in header[0]:
            hint = f"Separate the columns by commas, not by {mark!r}"
            raise InputError(f"one column {header[0]!r}", file=name, line=1, hint=hint)
        rows = []
        for cells in reader:
            if cells and len(cells) != len(header):
                problem = f"a row has {len(cells)} cells where the header names {len(header)} columns"
                raise InputError(problem, file=name, line=reader.line_num)
            pairs = zip(header, map(str.strip, cells), strict=False)
            rows.append({column: plain_value(cell) for column, cell in pairs if cell})
    except csv.Error as error:
        raise InputError(f"not valid CSV: {error}", file=name, line=reader.line_num) from None
    return [row for row in rows if row]


def _line_in_csv(text: str, at: Sequence[str | int]) -> int:
    """Return the line on which the path's row ends; the header's line for a path without a row."""
    reader = csv_reader(text, strict=False)
    rows = (reader.line_num for cells in reader if any(cell.strip() for cell in cells))
    wanted = int(at[0]) + 1 if at else 0
    return next((line for index, line in enumerate(rows) if index == wanted), 1)


def _cut_short(text: str, line: int | None) -> tuple[int | None, str]:
    """Return the line, and a hint if the fault is on the last line, as in half-written files."""
    last = text.rstrip().count("\n") + 1
    is_last = line is not None and line >= last and "\t" not in text.rstrip().rpartition("\n")[2]
    return (last, "The file may be cut short") if is_last else (line, "")


def _typed_in_toml(text: str, at: Sequence[str | int]) -> str | None:
    """Return the unquoted value at a path of TOML text; None where it is quoted or nested."""
    places: list[int] = []
    keys = list(at)
    while keys and isinstance(keys[-1], int):
        places.insert(0, int(keys.pop()))
    line = _line_in_toml(text, keys)
    if line is None or len(places) > 1:
        return None
    key = _TOML_KEY.match(said := text.split("\n")[line - 1])
    if key is None or not keys or _toml_parts(key[1])[-1] != str(keys[-1]):
        return None
    value = said[key.end() :].partition("#")[0].strip()
    if places and value.startswith("[") and value.endswith("]"):
        items = value[1:-1].split(",")
        value = items[places[0]].strip() if places[0] < len(items) else ""
    return value if value and not set(value) & set("\"'[{,") else None


def _line_in_toml(text: str, at: Sequence[str | int]) -> int | None:
    """Return the line of the deepest part of a path that TOML text has as a header or a key."""
    wanted = [str(key) for key in at]
    table: list[str] = []
    counts: dict[tuple[str, ...], int] = {}
    best: tuple[int, int | None] = (0, None)
    for number, line in enumerate(text.split("\n"), start=1):
        if header := _TOML_HEADER.match(line):
            trail = table = _toml_table(_toml_parts(header[2]), counts, is_item=bool(header[1]))
        elif key := _TOML_KEY.match(line):
            trail = table + _toml_parts(key[1])
        else:
            continue
        if len(trail) > best[0] and trail == wanted[: len(trail)]:
            best = (len(trail), number)
    return best[1]


def _toml_table(parts: Sequence[str], counts: dict[tuple[str, ...], int], *, is_item: bool) -> list[str]:
    """Return the path of a TOML header with list positions; `counts` keeps the last position of each list."""
    trail: list[str] = []
    for number, part in enumerate(parts, start=1):
        trail.append(part)
        here = tuple(trail)
        if is_item and number == len(parts):
            counts[here] = counts.get(here, -1) + 1
        if here in counts:
            trail.append(str(counts[here]))
    return trail


def _toml_parts(dotted: str) -> list[str]:
    """Return the parts of a dotted TOML key, without their quotes."""
    return [double or single or bare for double, single, bare in _TOML_PART.findall(dotted)]
