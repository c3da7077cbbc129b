"""Whether processes still do something: what counts as work, and what does not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boa_daemon.job.occupation import LEAST_SECONDS, Occupation

SILENT = {
    "sleeps": "time.sleep(60)",
    "looks every 20 ms": "while True: time.sleep(0.02)",
    "waits for a thread": "threading.Thread(target=time.sleep, args=(60,)).start()",
    "waits for a process that was there before": "subprocess.run(['sleep', '60'])",
    "serves nobody": "socket.create_server(('127.0.0.1', 0)).accept()",
    "is connected to a child of its own": (
        "door = socket.create_server(('127.0.0.1', 0))\n"
        "if os.fork() == 0: line = socket.create_connection(door.getsockname()); time.sleep(60)\n"
        "line, _ = door.accept(); time.sleep(60)"
    ),
    "was hung up on": (
        "door = socket.create_server(('127.0.0.1', 0))\n"
        "line = socket.create_connection(door.getsockname()); door.accept()[0].close(); time.sleep(60)"
    ),
}
WORKS = {
    "computes": "while True: sum(range(1000))",
    "computes in a child": "subprocess.run([sys.executable, '-c', 'while True: sum(range(1000))'])",
    "writes": (
        "out = open('out', 'wb')\n"
        "while True: out.seek(0); out.write(bytes(20_000)); out.flush(); time.sleep(0.1)"
    ),
    "starts something": "time.sleep(1); subprocess.run(['sleep', '60'])",
    "waits for an answer": "line = socket.create_connection(('127.0.0.1', {port})); line.recv(1)",
    "waits for an answer by IPv6": (
        "line = socket.create_connection(('::ffff:127.0.0.1', {port})); line.recv(1)"
    ),
    "waits for an answer by UDP": (
        "line = socket.socket(type=socket.SOCK_DGRAM); line.connect(('127.0.0.1', 9)); line.recv(1)"
    ),
    "has a child that waits for an answer": (
        "if os.fork() == 0: line = socket.create_connection(('127.0.0.1', {port})); line.recv(1)\n"
        "time.sleep(60)"
    ),
}


@pytest.mark.parametrize(
    ("does", "works"),
    [(text, works) for table, works in ((SILENT, False), (WORKS, True)) for text in table.values()],
    ids=[*SILENT, *WORKS],
)
def test_work_is_seen_from_outside(tmp_path: Path, does: str, works: bool) -> None:
    """A connection to somebody else counts however quiet it is."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        text = "import os, socket, subprocess, sys, threading, time\nprint(flush=True)\n"
        text += does.replace("{port}", str(other.getsockname()[1]))
        with subprocess.Popen(
            [sys.executable, "-c", text], cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.5)
            occupation, family = Occupation(), [process.pid]
            for _ in range(3):
                occupation.look(family, family)
                time.sleep(LEAST_SECONDS + 0.05)
            # The first look only notes what is there.
            assert (occupation.silent_since > occupation.began + LEAST_SECONDS) is works
            os.killpg(process.pid, 9)


def test_a_second_look_at_once_is_none() -> None:
    """It would compare too little time."""
    occupation = Occupation()
    occupation.look([os.getpid()], [os.getpid()])
    since = occupation.silent_since
    occupation.look([os.getpid()], [os.getpid()])
    assert occupation.silent_since == since


def test_processes_that_are_gone_do_no_work() -> None:
    """They may end between two looks."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    occupation = Occupation()
    occupation.look([process.pid], [process.pid])
    assert occupation.silent_since - occupation.began < LEAST_SECONDS
