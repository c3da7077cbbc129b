"""Address of the gate with the job's credentials, in the form of the variable `BOA_GATE`.

    unix:/run/boa/gate.sock?token_file=/run/boa/jobs/j1.token
    tcp:10.0.0.5:7411?token_file=/run/boa/jobs/j1.token&answer_ms=5

`token_file` is the path of the job's token. `answer_ms` is how long a job waits for the gate's first answer
before it sends without one (default 5). `generation` is the generation of the job that the token is for
(default 0). `uplinks` are further links that its messages take, besides those of its nodes.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

DEFAULT_ANSWER_SECONDS = 0.005
PORT = 7411
"""Default TCP port of the gate for jobs on other nodes; the security group must allow it."""
_FORMS = "unix:PATH or tcp:HOST:PORT"


class BadAddress(ValueError):
    """A gate address that is malformed."""


def _is_number(text: str, most_digits: int) -> bool:
    # Python's `isdigit` takes digits that `int` does not, and `int` refuses thousands of them.
    return text.isascii() and text.isdigit() and len(text) <= most_digits


@dataclass(frozen=True)
class GateAddress:
    """The gate's address: a unix socket's `path`, or `host` and `port`; with the fields of the query."""

    path: str = ""
    host: str = ""
    port: int = 0
    token_file: str = ""
    answer_seconds: float = DEFAULT_ANSWER_SECONDS
    generation: int = 0
    uplinks: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> GateAddress:
        """Return the address that a text describes.

        Raises:
            BadAddress: when the text is malformed.
        """
        place, _, query = text.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        unknown = sorted(set(options) - {"token_file", "answer_ms", "generation", "uplinks"})
        if unknown:
            raise BadAddress(
                "a gate address knows token_file, answer_ms, generation and uplinks; "
                f"got {unknown[0]!r} in {text!r}"
            )
        try:
            answer_seconds = float(options.get("answer_ms", DEFAULT_ANSWER_SECONDS * 1000)) / 1000
        except ValueError:
            raise BadAddress(f"answer_ms must be a number; got {options['answer_ms']!r}") from None
        if not 0.0 < answer_seconds <= 1.0:
            raise BadAddress(f"answer_ms must lie between 0 and 1000; got {options['answer_ms']}")
        generation = options.get("generation", "0")
        if not _is_number(generation, 18):
            raise BadAddress(f"generation must be a whole number; got {generation!r}")
        found = cls(
            token_file=options.get("token_file", ""),
            answer_seconds=answer_seconds,
            generation=int(generation),
            uplinks=tuple(name for name in options.get("uplinks", "").split(",") if name),
        )
        kind, _, rest = place.partition(":")
        if kind == "unix" and rest:
            return replace(found, path=unquote(rest))
        host, _, port = rest.rpartition(":")
        if kind == "tcp" and host and _is_number(port, 5) and int(port) < 65536:
            return replace(found, host=host.strip("[]"), port=int(port))
        raise BadAddress(f"a gate address is {_FORMS}; got {text!r}")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = f"unix:{quote(self.path)}" if self.path else f"tcp:{host}:{self.port}"
        options = []
        if self.token_file:
            options.append(f"token_file={quote(self.token_file)}")
        if self.answer_seconds != DEFAULT_ANSWER_SECONDS:
            options.append(f"answer_ms={self.answer_seconds * 1000:g}")
        if self.generation:
            options.append(f"generation={self.generation}")
        if self.uplinks:
            options.append(f"uplinks={quote(','.join(self.uplinks), safe=',')}")
        return f"{place}?{'&'.join(options)}" if options else place

    def read_token(self) -> str:
        """Return the token in the token file.

        Raises:
            OSError: when the file cannot be read.
        """
        return Path(self.token_file).read_text(encoding="utf-8", errors="replace").strip()

    def connect(self, *, timeout_seconds: float) -> socket.socket:
        """Return a socket that is connected to the gate.

        Raises:
            OSError: when the connection fails.
        """
        if not self.path:
            connected = socket.create_connection((self.host, self.port), timeout=timeout_seconds)
            # A question is one small packet: send it at once, without Nagle's algorithm.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connected
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            local.settimeout(timeout_seconds)
            local.connect(self.path)
        except OSError:
            local.close()
            raise
        return local
