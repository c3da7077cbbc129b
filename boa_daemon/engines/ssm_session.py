"""Sessions of SSM that a person opens: StartSession, and the plugin of AWS that carries them.

What `aws ssm start-session` does, without that program: the call goes by the person's own credentials, and
its answer to `session-manager-plugin`, which has the terminal from then on.
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
"""Where newer plugins read the answer of StartSession, whose token is then in no list of processes."""
LAST_WITHOUT = (1, 2, 497, 0)
"""The newest plugin that takes the answer itself as its first argument only."""
VERSION_SECONDS = 30.0


class SessionFailed(BoaError):
    """A session could not be opened."""


class SessionClient(Protocol):
    """What is used of boto3's SSM client."""

    meta: Any

    def start_session(self, **request: Any) -> Mapping[str, Any]:
        """Open a session with an instance."""
        ...

    def terminate_session(self, **request: Any) -> Mapping[str, Any]:
        """End a session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session to open: with which instance, by which document, with what."""

    target: str
    document: str
    parameters: Mapping[str, Sequence[str]]
    region: str = ""

    @property
    def request(self) -> dict[str, Any]:
        """What StartSession is asked."""
        parameters = {name: list(values) for name, values in self.parameters.items()}
        return {"Target": self.target, "DocumentName": self.document, "Parameters": parameters}

    @property
    def command(self) -> list[str]:
        """The command line of `aws` that opens it."""
        region = ["--region", self.region] if self.region else []
        words = ["aws", "ssm", "start-session", *region, "--target", self.target]
        return [*words, "--document-name", self.document, "--parameters", json.dumps(dict(self.parameters))]


def run_session(session: Session, client: SessionClient, *, profile: str = "") -> int:
    """Open a session and have the plugin carry it to its end; return the plugin's exit code.

    Raises:
        NoSession: when the plugin is not here, or AWS refuses.
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
    """Wait for the plugin's end; what is typed to end something goes to it, and not to us."""
    typed = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in typed}
    try:
        return plugin.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def plugin_version() -> tuple[int, ...]:
    """Return the version of the plugin that is here; none of digits where it says something else.

    Raises:
        NoSession: when it is not here.
    """
    if shutil.which(PLUGIN) is None:
        raise SessionFailed(
            f"a session of SSM needs {PLUGIN} of AWS, which is not here. Install it, or run where it is what "
            "--print shows"
        )
    try:
        said = subprocess.run(
            [PLUGIN, "--version"], capture_output=True, text=True, check=False, timeout=VERSION_SECONDS
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    parts = said.split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()
