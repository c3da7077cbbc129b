"""Strict reading of YAML, JSON, TOML and CSV, with the line of each error."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import InputError
from boa_daemon.inputs import document_file
from boa_daemon.inputs.document_file import Document, read_document
from boa_daemon.inputs.yaml_events import MAX_NESTING, line_in_yaml, parse_yaml


def document(tmp_path: Path, text: str | bytes, suffix: str = "yaml") -> Document:
    path = tmp_path / f"file.{suffix}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_document(path)


def refused(tmp_path: Path, text: str | bytes, suffix: str = "yaml") -> InputError:
    with pytest.raises(InputError) as caught:
        document(tmp_path, text, suffix)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        (".5", 0.5),
        ("5.", 5.0),
        ("-7", -7),
        ("010", 10),
        ("9" * 400, float("inf")),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("2026-07-20", "2026-07-20"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("-.inf", float("-inf")),
        ("1.2.3", "1.2.3"),
        ("+", "+"),
        ("-", [None]),
    ],
)
def test_plain_scalars_are_read_as_in_yaml_1_2(text: str, value: object) -> None:
    """`1e3` is a number, `no` is text, and quotes always make text."""
    read = parse_yaml(text)

    assert read == value
    assert type(read) is type(value)


def values(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False) | text
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    )


# Without digits: PyYAML writes the text 1e3 unquoted, which YAML 1.2 reads as a number.
words = st.text("aeE~Aé -:#'\"[]{},&*!|>%@`\n\t.?", max_size=9)


@given(value=values(st.text()))
def test_json_is_read_back_as_written(value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any JSON value comes back equal."""
    path = tmp_path_factory.mktemp("json") / "value.json"
    path.write_text(json.dumps(value), encoding="utf-8")

    assert read_document(path).content == value


@given(value=values(words).filter(lambda value: value is not None), flow=st.booleans())
def test_yaml_is_read_back_as_written(value: Any, flow: bool) -> None:
    """Any value that PyYAML writes comes back equal, in block and in flow style."""
    assert parse_yaml(yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)) == value


@given(
    text=st.text(st.characters(codec="utf-8"), max_size=60)
    | st.text("{}[]:,-*&!<>|'\"#% \n\ta1", max_size=40)
)
def test_any_text_is_read_or_refused(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No text raises another exception than `InputError`."""
    directory = tmp_path_factory.mktemp("any")
    for suffix in ("yaml", "json", "toml", "csv"):
        path = directory / f"any.{suffix}"
        path.write_text(text, encoding="utf-8")
        with contextlib.suppress(InputError):
            assert read_document(path).name == str(path)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' is given twice"),
        ("a:\n  1: x\n  1.0: y\n", 3, "'1.0' is given twice"),
        ("a: [1, 2\n", 1, "not valid YAML"),
        ("a: {b: 1", 1, "cut short"),
        ("a: 1\nb\n", 2, "not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ("a: 'never closed\n\n", 1, "not valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "a second document begins"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "the tag"),
        ("a: 1\nb: !mine 3\n", 2, "the tag !mine is not read"),
        ("a: 1\n? [x, y]\n: 2\n", 2, "a key must be one word or number"),
        ("x: &x {a: 1}\ny:\n  <<: *x\n", 3, "merge keys"),
        ("a: *nobody\n", 1, "the alias *nobody names no value"),
        ("a: &a [1, *a]\n", 1, "names no value that is complete"),
        ("a: 1\nb: \x01\n", 2, "not valid YAML"),
        ("# only words\n", None, "nothing but comments"),
        ("\n\n", None, "the file is empty"),
        ("", None, "the file is empty"),
        ("a:\n  " + "[" * (MAX_NESTING + 2), 2, "nested more than"),
    ],
)
def test_ambiguous_yaml_is_refused(text: str, line: int | None, words: str, tmp_path: Path) -> None:
    """Repeated keys, tags, merge keys and similar are errors with their line."""
    error = refused(tmp_path, text)

    assert words in str(error)
    assert error.line == line


@pytest.mark.parametrize(
    ("suffix", "text", "line", "words"),
    [
        ("json", '{"a": 1,\n "b": 2,\n "a": 3}', 3, "the key 'a' is given twice"),
        ("json", '{"a": 1,\n', 1, "cut short"),
        ("json", '{"a": 1}\n{"b": 2}\n', 2, "not valid JSON"),
        ("json", '{"a": 01}', 1, "not valid JSON"),
        ("json", "[" * 100_000, None, "nested too deeply"),
        ("toml", "a = 1\na = 2\n", 2, "given twice"),
        ("toml", "a = 1\nb = \n", 2, "not valid TOML"),
        ("toml", "a = [1,\n", 2, "not valid TOML"),
        ("toml", "a = 1" + "0" * 5000, None, "not valid TOML"),
        ("csv", "a,a\n1,2\n", 1, "a column is named twice"),
        ("csv", "a,b\n1,2\n3\n", 3, "a row has 1 cells where the header names 2"),
        ("csv", 'a,b\n1,"2\n', 2, "not valid CSV"),
        ("csv", "a;b\n1;2,5\n", 1, "Separate the columns by commas, not by ';'"),
        ("csv", "a\tb\n1\t2\n", 1, "Separate the columns by commas, not by '\\t'"),
    ],
)
def test_ambiguous_json_toml_and_csv_are_refused(
    suffix: str, text: str, line: int | None, words: str, tmp_path: Path
) -> None:
    """Repeated keys and truncated files are errors in every format."""
    error = refused(tmp_path, text, suffix)

    assert words in str(error)
    assert error.line == line


def test_an_unreadable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be missing, a folder, not UTF-8, or too large."""
    with pytest.raises(InputError, match=r"absent\.yaml: there is no such file"):
        read_document(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="this is a folder"):
        read_document(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_document("nul\0byte.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        read_document(tmp_path / ("long" * 200))
    assert refused(tmp_path, b"a: 1\nb: \xff\xfe\n").line == 2
    monkeypatch.setattr(document_file, "MAX_BYTES", 8)
    assert "larger than" in str(refused(tmp_path, "a: 123456789"))


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Some editors write one."""
    assert document(tmp_path, b"\xef\xbb\xbfa: 1\n").content == {"a": 1}


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads YAML, and so JSON, from standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": [1, 2]}')))

    assert read_document("-").content == {"a": [1, 2]}


def test_an_alias_repeats_a_value(tmp_path: Path) -> None:
    """Mappings and single values can have an anchor."""
    read = document(tmp_path, "a: &curve {1: 1.0}\nb: *curve\nc: &n 3\nd: *n\n").content

    assert read == {"a": {1: 1.0}, "b": {1: 1.0}, "c": 3, "d": 3}


def test_nested_aliases_that_multiply_values_are_refused(tmp_path: Path) -> None:
    """Ten levels of ten aliases would be ten thousand million values."""
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]

    assert "aliases make this file longer" in str(refused(tmp_path, "\n".join(levels)))


def test_the_line_of_a_path_is_that_of_its_key() -> None:
    """A path that does not exist gives the line of its deepest existing part."""
    text = "a: 1\nb:\n  - x: 1\n  - x: 2\n    y:\n      1: one\n      2: two\nc: {d: [5,\n  6]}\n"

    assert line_in_yaml(text, ()) == 1
    assert line_in_yaml(text, ("b",)) == 2
    assert line_in_yaml(text, ("b", 1)) == 4
    assert line_in_yaml(text, ("b", 1, "y", "2")) == 7
    assert line_in_yaml(text, ("b", 1, "missing")) == 4
    assert line_in_yaml(text, ("c", "d", 1)) == 9
    assert line_in_yaml(text, ("nowhere",)) == 1


def test_the_line_of_a_path_is_found_in_toml_and_csv(tmp_path: Path) -> None:
    """Headers, arrays of tables, and dotted and quoted keys are found; a CSV row by its position."""
    toml = 'x = 1\n[a]\nb.c = 2\n[[t]]\nn = 1\n[[t]]\nn = 2\n[[t.u]]\n"k k" = 3\n[a.d]\ne = 4\n'
    lines = document(tmp_path, toml, "toml").line_of
    assert [lines(at) for at in [("x",), ("a", "b", "c"), ("t", 1, "n"), ("t", 1, "u", 0, "k k")]] == [
        1,
        3,
        7,
        9,
    ]
    assert lines(("a", "d", "e")) == 11
    assert lines(("t", 0, "gone")) == 4
    rows = document(tmp_path, "a,b\n1,x\n\n2,\n", "csv")
    assert rows.content == [{"a": 1, "b": "x"}, {"a": 2}]
    assert rows.line_of((1, "a")) == 4
    assert rows.line_of(()) == 1


def test_the_python_parser_of_yaml_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML may be built without its C parser."""
    text = "a: 1e3\nb: [x, 'y']\nc: {1: 2}\n"
    fast = parse_yaml(text)
    monkeypatch.setattr("boa_daemon.inputs.yaml_events._LOADER", yaml.SafeLoader)

    assert parse_yaml(text) == fast
    assert line_in_yaml(text, ("c", 1)) == 3


SETTINGS = '[budget]\nusd_per_day_cap = 300.0\n[daemon]\nstate_dir = "state"\n'
SPOILT: dict[str, tuple[bytes, str]] = {
    "UTF-16": (SETTINGS.encode("utf-16"), "UTF-16: save it as UTF-8"),
    "UTF-16 without a mark": (SETTINGS.encode("utf-16-le"), "UTF-16: save it as UTF-8"),
    "a crash": (
        SETTINGS.encode() + bytes(4096),
        ":5: the file has zero bytes in its text. It was not written",
    ),
    "a crash, nothing written": (bytes(200), "was not written whole"),
    "a merge": (f"<<<<<<< HEAD\n{SETTINGS}=======\n".encode(), ":1: .* an unfinished merge"),
    "a merge, its end": (f"{SETTINGS}>>>>>>> theirs\n".encode(), ":5: .* an unfinished merge"),
    "a space of a web page": (
        SETTINGS.replace(" = 300", "\u00a0= 300").encode(),
        ":2: .* an unseen U\\+00A0",
    ),
    "a space of no width": (f"\u200b{SETTINGS}".encode(), ":1: .* an unseen U\\+200B"),
    "quotes of a mail": (SETTINGS.replace('"', "\u201c").encode(), ":4: .* write straight ones"),
    "line ends of an old Mac": (SETTINGS.replace("\n", "\r").encode(), "lone carriage returns"),
}
"""Settings as other programs, or a crash, leave them, and what is said."""


@pytest.mark.parametrize(("content", "said"), SPOILT.values(), ids=SPOILT)
def test_a_text_that_a_program_or_a_crash_has_spoilt_says_by_what(
    tmp_path: Path, content: bytes, said: str
) -> None:
    """The line, and what to do; "Invalid statement" alone helps nobody."""
    error = refused(tmp_path, content, "toml")
    with pytest.raises(InputError, match=said):
        raise error


@pytest.mark.parametrize("sign", ["\r\n", "\ufeff"])
def test_line_ends_and_marks_of_other_systems_are_read(tmp_path: Path, sign: str) -> None:
    """Windows writes them."""
    text = sign + SETTINGS if sign == "\ufeff" else SETTINGS.replace("\n", sign)
    assert document(tmp_path, text, "toml").content["daemon"] == {"state_dir": "state"}


def _nobody(pipe: Path) -> object:
    del pipe
    return None


def _has_gone(pipe: Path) -> object:
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.close(os.open(pipe, os.O_WRONLY))
    return reader


@pytest.mark.parametrize("writer", [_nobody, _has_gone])
def test_a_pipe_that_nobody_writes_to_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: Callable[[Path], object]
) -> None:
    """Whoever reads it is a daemon that has signals and requests to answer."""
    monkeypatch.setattr(document_file, "WRITER_SECONDS", 0.2)
    pipe = tmp_path / "boa.toml"
    os.mkfifo(pipe)
    kept = writer(pipe)
    with pytest.raises(InputError, match=r"nobody opened it for writing within 0.2 s"):
        read_document(pipe)
    if isinstance(kept, int):
        os.close(kept)


@pytest.mark.parametrize("delay", [0.0, 0.4])
def test_a_pipe_of_a_command_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay: float
) -> None:
    """The shell's <(command) may take its time: what counts is that somebody has the pipe open."""
    monkeypatch.setattr(document_file, "WRITER_SECONDS", 0.2)
    pipe = tmp_path / "boa.toml"
    os.mkfifo(pipe)
    ends = os.open(pipe, os.O_RDWR)

    def write() -> None:
        threading.Event().wait(delay)
        with pipe.open("w") as file:
            file.write(SETTINGS)
        threading.Event().wait(1.0)
        os.close(ends)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_document(pipe).content["daemon"] == {"state_dir": "state"}
    writer.join()


def test_a_link_to_nothing_says_where_it_leads(tmp_path: Path) -> None:
    """The hint does not name the link itself."""
    link = tmp_path / "boa.toml"
    link.symlink_to("unmounted/boa.toml")
    with pytest.raises(InputError, match=r"it is a link to unmounted/boa.toml, and nothing is there$"):
        read_document(link)


def test_a_file_that_cannot_be_read_leaves_no_descriptor_open(tmp_path: Path) -> None:
    """A daemon reads its files again at each reload."""
    (tmp_path / "cut.yaml").write_bytes(b"\xff")
    before = len(os.listdir("/proc/self/fd"))
    for name in (".", "cut.yaml", "missing.yaml"):
        with pytest.raises(InputError):
            read_document(tmp_path / name)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("value", ["$20", "US$ 20", "20 USD", "20$", "20 dollars", "20,0", "020"])
def test_money_with_its_sign_is_told_as_a_number(tmp_path: Path, value: str) -> None:
    """TOML has no sign of dollars; text in quotes would be refused next."""
    file = tmp_path / "boa.toml"
    file.write_text(f"[budget]\nusd_per_day_cap = {value}\n")
    with pytest.raises(InputError, match=r"Write usd_per_day_cap = 20(\.0)?$"):
        read_document(file)
