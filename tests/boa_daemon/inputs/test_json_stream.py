"""Lists in JSON as a stream: the same entries whatever the chunks, and faults by line."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import Any

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs import json_stream
from boa_daemon.inputs.json_stream import json_entries

ENTRIES = [{"id": 1}, {"id": 2}, {"id": 1234567890123456789}]
LISTS = {
    "an array": json.dumps(ENTRIES),
    "an object with the array": json.dumps({"next": None, "items": ENTRIES}, indent=2),
    "an object per line": "\r\n".join(json.dumps(one) for one in ENTRIES) + "\r\n",
    "objects without line ends": "".join(json.dumps(one) for one in ENTRIES),
    "pages, appended as they are printed": "\n".join(
        json.dumps({"items": some}, indent=4) for some in (ENTRIES[:1], ENTRIES[1:])
    ),
    "pages on lines": "\n\n".join(json.dumps({"items": some}) for some in (ENTRIES[:2], [], ENTRIES[2:])),
    "pages in an array": json.dumps([{"items": ENTRIES[:2]}, {"items": ENTRIES[2:]}]),
    "arrays after each other": json.dumps(ENTRIES[:2]) + "\n" + json.dumps(ENTRIES[2:], indent=1),
}


CHUNKS = (1, 2, 3, 5, 7, 16, 29, 64, 2**20)


def entries_in(text: str, *lists: str) -> list[Any]:
    """Return the entries of a text."""
    return list(json_entries(io.StringIO(text), "a.json", lists, hint="Write it"))


@pytest.fixture(params=CHUNKS)
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read texts in chunks of this size."""
    monkeypatch.setattr(json_stream, "CHUNK", request.param)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("text", LISTS.values(), ids=LISTS)
def test_lists_in_json_say_the_same(text: str) -> None:
    """However a program prints them and people append them; a name of 19 digits is exact."""
    assert entries_in(text, "jobs", "items") == ENTRIES


VALUES = {
    "numbers": ("[1, -2.5e3, 12345678901234567890, 0]", [1, -2500.0, 12345678901234567890, 0]),
    "signs in text": (
        '{"jobs": ["a\\"],", "\\u00e9\\\\", "]}", {"b": "}"}]}',
        ['a"],', "\u00e9\\", "]}", {"b": "}"}],
    ),
    "no list": ('{"a": {"jobs": [1]}, "b": [2]}', [{"a": {"jobs": [1]}, "b": [2]}]),
    "an empty list": ('{"meta": {"x": [1, 2]}, "jobs": [], "errors": []}', []),
    "an empty array": (" [ ] ", []),
    "an empty object": ("{}", [{}]),
    "words": ("[true, false, null]", [True, False, None]),
    "a list of lists": ('{"jobs": [[1, 2], [3]]}', [[1, 2], [3]]),
}


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize(("text", "entries"), VALUES.values(), ids=VALUES)
def test_values_survive_the_ends_of_chunks(text: str, entries: list[Any]) -> None:
    """A number, a word or a text that a chunk cuts is whole."""
    assert entries_in(text, "jobs") == entries


BROKEN_LISTS = {
    "nothing": (" \n", "a.json: the file is empty. Write it"),
    "cut within the second page": (
        '{"items": []}\n{"items": [\n{"id"',
        "a.json:3: not valid JSON.*The file may be cut short",
    ),
    "cut behind an entry": ('{"items": [{"id": 1},\n', "a.json:[12]: not valid JSON.*cut short"),
    "cut in a text": (
        '{"items": [{"id": 1},\n{"id": "tw',
        "a.json:2: not valid JSON: Unterminated.*cut short",
    ),
    "a wrong sign": ('{"items": [{"id": 1};\n{"id": 2}]}\n\n[]', "a.json:1: not valid JSON"),
    "other text behind": ('[{"id": 1}]\nDone.', "a.json:2: not valid JSON"),
    "other text": ("No jobs.", "a.json:1: not valid JSON.*Write it"),
    "a key twice in the second line": (
        '{"id": 1}\n{"id": 2, "id": 3}',
        "a.json:2: the key 'id' is given twice",
    ),
    "a list twice": (
        '{"items": [{"id": 1}], "items": [{"id": 2}]}',
        "a.json:1: the key 'items' is given twice",
    ),
    "nested too deeply": ("[" * 100_000, "nested too deeply"),
    "a comma at the end": ('{"items": [1, 2,]}', "a.json:1: not valid JSON"),
    "a key without quotes": ('{"items": [{id: 2}], a: 1}', "a.json:1: not valid JSON"),
}


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize(("text", "said"), BROKEN_LISTS.values(), ids=BROKEN_LISTS)
def test_broken_lists_in_json_are_refused_by_line(text: str, said: str) -> None:
    """With the line in the file, not in the value."""
    with pytest.raises(InputError, match=said):
        entries_in(text, "items")


def test_a_list_takes_the_memory_of_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight megabytes of text no more than a few chunks are in memory."""
    monkeypatch.setattr(json_stream, "CHUNK", 2**16)
    entry = '{"a": "' + "x" * 1000 + '"}'
    file = io.StringIO('{"meta": {}, "jobs": [' + ",".join([entry] * 8000) + '], "errors": []}')
    tracemalloc.start()
    count = sum(1 for _ in json_entries(file, "a.json", ("jobs",), hint=""))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 8000
    assert most < 2**20
