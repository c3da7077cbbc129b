"""`job/gate/wire.py`: frames, however they are cut, and fields that are what they should be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import dictionaries, floats, integers, lists, text

from boa_daemon.job.gate import wire
from boa_daemon.job.gate.wire import FrameBuffer, MalformedFrame

FRAMES = lists(
    dictionaries(text(max_size=4), floats(allow_nan=False, allow_infinity=False), max_size=3), max_size=4
)


@given(frames=FRAMES, cut=integers(1, 20))
def test_frames_arrive_whole_however_the_bytes_are_cut(frames: list[dict[str, float]], cut: int) -> None:
    """In order, each once; empty lines are none."""
    data = b"\n \n".join(wire.encode(frame) for frame in frames)
    buffer, found = FrameBuffer(), list[dict[str, Any]]()
    for begin in range(0, len(data), cut):
        found += buffer.feed(data[begin : begin + cut])
    assert found == frames


def test_a_frame_is_limited_whether_or_not_it_ends() -> None:
    """Nobody fills the memory by never ending a line."""
    line = b'{"a":"' + b"x" * 4 + b'"}'
    assert FrameBuffer(len(line)).feed(line + b"\n") == [{"a": "xxxx"}]
    for data in (line + b"\n", line, b"{}\n" + line):
        with pytest.raises(MalformedFrame, match=f"longer than {len(line) - 1} bytes"):
            FrameBuffer(len(line) - 1).feed(data)
    halves = FrameBuffer(len(line) - 1)
    halves.feed(line[:5])
    with pytest.raises(MalformedFrame):
        halves.feed(line[5:])


@pytest.mark.parametrize("line", [b"{", b"[]", b"5", b"null", b"\xff", b"[" * 8000, b'{"a":}'])
def test_what_is_no_object_is_malformed(line: bytes) -> None:
    """However deep it is nested."""
    with pytest.raises(MalformedFrame):
        FrameBuffer().feed(line + b"\n")


def test_no_frame_holds_what_json_does_not_know() -> None:
    """The other side may read it in another language."""
    with pytest.raises(ValueError, match="JSON"):
        wire.encode({"a": float("nan")})
    assert wire.encode({"a": 1}) == b'{"a":1}\n'


@pytest.mark.parametrize(
    "value", [None, True, "1", [1], float("nan"), float("inf"), -0.1, 1e18 + 1e3, 10**400]
)
def test_a_number_is_finite_and_within_its_bounds(value: object) -> None:
    """True is none, and one of four hundred digits neither."""
    with pytest.raises(MalformedFrame, match="x must"):
        wire.number({"x": value}, "x")
    assert [wire.number({"x": good}, "x") for good in (0, 1.5, 10**18)] == [0.0, 1.5, 1e18]
    assert wire.number({"x": 2}, "x", least=2, most=2) == 2.0


def test_a_number_may_be_missing_but_not_be_wrong() -> None:
    """Zero is a number."""
    assert [wire.maybe_number(frame, "x") for frame in ({}, {"x": None}, {"x": 0})] == [None, None, 0.0]
    with pytest.raises(MalformedFrame):
        wire.maybe_number({"x": False}, "x")


@pytest.mark.parametrize("value", [None, True, 1.0, "1", -1, 2**63])
def test_a_whole_number_is_not_negative_and_fits_a_database(value: object) -> None:
    """A float is none, though it be whole."""
    with pytest.raises(MalformedFrame, match="x must be a whole number of 0 or more"):
        wire.whole({"x": value}, "x")
    assert [wire.whole({"x": good}, "x") for good in (0, 2**63 - 1)] == [0, 2**63 - 1]
    with pytest.raises(MalformedFrame):
        wire.whole({"x": 0}, "x", least=1)


@pytest.mark.parametrize("value", [None, "", "a\n", "\ud800", "x" * 257, 5, ["a"]])
def test_a_word_is_short_and_printable(value: object) -> None:
    """It is written into logs and read back."""
    with pytest.raises(MalformedFrame, match="x must be a name"):
        wire.word({"x": value}, "x")
    with pytest.raises(MalformedFrame, match="x must be a name"):
        wire.words({"x": ["a", value]}, "x")
    assert wire.word({"x": "é" * 256}, "x") == "é" * 256


@pytest.mark.parametrize("count", [0, wire.MOST_NICS + 1])
def test_a_list_of_words_has_at_least_one_and_a_most(count: int) -> None:
    """A job sends through some card; names that recur are one."""
    with pytest.raises(MalformedFrame, match="a list of 1 to 512 names"):
        wire.words({"x": [str(number) for number in range(count)]}, "x")
    assert wire.words({"x": ["a", "a", "b"]}, "x") == {"a", "b"}
