"""`node/lease.sh`: the script that nodes run, against a fake metadata server."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from boa_daemon.backends.aws.instances.user_data import lease_script, user_data
from boa_daemon.engines.generation_units import Layout, unit_name


class Metadata(ThreadingHTTPServer):
    """A fake IMDSv2: a session token is required, then tags and spot notices are served."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, str] = {}
        self.without_token = 0
        self.answered = 0


class _Handler(BaseHTTPRequestHandler):
    """Serves the pages, and refuses requests without a token."""

    server: Metadata

    def do_PUT(self) -> None:
        self._say(200, "token")

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != "token":
            self.server.without_token += 1
            self._say(401, "")
            return
        self.server.answered += 1
        page = self.server.pages.get(self.path.removeprefix("/latest/meta-data/"))
        self._say(404 if page is None else 200, page or "")

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class NodeClock:
    """The clock of a node, by a program `date` that comes first on its path."""

    def __init__(self, folder: Path, now: int) -> None:
        self.programs, self._file = folder / "programs", folder / "now"
        self.programs.mkdir()
        self.set(now)
        date = self.programs / "date"
        date.write_text(f"#!/bin/sh\nexec cat {self._file}\n")
        date.chmod(0o755)

    def set(self, now: int) -> None:
        """Set it to a time in seconds since the Unix epoch."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{now}\n")
        new.replace(self._file)


@contextmanager
def a_node(
    folder: Path, lease: float, pages: dict[str, str], clock: NodeClock | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], Metadata]]:
    """Run the script as a node would, with a power-off command that creates the file `off`."""
    metadata = Metadata()
    metadata.pages.update(pages)
    threading.Thread(target=metadata.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    script = folder / "lease.sh"
    script.write_text(lease_script(lease))
    environment = {
        "PATH": os.environ["PATH"] if clock is None else f"{clock.programs}:{os.environ['PATH']}",
        "BOA_IMDS": f"http://127.0.0.1:{metadata.server_port}",
        "BOA_RUN": str(folder / "run"),
        "BOA_POLL_SECONDS": "0.05",
        "BOA_POWEROFF": f"touch {folder}/off",
        "BOA_ON_WARNING": str(folder / "on-warning"),
    }
    node = subprocess.Popen(["bash", str(script)], env=environment, stderr=subprocess.DEVNULL)
    try:
        yield node, metadata
    finally:
        node.kill()
        node.wait()
        metadata.shutdown()
        metadata.server_close()


def wait_for(path: Path, seconds: float = 120.0) -> None:
    """Wait until a file exists."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.02)


def looks(metadata: Metadata) -> None:
    """Wait until the node has looked at its metadata twice more, which it asks for two things each time."""
    enough, deadline = metadata.answered + 6, time.monotonic() + 120.0
    while metadata.answered < enough:
        assert time.monotonic() < deadline, "the node looks no more"
        time.sleep(0.02)


def test_a_node_powers_off_when_its_lease_is_over(tmp_path: Path) -> None:
    """Unreadable metadata does not prolong the lease."""
    with a_node(tmp_path, time.time() - 1.0, {}) as (node, _):
        wait_for(tmp_path / "off")
        assert node.wait(timeout=120) == 0


def test_a_renewed_lease_keeps_the_node_running(tmp_path: Path) -> None:
    """The tag takes precedence over the first lease; if the tag disappears the last known lease applies."""
    begun, first, renewed = 1_800_000_000, 1_800_000_010, 1_800_003_600
    clock = NodeClock(tmp_path, begun)
    with a_node(tmp_path, first, {"tags/instance/boa:lease": str(renewed)}, clock) as (node, metadata):
        wait_for(tmp_path / "run" / "lease")
        clock.set(first + 1)
        looks(metadata)
        assert (tmp_path / "run" / "lease").read_text() == f"{renewed}\n"
        metadata.pages.clear()
        looks(metadata)
        assert node.poll() is None
        assert (tmp_path / "run" / "lease").read_text() == f"{renewed}\n"
        clock.set(renewed)
        wait_for(tmp_path / "off")
        assert metadata.without_token == 0


def test_a_spot_notice_is_written_to_a_file_and_passed_to_the_hook_once(tmp_path: Path) -> None:
    """The lease is still valid then."""
    hook = tmp_path / "on-warning"
    hook.write_text(f'#!/bin/bash\ncat "$1" >> {tmp_path}/told\n')
    hook.chmod(0o755)
    notice = {"action": "terminate", "time": "2026-11-21T12:00:00Z"}
    pages = {"spot/instance-action": json.dumps(notice)}
    with a_node(tmp_path, time.time() + 3600.0, pages):
        wait_for(tmp_path / "told")
        time.sleep(0.5)
        assert json.loads((tmp_path / "told").read_text()) == notice
        assert json.loads((tmp_path / "run" / "interruption.json").read_text()) == notice


def test_the_user_data_installs_the_lease_script_as_a_service(tmp_path: Path) -> None:
    """The service restarts always, and bash can parse both scripts."""
    text = user_data(1234.0)

    assert lease_script(1234.0) in text
    assert "Restart=always" in text
    for number, script in enumerate((text, lease_script(1234.0))):
        path = tmp_path / f"{number}.sh"
        path.write_text(script)
        assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


@pytest.mark.parametrize("lease", [0.0, 1.9])
def test_leases_are_whole_seconds(lease: float) -> None:
    """The shell compares integers, so a fraction is dropped."""
    assert f'"${{BOA_LEASE:-{int(lease)}}}"' in lease_script(lease)


def test_the_warning_hook_stops_the_units_of_jobs_and_not_the_lease(tmp_path: Path) -> None:
    """The hook does not wait for systemd."""
    hook = (
        user_data(1234.0).partition("<<'BOA_ON_WARNING_SCRIPT'\n")[2].partition("BOA_ON_WARNING_SCRIPT\n")[0]
    )
    (tmp_path / "systemctl").write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > {tmp_path}/asked\n')
    (tmp_path / "systemctl").chmod(0o755)
    subprocess.run(["bash", "-c", hook], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True)
    verb, flag, pattern = (tmp_path / "asked").read_text().split()
    unit = unit_name(Layout(root=Path("/var/lib/boa/jobs")), "a job-1", 3, 2)

    assert (verb, flag) == ("stop", "--no-block")
    assert fnmatch(f"{unit}.service", pattern)
    assert not fnmatch("boa-lease.service", pattern)
