"""SSM sessions with fake nodes: StartSession, the stream behind it, and a stand-in for AWS's plugin.

    session-manager-plugin ANSWER REGION StartSession PROFILE REQUEST ENDPOINT

The plugin is called as `aws ssm start-session` calls it: ANSWER is the answer of StartSession as JSON, or
the name of the variable that holds it, and REQUEST is the request. The ends of a session are real: a terminal
of a shell in the sandbox of a fake node, or a port of this machine. A plain connection per stream replaces
AWS's WebSocket; it opens with the session's token.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import tty
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PLUGIN = "session-manager-plugin"
VERSION = "1.2.707.0"
SHELL, PORT = "AWS-StartInteractiveCommand", "AWS-StartPortForwardingSession"
_PORT = re.compile(r"[0-9]{1,5}")
_NEEDED: Mapping[str, Mapping[str, re.Pattern[str]]] = {
    SHELL: {"command": re.compile(r"(?s).+")},
    PORT: {"portNumber": _PORT, "localPortNumber": _PORT},
}
"""Parameters of the two documents: each is a list of one text of this form."""
_BLOCK = 1 << 16


class FakeSessions:
    """The agents' side of sessions; `environment_of` and `rewrite` emulate a node, as for commands."""

    def __init__(
        self, environment_of: Callable[[str], Mapping[str, str]], rewrite: Callable[[str, str], str]
    ) -> None:
        self._environment_of, self._rewrite = environment_of, rewrite
        self._door = socket.create_server(("127.0.0.1", 0))
        self._open: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.ended: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def start(self, document: Mapping[str, Any]) -> tuple[dict[str, str], str]:
        """Return the answer of StartSession, or why it is refused."""
        needed = _NEEDED.get(str(document.get("DocumentName")))
        if needed is None:
            return {}, f"InvalidDocument: {document.get('DocumentName')}"
        given = document.get("Parameters", {})
        right = given.keys() == needed.keys() and all(
            len(given[name]) == 1 and form.fullmatch(given[name][0]) for name, form in needed.items()
        )
        if not right:
            return (
                {},
                f"InvalidParameters: {document['DocumentName']} takes {', '.join(needed)}, one text each",
            )
        name, token = f"someone-{secrets.token_hex(8)}", secrets.token_urlsafe(32)
        self._open[token] = (name, document)
        address, port = self._door.getsockname()
        url = f"wss://{address}:{port}/v1/data-channel/{name}?role=publish_subscribe"
        return {"SessionId": name, "TokenValue": token, "StreamUrl": url}, ""

    def end(self, name: str) -> None:
        """End a session; its token becomes invalid."""
        self.ended.append(name)
        self._open = {token: one for token, one in self._open.items() if one[0] != name}

    def close(self) -> None:
        """Stop accepting streams."""
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _serve(self) -> None:
        """Accept streams until `close`."""
        while True:
            try:
                stream, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(stream,), daemon=True).start()

    def _carry(self, stream: socket.socket) -> None:
        """Connect a stream to its session's shell or port."""
        with stream, stream.makefile("rb", buffering=0) as reader:
            _, document = self._open.get(reader.readline().decode().strip(), ("", None))
            if document is None:
                return
            if document["DocumentName"] == PORT:
                with suppress(OSError):
                    port = int(document["Parameters"]["portNumber"][0])
                    with socket.create_connection(("127.0.0.1", port)) as there:
                        relay(stream.fileno(), stream.fileno(), there.fileno(), there.fileno())
                return
            self._carry_shell(stream, document["Target"], document["Parameters"]["command"][0])

    def _carry_shell(self, stream: socket.socket, node: str, command: str) -> None:
        """Run a command on a node's terminal until the command or the stream ends."""
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            ["/bin/sh", "-c", self._rewrite(node, command)],
            env={**self._environment_of(node), "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  it only takes the terminal
        )
        os.close(theirs)
        try:
            relay(stream.fileno(), stream.fileno(), ours, ours)
        finally:
            os.close(ours)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGHUP)
            process.wait()


def _take_terminal() -> None:
    """Make standard input this process's controlling terminal, so that Ctrl-C reaches its commands."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def relay(read_here: int, write_here: int, read_there: int, write_there: int) -> None:
    """Copy bytes both ways until one end closes."""
    ways = {read_here: write_there, read_there: write_here}
    while True:
        for ready in select.select(list(ways), [], [])[0]:
            try:
                block = os.read(ready, _BLOCK)
                if not block:
                    return
                while block:
                    block = block[os.write(ways[ready], block) :]
            except OSError:
                return


def write_plugin(folder: Path) -> Path:
    """Write the stand-in as a program into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file, root = folder / PLUGIN, Path(__file__).resolve().parents[2]
    program = f"{sys.executable} -S -P {Path(__file__).resolve()}"
    file.write_text(f'#!/bin/bash\nPYTHONPATH={root} exec {program} "$@"\n')
    file.chmod(0o755)
    return file


def main(arguments: list[str]) -> int:
    """Run the stand-in of the plugin."""
    if arguments == ["--version"]:
        print(VERSION)  # noqa: T201  its caller reads it
        return 0
    answer, _region, operation, _profile, request, _endpoint = arguments
    if operation != "StartSession":
        return 255
    opened, asked = json.loads(os.environ.get(answer, answer)), json.loads(request)
    print(f"\nStarting session with SessionId: {opened['SessionId']}", flush=True)  # noqa: T201
    if asked["DocumentName"] == PORT:
        return _forward(opened, int(asked["Parameters"]["localPortNumber"][0]))
    before = termios.tcgetattr(0) if os.isatty(0) else None
    try:
        if before is not None:
            tty.setraw(0)
        with _stream(opened) as stream:
            relay(0, 1, stream.fileno(), stream.fileno())
    finally:
        if before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, before)
    print(f"\nExiting session with sessionId: {opened['SessionId']}.", flush=True)  # noqa: T201
    return 0


def _stream(opened: Mapping[str, str]) -> socket.socket:
    address = urlsplit(opened["StreamUrl"])
    stream = socket.create_connection((address.hostname or "", address.port or 0))
    stream.sendall(f"{opened['TokenValue']}\n".encode())
    return stream


def _forward(opened: Mapping[str, str], port: int) -> int:
    """Listen on a local port and forward its connections to the node, until interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.create_server(("127.0.0.1", port)) as door:
        print(f"Port {port} opened for sessionId {opened['SessionId']}.", flush=True)  # noqa: T201
        print("Waiting for connections...", flush=True)  # noqa: T201
        with suppress(KeyboardInterrupt):
            while True:
                threading.Thread(target=_bring, args=(opened, door.accept()[0]), daemon=True).start()
    return 0


def _bring(opened: Mapping[str, str], guest: socket.socket) -> None:
    """Forward one connection to the node."""
    with guest, _stream(opened) as stream:
        relay(guest.fileno(), guest.fileno(), stream.fileno(), stream.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
