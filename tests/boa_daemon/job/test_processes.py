"""Information about processes from the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.job import processes
from boa_daemon.job.processes import memory_kills


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/a/b.scope", "a/b.scope/memory.events"),
        ("4:memory:/a/b\n0::/", "memory/a/b/memory.oom_control"),
        ("9:name=systemd:/x\n4:memory:/a\n0::/", "memory/a/memory.oom_control"),
    ],
)
def test_memory_kills_are_read_from_the_processs_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, file: str
) -> None:
    """Both versions of control groups work; without a counter the number is 0."""
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert memory_kills(tmp_path) == 0
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"{line}\n")
    assert memory_kills(tmp_path) == 0
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("oom 5\noom_kill 3\n")
    assert memory_kills(tmp_path) == 3
    (tmp_path / file).write_text("max 1\n")
    assert memory_kills(tmp_path) == 0
