"""A job's code on its node: unpacked once, completely or not at all, and only inside its folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from boa_daemon.inputs.code_archive import CodeArchive, pack
from boa_daemon.job import code
from boa_daemon.job.code import CodeFailed, bring, digest_of_archive


@pytest.fixture
def packed(tmp_path: Path) -> CodeArchive:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text("one")
    (folder / "link").symlink_to("a.py")
    return pack(folder)


def archive_of(*members: tuple[tarfile.TarInfo, bytes]) -> tuple[bytes, str]:
    """Return an archive that `pack` would not make, and its digest."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue()), hashlib.sha256(buffer.getvalue()).hexdigest()


def test_each_job_has_its_own_lasting_copy_of_the_code(tmp_path: Path, packed: CodeArchive) -> None:
    """A job's changes are not seen by other jobs and are there at its next start."""
    file = tmp_path / "a.tar.gz"
    file.write_bytes(packed.archive)
    for job in ("one", "two"):
        bring(str(file), packed.digest, tmp_path / "cache", tmp_path / job / "work")
    (tmp_path / "one" / "work" / "a.py").write_text("mine")
    (tmp_path / "one" / "work" / "new").write_text("mine")
    file.unlink()
    bring(str(file), packed.digest, tmp_path / "cache", tmp_path / "one" / "work")

    assert (tmp_path / "one" / "work" / "a.py").read_text() == "mine"
    assert (tmp_path / "one" / "work" / "new").exists()
    assert (tmp_path / "two" / "work" / "a.py").read_text() == "one"
    assert (tmp_path / "two" / "work" / "link").readlink() == Path("a.py")


def test_simultaneous_starts_unpack_the_code_once(
    tmp_path: Path, packed: CodeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight starts of four jobs on one node."""
    file = tmp_path / "a.tar.gz"
    file.write_bytes(packed.archive)
    times: list[str] = []
    inner = code._unpack
    monkeypatch.setattr(code, "_unpack", lambda *words: (times.append("x"), inner(*words)))
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda job: bring(
                    str(file), packed.digest, tmp_path / "cache", tmp_path / f"j{job}" / "work"
                ),
                [0, 1, 2, 3, 0, 1, 2, 3],
            )
        )
    assert times == ["x"]
    assert all((tmp_path / f"j{job}" / "work" / "a.py").exists() for job in range(4))


def test_members_outside_the_folder_are_not_unpacked(tmp_path: Path) -> None:
    """A parent path, a link to another folder or a device makes the whole archive fail."""
    outside = tarfile.TarInfo("../outside")
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    device = tarfile.TarInfo("device")
    device.type = tarfile.CHRTYPE
    for number, member in enumerate((outside, link, device)):
        archive, digest = archive_of((member, b""))
        (tmp_path / "a.tar.gz").write_bytes(archive)
        with pytest.raises(CodeFailed, match="cannot be unpacked"):
            bring(str(tmp_path / "a.tar.gz"), digest, tmp_path / "cache", tmp_path / f"j{number}" / "work")
        assert not (tmp_path / "cache" / digest).exists()
        assert not (tmp_path / f"j{number}" / "work").exists()
    assert not (tmp_path / "outside").exists()


def test_an_invalid_or_too_large_archive_is_refused() -> None:
    """`digest_of_archive` raises `CodeFailed` with the reason."""
    with pytest.raises(CodeFailed, match="cannot be read"):
        digest_of_archive(io.BytesIO(b"no archive"))
    with pytest.raises(CodeFailed, match="cannot be read"):
        digest_of_archive(io.BytesIO(gzip.compress(b"x" * 1000)[:-10]))
    damaged = gzip.compress(b"x" * 1000)
    with pytest.raises(CodeFailed, match="cannot be read"):
        digest_of_archive(io.BytesIO(damaged[:10] + b"\xff" * 20 + damaged[-8:]))
    with pytest.raises(CodeFailed, match="larger than 1000 bytes"):
        digest_of_archive(io.BytesIO(gzip.compress(b"\0" * 10**6)), most=1000)


def test_the_command_fails_with_one_line_that_gives_the_reason(tmp_path: Path) -> None:
    """The exit code is 1, so the job is not started."""
    words = [str(tmp_path / "none"), "0" * 64, str(tmp_path / "cache"), str(tmp_path / "work")]
    done = subprocess.run(
        [sys.executable, code.__file__, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("boa: the archive of the code cannot be read: ")
    assert len(done.stderr.splitlines()) == 1
