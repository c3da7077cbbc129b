"""A folder with settings and a daemon's process, for tests of the daemon as a program."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from boa_daemon.api.client import Client

SETTINGS = """
[budget]
usd_per_hour = {usd}
max_instances = 4
[cloud]
boot_seconds = 0.5
[daemon]
state_dir = "state"
tick_seconds = 1
idle_hold_seconds = 1
"""
PATIENCE_SECONDS = 180.0


class Site:
    """A folder with settings, and the process of a daemon in it."""

    def __init__(self, folder: Path, settings: str = SETTINGS.format(usd=10.0)) -> None:
        self.folder, self.socket = folder, folder / "state" / "boa.sock"
        (folder / "boa.toml").write_text(settings)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, log_file: str = "log") -> subprocess.Popen[bytes]:
        with (self.folder / log_file).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "boa_daemon", "daemon", *options],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                stdout=log,
                stderr=log,
            )

    def up(self) -> None:
        self.process = self.start()
        wait_for(lambda: self.get("/status").get("tick", 0) > 0, self)

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def get(self, path: str) -> dict[str, Any]:
        try:
            with Client(self.socket) as client:
                return client.get(path)
        except Exception:  # The daemon is starting or stopping.
            return {}

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@contextlib.contextmanager
def a_site(settings: str = SETTINGS.format(usd=10.0)) -> Iterator[Site]:
    """Yield a new folder with settings, and kill the daemon in it at the end."""
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        Path(name).chmod(0o711)  # Lets jobs that run as other users pass through.
        found = Site(Path(name), settings)
        try:
            yield found
        finally:
            if found.process is not None and found.process.poll() is None:
                found.end(signal.SIGKILL)


def wait_for(is_so: Callable[[], bool], site: Site) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert site.process is None or site.process.poll() is None, site.log[-3000:]
        assert time.monotonic() < until, site.log[-3000:]
        time.sleep(0.1)
