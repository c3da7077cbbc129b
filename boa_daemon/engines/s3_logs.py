"""Reads logs that were copied to S3, from any byte on; segments have the same names as on the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from boa_daemon.tick.facts.ports import LogChunk

MOST_BYTES = 1 << 20


class S3Client(Protocol):
    """The part of boto3's S3 client that is used."""

    def list_objects_v2(self, **request: Any) -> Mapping[str, Any]:
        """List a prefix."""
        ...

    def get_object(self, **request: Any) -> Mapping[str, Any]:
        """Read an object."""
        ...

    def put_object(self, **request: Any) -> Mapping[str, Any]:
        """Write an object."""
        ...

    def delete_object(self, **request: Any) -> Mapping[str, Any]:
        """Remove an object."""
        ...


def read_s3_log(s3: S3Client, uri: str, since: int) -> LogChunk:
    """Return the log below `uri` (s3://bucket/prefix/) from byte `since` on, at most a mebibyte."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    sizes = {int(row["Key"].rpartition("out-")[2][:-4]): row for row in listed if row["Key"].endswith(".log")}
    if not sizes:
        return LogChunk(text="", next_offset=since)
    at = max(since, min(sizes))
    found = b""
    for begin, row in sorted(sizes.items()):
        skip = at + len(found) - begin
        if 0 <= skip < int(row["Size"]) and len(found) < MOST_BYTES:
            last = min(int(row["Size"]), skip + MOST_BYTES - len(found)) - 1
            answer = s3.get_object(Bucket=bucket, Key=row["Key"], Range=f"bytes={skip}-{last}")
            found += answer["Body"].read()
    return LogChunk(
        text=found.decode(errors="replace"),
        next_offset=at + len(found),
        dropped_bytes=max(0, min(sizes) - since),
    )


def count_nodes(s3: S3Client, uri: str) -> int:
    """Return how many nodes of a generation have sent their logs below `uri`."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}n", Delimiter="/").get("CommonPrefixes", [])
    numbers = [str(row["Prefix"]).rstrip("/").rpartition("/n")[2] for row in listed]
    return max((int(number) + 1 for number in numbers if number.isdigit()), default=0)
