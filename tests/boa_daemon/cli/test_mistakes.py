"""Each mistake in `docs/reference/mistakes.md` gives its exit code and message."""

from __future__ import annotations

import json
import os
import re
import socket as sockets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mistakes import FILES, ROOT, Mistake, mistakes
from verbs import exit_code

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.server import ApiServer, unix_socket
from boa_daemon.cli.common.output import was_printed
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder

MISTAKES = mistakes()
TWO = ROOT / "examples/two-gpu-types.yaml"
NO_JSON = ("daemon", "open", "grafana", "init")
"""Verbs that have no --json, or run on when asked for it."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A daemon's socket, and a port that another program uses."""
    folder = tmp_path_factory.mktemp("site")
    play = DaemonInAFolder(folder, ManualClock(1_800_000_000.0))
    play.daemon.tick()
    server = ApiServer(
        create_app(play.service, Authenticator(ApiSettings())), [unix_socket(folder / "boa.sock")]
    )
    server.start()
    with sockets.create_server(("127.0.0.1", 0)) as taken:
        yield {"socket": str(folder / "boa.sock"), "taken": str(taken.getsockname()[1])}
    server.stop()
    play.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: dict[str, str]) -> Path:
    """Change to a folder with the files of the table; matplotlib is missing."""
    monkeypatch.chdir(tmp_path)
    for variable in ("AWS_ENDPOINT_URL", "STATE_DIRECTORY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.replace("{taken}", places["taken"]))
    (tmp_path / "tokens").chmod(0o600)
    return tmp_path


def _closed(opened: Any) -> Any:
    """Return a function like `os.open` that refuses locked.yaml, since root may read every file."""

    def opens(path: Any, *how: Any, **more: Any) -> Any:
        if Path(path).name == "locked.yaml":
            raise PermissionError(13, "Permission denied")
        return opened(path, *how, **more)

    return opens


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_each_mistake_gives_its_exit_code_and_message(
    mistake: Mistake,
    folder: Path,
    places: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """There is no traceback; with --json the message is in the one document."""
    monkeypatch.setattr(os, "open", _closed(os.open))
    # The daemon changes its process before it reads the settings of the cloud.
    monkeypatch.setattr("boa_daemon.serve.keep_answering", lambda: None)
    words = mistake.typed.format(**places).split()
    asks_json = words[0] not in NO_JSON
    assert exit_code(monkeypatch, *words, *(["--json"] if asks_json else [])) == mistake.code
    printed = capsys.readouterr()
    said = " ".join(printed.err.replace("│", " ").split())
    assert "Traceback" not in said
    says = mistake.says.format(**places) if "{taken}" in mistake.says else mistake.says
    if not asks_json:
        assert says in said
        return
    document = json.loads(printed.out)
    if "exit_code" in document:
        assert document["exit_code"] == mistake.code
        assert says in " ".join(document["message"].split())
    else:
        # An infeasible question has a document of its own, which names a feasible budget.
        assert mistake.code == 3


def test_every_row_of_the_mistakes_page_is_tested() -> None:
    """No two rows type the same command, every file is used, and there are at least 35 rows."""
    page = (ROOT / "docs/reference/mistakes.md").read_text()
    assert len(MISTAKES) == sum(line.endswith((" 2 |", " 3 |", " 5 |")) for line in page.splitlines())
    assert len({mistake.typed for mistake in MISTAKES}) == len(MISTAKES) >= 35
    typed = " ".join(mistake.typed for mistake in MISTAKES)
    assert [name for name in FILES if name.partition("/")[0] not in typed and name != "tokens"] == []


def test_the_fake_cloud_without_moto_names_the_missing_extra(tmp_path: Path) -> None:
    """The last line of the error is the install command."""
    (tmp_path / "moto").mkdir()
    (tmp_path / "moto" / "__init__.py").write_text("raise ImportError('No module named moto')\n")
    path = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r})"
    said = f"{path}; runpy.run_module('boa_daemon.testing.fronts', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(r"pip install .*'moto\[", done.stderr.strip().splitlines()[-1])
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "name", "code"),
    [
        (("solve", "none.yaml"), "InputError", 2),
        (("solve",), "UsageError", 2),
        (("solve", str(TWO), "--bogus"), "UsageError", 2),
        (("slove", str(TWO)), "UsageError", 2),
        (("status", "--socket", "none.sock"), "DaemonUnreachable", 5),
    ],
)
def test_an_error_under_json_is_a_json_document(
    words: tuple[str, ...],
    name: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It has the kind of error, the message and the exit code."""
    for flag in (("--json",), ("-o", "json")):
        assert exit_code(monkeypatch, *words, *flag) == code
        document = json.loads(capsys.readouterr().out)
        assert (document["error"], document["exit_code"]) == (name, code)
        assert document["message"]


def test_an_infeasible_plan_prints_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer itself has the status, so no error document follows."""
    assert exit_code(monkeypatch, "plan", "--classes", str(TWO), "--budget", "1/h", "--json") == 3
    assert json.loads(capsys.readouterr().out)["status"] == "infeasible"
    assert was_printed()
