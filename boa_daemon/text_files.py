"""Text in files as people have them: UTF-8, UTF-16 with its mark, packed by gzip, bzip2, xz, zip, Zstandard.

What a file is, is read from its first bytes, not from its name. Workbooks, web pages and archives of several
files are refused with what to do.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import re
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from boa_daemon.errors import InputError, MissingExtra, near_files
from boa_daemon.extras import install_command

MAX_TEXT_BYTES = 2 * 2**30
"""Most bytes of text that are read from one file: a small archive may unpack to any size."""
MOST_STREAMED_BYTES = 64 * 2**30
"""The same for a file of which no more than a part is in memory."""
_shown_by: ContextVar[Callable[[int, int], None] | None] = ContextVar("shown_by", default=None)
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""That of UTF-32 begins with that of UTF-16."""
_PARQUET = b"PAR1"
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")
"""How packed files begin."""
_SAVE_AS = "Save the sheet as CSV UTF-8, or write it with pandas: frame.to_csv(FILE, index=False)"
_OTHERS: Mapping[bytes, tuple[str, str]] = {
    b"\xd0\xcf\x11\xe0": ("a workbook of an old Excel", _SAVE_AS),
    b"%PDF": ("a PDF", "Save the table as CSV"),
    b"<!do": ("a web page", "It may be the page of a login: fetch the file itself"),
    b"<!DO": ("a web page", "It may be the page of a login: fetch the file itself"),
    b"<htm": ("a web page", "It may be the page of a login: fetch the file itself"),
    b"SQLi": (
        "a database of SQLite",
        'Write the table as CSV: sqlite3 -header -csv FILE "select * from TABLE"',
    ),
    b"ARROW1"[:4]: ("a file of Arrow", "Write it as Parquet or CSV"),
    b"7z\xbc\xaf": ("an archive of 7-Zip", "Unpack it: 7z x FILE"),
    b"Rar!": ("an archive of RAR", "Unpack it: unrar x FILE"),
    b"\x04\x22\x4d\x18": ("packed by LZ4", "Unpack it: lz4 -d FILE"),
}
"""What other files are, by their first bytes, and what to do."""
_TAR_AT, _TAR = 257, b"ustar"
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/{1,2}(?P<rest>[^/].*)", re.IGNORECASE)


@contextmanager
def shown_by(told: Callable[[int, int], None]) -> Iterator[None]:
    """While this lasts, `open_text` calls `told(bytes read, bytes of the file)` about once per MiB."""
    token = _shown_by.set(told)
    try:
        yield
    finally:
        _shown_by.reset(token)


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, by its first bytes; false for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_PARQUET)) == _PARQUET
    except OSError:
        return False


def parquet_columns(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file.

    Raises:
        InputError: when it is damaged.
        MissingExtra: when pyarrow is not installed.
    """
    return list(_parquet(path).schema_arrow.names)


def parquet_cells(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row of a Parquet file, as CSV would hold them; maps and lists are JSON.

    Raises:
        InputError: when it is damaged.
        MissingExtra: when pyarrow is not installed.
    """
    file = _parquet(path)
    try:
        for batch in file.iter_batches(batch_size=10_000):
            columns = [[_cell(value) for value in column.to_pylist()] for column in batch.columns]
            yield from zip(*columns, strict=True)
    except (OSError, ValueError) as error:
        hint = "The file may be cut short: fetch it again"
        raise InputError(f"not Parquet: {str(error).splitlines()[0]}", file=path, hint=hint) from error


def _parquet(path: Path) -> Any:
    """Return an open Parquet file."""
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        raise MissingExtra(
            "reading Parquet needs pyarrow", file=path, hint=install_command("pyarrow")
        ) from None
    try:
        return parquet.ParquetFile(path)
    except (ArrowException, OSError) as error:
        hint = "The file may be cut short: fetch it again"
        raise InputError(f"not Parquet: {str(error).splitlines()[0]}", file=path, hint=hint) from error


def _cell(value: object) -> str:
    if value is None or value != value:  # noqa: PLR0124 - not a number
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, list) and value and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        # A map of Arrow is a list of pairs.
        return json.dumps(dict(value), default=str)
    if isinstance(value, Mapping | list):
        return json.dumps(value, default=str)
    return value.isoformat() if isinstance(value, date) else str(value)


@contextmanager
def regular_file(path: Path) -> Iterator[Path]:
    """Yield a path that can be opened several times: a copy of standard input (``-``) or of a pipe.

    A shell's ``<(zcat a.gz)`` is a pipe. Everything else is its own path.

    Raises:
        InputError: when it cannot be read.
    """
    if str(path) != "-" and not path.is_fifo():
        _check_named(path)
        yield path
        return
    with TemporaryDirectory(prefix="boa-") as folder:
        copy = Path(folder) / ("standard-input" if str(path) == "-" else path.name)
        try:
            opened = nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb")
            with opened as source, copy.open("wb") as file:
                shutil.copyfileobj(source, file)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
        yield copy


def _check_named(path: Path) -> None:
    """Refuse the address of a file elsewhere, and a pattern that no shell has replaced by names."""
    address = _URL.fullmatch(str(path))
    if path.exists() or (address is None and not set("*?[") & set(path.name)):
        return
    if address is None:
        hint = "Without quotes the shell replaces it by the names of the files; give one"
        raise InputError("no file has this name, and it is a pattern", file=path, hint=hint)
    # A path has one slash where the address had two.
    url = f"{address['scheme']}://{address['rest']}"
    command = {"s3": "aws s3 cp", "gs": "gcloud storage cp"}.get(address["scheme"].lower())
    hint = f"Save it first: {command} {url} ." if command else f"Save it first: curl -LO {url}"
    raise InputError("BOA fetches no files", file=url, hint=hint)


@contextmanager
def open_text(
    path: Path, *, newline: str | None = "", what: str = "it", most_bytes: int | None = None
) -> Iterator[IO[str]]:
    """Open a file as text, unpacked if it is compressed; line ends stay as they are.

    `what` says in errors what the file is, such as ``the trace``; `most_bytes` stands for `MAX_TEXT_BYTES`.

    Raises:
        InputError: when it cannot be read, is damaged, unpacks to too much, or is not UTF-8.
        MissingExtra: when it is Zstandard, and pyarrow is not installed.
    """
    try:
        with path.open("rb") as raw:
            start = raw.read(6)
            raw.seek(0)
            unpacked = _unpacked(start, raw, path)
            bounded = io.BufferedReader(_Bounded(unpacked, path, raw, most_bytes or MAX_TEXT_BYTES), 2**20)
            if unpacked is not raw and bounded.peek(4).startswith(tuple(_PACKED)):
                hint = "Unpack it once, such as: gzip -dc FILE > OUT"
                raise InputError("it is packed twice", file=path, hint=hint)
            _refuse_others(bounded.peek(_TAR_AT + len(_TAR)), path)
            mark, encoding = _encoding_of(bounded.peek(4)[:64])
            bounded.read(len(mark))
            with io.TextIOWrapper(bounded, encoding=encoding, newline=newline) as text:
                yield text
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile) as error:
        hint = "The file may be cut short: fetch it again"
        raise InputError(f"cannot be unpacked: {error}", file=path, hint=hint) from error
    except OSError as error:
        if error.errno is None:
            # So pyarrow says that Zstandard is damaged.
            hint = "The file may be cut short: fetch it again"
            raise InputError(f"cannot be unpacked: {error}", file=path, hint=hint) from error
        hint = near_files(path) if isinstance(error, FileNotFoundError) else ""
        hint = "Name a file in it" if isinstance(error, IsADirectoryError) else hint
        raise InputError(f"cannot read {what}: {error.strerror or error}", file=path, hint=hint) from error
    except UnicodeDecodeError as error:
        hint = "Save it as UTF-8" if error.encoding.startswith("utf-8") else ""
        line = _line_of_fault(path, error)
        raise InputError(f"not UTF-8 text: {_bytes_of(error)}", file=path, line=line, hint=hint) from error


def _line_of_fault(path: Path, error: UnicodeDecodeError) -> int | None:
    """Return the first line of a file, perhaps packed, that is not UTF-8; None for other encodings."""
    if not error.encoding.startswith("utf-8"):
        return None
    with suppress(OSError, EOFError, InputError), path.open("rb") as raw:
        start = raw.read(6)
        raw.seek(0)
        for number, line in enumerate(_unpacked(start, raw, path), 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return None


def _encoding_of(start: bytes) -> tuple[bytes, str]:
    """Return the mark with which bytes begin, and their encoding; UTF-16 without a mark is known, too."""
    for mark, name in _MARKS:
        if start.startswith(mark):
            return mark, name
    # Names of columns are of signs of which one byte is zero.
    even, odd = start[0::2], start[1::2]
    if len(odd) >= 2 and not any(odd) and all(even[: len(odd)]):
        return b"", "utf-16-le"
    if len(odd) >= 2 and not any(even) and all(odd):
        return b"", "utf-16-be"
    return b"", "utf-8-sig"


def read_whole_text(path: Path) -> str:
    """Return the text of a file, unpacked if it is compressed.

    Raises:
        InputError: when it cannot be read, is damaged, unpacks to too much, or is not UTF-8.
        MissingExtra: when it is Zstandard, and pyarrow is not installed.
    """
    with open_text(path) as file:
        return file.read()


def is_json(path: Path) -> bool:
    """Return whether a file's text begins like JSON.

    Raises:
        InputError: when it cannot be read.
    """
    with open_text(path) as file:
        return next((line.strip()[:1] for line in file if line.strip()), "") in ("[", "{")


class _Bounded(io.RawIOBase):
    """The bytes of a file, told to `shown_by`; an error once they are more than `most`."""

    def __init__(self, source: IO[bytes], path: Path, raw: IO[bytes], most: int) -> None:
        self._most = most
        self._source, self._path, self._raw, self._bytes = source, path, raw, 0
        self._size = os.fstat(raw.fileno()).st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(len(buffer))
        self._bytes += len(data)
        if self._bytes > self._most:
            problem = f"the file holds more than {self._most // 2**30} GiB of text"
            raise InputError(problem, file=self._path, hint="Cut it into several files")
        buffer[: len(data)] = data
        if (told := _shown_by.get()) is not None:
            told(self._raw.tell(), self._size)
        return len(data)


def _unpacked(start: bytes, raw: IO[bytes], path: Path) -> IO[bytes]:
    """Return the bytes of a file, unpacked by what its first bytes say."""
    formats: dict[bytes, Callable[[], IO[bytes]]] = {
        b"\x1f\x8b": lambda: cast(IO[bytes], gzip.GzipFile(fileobj=raw)),
        b"BZh": lambda: cast(IO[bytes], bz2.BZ2File(raw)),
        b"\xfd7zXZ\x00": lambda: cast(IO[bytes], lzma.LZMAFile(raw)),  # noqa: SIM115 - it is closed with `raw`
        b"\x28\xb5\x2f\xfd": lambda: _zstandard(raw, path),
        b"PK\x03\x04": lambda: _zipped(raw, path),
        b"PK\x05\x06": lambda: _zipped(raw, path),
    }
    for sign, opened in formats.items():
        if start.startswith(sign):
            return opened()
    return raw


def _zipped(raw: IO[bytes], path: Path) -> IO[bytes]:
    """Return the bytes of the only file in a zip archive."""
    archive = zipfile.ZipFile(raw)
    names = archive.namelist()
    if "[Content_Types].xml" in names or "mimetype" in names:
        raise InputError("this is a workbook or a document", file=path, hint=_SAVE_AS)
    # macOS adds a folder of its own.
    files = [
        one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")
    ]
    if len(files) != 1:
        said = ", ".join(one.filename for one in files[:4]) + (", ..." if len(files) > 4 else "")
        hint = f"Unpack it, and name one of {said}" if files else ""
        raise InputError(f"an archive with {len(files)} files", file=path, hint=hint)
    if files[0].flag_bits & 1:
        raise InputError("an archive with a password", file=path, hint="Unpack it: unzip FILE")
    try:
        return archive.open(files[0])
    except NotImplementedError as error:
        raise InputError(f"cannot be unpacked: {error}", file=path, hint="Unpack it: unzip FILE") from None


def _refuse_others(start: bytes, path: Path) -> None:
    """Refuse a file that is known to be no text, with what to do."""
    if start[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        raise InputError(
            "this is an archive of tar", file=path, hint="Unpack it, and name a file of it: tar xf FILE"
        )
    what, hint = _OTHERS.get(start.lstrip()[:4], ("", ""))
    if what:
        raise InputError(f"this is {what}", file=path, hint=hint)


def _zstandard(raw: IO[bytes], path: Path) -> IO[bytes]:
    """Return the bytes of a Zstandard file."""
    try:
        import pyarrow  # noqa: PLC0415 - optional
    except ImportError:
        hint = f"{install_command('pyarrow')}; or unpack the file: zstd -d"
        raise MissingExtra("reading Zstandard needs pyarrow", file=path, hint=hint) from None
    return cast(IO[bytes], pyarrow.CompressedInputStream(raw, "zstd"))


def _bytes_of(error: UnicodeDecodeError) -> str:
    """Return the bytes that are no text, such as ``byte 0xff``."""
    return f"byte 0x{error.object[error.start]:02x} ({error.reason})"
