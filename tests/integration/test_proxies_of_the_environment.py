"""How a client reaches a daemon by a URL where the environment names a proxy."""

from __future__ import annotations

import pytest

from boa_daemon.api.connection import Unanswered, open_http
from boa_daemon.errors import InputError

NOBODY = "127.0.0.1:9"
PROXIES = ("http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, "HTTP_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def why_unanswered(url: str) -> str:
    http = open_http(url, "a-token")
    try:
        with pytest.raises(Unanswered) as caught, http.request("GET", "/v1/status", {}, None):
            pass
    finally:
        http.close()
    return str(caught.value)


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize(
    "proxy", [f"http://{NOBODY}", NOBODY, f"socks5h://{NOBODY}", "ftp://x", "http://[::1"]
)
@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
def test_no_proxy_leads_to_this_machine(
    monkeypatch: pytest.MonkeyPatch, name: str, proxy: str, host: str
) -> None:
    """Whatever the variable says, the daemon on this machine is asked itself."""
    monkeypatch.setenv(name, proxy)
    assert "proxy" not in why_unanswered(f"http://{host}")


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy_that_does_not_answer_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, f"http://ann:secret@{NOBODY}")
    said = why_unanswered("https://boa.example:8470")
    assert f"through the proxy {NOBODY} of the environment; NO_PROXY" in said
    assert "secret" not in said


@pytest.mark.parametrize("proxy", [f"socks5h://{NOBODY}", "weird://host:1", "http://[::1"])
def test_a_proxy_that_cannot_be_used_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(InputError, match=r"of the environment cannot be used: .*NO_PROXY=boa\.example"):
        open_http("https://boa.example:8470", "a-token")


@pytest.mark.parametrize("without", ["boa.example", "example", "*", ".example,other"])
def test_no_proxy_leaves_a_host_out(monkeypatch: pytest.MonkeyPatch, without: str) -> None:
    """Also where the proxy itself could not be used."""
    monkeypatch.setenv("ALL_PROXY", f"socks5h://{NOBODY}")
    monkeypatch.setenv("NO_PROXY", without)
    open_http("https://boa.example:8470", "a-token").close()
