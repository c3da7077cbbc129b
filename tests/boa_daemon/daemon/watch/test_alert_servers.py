"""Alerts over real servers on this machine: mail with STARTTLS and a password, and servers that misbehave."""

from __future__ import annotations

import base64
import json
import re
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from boa_daemon.daemon.settings.config import AlertSettings
from boa_daemon.daemon.watch import alerts as module
from boa_daemon.daemon.watch.alerts import Alerts

SENTENCE = "$30.00 spent this day: 60% of the cap of $50.00"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """TLS of a server with a certificate of its own."""
    folder = tmp_path_factory.mktemp("tls")
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    subprocess.run([*words, *files], check=True, capture_output=True)
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(folder / "cert", folder / "key")
    return found


class Mail(socketserver.ThreadingTCPServer):
    """A mail server that takes messages only over TLS, and only from ann with the right password."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), MailSession)
        self.context = context
        self.taken: list[Message] = []


class MailSession(socketserver.StreamRequestHandler):
    """One session of SMTP."""

    server: Mail

    def handle(self) -> None:
        is_safe = is_known = False
        self.say("220 here")
        while line := self.rfile.readline().strip():
            verb = line.upper()[:4]
            if verb == b"EHLO":
                self.say("250-here\r\n250 AUTH PLAIN" if is_safe else "250-here\r\n250 STARTTLS")
            elif verb == b"STAR":
                self.say("220 go on")
                self.request = self.server.context.wrap_socket(self.request, server_side=True)
                self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
                is_safe = True
            elif verb == b"AUTH" and is_safe:
                is_known = base64.b64decode(line.split()[-1]) == b"\0ann\0right"
                self.say("235 welcome" if is_known else "535 no")
            elif verb == b"DATA" and is_known:
                self.say("354 go on")
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.server.taken.append(message_from_bytes(text))
                self.say("250 taken")
            elif verb == b"QUIT":
                self.say("221 end")
                return
            else:
                self.say("250 well" if is_known else "530 who are you")

    def finish(self) -> None:
        super().finish()
        self.request.close()  # The one over TLS is another than the server closes.

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def served(server: socketserver.BaseServer) -> Iterator[int]:
    """Serve, and yield the port."""
    with server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]  # type: ignore[index]
        server.shutdown()


def said_by(**settings: object) -> Alerts:
    """Send an alert over channels, and wait for the end."""
    sender = Alerts(None, AlertSettings.model_validate(settings))
    sender.say("day:0.5", SENTENCE, at=0.0)
    sender.close()
    return sender


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of apprise, about ssl.wrap_socket and its like
def test_mail_goes_over_tls_with_a_password(context: ssl.SSLContext) -> None:
    """As most mail servers ask for; a wrong password is said without the address, which holds it."""
    with served(server := Mail(context)) as port:
        url = f"mailtos://ann:{{}}@127.0.0.1:{port}?from=boa@lab.example&to=ann@lab.example&mode=starttls&verify=no"
        assert said_by(apprise=[url.format("right")])._failed == {}
        (mail,) = server.taken
        assert str(mail["Subject"]) == "BOA: $30.00 spent this day"
        refused = said_by(apprise=[url.format("wrong")])
        assert "apprise channel: the service did not take it" in refused.fault()
        assert "wrong" not in refused.fault()
        assert len(server.taken) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of apprise
@pytest.mark.parametrize("form", ["", "&format=html"])
@pytest.mark.parametrize(
    "name", ["O'Brien & <b>Sons</b>", "a<script>b</script>", "צוות", "x &amp; y", "a*b*_c_", "<!-- -->"]
)
def test_a_mail_keeps_names_and_lines(context: ssl.SSLContext, name: str, form: str) -> None:
    """It is plain text, also beside the HTML that an address asks for: no name is markup there."""
    lines = ["November 2026: $24.00 spent.", "", "By user:", f"- $12.00 (50%) {name}", "- $2.00 (8%) ann"]
    with served(server := Mail(context)) as port:
        url = f"mailtos://ann:right@127.0.0.1:{port}?from=boa@lab.example&to=ann@lab.example&mode=starttls&verify=no"
        sender = Alerts(None, AlertSettings.model_validate({"apprise": [f"{url}{form}"]}))
        sender.shout("\n".join(lines), key="month-report:2026-11")
        sender.close()
    (mail,) = server.taken
    assert str(mail["Subject"]) == "BOA: November 2026"
    parts = [part for part in mail.walk() if not part.is_multipart()]
    texts = {part.get_content_type(): str(part.get_payload(decode=True), "utf-8") for part in parts}  # type: ignore[arg-type]
    assert texts.pop("text/plain").strip().splitlines() == lines
    assert list(texts) == (["text/html"] if form else [])
    for html in texts.values():
        assert set(re.findall(r"<[^>]*>", html)) == {"<br/>"}
        assert [unescape(line).replace("\xa0", " ").strip() for line in html.split("<br/>")] == lines


class Silent(socketserver.BaseRequestHandler):
    """Takes a connection, and says nothing."""

    def handle(self) -> None:
        time.sleep(60.0)


class Dripping(socketserver.BaseRequestHandler):
    """Says something now and then, and never comes to an end."""

    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            self.request.sendall(b"X-More: 1\r\n")
            time.sleep(0.1)


class Elsewhere(socketserver.StreamRequestHandler):
    """Sends everybody on to itself."""

    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"HTTP/1.1 307 Go\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n")


class Refusing(socketserver.StreamRequestHandler):
    """Refuses: as a web server and as a mail server."""

    def handle(self) -> None:
        self.wfile.write(b"554 no service\r\n")


SERVERS = {"silent": Silent, "dripping": Dripping, "sends on to itself": Elsewhere, "refusing": Refusing}


class Threaded(socketserver.ThreadingTCPServer):
    """A server whose sessions may be left behind."""

    allow_reuse_address, daemon_threads, block_on_close = True, True, False


@pytest.mark.first_set(4)
@pytest.mark.parametrize("kind", ["webhook", "mail"])
@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_a_server_that_misbehaves_keeps_nobody_waiting(
    server: type[socketserver.BaseRequestHandler], kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next channel is used after the limit of time, the loss is told, and the daemon can stop."""
    monkeypatch.setattr(module, "MOST_SEND_SECONDS", 1.0)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 5.0)
    began = time.monotonic()
    with served(Threaded(("127.0.0.1", 0), server)) as port:
        other = Alerts(None, AlertSettings(command=f"touch {tmp_path / 'told'}"))
        settings = AlertSettings.model_validate(
            {"webhook": f"http://127.0.0.1:{port}/hook"}
            if kind == "webhook"
            else {"apprise": [f"mailto://127.0.0.1:{port}?from=boa@lab.example&to=ann@lab.example"]}
        )
        sender = Alerts(None, settings)
        sender.say("day:0.5", SENTENCE, at=0.0)
        sender.settings = other.settings
        sender.say("day:0.8", SENTENCE, at=0.0)
        sender.close()
        other.close()
    assert (tmp_path / "told").exists()
    assert list(sender._failed) == ["webhook" if kind == "webhook" else "apprise channel"]
    assert time.monotonic() - began < 8.0


class Moody(BaseHTTPRequestHandler):
    """Takes messages only when it is well: a web server behind a proxy that is restarted."""

    said: ClassVar[list[str]] = []
    answers: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            self.said.append(body["text"])
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("answers", [[503], [429, 429], [500, 502, 504], []], ids=str)
def test_a_message_that_was_not_taken_is_sent_again(
    answers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is down, restarts, or has enough: the alert arrives later, once, and says so."""
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    Moody.said, Moody.answers = [], list(answers)
    server = HTTPServer(("127.0.0.1", 0), Moody, bind_and_activate=bool(answers))
    if not answers:
        server.server_bind()  # Nobody listens yet.
    sender = Alerts(None, AlertSettings(webhook=f"http://127.0.0.1:{server.server_address[1]}/hook"))
    sender.say("day:0.5", SENTENCE, at=0.0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    if answers:
        thread.start()
    until = time.monotonic() + 30.0
    while not Moody.said and time.monotonic() < until:
        if not answers and sender._failed and not thread.is_alive():
            server.server_activate()
            thread.start()
        sender.send_again()
        time.sleep(0.05)
    for _ in range(5):
        sender.send_again()
    sender.close()
    server.shutdown()
    server.server_close()
    (said,) = Moody.said
    assert said.startswith(f"BOA: {SENTENCE} (said first at 2")
    assert not sender._failed


def test_a_message_that_nobody_takes_is_given_up_and_settings_that_change_forget_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is kept for ever, and nothing goes to an address that was taken out of the settings."""
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    told = tmp_path / "told"
    settings = AlertSettings(command=f"sh -c 'echo x >> {told}; exit 1'")
    sender = Alerts(None, settings)
    sender.say("day:0.5", SENTENCE, at=0.0)
    until = time.monotonic() + 60.0
    while len(told.read_text().split() if told.exists() else ()) < module.MOST_TRIES:
        assert time.monotonic() < until
        sender.send_again()
        time.sleep(0.02)
    for _ in range(20):
        sender.send_again()
        time.sleep(0.02)
    assert len(told.read_text().split()) == module.MOST_TRIES
    assert sender._failed
    monkeypatch.setattr(module, "AGAIN_SECONDS", 3600.0)
    sender.say("day:0.8", SENTENCE, at=0.0)
    while not sender._sender._waiting:
        assert time.monotonic() < until
        time.sleep(0.02)
    sender.use(settings)
    assert len(sender._sender._waiting) == 1
    sender.use(AlertSettings())
    assert not sender._sender._waiting
    sender.close()


def test_a_daemon_that_stops_does_not_wait_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message on its way is given up, and so are those behind it."""
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.5)
    with served(Threaded(("127.0.0.1", 0), Silent)) as port:
        sender = Alerts(None, AlertSettings(webhook=f"http://127.0.0.1:{port}/hook"))
        for number in range(20):
            sender.say(f"day:{number}", SENTENCE, at=0.0)
        began = time.monotonic()
        sender.close()
        assert time.monotonic() - began < 5.0
