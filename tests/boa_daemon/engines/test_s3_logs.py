"""`engines/s3_logs.py`: a log in segments reads like one text, from any byte on."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import pytest

from boa_daemon.engines.s3_logs import MOST_BYTES, count_nodes, read_s3_log

URI = "s3://bucket/jobs/a/g1/n0/"


class Bucket:
    """A bucket with objects; the listing has them in the order of their names."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self.objects = dict(objects)

    def list_objects_v2(self, **request: Any) -> Mapping[str, Any]:
        """List a prefix, or the folders below it."""
        assert request["Bucket"] == "bucket"
        names = sorted(name for name in self.objects if name.startswith(request["Prefix"]))
        if "Delimiter" in request:
            cut = len(request["Prefix"])
            folders = {name[: name.index("/", cut) + 1] for name in names if "/" in name[cut:]}
            return {"CommonPrefixes": [{"Prefix": each} for each in sorted(folders)]} if folders else {}
        return (
            {"Contents": [{"Key": name, "Size": len(self.objects[name])} for name in names]} if names else {}
        )

    def get_object(self, **request: Any) -> Mapping[str, Any]:
        """Read a range of bytes, both ends included."""
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", request["Range"])
        assert found is not None
        first, last = int(found[1]), int(found[2])
        assert first <= last < len(self.objects[request["Key"]])
        return {"Body": io.BytesIO(self.objects[request["Key"]][first : last + 1])}


def a_bucket(*segments: tuple[int, bytes]) -> Any:
    """Return a bucket with the segments of a log, by the byte at which they begin."""
    return Bucket(
        {f"jobs/a/g1/n0/out-{begin}.log": text for begin, text in segments} | {"jobs/a/g1/n0/x": b"?"}
    )


@pytest.mark.parametrize(
    ("since", "text", "following", "dropped"),
    [
        (0, "cdefghij", 10, 2),
        (2, "cdefghij", 10, 0),
        (4, "efghij", 10, 0),
        (5, "fghij", 10, 0),
        (9, "j", 10, 0),
        (10, "", 10, 0),
        (12, "", 12, 0),
    ],
)
def test_a_log_whose_first_bytes_are_gone_is_read_from_any_byte(
    since: int, text: str, following: int, dropped: int
) -> None:
    """Segments of bytes 2 to 4 and 5 to 9: the two before them are counted as dropped."""
    chunk = read_s3_log(a_bucket((2, b"cde"), (5, b"fghij")), URI, since)
    assert (chunk.text, chunk.next_offset, chunk.dropped_bytes) == (text, following, dropped)


def test_segments_are_read_in_the_order_of_their_bytes() -> None:
    """Not in that of their names: 10 is after 9."""
    chunk = read_s3_log(a_bucket((0, b"a" * 9), (9, b"b"), (10, b"c")), URI, 0)
    assert chunk.text == "a" * 9 + "bc"


def test_a_gap_ends_a_piece() -> None:
    """What comes after a segment that is missing belongs to no text before it."""
    chunk = read_s3_log(a_bucket((0, b"ab"), (5, b"fg")), URI, 0)
    assert (chunk.text, chunk.next_offset) == ("ab", 2)


def test_a_long_log_comes_in_pieces_without_a_byte_lost_or_twice() -> None:
    """Each of a mebibyte at the most, over the edges of segments."""
    whole = bytes(97 + n % 26 for n in range(MOST_BYTES + 1000))
    bucket = a_bucket((0, whole[:700]), (700, whole[700:]))
    first = read_s3_log(bucket, URI, 0)
    assert first.next_offset == MOST_BYTES
    rest = read_s3_log(bucket, URI, first.next_offset)
    assert (first.text + rest.text).encode() == whole


def test_a_log_that_was_never_sent_is_empty() -> None:
    """The next question begins at the same byte."""
    chunk = read_s3_log(Bucket({}), URI, 7)  # type: ignore[arg-type]
    assert (chunk.text, chunk.next_offset, chunk.dropped_bytes) == ("", 7, 0)


@pytest.mark.parametrize(
    ("names", "nodes"),
    [
        ([], 0),
        (["n0/out-0.log"], 1),
        (["n0/out-0.log", "n3/out-0.log", "n10/out-0.log"], 11),
        (["notes/x", "n1/out-0.log"], 2),
    ],
)
def test_the_nodes_of_a_generation_are_counted_by_the_highest_number(names: list[str], nodes: int) -> None:
    """A node that has sent nothing yet counts, if one after it has."""
    bucket = Bucket({f"jobs/a/g1/{name}": b"" for name in names})
    assert count_nodes(bucket, "s3://bucket/jobs/a/g1/") == nodes  # type: ignore[arg-type]
