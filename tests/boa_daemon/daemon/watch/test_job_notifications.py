"""Notifications to users about their jobs: over the user's channels, for the events of the job file, once."""

from __future__ import annotations

import builtins
import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.watch.alerts import check_channels
from boa_daemon.errors import InputError, MissingExtra
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.ports import RunReport

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # from apprise
TICK = 60.0
EVENTS = ["start", "end", "failure", "move", "waiting"]


class Failing:
    """A runner that reports chosen generations as failed."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.failed: set[tuple[str, int]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def poll(self) -> Mapping[str, RunReport]:
        found = dict(self.inner.poll())
        for job, report in found.items():
            if (job, report.generation) in self.failed:
                found[job] = replace(report, phase="failed", cause="error", evidence="ended with exit code 3")
        return found


@pytest.fixture
def inbox() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the address of a server and the (path, sentence) pairs posted to it."""
    heard: list[tuple[str, str]] = []

    class Here(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            heard.append((self.path, document.get("text") or document["message"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_words: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Here) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}", heard
        server.shutdown()
        thread.join()


class Stage:
    """A daemon with a clock that the test sets, and users with channels."""

    def __init__(self, folder: Path, users: dict[str, Any], **budget: Any) -> None:
        self.folder, self.clock = folder, ManualClock(1_800_000_000.0)
        self.settings: dict[str, Any] = {
            "budget": {"usd_per_hour": 50.0, "usd_per_day_cap": None, **budget},
            "cloud": {"boot_seconds": 30.0},
            "daemon": {"tick_seconds": TICK},
            "users": users,
        }
        self.open()

    def open(self) -> None:
        def wrap(inner: Any) -> Failing:
            self.runner = Failing(inner)
            return self.runner

        self.play = DaemonInAFolder(self.folder, self.clock, self.settings, wrap_runner=wrap)

    def submit(self, **changes: Any) -> list[str]:
        names: list[str] = self.play.service.submit([job_content(**changes)], user="ann")["jobs"]
        return names

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.play.daemon.tick()
            self.clock.instant += TICK

    def fail(self, name: str) -> None:
        self.runner.failed.add((name, self.play.storage.queue.active[name].generation))
        self.tick(4)

    def reopen(self) -> None:
        self.play.close()
        self.open()


def test_a_user_gets_one_message_per_event_of_a_job(
    tmp_path: Path, inbox: tuple[str, list[tuple[str, str]]]
) -> None:
    """Start, failure, next start and end are sent over webhook and apprise, and a restart repeats none."""
    address, heard = inbox
    ann = {"webhook": f"http://{address}/hook", "apprise": [f"json://{address}/apprise"]}
    stage = Stage(tmp_path, {"ann": ann})
    (quiet,) = stage.submit(name="quiet", hours=0.5)
    (name,) = stage.submit(name="loud", hours=0.5, notify=EVENTS)
    stage.tick(6)
    stage.fail(name)
    stage.reopen()
    stage.tick(60)
    stage.play.close()

    sentences = [sentence for path, sentence in heard if path == "/apprise"]
    assert sentences[:3] == [
        f"job {name} starts with 1 GPU on 1 node",
        f"job {name} failed and is tried again: ended with exit code 3",
        f"job {name} goes on with 1 GPU on 1 node, from step 0",
    ]
    assert sentences[3].startswith(f"job {name} finished; ")
    assert [f"BOA: {sentence}" for sentence in sentences] == [said for path, said in heard if path == "/hook"]
    assert len(sentences) == 4
    assert not any(quiet in sentence for sentence in sentences)


class Post(socketserver.StreamRequestHandler):
    """A minimal mail server that stores each message in `server.taken`."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while (line := self.rfile.readline().strip().upper()) and line != b"QUIT":
            if line != b"DATA":
                self.wfile.write(b"250 well\r\n")
                continue
            self.wfile.write(b"354 go on\r\n")
            text = b"".join(iter(self.rfile.readline, b".\r\n"))
            self.server.taken.append(message_from_bytes(text))  # type: ignore[attr-defined]
            self.wfile.write(b"250 taken\r\n")
        self.wfile.write(b"221 end\r\n")


def test_the_subject_of_a_mail_names_the_event(tmp_path: Path) -> None:
    """The text of the mail has the whole sentence; apprise's own client sends it."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Post) as server:
        server.taken = taken = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"mailto://127.0.0.1:{server.server_address[1]}?from=boa@lab.example&to=ann@lab.example"
        stage = Stage(tmp_path, {"ann": {"apprise": [url]}})
        (name,) = stage.submit(hours=5.0, retries=0, notify=["start", "failure"])
        stage.tick(6)
        stage.fail(name)
        stage.play.close()
        server.shutdown()
    subjects = [str(mail["Subject"]) for mail in taken]
    assert subjects == [f"BOA: job {name} starts with 1 GPU on 1 node", f"BOA: job {name} failed"]
    texts = [part.get_payload(decode=True).decode() for part in taken[1].walk() if not part.is_multipart()]
    assert all("ended with exit code 3" in text for text in texts)


def test_a_final_failure_is_sent_once(tmp_path: Path, inbox: tuple[str, list[tuple[str, str]]]) -> None:
    """A user with `failure` and `end` gets one message; the job file's `notify` overrides the settings."""
    address, heard = inbox
    ann = {"webhook": f"http://{address}/hook", "notify": ["failure", "end"]}
    stage = Stage(tmp_path, {"ann": ann})
    names = [*stage.submit(hours=5.0, retries=0), *stage.submit(hours=5.0, retries=0, notify=["failure"])]
    names += stage.submit(hours=5.0, retries=0, notify=[])
    stage.tick(6)
    for name in names:
        stage.fail(name)
    stage.play.close()
    assert [sentence.split(";")[0] for _, sentence in heard] == [
        f"BOA: job {name} failed: ended with exit code 3" for name in names[:2]
    ]


def test_a_group_sends_one_message_per_event(
    tmp_path: Path, inbox: tuple[str, list[tuple[str, str]]]
) -> None:
    """Twelve jobs send one start, one failure and one end of the group."""
    address, heard = inbox
    stage = Stage(tmp_path, {"ann": {"webhook": f"http://{address}/hook"}})
    names = stage.submit(name="sweep", hours=0.5, count=12, retries=0, notify=EVENTS)
    stage.tick(6)
    stage.fail(names[0])
    stage.fail(names[1])
    stage.tick(120)
    stage.play.close()
    said = [sentence.removeprefix("BOA: ") for _, sentence in heard]
    assert said[0].startswith("job sweep-1 starts with")
    assert said[1].startswith("job sweep-1 failed: ended with exit code 3")
    assert said[2:] == ["group sweep-g1 is over: 2 failed, 10 finished"]


def test_a_job_that_waits_six_hours_is_reported_once(
    tmp_path: Path, inbox: tuple[str, list[tuple[str, str]]]
) -> None:
    """A restart does not repeat the message, and a job that did not ask for `waiting` sends none."""
    address, heard = inbox
    stage = Stage(tmp_path, {"ann": {"webhook": f"http://{address}/hook"}}, max_instances=1)
    stage.play.daemon.set_down(True)
    (name,) = stage.submit(notify=["waiting"])
    stage.submit(notify=["start"])
    stage.tick(350)
    assert heard == []
    stage.tick(20)
    stage.reopen()
    stage.tick(20)
    stage.play.close()
    assert [sentence for _, sentence in heard] == [
        f"BOA: job {name} has waited 6.02 h for GPUs; `boa explain {name}` says why"
    ]


def test_the_error_for_an_invalid_apprise_url_hides_the_url() -> None:
    """The URL may hold a password, so the error names only its place in the settings."""
    settings = Settings.model_validate({"users": {"ann": {"apprise": ["nonsense://s3cret"]}}})
    with pytest.raises(InputError, match=r"\[users\.ann\] apprise\[0\] is no URL of apprise") as refused:
        check_channels(settings)
    assert "s3cret" not in str(refused.value)


def test_without_apprise_the_error_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes when the settings are checked, before a message is lost."""
    known = builtins.__import__

    def without(name: str, *words: Any, **more: Any) -> Any:
        if name == "apprise":
            raise ImportError(name)
        return known(name, *words, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    check_channels(Settings())
    with pytest.raises(MissingExtra, match=r"pip install .*'apprise"):
        check_channels(Settings.model_validate({"alerts": {"apprise": ["json://127.0.0.1/"]}}))
