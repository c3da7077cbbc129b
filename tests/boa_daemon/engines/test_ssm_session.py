"""Sessions of SSM: what AWS is asked, how its plugin is called, and a shell and a port that they bring."""

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
    """StartSession and TerminateSession of a fake, with requests held against the service's model."""

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
    """A fake with one node, and the stand-in plugin where programs are found."""
    write_plugin(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    sessions = FakeSessions(lambda node: {"PATH": os.environ["PATH"], "NODE": node}, lambda _, text: text)
    yield Client(sessions)
    sessions.close()


def _carried(client: Client, session: Session) -> tuple[int, int]:
    """Carry a session in a process with a terminal; return both. The fake is on this side of the fork."""
    client.given = client.sessions.start(session.request)
    child, terminal = pty.fork()
    if child == 0:
        os._exit(run_session(session, client))
    return child, terminal


def _typed(client: Client, session: Session, text: bytes, ends_with: bytes) -> bytes:
    """Carry a session, type something once it shows what it should, and return all that it showed."""
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


def test_a_shell_on_a_node_is_carried_to_its_end(client: Client) -> None:
    """What is typed arrives there, also Ctrl-D, which ends it."""
    said = _typed(client, SESSION, b"hello\r\x04", b"of i-0123456789abcdef0")
    assert b"Starting session with SessionId: someone-" in said
    assert said.count(b"hello") == 2
    assert b"Exiting session" in said


def test_ctrl_c_ends_what_runs_there_and_not_the_session(client: Client) -> None:
    """The terminal of the node makes a signal of it; ours passes it on as it is."""
    command = "trap 'echo caught; exit 0' INT; echo waits; while :; do sleep 0.05; done"
    session = Session(target="i-0123456789abcdef0", document=SHELL, parameters={"command": [command]})
    assert b"caught" in _typed(client, session, b"\x03", b"waits")


def test_a_port_of_a_node_is_brought_here(client: Client) -> None:
    """Who connects here reaches what listens there."""
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
def test_the_plugin_is_called_as_aws_calls_it(
    client: Client, tmp_path: Path, version: str, by_name: bool
) -> None:
    """Six words; newer plugins get the answer in a variable, where no list of processes shows its token."""
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


def test_without_the_plugin_one_error_says_what_to_do(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was asked of AWS then; a plugin that goes in between leaves no session behind."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SessionFailed, match=r"needs session-manager-plugin of AWS.*--print"):
        run_session(SESSION, client)
    assert client.asked == []
    monkeypatch.setattr(ssm_session, "plugin_version", lambda: (1, 2, 707, 0))
    with pytest.raises(SessionFailed, match="could not be started"):
        run_session(SESSION, client)
    assert len(client.sessions.ended) == 1


def test_what_aws_refuses_is_said(client: Client) -> None:
    """With which node, and AWS's own words."""
    wrong = Session(target="i-0123456789abcdef0", document=PORT, parameters={"portNumber": ["x"]})
    with pytest.raises(SessionFailed, match="opened no session with i-0123456789abcdef0: InvalidParameters"):
        run_session(wrong, client)


def test_signals_are_as_before_afterwards(client: Client) -> None:
    """Ctrl-C is the plugin's while it runs; afterwards it is ours again."""
    before = signal.getsignal(signal.SIGINT)
    assert run_session(Session(target="i-0", document=SHELL, parameters={"command": ["true"]}), client) == 0
    assert signal.getsignal(signal.SIGINT) is before
    assert plugin_version() == (1, 2, 707, 0)
