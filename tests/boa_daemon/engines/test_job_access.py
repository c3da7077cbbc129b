"""What the daemon looks up and opens for a caller: with the caller's rights, and nothing but a terminal."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from boa_daemon.daemon.settings.config import EngineSettings
from boa_daemon.daemon.settings.data_sources import check_data
from boa_daemon.engines.job_access import LocalJobAccess
from boa_daemon.engines.local import LocalEngine
from boa_daemon.errors import InputError
from boa_daemon.tick.facts.ports import JobSpec, Refused


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can pass, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="boa-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize(
    "what", ["pipe", "file", "link", "folder", "none", "device", "null\0", "a terminal of others"]
)
def test_the_daemon_opens_only_a_terminal_of_the_caller(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands at the path: one sentence, and it was not opened for reading or writing."""
    path = tmp_path / what.replace("\0", "")
    ours, theirs = os.openpty()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "file":
        path.write_text("x")
    elif what == "link":
        path.symlink_to(os.ttyname(theirs))
    elif what == "folder":
        path.mkdir()
    given = {"device": "/dev/zero", "a terminal of others": os.ttyname(theirs), "null\0": f"{path}\0"}
    opened: list[int] = []
    open_file = os.open
    monkeypatch.setattr(
        os, "open", lambda *words, **more: opened.append(words[1]) or open_file(*words, **more)
    )
    access = LocalJobAccess(lambda _job, _node: tmp_path, dict)
    answer = access.open("a", 0, given.get(what, str(path)), term="xterm", may_use=lambda uid: uid == 12_345)

    assert isinstance(answer, Refused)
    assert answer.reason.endswith("is not a terminal of yours")
    assert all(flags & os.O_PATH for flags in opened)
    os.close(ours)
    os.close(theirs)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemon sees more than its callers")
def test_a_refusal_does_not_tell_what_a_closed_folder_holds(place: Path) -> None:
    """A folder behind a closed one, and a missing one, are refused with the same words."""
    (place / "closed" / "there").mkdir(parents=True)
    (place / "closed").chmod(0o700)
    (place / "open").mkdir()
    engine = LocalEngine(place / "root", own_user=True)

    def said(name: str) -> str:
        spec = JobSpec(
            job="a-1", name="a", class_name="c", run="true", user="mallory", workdir=str(place / name)
        )
        answer = engine.admit(spec)
        return answer.reason.replace(name, "X") if isinstance(answer, Refused) else ""

    def data_said(name: str) -> str:
        try:
            check_data({"data": {"": str(place / name)}}, EngineSettings(), engine, "mallory")
        except InputError as error:
            return str(error).replace(name, "X")
        return ""

    for words in (said, data_said):
        assert words("open") == ""
        assert words("closed/there") == words("closed/none") != ""
