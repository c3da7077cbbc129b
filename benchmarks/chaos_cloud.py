"""The cloud of `benchmarks/chaos.py`: a proxy before the fake AWS that injects faults and plays the nodes.

The proxy answers Run Command itself. `Nodes` is its own record of what ran where, which the daemon's records
are compared with at the end.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from uuid import uuid4

from chaos_caps import PRICE, TEAM

from boa_daemon.engines.ssm_scripts import HEALTH, READY, STATUS
from boa_daemon.job.seal import sealed


@dataclass
class Unit:
    """A unit that runs on a node."""

    job: str
    generation: int
    node: str
    began: float
    seconds: float
    key: str = ""
    end: dict[str, Any] | None = None
    ended: float | None = None


@dataclass
class Nodes:
    """The nodes, with their own record of the units that Run Command started."""

    units: list[Unit] = field(default_factory=list)
    live: set[str] = field(default_factory=set)
    commands: dict[str, str] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    doubled: int = 0
    chance: Random = field(default_factory=Random)

    def command(self, node: str, script: str) -> str:
        """Run a script on a node; return the command's id."""
        name, said = str(uuid4()), f'{HEALTH}{{"faults": []}}\n{READY}'
        key = re.search(r"printf '%s\\n' (\w+) > \S*status\.key", script)
        with self.lock:
            if found := re.search(r"<<'UNIT'\n(.*)\nUNIT\n", script):
                self._start(node, json.loads(found[1]), "" if key is None else key[1])
            elif found := re.search(r"systemctl (stop|kill).*boa-(.+)-\*-g(\d+)-n\*", script):
                self._end(found[2], int(found[3]), is_stop=found[1] == "stop")
            elif found := re.search(r"/([^/\s]+)/g(\d+)/n\d+'?\s*$", script.strip()):
                for unit in self.units:
                    if key is not None and (unit.job, unit.generation) == (found[1], int(found[2])):
                        unit.key = key[1]
                said = STATUS + json.dumps(self.status(found[1], int(found[2])) or {})
            self.commands[name] = said
        return name

    def _start(self, node: str, unit: dict[str, Any], key: str) -> None:
        """Start a unit once; count it as doubled if another generation of its job still runs."""
        job, generation = unit["job"], unit["generation"]
        if there := [each for each in self.units if (each.job, each.generation) == (job, generation)]:
            # Like the real script: a running unit goes on and signs its reports with the newest key.
            there[0].key = key
            return
        self.look(time.monotonic())
        self.doubled += any(each.job == job and each.end is None for each in self.units)
        seconds = self.chance.uniform(20.0, 45.0) if is_of_team(job) else self.chance.uniform(4.0, 15.0)
        self.units.append(Unit(job, generation, node, time.monotonic(), seconds, key))

    def _end(self, job: str, generation: int, *, is_stop: bool) -> None:
        """Stop or kill a unit."""
        for unit in self.units:
            if unit.end is None and (unit.job, unit.generation) == (job, generation):
                self._finish(unit, code=-15, stop_asked=is_stop, killed=not is_stop, is_done=False)

    def _finish(self, unit: Unit, **facts: Any) -> None:
        """Record how a unit ended."""
        base = {"code": 0, "stop_asked": False, "killed": False, "out_of_memory": False, "lingering": 0}
        unit.end, unit.ended = {**base, "is_done": True, "lacks_result": False, **facts}, time.monotonic()

    def look(self, now: float) -> None:
        """End the units whose time is over and the units whose node is gone."""
        for unit in self.units:
            if unit.end is None and unit.node not in self.live:
                self._finish(unit, code=None, agent_lost=True, is_done=False)
            elif unit.end is None and now - unit.began >= unit.seconds:
                self._finish(unit)

    def status(self, job: str, generation: int) -> dict[str, Any] | None:
        """Return a unit's status report."""
        for unit in self.units:
            if (unit.job, unit.generation) == (job, generation) and unit.node in self.live:
                return self.said(unit)
        return None

    def usd_of_team(self, now: float) -> float:
        """Return the cost of the GPUs of the team's units while they ran."""
        ends = [
            (unit, now if unit.ended is None else unit.ended) for unit in self.units if is_of_team(unit.job)
        ]
        return sum(end - unit.began for unit, end in ends) * PRICE / 3600.0

    def said(self, unit: Unit) -> dict[str, Any]:
        """Return a unit's status report, sealed with the key of its generation."""
        word = {
            "job": unit.job, "generation": unit.generation, "rank": 0, "is_kept": unit.end is None,
            "was_kept": True, "progress": None, "exit": unit.end, "manifest": None, "wrong_manifest": "",
            "last_lines": [],
        }  # fmt: skip
        return sealed(word, unit.key)


def is_of_team(job: str) -> bool:
    """Return whether a job draws on the purse whose cap is lowered."""
    return job.startswith(f"{TEAM}-")


@dataclass
class Weather:
    """The faults that the proxy injects into calls."""

    fault_fraction: float = 0.0
    is_cut_off: bool = False
    faults: Counter[str] = field(default_factory=Counter)


def proxy(port: int, nodes: Nodes, weather: Weather, chance: Random) -> ThreadingHTTPServer:
    """Return a proxy in front of the server at a port; the proxy answers Run Command itself."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if weather.is_cut_off:
                weather.faults["cut off"] += 1
                self._cut()
                return
            draw = chance.random() / weather.fault_fraction if weather.fault_fraction else 1.0
            if draw < 0.3:
                weather.faults["answered 503"] += 1
                self._answer(503, {}, _error("Unavailable"))
                return
            if draw < 0.5:
                weather.faults["throttled"] += 1
                self._answer(
                    400,
                    {},
                    _error("RequestLimitExceeded"),
                )
                return
            if draw < 0.7:
                weather.faults["cut before"] += 1
                self._cut()
                return
            status, headers, text = self._forward(body)
            if draw < 0.9:
                weather.faults["answer lost"] += 1
                self._cut()
                return
            if draw < 1.0:
                weather.faults["odd answer"] += 1
                text = text[: len(text) // 2]
            self._answer(status, headers, text)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _handle  # noqa: N815 - names of the library

        def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            target = self.headers.get("X-Amz-Target", "")
            if target in ("AmazonSSM.SendCommand", "AmazonSSM.GetCommandInvocation"):
                return self._run_command(target, json.loads(body))
            line = HTTPConnection("127.0.0.1", port, timeout=20.0)
            line.request(self.command, self.path, body, dict(self.headers.items()))
            answer = line.getresponse()
            text = answer.read()
            headers = dict(answer.getheaders())
            line.close()
            return answer.status, headers, text

        def _run_command(self, target: str, request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
            kind = {"Content-Type": "application/x-amz-json-1.1"}
            named = request.get("InstanceIds") or [request.get("InstanceId")]
            with nodes.lock:
                if not set(named) <= nodes.live:
                    return 400, kind, json.dumps({"__type": "InvalidInstanceId", "message": "gone"}).encode()
                if target.endswith("SendCommand"):
                    script = request["Parameters"]["commands"][0]
                    ids = [nodes.command(node, script) for node in named]
                    answer: dict[str, Any] = {"Command": {"CommandId": ids[0]}}
                else:
                    said = nodes.commands.get(request["CommandId"], "")
                    answer = {"Status": "Success", "StandardOutputContent": said}
            return 200, kind, json.dumps(answer).encode()

        def _answer(self, status: int, headers: dict[str, str], text: bytes) -> None:
            self.send_response_only(status)
            known = {key.lower() for key in headers}
            if "date" not in known:
                self.send_header("Date", self.date_time_string())
            for key, value in headers.items():
                if key.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(key, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        def _cut(self) -> None:
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_words: Any) -> None:
            return

        def handle(self) -> None:
            with suppress(OSError, ValueError):
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Wrong:
    """Makes messages that no node should send."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def message(self, jobs: list[tuple[str, int]]) -> str:
        """Return a status or an event with one wrong part."""
        job, generation = self._chance.choice(jobs or [("none-1", 1)])
        good: dict[str, Any] = {
            "job": job, "generation": generation, "rank": 0, "is_kept": True, "was_kept": True,
            "progress": {"generation": generation, "step": 3}, "exit": {}, "manifest": None, "last_lines": [],
        }  # fmt: skip
        event = {"detail-type": "EC2 Spot Instance Interruption Warning", "time": "soon", "detail": {}}
        odd: Any = self._chance.choice([None, [], {}, "x", -1, 10**400, 2**64, True, {"step": "x"}, [[]]])
        kind = self._chance.randrange(6)
        if kind == 5:
            # A well-formed message with a wrong seal: if accepted, it would end a running job.
            end = {"code": 0, "stop_asked": False, "killed": False, "out_of_memory": False, "lingering": 0}
            end |= {"is_done": True, "lacks_result": False}
            return json.dumps(sealed({**good, "exit": end}, self._chance.choice(["", "0" * 64])))
        if kind == 0:
            return json.dumps(event)
        if kind == 1:
            return self._chance.choice(["", "{", "[1]", "null", "\\x00", "[" * 50_000, '{"job": 1}'])
        key = self._chance.choice(["job", "generation", "rank", "progress", "manifest", "last_lines"])
        if kind == 2:
            del good[key]
        return json.dumps({**good, key: odd} if kind != 2 else good)


def _error(code: str) -> bytes:
    """Return an error in EC2's XML."""
    return f"<Response><Errors><Error><Code>{code}</Code></Error></Errors></Response>".encode()
