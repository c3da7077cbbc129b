"""The right file of a source is found: packed files are read, others are refused with what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.traces.workload import Options

Write = Callable[[str, str], Path]
TEXT = b"JobID|Submit|Elapsed|State|AllocTRES\n1|2026-03-01T00:00:00|01:00:00|COMPLETED|gres/gpu=2\n"


def zipped(**files: bytes) -> bytes:
    """Return a zip archive of files."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return raw.getvalue()


def tarred(content: bytes) -> bytes:
    """Return a tar archive with one file."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        member = tarfile.TarInfo("sacct.txt")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return raw.getvalue()


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("sacct.txt.gz", gzip.compress),
        ("sacct.csv.bz2", bz2.compress),
        ("sacct.psv.xz", lzma.compress),
        ("sacct.zip", lambda raw: zipped(**{"sacct.txt": raw, "__MACOSX/._sacct.txt": b"x"})),
        ("sacct-utf16.txt", lambda raw: raw.decode().encode("utf-16")),
        ("sacct-bom.txt", lambda raw: b"\xef\xbb\xbf" + raw),
    ],
)
@pytest.mark.parametrize("is_folder", [False, True])
def test_packed_files_are_read(
    name: str, packed: Callable[[bytes], bytes], is_folder: bool, tmp_path: Path
) -> None:
    """By their name, and as the only file of a folder."""
    (tmp_path / name).write_bytes(packed(TEXT))
    found = import_source("sacct", tmp_path if is_folder else tmp_path / name, Options())
    assert [job.id for job in found.trace.jobs] == ["1"]


def test_a_packed_history_of_another_kind_is_found_in_its_folder(tmp_path: Path) -> None:
    """Whatever its pattern is."""
    text = "job_id,gpu_num,submit_time,duration\n1,2,2020-04-01 00:00:00,3600\n"
    (tmp_path / "cluster_log.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert len(import_source("helios", tmp_path, Options()).trace.jobs) == 1


REFUSED = {
    "workbook.xlsx": (
        zipped(**{"[Content_Types].xml": b"", "xl/workbook.xml": b""}),
        "Save the sheet as CSV",
    ),
    "workbook.ods": (
        zipped(mimetype=b"application/vnd.oasis.opendocument.spreadsheet"),
        "Save the sheet as CSV",
    ),
    "workbook.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "Save the sheet as CSV"),
    "several.zip": (zipped(a=TEXT, b=TEXT), "an archive with 2 files. Unpack it, and name one of a, b"),
    "none.zip": (zipped(), "archive with 0 files"),
    "cut.zip": (zipped(a=TEXT)[:40], "cannot be unpacked"),
    "sacct.tar": (tarred(TEXT), "tar xf"),
    "sacct.tar.gz": (gzip.compress(tarred(TEXT)), "tar xf"),
    "page.csv": (b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "page of a login"),
    "jobs.pdf": (b"%PDF-1.7\n", "Save the table as CSV"),
    "jobs.db": (b"SQLite format 3\0", "sqlite3 -header"),
    "jobs.7z": (b"7z\xbc\xaf\x27\x1c", "7z x"),
    "jobs.feather": (b"ARROW1\0\0", "Parquet or CSV"),
    "latin-1.csv": (TEXT + "2|\u00e9\n".encode("latin-1"), "Save it as UTF-8"),
}


@pytest.mark.parametrize(
    ("name", "raw", "said"), [(name, *found) for name, found in REFUSED.items()], ids=REFUSED
)
def test_other_files_are_refused_with_what_to_do(name: str, raw: bytes, said: str, tmp_path: Path) -> None:
    """Not as damaged text."""
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(InputError) as refused:
        import_source("sacct", tmp_path / name, Options())
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("https://example.com/sacct.txt", "curl -LO https://example.com/sacct.txt"),
        ("s3://bucket/sacct.csv", "aws s3 cp s3://bucket/sacct.csv ."),
        ("gs://bucket/sacct.csv", "gcloud storage cp"),
        ("parts/*.csv", "the shell replaces it"),
        ("none.csv", "no such file or directory"),
    ],
)
def test_addresses_and_patterns_are_refused_with_what_to_do(name: str, said: str) -> None:
    """Nothing is fetched."""
    with pytest.raises(InputError) as refused:
        import_source("sacct", Path(name), Options())
    assert said in str(refused.value)


def test_parts_of_a_table_are_refused_with_how_to_join_them(tmp_path: Path) -> None:
    """The command of the hint makes one table of them."""
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(TEXT)
    with pytest.raises(InputError, match=r"\(cat a.csv; tail -qn \+2 b.csv ...\) > all.csv"):
        import_source("acme", tmp_path, Options())


def test_the_only_workload_is_taken_and_several_are_listed(written: Write, tmp_path: Path) -> None:
    """Of several, one is picked by its path from the source or from the working directory."""
    one = written("workloads/workload-1.csv", "a\n1\n")
    patterns = ("workloads*/workload-*.csv",)

    assert pick_file(tmp_path, patterns, None) == one
    assert pick_file(one, patterns, None) == one
    two = written("workloads/workload-2.csv", "a\n1\n")
    with pytest.raises(
        InputError, match=r"2 workloads, and none picked.*workload-1\.csv, workloads.workload-2"
    ):
        pick_file(tmp_path, patterns, None)
    assert pick_file(tmp_path, patterns, "workloads/workload-2.csv") == two
    assert pick_file(tmp_path, patterns, str(two)) == two
    with pytest.raises(InputError, match=r"--workload 'workload-9.csv' is no file.*Pick one"):
        pick_file(tmp_path, patterns, "workload-9.csv")


def test_an_empty_or_missing_directory_is_refused(tmp_path: Path) -> None:
    """The error says what was looked for."""
    with pytest.raises(InputError, match=r"no \*\.csv in this directory"):
        pick_file(tmp_path, ("*.csv",), None)
    with pytest.raises(InputError, match="no such file or directory"):
        pick_file(tmp_path / "none", ("*.csv",), None)
