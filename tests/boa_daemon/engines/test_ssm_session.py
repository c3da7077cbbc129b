"""SSM sessions: the requests to AWS, the call of its plugin, and a shell and a port through it."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from boa_daemon.engines import ssm_session
from boa_daemon.engines.ssm_session import ANSWER, Session, SessionFailed, plugin_version, run_session
from boa_daemon.testing.fake_sessions import PORT, SHELL, FakeSessions, write_plugin

SESSION = Session(
    target="i-0123456789abcdef0", document=SHELL, parameters={"command": ["echo of $NODE; cat"]}
)


class Client:
    """StartSession and TerminateSession of a fake; requests are checked against AWS's service model."""

    def __init__(self, sessions: FakeSessions) -> None:
        self.meta = SimpleNamespace(
            region_name="eu-west-1", endpoint_url="https://ssm.eu-west-1.amazonaws.com"
        )
        self.sessions = sessions
        self.asked: list[Mapping[str, Any]] = []
        self.given: tuple[dict[str, str], str] | None = None
        self.model = botocore.session.get_session().get_service_model("ssm")

    def _check(self, operation: str, request: Mapping[str, Any]) -> None:
        shape = self.model.operation_model(operation).input_shape
        report = ParamValidator().validate(dict(request), shape)
        assert not report.has_errors(), report.generate_report()

    def start_session(self, **request: Any) -> Mapping[str, Any]:
        self._check("StartSession", request)
        self.asked.append(request)
        answer, refused = self.given or self.sessions.start(request)
        if refused:
            raise ValueError(refused)
        return answer

    def terminate_session(self, **request: Any) -> Mapping[str, Any]:
        self._check("TerminateSession", request)
        self.sessions.end(request["SessionId"])
        return request


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A fake with one node, and a fake plugin on the PATH."""
    write_plugin(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    sessions = FakeSessions(lambda node: {"PATH": os.environ["PATH"], "NODE": node}, lambda _, text: text)
    yield Client(sessions)
    sessions.close()


def _carried(client: Client, session: Session) -> tuple[int, int]:
    """Run a session in a child process with a terminal; return both. The fake stays in the parent."""
    client.given = client.sessions.start(session.request)
    child, terminal = pty.fork()
    if child == 0:
        os._exit(run_session(session, client))
    return child, terminal


def _typed(client: Client, session: Session, text: bytes, ends_with: bytes) -> bytes:
    """Run a session, type a text once the session shows `ends_with`, and return all output."""
    child, terminal = _carried(client, session)
    said, is_typed = b"", False
    while True:
        try:
            block = os.read(terminal, 4096)
        except OSError:
            break
        if not block:
            break
        said += block
        if not is_typed and ends_with in said:
            os.write(terminal, text)
            is_typed = True
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, said
    return said


def test_a_shell_on_a_node_gets_input_until_ctrl_d_ends_it(client: Client) -> None:
    """Typed text reaches the node's shell, and Ctrl-D ends the session."""
    said = _typed(client, SESSION, b"hello\r\x04", b"of i-0123456789abcdef0")
    assert b"Starting session with SessionId: someone-" in said
    assert said.count(b"hello") == 2
    assert b"Exiting session" in said


def test_ctrl_c_reaches_the_command_on_the_node(client: Client) -> None:
    """The node's terminal turns the passed character into a signal."""
    command = "trap 'echo caught; exit 0' INT; echo waits; while :; do sleep 0.05; done"
    session = Session(target="i-0123456789abcdef0", document=SHELL, parameters={"command": [command]})
    assert b"caught" in _typed(client, session, b"\x03", b"waits")


def test_a_port_of_a_node_is_forwarded_to_a_local_port(client: Client) -> None:
    """Bytes go both ways, and Ctrl-C ends the session."""
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_server(("127.0.0.1", 0)) as free:
        here = free.getsockname()[1]
        free.close()
        parameters = {"portNumber": [str(there.getsockname()[1])], "localPortNumber": [str(here)]}
        session = Session(target="i-0123456789abcdef0", document=PORT, parameters=parameters)
        child, terminal = _carried(client, session)
        shown = b""
        while b"Waiting for connections" not in shown:
            shown += os.read(terminal, 4096)
        with socket.create_connection(("127.0.0.1", here), timeout=60.0) as caller:
            caller.sendall(b"ping")
            answerer, _ = there.accept()
            with answerer:
                assert answerer.recv(4) == b"ping"
                answerer.sendall(b"pong")
                assert caller.recv(4) == b"pong"
        os.write(terminal, b"\x03")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        os.close(terminal)


@pytest.mark.parametrize(("version", "by_name"), [("1.2.497.0", False), ("1.2.707.0", True), ("dev", False)])
def test_the_plugin_is_called_with_the_arguments_of_the_aws_cli(
    client: Client, tmp_path: Path, version: str, by_name: bool
) -> None:
    """Newer plugins get the token in an environment variable, which process lists do not show."""
    note = tmp_path / "note"
    (tmp_path / "bin" / ssm_session.PLUGIN).write_text(
        f'#!/bin/bash\nif [ "$1" = --version ]; then echo {version}; exit; fi\n'
        f'printf "%s\\n" "$@" "${ANSWER}" > {note}\nexit 7\n'
    )
    assert run_session(SESSION, client, profile="mine") == 7
    answer, region, operation, profile, request, endpoint, variable = note.read_text().split("\n")[:7]
    assert (region, operation, profile) == ("eu-west-1", "StartSession", "mine")
    assert (json.loads(request), endpoint) == (client.asked[0], "https://ssm.eu-west-1.amazonaws.com")
    opened = json.loads(variable if by_name else answer)
    assert set(opened) == {"SessionId", "TokenValue", "StreamUrl"}
    assert answer == (ANSWER if by_name else json.dumps(opened))


def test_a_missing_plugin_is_an_error_and_leaves_no_session(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the plugin AWS is not asked; if the plugin cannot be started, the session is ended."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SessionFailed, match=r"needs session-manager-plugin of AWS.*--print"):
        run_session(SESSION, client)
    assert client.asked == []
    monkeypatch.setattr(ssm_session, "plugin_version", lambda: (1, 2, 707, 0))
    with pytest.raises(SessionFailed, match="could not be started"):
        run_session(SESSION, client)
    assert len(client.sessions.ended) == 1


def test_a_session_that_aws_refuses_is_an_error_with_the_node_and_reason(client: Client) -> None:
    """The error quotes AWS."""
    wrong = Session(target="i-0123456789abcdef0", document=PORT, parameters={"portNumber": ["x"]})
    with pytest.raises(SessionFailed, match="opened no session with i-0123456789abcdef0: InvalidParameters"):
        run_session(wrong, client)


def test_a_session_restores_the_handler_of_ctrl_c(client: Client) -> None:
    """The plugin handles Ctrl-C only while it runs."""
    before = signal.getsignal(signal.SIGINT)
    assert run_session(Session(target="i-0", document=SHELL, parameters={"command": ["true"]}), client) == 0
    assert signal.getsignal(signal.SIGINT) is before
    assert plugin_version() == (1, 2, 707, 0)
