"""The state that a release leaves behind, made by its own program, and put back for a later one.

    python tests/release_fixture.py TREE tests/data/releases/VERSION

TREE is a checkout of the release. Its daemon runs in `AT` with real jobs: one finished with a checkpoint, one
that runs, one that waits and one that was cancelled; then it is killed. Kept are its settings, its database
on SQLite and on PostgreSQL as SQL, the files of its engine, its answers, and the code of its keepers.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from postgres_server import PostgresServer, postgres_programs

AT = Path("/tmp/boa-of-a-release")
RELEASES = Path(__file__).parent / "data" / "releases"
SETTINGS = """[budget]
usd_per_hour = 3.0
usd_per_day_cap = 200.0
usd_per_month_cap = 2000.0
max_instances = 1
[cloud]
provider = "simulated"
boot_seconds = 0.2
[engine]
name = "local"
own_user = false
[gate]
enabled = false
[daemon]
state_dir = "{at}/state"
tick_seconds = 1
{database}
[users.ann]
usd_per_day_cap = 150.0
[teams.vision]
members = ["root"]
usd_per_day_cap = 100.0
"""
TRAINS = """python - <<'END'
import time
from boa_daemon import job
found = job.resume()
step = found.step if found else 0
while True:
    step += 1
    job.report(step, samples=1)
    if job.should_checkpoint(every=10):
        job.save(step, lambda file: file.write(b"state"))
        if job.should_stop():
            break
    time.sleep(0.1)
END"""
JOBS: tuple[dict[str, Any], ...] = (
    {
        "name": "done",
        "class": "default",
        "run": "echo 1 > result && sleep 1",
        "max_gpus": 1,
        "team": "vision",
    },
    {"name": "runs", "class": "default", "run": TRAINS, "max_gpus": 1},
    {"name": "waits", "class": "default", "run": "sleep 1", "min_gpus": 1, "max_gpus": 1, "weight": 2.0},
    {"name": "gone", "class": "default", "run": "sleep 1", "max_gpus": 1},
)
ANSWERS = (
    "/status",
    "/jobs",
    "/jobs/done-1",
    "/instances",
    "/cost",
    "/classes",
    "/decisions",
    "/alerts",
    "/plan",
)
PARTS = ("boa.toml", "jobs", "next_job", "last_state")


class _Line(HTTPConnection):
    """HTTP on the daemon's socket, with nothing of the program but its API."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30.0)
        self.sock.connect(str(AT / "state" / "boa.sock"))


def ask(method: str, path: str, document: Any = None) -> Any:
    """Return the daemon's answer, None while it does not answer."""
    with suppress(OSError), closing(_Line("boa")) as line:
        body = None if document is None else json.dumps(document)
        line.request(method, f"/v1{path}", body, {"Content-Type": "application/json"})
        answer = line.getresponse()
        text = answer.read()
        return json.loads(text) if answer.status < 400 else None
    return None


def wait_until(is_so: Callable[[], Any]) -> None:
    """Wait for at most two minutes."""
    until = time.monotonic() + 120.0
    while not is_so():
        if time.monotonic() > until:
            raise SystemExit((AT / "log").read_text()[-3000:])
        time.sleep(0.2)


def _played(tree: Path, database: str) -> dict[str, Any]:
    """Run the release's daemon with its jobs, kill it, and return its answers."""
    shutil.rmtree(AT, ignore_errors=True)
    (AT / "work").mkdir(parents=True)
    (AT / "boa.toml").write_text(SETTINGS.format(at=AT, database=database))
    with (AT / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "boa_daemon", "daemon"],
            cwd=AT,
            env={**os.environ, "PYTHONPATH": f"{tree}:{os.environ.get('PYTHONPATH', '')}", "TZ": "UTC"},
            stdout=log,
            stderr=log,
        )
    wait_until(lambda: (ask("GET", "/status") or {}).get("tick"))
    for job in JOBS[:2]:
        assert ask("POST", "/jobs", {"jobs": [{**job, "workdir": str(AT / "work")}]}) is not None
        if job["name"] == "done":
            wait_until(lambda: ask("GET", "/jobs/done-1")["status"] == "finished")
    wait_until(lambda: ask("GET", "/jobs/runs-2")["status"] == "running")
    wait_until((AT / "state" / "jobs" / "runs-2" / "checkpoint" / "manifest.json").exists)
    rest = [{**job, "workdir": str(AT / "work")} for job in JOBS[2:]]
    assert ask("POST", "/jobs", {"jobs": rest}) is not None
    assert ask("POST", "/jobs/gone-4/cancel") is not None
    began = ask("GET", "/status")["tick"]
    wait_until(lambda: ask("GET", "/status")["tick"] > began + 8)
    answers = {path: ask("GET", path) for path in ANSWERS}
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    return answers


def _end_jobs() -> None:
    """Kill the keepers that the release left, and their jobs."""
    for file in (AT / "state" / "jobs").glob("*/g*/n*/keeper.json"):
        with suppress(OSError, ValueError):
            os.killpg(int(json.loads(file.read_text())["pid"]), signal.SIGKILL)
    for name in os.listdir("/proc"):
        # Only processes of these jobs have this folder in their environment.
        with suppress(OSError, ValueError):
            if f"BOA_CHECKPOINT_DIR={AT}/".encode() in Path(f"/proc/{name}/environ").read_bytes():
                os.kill(int(name), signal.SIGKILL)


def _client(name: str) -> str:
    """Return the path of one of PostgreSQL's programs for clients."""
    found = shutil.which(name)
    return found or str(next(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")))


def make(tree: Path, folder: Path) -> None:
    """Make the fixture of the release in a checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    answers = _played(tree, "")
    (folder / "answers.json.gz").write_bytes(gzip.compress(json.dumps(answers).encode(), mtime=0))
    for name in ("boa", "cloud"):
        with closing(sqlite3.connect(AT / "state" / f"{name}.sqlite")) as file:
            text = "\n".join(file.iterdump())
        (folder / f"{name}.sql.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    with tarfile.open(folder / "files.tar.gz", "w:gz") as archive:
        for name in PARTS:
            path = AT / name if name == "boa.toml" else AT / "state" / name
            if path.exists():
                archive.add(path, arcname=name, filter=_plain)
    with tarfile.open(folder / "keepers.tar.gz", "w:gz") as archive:
        archive.add(tree / "boa_daemon" / "__init__.py", arcname="boa_daemon/__init__.py", filter=_plain)
        archive.add(tree / "boa_daemon" / "version.py", arcname="boa_daemon/version.py", filter=_plain)
        archive.add(tree / "boa_daemon" / "job", arcname="boa_daemon/job", filter=_plain)
    _end_jobs()
    if postgres_programs() is not None:
        with PostgresServer() as server:
            _played(tree, f'database = "{server.url}"')
            dump = ["--inserts", "--no-owner", "--no-privileges", server.url]
            text = subprocess.run([_client("pg_dump"), *dump], check=True, capture_output=True).stdout
            (folder / "postgresql.sql.gz").write_bytes(gzip.compress(text, mtime=0))
        _end_jobs()
    shutil.rmtree(AT, ignore_errors=True)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a member without what differs from run to run and what is no file."""
    if "__pycache__" in member.name or not (member.isfile() or member.isdir()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def put_back(release: Path, folder: Path) -> Path:
    """Put the state of a release into a folder, with the folder's paths; return the state folder."""
    state = folder / "state"
    state.mkdir(parents=True, mode=0o700)
    (folder / "work").mkdir()
    with tarfile.open(release / "files.tar.gz") as archive:
        for member in archive.getmembers():
            top = folder if member.name == "boa.toml" else state
            place = top / member.name
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True, mode=0o755)
            else:
                content = archive.extractfile(member)
                assert content is not None
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(_moved(content.read(), folder))
                place.chmod(member.mode)
    for name in ("boa", "cloud"):
        text = _moved(gzip.decompress((release / f"{name}.sql.gz").read_bytes()), folder).decode()
        with closing(sqlite3.connect(state / f"{name}.sqlite")) as file:
            file.executescript(text)
            file.execute("PRAGMA journal_mode=WAL").close()
    return state


def put_back_on_a_server(release: Path, folder: Path, url: str) -> None:
    """Put the database of a release on a server."""
    text = _moved(gzip.decompress((release / "postgresql.sql.gz").read_bytes()), folder)
    subprocess.run([_client("psql"), "-q", "-v", "ON_ERROR_STOP=1", url], input=text, check=True)


def _moved(content: bytes, folder: Path) -> bytes:
    """Return a file in which the fixture's folder is another; binary files stay."""
    return content.replace(str(AT).encode(), str(folder).encode())


def answers_of(release: Path) -> dict[str, Any]:
    """Return the answers of a release by path."""
    found: dict[str, Any] = json.loads(gzip.decompress((release / "answers.json.gz").read_bytes()))
    return found


def keepers_of(release: Path, folder: Path) -> Path:
    """Unpack the code of a release's keepers; return its folder."""
    with tarfile.open(fileobj=io.BytesIO((release / "keepers.tar.gz").read_bytes())) as archive:
        # Releases of Python 3.11 before 3.11.4 have no filters; the archive is our own.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
