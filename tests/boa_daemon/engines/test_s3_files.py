"""`engines/s3_files.py`: files below a prefix, page by page, and which of them are removed."""

from __future__ import annotations

from io import BytesIO
from typing import Any, cast

import pytest
from ec2_rows import instant

from boa_daemon.engines.s3_files import (
    BLOCK_BYTES,
    bucket_and_key,
    drop_files,
    list_files,
    list_folders,
    read_file,
)
from boa_daemon.engines.s3_logs import S3Client

FILES = {"a/x": (3, 10.0), "a/deep/y": (5, 20.0), "a/z": (7, 30.0), "ab/other": (9, 10.0)}


class OneByOne:
    """A bucket whose listings have one entry on each page."""

    def __init__(self, **objects: bytes) -> None:
        self.files, self.objects, self.gone = dict(FILES), objects, list[str]()

    def list_objects_v2(self, *, Bucket: str, Prefix: str, **more: str) -> dict[str, Any]:  # noqa: N803
        """Return the entry that the token stands for."""
        assert Bucket == "b"
        mine = {key: row for key, row in self.files.items() if key.startswith(Prefix)}
        rows: list[tuple[str, dict[str, Any]]] = [
            ("Contents", {"Key": key, "Size": size, "LastModified": instant(at)})
            for key, (size, at) in mine.items()
        ]
        if more.get("Delimiter"):
            tops = {key.removeprefix(Prefix).partition("/")[0] for key in mine}
            rows = [("CommonPrefixes", {"Prefix": f"{Prefix}{top}/"}) for top in sorted(tops)]
        number = int(more.get("ContinuationToken", "0"))
        page: dict[str, Any] = {} if not rows else {rows[number][0]: [rows[number][1]]}
        is_last = number + 1 >= len(rows)
        return page | ({} if is_last else {"IsTruncated": True, "NextContinuationToken": str(number + 1)})

    def delete_object(self, *, Bucket: str, Key: str) -> None:  # noqa: N803
        """Note what is removed."""
        self.gone.append(f"{Bucket}/{Key}")

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        """Return an object."""
        assert Bucket == "b"
        return {"Body": BytesIO(self.objects[Key])}


def bucket(**objects: bytes) -> Any:
    """Return the bucket as a client."""
    return cast(S3Client, OneByOne(**objects))


@pytest.mark.parametrize(
    ("uri", "parts"),
    [("s3://b/a/x", ("b", "a/x")), ("s3://b", ("b", "")), ("s3://b/", ("b", "")), ("b/a/", ("b", "a/"))],
)
def test_an_address_is_a_bucket_and_a_key(uri: str, parts: tuple[str, str]) -> None:
    """The key may have slashes, or be empty."""
    assert bucket_and_key(uri) == parts


def test_every_page_is_read() -> None:
    """Names are those below the prefix, files with their sizes, folders without their slash."""
    assert list_files(bucket(), "s3://b/a/") == {"x": 3, "deep/y": 5, "z": 7}
    assert list_folders(bucket(), "s3://b/") == ["a", "ab"]
    assert (list_files(bucket(), "s3://b/none/"), list_folders(bucket(), "s3://b/none/")) == ({}, [])


def test_only_files_from_before_that_nobody_keeps_are_removed() -> None:
    """A file of the very instant stays."""
    client = bucket()
    assert drop_files(client, "s3://b/a/", 30.0, keep={"x"}) == ["deep/y"]
    assert client.gone == ["b/a/deep/y"]


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 1])
def test_a_file_is_read_to_its_end_in_blocks(size: int) -> None:
    """No block is larger than one that fits in memory."""
    blocks = [*read_file(bucket(key=b"x" * size), "s3://b/key")]
    assert [len(block) for block in blocks] == [BLOCK_BYTES] * (size // BLOCK_BYTES) + [1] * (
        size % BLOCK_BYTES
    )
