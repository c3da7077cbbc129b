"""Users of the machine are told apart at the socket, or are not let in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from boa_daemon.api.authentication import unmapped_uid

ANN, BEN = 41_001, 41_002
SERVE = """
import sys, time
from pathlib import Path
from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.server import ApiServer, unix_socket
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder
folder = Path(sys.argv[1])
play = DaemonInAFolder(folder / "data", ManualClock(1.8e9))
channel = unix_socket(folder / "boa.sock")
(folder / "boa.sock").chmod(0o666)
ApiServer(create_app(play.service, Authenticator(ApiSettings())), [channel]).start()
(folder / "ready").touch()
time.sleep(600)
"""
ASK = """
import http.client, json, os, socket, sys
uid, path, verb, route, body = sys.argv[1:]
web = http.client.HTTPConnection("boa")
web.sock = socket.socket(socket.AF_UNIX)
# All is imported: this user may not read the interpreter's files.
os.setgroups([]); os.setgid(int(uid)); os.setuid(int(uid))
web.sock.connect(path)
headers = {"Content-Type": "application/json"} if body else {}
web.request(verb, "/v1" + route, body or None, headers)
answer = web.getresponse()
print(json.dumps([answer.status, json.loads(answer.read())]))
"""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root calls as several users")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory(prefix="boa", dir="/tmp") as name:
        Path(name).chmod(0o755)
        (Path(name) / "data").mkdir(mode=0o700)
        yield Path(name)


def serve(folder: Path, *within: str) -> subprocess.Popen[bytes]:
    daemon = subprocess.Popen([*within, sys.executable, "-c", SERVE, str(folder)])
    until = time.monotonic() + 120.0
    while not (folder / "ready").exists():
        assert daemon.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    return daemon


def ask(folder: Path, uid: int, verb: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    words = [str(uid), str(folder / "boa.sock"), verb, path, "" if body is None else json.dumps(body)]
    done = subprocess.run([sys.executable, "-c", ASK, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code, answer = json.loads(done.stdout)
    return code, answer


JOB = {"name": "mine", "class": "default", "run": "true", "environment": {"A": "of ann"}}


def test_two_users_of_the_socket_own_their_jobs_and_not_each_others(folder: Path) -> None:
    """The second user may neither read nor cancel the job of the first."""
    daemon = serve(folder)
    try:
        code, answer = ask(folder, ANN, "POST", "/jobs", {"jobs": [JOB]})
        assert code == 201, answer
        path = f"/jobs/{answer['jobs'][0]}"  # type: ignore[index]
        own, other = ask(folder, ANN, "GET", path)[1], ask(folder, BEN, "GET", path)[1]
        assert (own["user"], other["user"]) == (str(ANN), str(ANN))
        assert own["file"]["environment"] == {"A": "of ann"}  # type: ignore[index]
        assert other["file"]["environment"] == {}  # type: ignore[index]
        assert ask(folder, BEN, "POST", f"{path}/cancel")[0] == 403
        assert ask(folder, ANN, "POST", f"{path}/cancel")[0] == 200
    finally:
        daemon.kill()
        daemon.wait()


def test_a_daemon_in_a_user_namespace_refuses_whom_it_cannot_tell_apart(folder: Path) -> None:
    """This is what `PrivateUsers=yes` did: every user was `nobody`, and owned the jobs of all."""
    tool = shutil.which("unshare")
    done = subprocess.run([tool or "false", "--user", "--map-root-user", "true"], check=False)
    if done.returncode:
        pytest.skip("this machine allows no user namespaces")
    daemon = serve(folder, str(tool), "--user", "--map-root-user")
    try:
        for uid in (ANN, BEN):
            code, answer = ask(folder, uid, "GET", "/jobs")
            assert code == 403
            assert "PrivateUsers" in str(answer["message"])
        assert ask(folder, 0, "GET", "/jobs")[0] == 200
    finally:
        daemon.kill()
        daemon.wait()


def test_outside_of_a_namespace_no_user_is_refused() -> None:
    """The map of this process holds all users, so `nobody` is a user like others."""
    assert unmapped_uid() is None
