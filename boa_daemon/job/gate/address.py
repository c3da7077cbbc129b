"""Where the gate listens and how a job proves itself: what `BOA_GATE` holds.

    unix:/run/boa/gate.sock?token_file=/run/boa/jobs/j1.token
    tcp:10.0.0.5:7411?token_file=/run/boa/jobs/j1.token&answer_ms=5

`answer_ms` is how long a job waits for the gate's first answer before it sends without one (default 5).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

DEFAULT_ANSWER_SECONDS = 0.005
_FORMS = "unix:PATH or tcp:HOST:PORT"


class BadAddress(ValueError):
    """An address that cannot be understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateAddress:
    """A unix socket's `path`, or `host` and `port`; the file with the token; the patience of the job."""

    path: str = ""
    host: str = ""
    port: int = 0
    token_file: str = ""
    answer_seconds: float = DEFAULT_ANSWER_SECONDS

    @classmethod
    def parse(cls, text: str) -> GateAddress:
        """Return the address in a text.

        Raises:
            BadAddress: when it is none.
        """
        place, _, query = text.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        unknown = sorted(set(options) - {"token_file", "answer_ms"})
        if unknown:
            raise BadAddress(f"a gate address knows token_file and answer_ms; got {unknown[0]!r} in {text!r}")
        try:
            answer_seconds = float(options.get("answer_ms", DEFAULT_ANSWER_SECONDS * 1000)) / 1000
        except ValueError:
            raise BadAddress(f"answer_ms must be a number; got {options['answer_ms']!r}") from None
        if not 0.0 < answer_seconds <= 1.0:
            raise BadAddress(f"answer_ms must lie between 0 and 1000; got {options['answer_ms']}")
        token_file = options.get("token_file", "")
        kind, _, rest = place.partition(":")
        if kind == "unix" and rest:
            return cls(path=unquote(rest), token_file=token_file, answer_seconds=answer_seconds)
        host, _, port = rest.rpartition(":")
        if kind == "tcp" and host and port.isdigit() and int(port) < 65536:
            return cls(
                host=host.strip("[]"), port=int(port), token_file=token_file, answer_seconds=answer_seconds
            )
        raise BadAddress(f"a gate address is {_FORMS}; got {text!r}")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = f"unix:{quote(self.path)}" if self.path else f"tcp:{host}:{self.port}"
        options = []
        if self.token_file:
            options.append(f"token_file={quote(self.token_file)}")
        if self.answer_seconds != DEFAULT_ANSWER_SECONDS:
            options.append(f"answer_ms={self.answer_seconds * 1000:g}")
        return f"{place}?{'&'.join(options)}" if options else place

    def read_token(self) -> str:
        """Return the token in the token file.

        Raises:
            OSError: when it cannot be read.
        """
        return Path(self.token_file).read_text(encoding="utf-8").strip()

    def connect(self, *, timeout_seconds: float) -> socket.socket:
        """Return a socket that is connected to the gate.

        Raises:
            OSError: when nobody listens there.
        """
        if not self.path:
            connected = socket.create_connection((self.host, self.port), timeout=timeout_seconds)
            # A question is one small packet and must not wait for a second one.
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
