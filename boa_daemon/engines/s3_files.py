"""Files below an S3 prefix: artifacts and code of jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from boa_daemon.engines.s3_logs import S3Client

BLOCK_BYTES = 1 << 20


def bucket_and_key(uri: str) -> tuple[str, str]:
    """Return the bucket and the key of an s3:// address."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def _pages(s3: S3Client, uri: str, **more: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (key of the prefix, page) for each page of the listing below a prefix that ends in a slash."""
    bucket, prefix = bucket_and_key(uri)
    token: dict[str, str] = {}
    while True:
        listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix, **more, **token)
        yield prefix, listed
        if not listed.get("IsTruncated"):
            return
        token = {"ContinuationToken": listed["NextContinuationToken"]}


def list_files(s3: S3Client, uri: str) -> dict[str, int]:
    """Return the names of the objects below a prefix that ends in a slash, with their sizes in bytes."""
    return {
        row["Key"].removeprefix(prefix): int(row["Size"])
        for prefix, listed in _pages(s3, uri)
        for row in listed.get("Contents", ())
    }


def list_folders(s3: S3Client, uri: str) -> list[str]:
    """Return the names of the folders directly below a prefix that ends in a slash."""
    return [
        str(row["Prefix"]).removeprefix(prefix).rstrip("/")
        for prefix, listed in _pages(s3, uri, Delimiter="/")
        for row in listed.get("CommonPrefixes", ())
    ]


def drop_files(s3: S3Client, uri: str, before: float, *, keep: Collection[str]) -> list[str]:
    """Remove objects below a prefix from before `before`, except those in `keep`; return the names."""
    bucket, _ = bucket_and_key(uri)
    gone: list[str] = []
    for prefix, listed in _pages(s3, uri):
        for row in listed.get("Contents", ()):
            name = str(row["Key"]).removeprefix(prefix)
            if name not in keep and row["LastModified"].timestamp() < before:
                s3.delete_object(Bucket=bucket, Key=row["Key"])
                gone.append(name)
    return gone


def read_file(s3: S3Client, uri: str) -> Iterator[bytes]:
    """Yield an object's content in blocks."""
    bucket, key = bucket_and_key(uri)
    body = s3.get_object(Bucket=bucket, Key=key)["Body"]
    while block := body.read(BLOCK_BYTES):
        yield block
