"""`job/gate/address.py`: an address survives its text, and a bad one is named."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import builds, integers, lists, sampled_from, text

from boa_daemon.job.gate.address import DEFAULT_ANSWER_SECONDS, BadAddress, GateAddress

NAMES = text("aZ09 %&+=?#/é-._~", min_size=1, max_size=9)
EXTRAS = {
    "token_file": NAMES,
    "answer_seconds": integers(1, 1000).map(lambda ms: ms / 1000),
    "generation": integers(0, 10**6),
    "uplinks": lists(NAMES, max_size=3).map(tuple),
}


@given(builds(GateAddress, path=NAMES.map(lambda name: f"/{name}"), **EXTRAS))
def test_a_socket_comes_back_from_its_text(address: GateAddress) -> None:
    """Whatever is in its path, in the path of its token and in the names of links."""
    assert GateAddress.parse(str(address)) == address


@given(
    builds(
        GateAddress,
        host=sampled_from(["10.0.0.5", "gate.example.org", "fd00::1", "::1"]),
        port=integers(0, 65_535),
        **EXTRAS,
    )
)
def test_a_host_comes_back_from_its_text(address: GateAddress) -> None:
    """With brackets around an address of IPv6."""
    assert GateAddress.parse(str(address)) == address
    assert (f"tcp:[{address.host}]:" in str(address)) == (":" in address.host)


def test_what_is_not_said_has_its_default() -> None:
    """Five milliseconds, no token, and the generation before the first."""
    assert GateAddress.parse("unix:/a") == GateAddress(path="/a")
    assert DEFAULT_ANSWER_SECONDS == 0.005
    assert GateAddress.parse("unix:/a?uplinks=,b,,c,").uplinks == ("b", "c")
    assert GateAddress.parse("tcp:h:1?answer_ms=1000").answer_seconds == 1.0
    assert str(GateAddress(path="/a b")) == "unix:/a%20b"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "a gate address is unix:PATH or tcp:HOST:PORT") for text in (
            "", "unix:", "tcp:h", "tcp::1", "tcp:h:", "tcp:h:65536", "tcp:h:-1", "tcp:h:²", "tcp:h:٣",
            f"tcp:h:{'9' * 5000}", "http:h:1", "/a",
        )),
        *((f"unix:/a?answer_ms={ms}", "answer_ms must") for ms in ("0", "-1", "1001", "nan", "inf", "x", "")),
        *((f"unix:/a?generation={of}", "generation must") for of in ("-1", "1.5", "x", "", "²", "9" * 5000)),
        ("unix:/a?token=x", "knows token_file, answer_ms, generation and uplinks; got 'token'"),
    ],
)  # fmt: skip
def test_a_malformed_address_is_named(text: str, why: str) -> None:
    """It is always this error, which stops no job."""
    with pytest.raises(BadAddress, match=why):
        GateAddress.parse(text)


def test_a_token_is_read_without_its_line_end(tmp_path: Path) -> None:
    """A file that is no text holds a token that no gate accepts; it is no fault of the job."""
    file = tmp_path / "token"
    address = GateAddress(path="/a", token_file=str(file))
    with pytest.raises(OSError, match="No such file"):
        address.read_token()
    for content, token in ((b" abc\n", "abc"), (b"", ""), (b"\xff\n", "\ufffd")):
        file.write_bytes(content)
        assert address.read_token() == token


def test_a_connection_that_fails_is_an_error_of_the_system(tmp_path: Path) -> None:
    """And leaves no socket open; one that succeeds has a limit of its time."""
    path = str(tmp_path / "gate.sock")
    with pytest.raises(OSError, match="No such file"):
        GateAddress(path=path).connect(timeout_seconds=1.0)
    with socket.socket(socket.AF_UNIX) as gate:
        gate.bind(path)
        gate.listen()
        with GateAddress(path=path).connect(timeout_seconds=3.0) as connected:
            assert connected.gettimeout() == 3.0
    with socket.create_server(("127.0.0.1", 0)) as gate:
        address = GateAddress(host="127.0.0.1", port=gate.getsockname()[1])
        with address.connect(timeout_seconds=3.0) as connected:
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
