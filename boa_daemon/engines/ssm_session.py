"""SSM sessions that a person opens: StartSession, and AWS's plugin that carries the session.

This does the same as `aws ssm start-session`, without that program. The call uses the person's own
credentials; its answer goes to `session-manager-plugin`, which takes over the terminal.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from boa_daemon.errors import BoaError

PLUGIN = "session-manager-plugin"
ANSWER = "AWS_SSM_START_SESSION_RESPONSE"
"""Variable with StartSession's answer for newer plugins, so that its token is not in the process list."""
LAST_WITHOUT = (1, 2, 497, 0)
"""The newest plugin version that takes the answer only as its first argument."""
VERSION_SECONDS = 30.0


class SessionFailed(BoaError):
    """A session could not be opened."""


class SessionClient(Protocol):
    """The part of boto3's SSM client that is used."""

    meta: Any

    def start_session(self, **request: Any) -> Mapping[str, Any]:
        """Open a session with an instance."""
        ...

    def terminate_session(self, **request: Any) -> Mapping[str, Any]:
        """End a session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session to open: the instance, the SSM document, and its parameters."""

    target: str
    document: str
    parameters: Mapping[str, Sequence[str]]
    region: str = ""

    @property
    def request(self) -> dict[str, Any]:
        """The request of StartSession."""
        parameters = {name: list(values) for name, values in self.parameters.items()}
        return {"Target": self.target, "DocumentName": self.document, "Parameters": parameters}

    @property
    def command(self) -> list[str]:
        """The `aws` command line that opens the same session."""
        region = ["--region", self.region] if self.region else []
        words = ["aws", "ssm", "start-session", *region, "--target", self.target]
        return [*words, "--document-name", self.document, "--parameters", json.dumps(dict(self.parameters))]


def run_session(session: Session, client: SessionClient, *, profile: str = "") -> int:
    """Open a session, run the plugin until its end, and return the plugin's exit code.

    Raises:
        SessionFailed: when the plugin is not installed, or AWS refuses.
    """
    version = plugin_version()
    try:
        answer = client.start_session(**session.request)
        opened = {name: answer[name] for name in ("SessionId", "TokenValue", "StreamUrl")}
    except Exception as error:
        raise SessionFailed(f"AWS opened no session with {session.target}: {error}") from None
    given, environment = json.dumps(opened), dict(os.environ)
    if version > LAST_WITHOUT:
        environment[ANSWER], given = given, ANSWER
    words = (given, client.meta.region_name, "StartSession", profile)
    request, endpoint = json.dumps(session.request), client.meta.endpoint_url
    try:
        plugin = subprocess.Popen([PLUGIN, *words, request, endpoint], env=environment)
    except OSError as error:
        with suppress(Exception):
            client.terminate_session(SessionId=opened["SessionId"])
        raise SessionFailed(f"{PLUGIN} could not be started: {error.strerror}") from None
    return _waited_for(plugin)


def _waited_for(plugin: subprocess.Popen[bytes]) -> int:
    """Wait for the plugin's end; meanwhile ignore signals from the keyboard, which are for the plugin."""
    typed = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in typed}
    try:
        return plugin.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def plugin_version() -> tuple[int, ...]:
    """Return the version of the installed plugin; empty if its answer is not a version.

    Raises:
        SessionFailed: when the plugin is not installed.
    """
    if shutil.which(PLUGIN) is None:
        raise SessionFailed(
            f"a session of SSM needs {PLUGIN} of AWS, which is not installed here. Install it, or run the "
            "command that --print shows on a machine that has it"
        )
    try:
        said = subprocess.run(
            [PLUGIN, "--version"], capture_output=True, text=True, check=False, timeout=VERSION_SECONDS
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    parts = said.split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()
