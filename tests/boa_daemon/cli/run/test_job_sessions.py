"""`boa exec`, `boa shell` and `boa port-forward`: the sessions that they open, and a job of a daemon."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import typer
from daemon_site import PATIENCE_SECONDS, SETTINGS, Site, a_site, wait_for

from boa_daemon.cli.common.terminal import relay_port
from boa_daemon.cli.run import job_sessions
from boa_daemon.cli.run.job_sessions import port_session, shell_session
from boa_daemon.engines.local import free_port

WAY = {"node": "i-0abc", "region": "eu-west-1", "shell": ["sudo", "env", "A=b c", "python3"]}
JOB = "name: long\nclass: default\nmax_gpus: 1\nrun: echo ready; sleep 1000\n"


def test_session_commands_name_region_target_document_and_parameters() -> None:
    """They are `aws ssm start-session` commands; the command of a shell is one parameter."""
    words = shell_session(WAY).command
    assert words[:7] == ["aws", "ssm", "start-session", "--region", "eu-west-1", "--target", "i-0abc"]
    assert words[7:9] == ["--document-name", "AWS-StartInteractiveCommand"]
    assert json.loads(words[-1]) == {"command": ["sudo env 'A=b c' python3"]}
    words = port_session({**WAY, "region": ""}, 6006, 7007).command
    assert words[:5] == ["aws", "ssm", "start-session", "--target", "i-0abc"]
    assert words[6] == "AWS-StartPortForwardingSession"
    assert json.loads(words[-1]) == {"portNumber": ["6006"], "localPortNumber": ["7007"]}


def test_a_port_is_relayed_in_both_directions() -> None:
    """Bytes sent to one end arrive at the other, and the answer comes back."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        here = free_port()
        threading.Thread(target=relay_port, args=(here, there.getsockname()[1]), daemon=True).start()
        until = time.monotonic() + 60.0
        while True:
            try:
                caller = socket.create_connection(("127.0.0.1", here), timeout=60.0)
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.01)
        with caller:
            caller.sendall(b"ping")
            answerer, _ = there.accept()
            with answerer:
                assert answerer.recv(4) == b"ping"
                answerer.sendall(b"pong")
                assert caller.recv(4) == b"pong"


@pytest.mark.exhaustive
def test_exec_shell_and_port_forward_reach_a_job_of_a_daemon() -> None:
    """A failed command gives exit code 1, a shell needs a terminal, and exec fails once the job is over.

    The test runs a daemon with a job, which takes some ten seconds.
    """
    with a_site(SETTINGS.format(usd=10.0)) as site:
        (site.folder / "job.yaml").write_text(JOB)
        site.up()
        job = json.loads(boa(site, "submit", "job.yaml", "--json")[1])["jobs"][0]
        wait_for(lambda: bool(site.get(f"/jobs/{job}").get("nodes")), site)
        wait_for(lambda: "ready" in site.get(f"/jobs/{job}/logs").get("text", ""), site)

        code, said = boa(site, "exec", job, "--", "echo of $BOA_JOB_ID; exit 4")
        assert (code, said) == (1, f"of {job}\n")
        code, said = boa(site, "exec", job, "--json", "--", "printf", "%s", "a b")
        assert (code, json.loads(said)["output"]) == (0, "a b")
        assert b"of " + job.encode() in in_a_shell(site, job, b"echo of $BOA_JOB_ID; exit\n")
        assert boa(site, "shell", job)[0] == 2
        code, said = boa(site, "port-forward", job, "6006")
        assert (code, said) == (0, "http://127.0.0.1:6006/\n")
        boa(site, "cancel", job)
        wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "cancelled", site)
        assert boa(site, "exec", job, "--", "true")[0] == 1
        site.end(signal.SIGTERM)


def boa(site: Site, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "boa_daemon", *words],
        cwd=site.folder, env=environment(), capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    return done.returncode, done.stdout


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TERM": "dumb"}


def in_a_shell(site: Site, job: str, typed: bytes) -> bytes:
    """Type into `boa shell` on a terminal, and return the output."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "boa_daemon", "shell", job],
        cwd=site.folder, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    said, is_typed, until = b"", False, time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < until:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                said += os.read(ours, 4096)
            except OSError:
                break
        if not is_typed and said.rstrip().endswith((b"$", b"#")):
            os.write(ours, typed)
            is_typed = True
    os.close(ours)
    assert process.wait(timeout=PATIENCE_SECONDS) == 0, said
    return said


def test_print_shows_the_session_command_without_opening_it(capfd: pytest.CaptureFixture[str]) -> None:
    """The command can then be run on another machine."""
    with pytest.raises(typer.Exit):
        job_sessions._session(port_session(WAY, 6006, 7007), prints=True)
    assert capfd.readouterr().out.startswith("aws ssm start-session --region eu-west-1 --target i-0abc ")
