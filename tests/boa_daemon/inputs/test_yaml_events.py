"""YAML in one reading: numbers, text and truth as in its version 1.2, each key once, each alias counted."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.inputs import yaml_events
from boa_daemon.inputs.yaml_events import (
    MAX_NESTING,
    BrokenYaml,
    YamlProblem,
    line_in_yaml,
    parse_yaml,
    plain_value,
    typed_in_yaml,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("-1.5", -1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("+7", 7),
        ("0o17", "0o17"),
        ("017", 17),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("no", "no"),
        ("yes", "yes"),
        ("True", True),
        ("false", False),
        ("~", None),
        ("null", None),
        ("-.inf", -math.inf),
        (".inf", math.inf),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ("2026-11-29", "2026-11-29"),
        ("1" * 18, int("1" * 18)),
        ("1" * 19, float("1" * 19)),
    ],
)
def test_an_unquoted_word_means_what_yaml_1_2_says(text: str, value: object) -> None:
    """And is of that type: one and true are equal in Python."""
    found = plain_value(text)
    assert (found, type(found)) == (value, type(value))


def test_not_a_number_is_a_number_in_yaml() -> None:
    """Whoever needs a finite one says so."""
    assert math.isnan(plain_value(".nan"))  # type: ignore[arg-type]
    assert parse_yaml("[\".nan\", '1', 1]") == [".nan", "1", 1]


@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**17), 10**17)
        | st.floats(allow_nan=False)
        | st.text("ab1:#- ", max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_json_is_read_as_what_it_is(value: object) -> None:
    """YAML in flow style."""
    if "Infinity" not in (text := json.dumps(value)):
        assert parse_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' is given twice"),
        ("a: {x: 1,\n x: 2}", 2, "the key 'x' is given twice"),
        ("a: 1\n1: a\n'1': b\n1: c\n", 4, "the key '1' is given twice"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "merge keys"),
        ("a: !!int 3\n", 1, "the tag"),
        ("a: !x [1]\n", 1, "the tag !x is not read"),
        ("a: 1\n---\nb: 2\n", 2, "a second document begins"),
        ("a: *x\n", 1, "the alias *x names no value"),
        ("a: &x [*x]\n", 1, "the alias *x names no value that is complete before it"),
        ("? [1]\n: 2\n", 1, "a key must be one word or number"),
    ],
)
def test_ambiguous_text_is_refused_with_its_line(text: str, line: int, said: str) -> None:
    """A reader that took one of two meanings would be wrong in half of the cases."""
    with pytest.raises(YamlProblem) as found:
        parse_yaml(text)
    assert said in str(found.value)
    assert found.value.line == line


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: [1,\n", 2, "not valid YAML"),
        ("a:\n\tb: 1\n", 2, "indented by a TAB"),
        ("a: 1\nb: \x07\n", 2, "not valid YAML"),
    ],
)
def test_broken_text_says_where(text: str, line: int, said: str) -> None:
    """A file that breaks off is another trouble than one that is ambiguous."""
    with pytest.raises(BrokenYaml) as found:
        parse_yaml(text)
    assert said in str(found.value)
    assert found.value.line == line


def test_an_alias_is_the_value_of_its_anchor_as_it_was_last_given() -> None:
    """Of words, lists and mappings; a key may be one too."""
    assert parse_yaml("a: &x [1, 2]\nb: *x\nc: &x 5\nd: *x\n") == {"a": [1, 2], "b": [1, 2], "c": 5, "d": 5}
    assert parse_yaml("") is None


def test_nesting_and_aliases_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few lines of aliases would make billions of values."""
    assert parse_yaml("[" * MAX_NESTING + "]" * MAX_NESTING) is not None
    with pytest.raises(YamlProblem, match=f"nested more than {MAX_NESTING} deep"):
        parse_yaml("[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1))
    monkeypatch.setattr(yaml_events, "MAX_NODES", 20)
    lines = ["a: &a [1, 1, 1, 1]", "b: &b [*a]"]
    assert parse_yaml("\n".join(lines)) == {"a": [1] * 4, "b": [[1] * 4]}
    with pytest.raises(YamlProblem, match="longer than 20 values"):
        parse_yaml("\n".join([*lines, "c: [*b, *a]"]))


TEXT = "a:\n  b:\n    - x: 1\n    - x: 2\n      y: [3,\n        four]\n'1': five\n"


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 1),
        (("a", "b", 0, "x"), 3),
        (("a", "b", 1, "x"), 4),
        (("a", "b", 1, "y", 1), 6),
        ((1,), 7),
        (("a", "c"), 1),
        (("a", "b", 7), 2),
        (("z",), 1),
    ],
)
def test_the_line_of_a_path_is_that_of_its_deepest_part(path: tuple[object, ...], line: int) -> None:
    """Where a key is missing, people look at what it is missing from."""
    assert line_in_yaml(TEXT, path) == line


def test_unquoted_values_are_kept_as_they_were_typed() -> None:
    """For errors that quote them; keys and quoted text are none, and a text that breaks off has some."""
    found = typed_in_yaml("a: 007\nb: '5'\nc: [1e3, {d: no}]\ne: [")
    assert found == {("a",): "007", ("c", "0"): "1e3", ("c", "1", "d"): "no"}
