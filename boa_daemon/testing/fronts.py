"""Two front ends of the fake cloud: inside this process, and over sockets from any process.

In process a lost answer is a time-out that botocore raises at once. Over sockets the call hangs, or the
connection is reset. `python -m boa_daemon.testing.fronts --port 5001` runs the server by itself, with working
nodes: commands sent through SSM run in a folder of this machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

try:
    from moto import mock_aws
    from moto.core.models import botocore_stubber
    from moto.moto_api._internal import moto_api_backend
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server
except ImportError as missing:
    if __name__ != "__main__":
        raise
    from boa_daemon.extras import install_command

    sys.exit(f"the fake cloud needs moto ({missing}). {install_command('fake-cloud')}")

from boa_daemon.testing.fake_answers import Answer, Call
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.moto_speed import speed_up

FAKE_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
}
_NO_ANSWER_SECONDS = 3600.0


@contextmanager
def mocked(cloud: FakeCloud) -> Iterator[FakeCloud]:
    """Redirect every boto3 call of this process to the fake cloud; nothing leaves the process."""

    def process(request: AWSPreparedRequest) -> tuple[int, Any, Any] | None:
        return _in_process(cloud, request)

    mock = mock_aws()
    mock.start()
    botocore_stubber.process_request = process
    try:
        yield cloud
    finally:
        botocore_stubber.__dict__.pop("process_request", None)
        # Whatever starts next begins with an empty cloud, so this one need not be made anew to be left.
        mock.stop(remove_data=False)


def _in_process(cloud: FakeCloud, request: AWSPreparedRequest) -> tuple[int, Any, Any] | None:
    """Answer one request of botocore, or raise the network error of a planned fault."""
    if hasattr(request.body, "read"):
        request.body = request.body.read()
    body = request.body.encode() if isinstance(request.body, str) else (request.body or b"")
    call = Call.read(
        body,
        authorization=_text(request, "Authorization"),
        target=_text(request, "X-Amz-Target"),
        method=str(request.method),
        path=_path_of(request.url),
    )
    fault = cloud.faults.next(call.operation, cloud.zone_of(call) if call.service == "ec2" else "")
    if fault is not None and fault.what == "drop":
        raise ConnectTimeoutError(endpoint_url=request.url)
    if fault is not None and fault.what.startswith("error:"):
        planned = cloud.error(fault.what[6:], call.service)
        return planned.status, planned.headers, planned.body

    def forward(changed: bytes) -> Answer:
        request.body = changed
        request.headers["Content-Length"] = str(len(changed))
        status, headers, text = type(botocore_stubber).process_request(botocore_stubber, request)
        return Answer(status, text.encode() if isinstance(text, str) else text, headers)

    answer = cloud.handle(call, body, forward)
    if fault is not None and fault.what in ("lost", "reset"):
        raise ReadTimeoutError(endpoint_url=request.url)
    return answer.status, answer.headers, answer.body


def _path_of(url: str) -> str:
    """Return a URL without its host; a bucket in the host name becomes the first part of the path."""
    parts = urlsplit(url)
    bucket, dot, _ = (parts.hostname or "").partition(".s3.")
    path = parts._replace(scheme="", netloc="").geturl()
    return f"/{bucket}{path}" if dot else path


def _text(request: AWSPreparedRequest, name: str) -> str:
    value = request.headers.get(name, "")
    return value.decode() if isinstance(value, bytes) else str(value)


def node_environment(url: str) -> dict[str, str]:
    """Return the environment of fake nodes: AWS's endpoint and region, and fake credentials."""
    return {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1", **FAKE_CREDENTIALS}


class FakeServer:
    """The fake cloud behind a moto server, in a thread: `with FakeServer(cloud) as url`.

    `on_call` gets every call: its number, its operation, and "before" or "after"; tests can kill there.
    """

    def __init__(
        self,
        cloud: FakeCloud,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        on_call: Callable[[int, str, str], None] = lambda number, operation, when: None,
    ) -> None:
        self.cloud, self.on_call = cloud, on_call
        self.calls: list[str] = []
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._server = make_server(host, port, self._answer, threaded=True, request_handler=_QuietHandler)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> str:
        """Start, with an empty cloud."""
        moto_api_backend.reset()
        self._thread.start()
        return self.url

    def __exit__(self, *_: object) -> None:
        """Stop the server and release hanging calls."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve_forever(self) -> None:
        """Serve until interrupted."""
        self._server.serve_forever()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request, with its planned fault if there is one."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        call = Call.read(
            body,
            authorization=environ.get("HTTP_AUTHORIZATION", ""),
            target=environ.get("HTTP_X_AMZ_TARGET", ""),
            method=environ["REQUEST_METHOD"],
            path=f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}",
        )
        with self._lock:
            number = len(self.calls)
            self.calls.append(f"{call.service}:{call.operation}")
            fault = self.cloud.faults.next(
                call.operation, self.cloud.zone_of(call) if call.service == "ec2" else ""
            )
        if call.path.startswith("/boa/warn/"):
            return self._warn(call.path.removeprefix("/boa/warn/").rstrip("?"), start)
        self.on_call(number, call.operation, "before")
        what = "" if fault is None else fault.what
        if what == "drop":
            return self._silence(environ)
        if what == "hang" and fault is not None:
            self._over.wait(fault.seconds)
        if what.startswith("error:"):
            answer = self.cloud.error(what[6:], call.service)
        else:
            answer = self.cloud.handle(call, body, lambda changed: self._forward(environ, changed))
        self.on_call(number, call.operation, "after")
        if what == "lost":
            return self._silence(environ)
        if what == "reset":
            return _reset(environ)
        start(f"{answer.status} {'OK' if answer.status == 200 else 'Error'}", list(answer.headers.items()))
        return [answer.body]

    def _warn(self, name: str, start: Callable[..., Any]) -> Iterable[bytes]:
        """Interrupt a spot instance, for a rehearsal."""
        known = name in {life.id for life in self.cloud.live()}
        if known:
            self.cloud.warn(name)
        start("200 OK" if known else "404 Not Found", [("Content-Type", "text/plain")])
        return [b"warned\n" if known else b"no such instance\n"]

    def _forward(self, environ: dict[str, Any], body: bytes) -> Answer:
        """Forward a request to moto's own server application."""
        heard: list[Any] = []
        inner = {key: value for key, value in environ.items() if not key.startswith("werkzeug.request")} | {
            "wsgi.input": BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
        }
        chunks = self._moto(inner, lambda status, headers, *_: heard.extend((status, headers)))
        text = b"".join(chunks)
        headers = {
            key: value for key, value in heard[1] if key.lower() not in ("content-length", "connection")
        }
        return Answer(int(heard[0].split()[0]), text, headers)

    def _silence(self, environ: dict[str, Any]) -> Iterable[bytes]:
        """Never answer: the caller's time-out ends it, and the end of the test."""
        self._over.wait(_NO_ANSWER_SECONDS)
        return _reset(environ)


class _QuietHandler(MotoRequestHandler):  # type: ignore[misc] # moto is not type-checked here
    """Logs no line per request, and ignores clients that disconnected."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's own name
        """Log nothing."""

    def run_wsgi(self) -> None:
        """Answer; ignore a connection reset, which may be our own."""
        try:
            super().run_wsgi()
        except (ConnectionError, ValueError, OSError):
            self.close_connection = True


def _reset(environ: dict[str, Any]) -> Iterable[bytes]:
    """Close the connection with a TCP reset, once its last file is closed."""
    connection: socket.socket = environ["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError("cut by the test")


def main() -> None:
    """Run the server by itself until it is interrupted."""
    speed_up()
    parser = argparse.ArgumentParser(description="A fake AWS for trying things out; nothing costs money.")
    parser.add_argument("--port", type=int, default=5001)
    parser.add_argument("--boot-seconds", type=float, default=5.0)
    parser.add_argument("--shutdown-seconds", type=float, default=3.0)
    parser.add_argument(
        "--vcpu-quota", type=int, default=384, help="of every GPU family; 0 as in a new account"
    )
    options = parser.parse_args()
    terms = Terms(
        boot_seconds=options.boot_seconds, shutdown_seconds=options.shutdown_seconds, spot_fraction=0.4
    )
    cloud = FakeCloud(time.time, terms)
    codes = {entry.vcpu_quota_on_demand for entry in cloud.catalog.entries.values()}
    codes |= {entry.vcpu_quota_spot for entry in cloud.catalog.entries.values()}
    terms.vcpu_quotas.update({code: options.vcpu_quota for code in codes if code})
    os.environ.update(FAKE_CREDENTIALS)
    # moto warns of what it lacks for the stack: bucket policies, placement groups, budgets.
    warnings.filterwarnings("ignore", message="Tried to parse")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = FakeServer(cloud, port=options.port)
    with tempfile.TemporaryDirectory(prefix="boa-nodes", ignore_cleanup_errors=True) as folder:
        cloud.nodes = FakeNodes(Path(folder), environment=node_environment(server.url))
        print(f"export AWS_ENDPOINT_URL={server.url}", flush=True)  # noqa: T201 - said to whoever started it
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
        finally:
            cloud.nodes.close()


if __name__ == "__main__":
    main()
