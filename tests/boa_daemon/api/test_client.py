"""The client of Python and of the command line, over a socket and TCP, with a daemon that runs jobs."""

from __future__ import annotations

import gzip
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from daemon_site import SETTINGS, Site, a_site, wait_for
from verbs import exit_code

import boa_daemon
from boa_daemon.api import answers, client, connection
from boa_daemon.api.answers import ExecAnswer
from boa_daemon.api.client import (
    MOST_ASKED_ONE_BY_ONE,
    Client,
    DaemonUnreachable,
    JobsFailed,
    RefusedByDaemon,
    WaitedTooLong,
)
from boa_daemon.engines.local import free_port
from boa_daemon.errors import InputError

TOKEN = "a-token-that-is-long-enough"
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Yield a daemon in its own process that runs jobs as processes and listens on TCP too."""
    with a_site(SETTINGS.format(usd=10.0)) as found:
        port = free_port()
        tokens = found.folder / "tokens"
        tokens.write_text(f"{TOKEN} carol\n")
        tokens.chmod(0o600)
        settings = found.folder / "boa.toml"
        listen = f'listen = "127.0.0.1:{port}"\ntokens = "tokens"\nadmins = ["carol"]'
        settings.write_text(f"{settings.read_text()}[api]\n{listen}\n")
        (found.folder / "url").write_text(f"http://127.0.0.1:{port}")
        found.up()
        yield found


@pytest.fixture(params=["socket", "TCP"])
def boa(request: pytest.FixtureRequest, site: Site) -> Iterator[Client]:
    """Yield a client of that daemon."""
    address = site.socket if request.param == "socket" else url_of(site)
    with Client(address, token=TOKEN) as client:
        yield client


def url_of(site: Site) -> str:
    return (site.folder / "url").read_text()


def a_job(run: str = "true", **changes: Any) -> dict[str, Any]:
    return {"name": "small", "class": "default", "run": run, "max_gpus": 1, **changes}


@pytest.mark.first_set(1)
def test_a_job_can_be_followed_from_submission_to_its_end(boa: Client, site: Site) -> None:
    """Jobs from a file and from a mapping; logs, waiting, cost, lists and explanation work."""
    file = site.folder / "one.yaml"
    file.write_text("{name: from-file, class: default, run: echo one; sleep 0.3; echo two, max_gpus: 1}")

    first, second = boa.submit(file, a_job("exit 0"))
    assert "".join(boa.follow(first)).splitlines()[-2:] == ["one", "two"]
    jobs = boa.wait([first, second], timeout_seconds=PATIENCE_SECONDS, check=True)

    assert [job["name"] for job in jobs] == ["from-file", "small"]
    assert jobs[0]["file"]["workdir"] == str(site.folder.resolve())
    assert jobs[0]["ended_at"] is not None
    assert first in {row["name"] for row in boa.cost(by="job")["rows"]}
    assert first not in {job["id"] for job in boa.jobs()["jobs"]}
    assert first in {job["id"] for job in boa.jobs(ended=True)["jobs"]}
    assert "finished" in boa.explain(first)["text"]


@pytest.mark.first_set(1)
def test_exec_runs_a_command_beside_a_job(boa: Client) -> None:
    """The command is a list or a shell line; the answer has its exit code or why there is none."""
    (job,) = boa.submit(a_job("echo ready; sleep 600"))
    try:
        # Lines of BOA itself may come first.
        assert any("ready" in lines for lines in boa.follow(job))
        said = boa.exec(job, ["printf", "%s", "a b"])
        assert (said["exit_code"], said["output"]) == (0, "a b")
        assert said.keys() == ExecAnswer.__annotations__.keys()
        assert boa.exec(job, "echo $BOA_NODE_RANK; exit 3")["exit_code"] == 3
        assert boa.exec(job, "sleep 60", seconds=0.2)["why"] == "its 0.2 s are over"
        with pytest.raises(RefusedByDaemon, match="has no node 5"):
            boa.exec(job, "true", node=5)
    finally:
        boa.cancel(job)
    boa.wait(job, timeout_seconds=PATIENCE_SECONDS)
    with pytest.raises(RefusedByDaemon):
        boa.exec(job, "true")


@pytest.mark.first_set(1)
def test_answers_have_the_keys_of_their_types(boa: Client) -> None:
    """Every method of the client is checked for missing and for extra keys."""
    (running,) = boa.submit(a_job("sleep 60"))
    wait_until(lambda: boa.job(running)["status"] == "running")
    (over,) = boa.wait(boa.submit(a_job()), timeout_seconds=PATIENCE_SECONDS)
    found: list[tuple[Any, type]] = [
        (boa.status(), answers.StatusAnswer),
        (boa.plan(), answers.PlanAnswer),
        (boa.cost(), answers.CostAnswer),
        (boa.jobs(ended=True), answers.JobsAnswer),
        (boa.instances(ended=True), answers.InstancesAnswer),
        (boa.logs(running), answers.LogAnswer),
        (boa.explain(running), answers.ExplainAnswer),
        (boa.explain(over["id"]), answers.ExplainAnswer),
        (over, answers.WholeJobAnswer),
        (boa.submit_checked([a_job(environment={}, workdir="/")]), answers.SubmittedAnswer),
        (boa.cancel(running), answers.CancelAnswer),
        (boa.down(is_down=False), answers.DownAnswer),
    ]
    found += [(row, answers.JobAnswer) for row in boa.jobs(ended=True)["jobs"]]
    found += [(row, answers.InstanceAnswer) for row in boa.instances(ended=True)["instances"]]

    assert {row for _, row in found} >= {answers.JobAnswer, answers.InstanceAnswer}
    for document, kind in found:
        known, needed = set(get_type_hints(kind)), kind.__required_keys__  # type: ignore[attr-defined]
        assert needed <= set(document) <= known, (kind.__name__, set(document) ^ known)


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.first_set(1)
def test_wait_with_check_names_the_failed_jobs(boa: Client) -> None:
    """The error has the cause; without `check`, the failed job is returned."""
    names = boa.submit(a_job(), a_job("exit 3", retries=0))
    with pytest.raises(JobsFailed, match=f"1 of 2 jobs did not finish: {names[1]} failed: .*3") as failed:
        boa.wait(names, timeout_seconds=PATIENCE_SECONDS, check=True)

    assert [job["status"] for job in failed.value.jobs] == ["finished", "failed"]
    assert boa.wait(names[1])[0]["exit_code"] == 3


def test_wait_ends_after_timeout_seconds(boa: Client) -> None:
    """The job goes on running; after a cancel, waiting ends with its status."""
    (name,) = boa.submit(a_job("sleep 600", stop_grace_seconds=1.0))
    with pytest.raises(WaitedTooLong, match=f"1 of 1 jobs are not over after 0.3 s: {name}"):
        boa.wait(name, timeout_seconds=0.3, poll_seconds=0.05)
    assert boa.cancel(name)["changed"]
    assert boa.wait(name, timeout_seconds=PATIENCE_SECONDS)[0]["status"] == "cancelled"


def test_wait_for_many_jobs_asks_for_each_ended_job_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above `MOST_ASKED_ONE_BY_ONE` jobs, the client uses the list of jobs."""
    asked: list[str] = []
    with Client(site.socket) as boa:
        names = boa.submit(*[a_job("sleep 600") for _ in range(MOST_ASKED_ONE_BY_ONE + 1)])
        monkeypatch.setattr(boa, "job", lambda name: asked.append(name) or Client.job(boa, name))
        for name in names[1:]:
            boa.cancel(name)
        wait_for(lambda: [job["id"] for job in boa.jobs(limit=len(names))["jobs"]] == names[:1], site)
        with pytest.raises(WaitedTooLong, match=names[0]):
            boa.wait(names, timeout_seconds=1.0, poll_seconds=0.2)
        assert {name for name in asked if asked.count(name) > 1} <= {names[0]}
        boa.cancel(names[0])


@pytest.mark.first_set(1)
def test_a_group_is_submitted_waited_for_and_cancelled_by_its_name(
    boa: Client, site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The jobs of a group have their values; the command line can cancel and list the group."""
    names = boa.submit(a_job("echo $LR $BOA_INDEX/$BOA_GROUP_SIZE", matrix={"LR": [0.5, "x y"]}, max_usd=5.0))
    group = boa.job(names[0])["group"]
    assert group is not None
    assert [job["id"] for job in boa.wait(group, timeout_seconds=PATIENCE_SECONDS, check=True)] == names
    printed = [boa.logs(name)["text"].splitlines()[-1] for name in names]
    assert printed == ["0.5 0/2", "x y 1/2"]
    counted = boa.group(group)
    assert set(counted) == set(get_type_hints(answers.GroupAnswer))
    assert (counted["jobs"], counted["counts"]) == (2, {"finished": 2})

    file = site.folder / "sweep.yaml"
    file.write_text("{name: sweep, class: default, run: sleep 600, count: 30, stop_grace_seconds: 1}")
    assert exit_code(monkeypatch, "submit", str(file), "--socket", str(site.socket)) == 0
    found = re.search(r"group (sweep-g\d+): `boa jobs --group", capsys.readouterr().out)
    assert found is not None
    assert exit_code(monkeypatch, "cancel", found[1], "--socket", str(site.socket)) == 0
    assert re.search(rf"{found[1]}: cancell(ed|ing) \(30 jobs\)", capsys.readouterr().out)
    boa.wait(found[1], timeout_seconds=PATIENCE_SECONDS)
    assert exit_code(monkeypatch, "jobs", "--group", found[1], "--socket", str(site.socket)) == 0
    assert f"{found[1]}: 30 cancelled; $0.00" in capsys.readouterr().out


@pytest.mark.first_set(1)
def test_code_is_uploaded_once_and_artifacts_are_downloaded(
    boa: Client,
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Jobs run on the uploaded copy of the folder; files outside of the artifacts are refused."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.sh").write_text(
        f"cat {tmp_path.name}; mkdir out; head -c 3000000 /dev/zero > out/model\n"
    )
    (folder / tmp_path.name).write_text("from the folder")
    (folder / "job.yaml").write_text(
        "{name: coded, class: default, run: bash train.sh, code: ., artifacts: [out], max_gpus: 1}"
    )
    sent: list[str] = []
    inner = connection.ask

    def ask(http: Any, method: str, *words: Any, **more: Any) -> Any:
        sent.append(method)
        return inner(http, method, *words, **more)

    monkeypatch.setattr(client, "ask", ask)
    names = [*boa.submit(folder / "job.yaml"), *boa.submit(folder / "job.yaml")]
    assert sent.count("PUT") == 1
    (folder / "train.sh").write_text("echo changed")
    boa.wait(names, timeout_seconds=PATIENCE_SECONDS, check=True)

    assert "from the folder" in boa.logs(names[0])["text"]
    found = boa.artifacts(names[0])
    assert set(found) == set(get_type_hints(answers.ArtifactsAnswer))
    assert found["files"] == [{"name": "out/model", "bytes": 3_000_000}]
    assert boa.download(names[0], "out/model", tmp_path / "got" / "model").read_bytes() == bytes(3_000_000)
    for name in ("out/modle", "../spec.json", "/etc/passwd", "out"):
        with pytest.raises(RefusedByDaemon):
            boa.download(names[0], name, tmp_path / "other")
    assert not list(tmp_path.glob("*other*"))
    words = ("artifacts", names[1], "--out", str(tmp_path / "all"), "--socket", str(site.socket))
    assert exit_code(monkeypatch, *words) == 0
    assert "3,000,000" in capsys.readouterr().out
    assert (tmp_path / "all" / "out" / "model").stat().st_size == 3_000_000


def test_code_with_a_wrong_digest_is_refused(boa: Client) -> None:
    """Refused code is not stored, and a job cannot name it."""
    with pytest.raises(RefusedByDaemon, match="cannot be read"):
        connection.ask(boa._http, "PUT", f"/code/{'0' * 64}", at=boa._at, content=b"nothing")
    content = gzip.compress(b"x")
    with pytest.raises(RefusedByDaemon, match="the code has the digest"):
        connection.ask(boa._http, "PUT", f"/code/{'0' * 64}", at=boa._at, content=content)
    assert not boa.get(f"/code/{'0' * 64}")["is_here"]
    for code in ({"folder": "."}, {"folder": ".", "digest": "0" * 64}):
        with pytest.raises(RefusedByDaemon, match="must be packed and sent"):
            boa.post("/jobs", {"jobs": [a_job(code=code)]})


def test_an_unknown_job_is_an_error_for_every_method(boa: Client) -> None:
    """`wait` fails at once too."""
    for ask in (boa.job, boa.explain, boa.logs, boa.cancel, boa.wait):
        with pytest.raises(RefusedByDaemon, match="no job 'nobody-1'") as refused:
            ask("nobody-1")
        assert (refused.value.status, refused.value.exit_code) == (404, 2)


@pytest.mark.first_set(1)
def test_a_query_may_be_in_the_path_or_in_arguments(boa: Client) -> None:
    """Parameters in the path and in arguments are used together."""
    (job,) = boa.submit(a_job())
    boa.wait(job, timeout_seconds=PATIENCE_SECONDS)
    for path, query in [("/jobs?limit=1&ended=true", {}), ("/jobs?limit=1", {"ended": True})]:
        assert [row["id"] for row in boa.get(path, **query)["jobs"]] == [job]
    assert boa.get("/jobs?user=nobody", ended=True)["jobs"] == []


def test_a_token_for_another_machine_needs_https() -> None:
    """A missing token and one with unprintable characters are refused too."""
    with pytest.raises(InputError, match="in the clear"):
        Client("http://boa.example:8470", token=TOKEN)
    with pytest.raises(InputError, match="needs a token"):
        Client("https://boa.example:8470")
    with pytest.raises(InputError, match="printable"):
        Client("https://boa.example:8470", token="a\nX-Other: 1")


def test_a_wrong_token_is_refused(site: Site) -> None:
    """The status is 401."""
    with Client(url_of(site), token="wrong") as boa, pytest.raises(RefusedByDaemon) as refused:
        boa.status()
    assert refused.value.status == 401


class _Elsewhere(BaseHTTPRequestHandler):
    """A server that redirects every request, as a proxy might."""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:1/v1/status")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_words: Any) -> None:
        return


def test_a_redirect_is_not_followed() -> None:
    """A server that redirects is not a BOA daemon."""
    server = HTTPServer(("127.0.0.1", 0), _Elsewhere)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        with (
            Client(f"http://127.0.0.1:{server.server_port}", token=TOKEN) as boa,
            pytest.raises(DaemonUnreachable, match="is not a BOA daemon"),
        ):
            boa.status()
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def test_the_command_line_reaches_a_daemon_by_url(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--socket` or BOA_ADDRESS names it, BOA_TOKEN has the token, and the job is the token user's."""
    monkeypatch.setenv("BOA_TOKEN", TOKEN)
    file = site.folder / "remote.yaml"
    file.write_text("{name: remote, class: default, run: 'true', max_gpus: 1}")
    assert exit_code(monkeypatch, "submit", str(file), "--socket", url_of(site)) == 0
    monkeypatch.setenv("BOA_ADDRESS", url_of(site))
    assert exit_code(monkeypatch, "jobs", "--all", "--user", "carol", "-o", "json") == 0
    assert '"name": "remote"' in capsys.readouterr().out
    monkeypatch.delenv("BOA_TOKEN")
    assert exit_code(monkeypatch, "jobs") == 2


def test_the_client_is_imported_only_when_it_is_used() -> None:
    """Nodes import the package too and have neither httpx nor pydantic."""
    assert boa_daemon.Client is Client
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        _ = boa_daemon.Cleint  # type: ignore[attr-defined]
    heavy = "import sys, boa_daemon.job; print(sorted({'httpx', 'pydantic', 'typing'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    said = subprocess.run(
        [sys.executable, "-c", heavy], env=environment, capture_output=True, text=True, check=True
    )
    assert "httpx" not in said.stdout
    assert "pydantic" not in said.stdout


@pytest.mark.parametrize(
    "sent",
    [
        {"document": {"jobs": [{"name": "a", "workdir": os.fsdecode(b"/home/J\xe9r\xf4me/x")}]}},
        {"document": {os.fsdecode(b"J\xe9r"): 1}},
        {"query": {"user": os.fsdecode(b"J\xe9r")}},
    ],
    ids=["a folder of an old disk", "a key", "a word of the command line"],
)
def test_a_name_that_is_not_utf8_is_an_error_in_one_sentence(sent: dict[str, Any]) -> None:
    """Neither JSON nor the database can hold it; nothing is sent."""
    nobody: Any = None
    with pytest.raises(InputError, match=r"J\\udce9r.* not UTF-8. Rename"):
        connection.ask(nobody, "POST", "/jobs", at="http://127.0.0.1:1", **sent)


def test_the_error_without_a_daemon_says_how_to_start_one(tmp_path: Path) -> None:
    """The exit code is the one of an unreachable daemon."""
    with pytest.raises(DaemonUnreachable, match="Start one with `boa daemon`") as unreachable:
        Client(tmp_path / "boa.sock")
    assert unreachable.value.exit_code == 5
    with suppress(OSError), socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "boa.sock"))
    with pytest.raises(DaemonUnreachable, match="it takes up jobs and instances as they are"):
        Client(tmp_path / "boa.sock")
