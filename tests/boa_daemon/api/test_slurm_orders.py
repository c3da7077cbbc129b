"""`api/slurm_orders.py`: what Slurm's power saving calls."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.api import slurm_orders
from boa_daemon.api.connection import DaemonUnreachable, RefusedByDaemon
from boa_daemon.api.slurm_orders import answer_slurm, send_order

ANSWERS = {
    "resume": {"jobs": ["j-1"], "known": 2, "refused": {"c3": "month cap [red] of team \u00e9"}},
    "suspend": {"jobs": ["j-1", "j-2"], "unknown": 1},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return the orders that reach the daemon, which answers them."""
    orders: list[tuple[Any, ...]] = []

    def send(order: str, hostlist: str, config: Path | None, socket: str | None) -> Any:
        orders.append((order, hostlist, config, socket))
        return ANSWERS[order]

    monkeypatch.setattr(slurm_orders, "send_order", send)
    return orders


@pytest.mark.parametrize(
    ("words", "order"),
    [
        (["resume", "c[1-3]"], ("resume", "c[1-3]", None, None)),
        (["suspend", "c1,c2"], ("suspend", "c1,c2", None, None)),
        (["resume", "--config", "/etc/boa.toml", "c1"], ("resume", "c1", Path("/etc/boa.toml"), None)),
        (["resume", "c1", "--config=/a b.toml"], ("resume", "c1", Path("/a b.toml"), None)),
        (["suspend", "--socket", "/s", "c1"], ("suspend", "c1", None, "/s")),
    ],
)
def test_calls_of_slurm_reach_the_daemon(
    words: Sequence[str],
    order: tuple[Any, ...],
    asked: list[tuple[Any, ...]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the flags that `boa slurm config` writes into the programs."""
    assert answer_slurm(["slurm", *words]) == 0
    assert asked == [order]
    said = capsys.readouterr().out.splitlines()
    if order[0] == "resume":
        assert said == [
            "1 node asked for, 2 asked for before",
            "c3 is refused: month cap [red] of team \u00e9",
        ]
    else:
        assert said == ["2 nodes given back, 1 not known here"]


@pytest.mark.parametrize(
    "words",
    [["resume"], ["resume", "c1", "c2"], ["resume", "c1", "-o", "json"], ["resume", "--help"], ["config"],
     ["resume", "c1", "--config"], ["caps", "x", "y"], []],
)  # fmt: skip
def test_every_other_call_goes_the_common_way(words: Sequence[str], asked: list[tuple[Any, ...]]) -> None:
    """Help, JSON and mistakes are those of the whole command line."""
    assert answer_slurm(["slurm", *words]) is None
    assert not asked


def _client(faults: list[Exception]) -> type:
    class Faulty:
        def __init__(self, _: object) -> None:
            pass

        def __enter__(self) -> Faulty:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def slurm_resume(self, _: str) -> Any:
            if faults:
                raise faults.pop(0)
            return ANSWERS["resume"]

        slurm_suspend = slurm_resume

    return Faulty


def test_a_daemon_that_restarts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again; one that refuses is not, and `SuspendProgram` ends well even then."""
    monkeypatch.setattr(slurm_orders.time, "sleep", lambda _: None)
    monkeypatch.setattr(slurm_orders, "Client", _client([DaemonUnreachable("no daemon listens")] * 2))
    assert send_order("resume", "c1", None, "/s") == ANSWERS["resume"]
    refused = RefusedByDaemon("'c1[' is no list of nodes", exit_code=2, status=422)
    monkeypatch.setattr(slurm_orders, "Client", _client([refused] * 2))
    assert send_order("suspend", "c1[", None, "/s")["fault"] == "'c1[' is no list of nodes"
    assert answer_slurm(["slurm", "resume", "--socket=/s", "c1["]) == 2


def test_slurm_does_not_wait_for_the_framework_of_the_command_line() -> None:
    """Of a call's processor time most was typer's, pydantic's and rich's."""
    code = (
        "import sys; from boa_daemon.api import slurm_orders; from boa_daemon.__main__ import main\n"
        "slurm_orders.PATIENCE_SECONDS = 0.0\n"
        "sys.argv = ['boa', 'slurm', 'suspend', 'c1', '--socket', '/nonexistent/boa.sock']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print(*{'typer', 'pydantic', 'rich', 'httpx', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
    assert done.stderr.startswith("boa slurm suspend: no daemon listens")


@pytest.mark.parametrize("answer", ["slurm_orders.send_order", "lambda *_: {'jobs': ['j'], 'unknown': 0}"])
@pytest.mark.parametrize(
    "streams", [">&- 2>&-", "<&- >&- 2>&-", "2>&-", "> /dev/full 2>&1", "2> /dev/full", "> /dev/full"]
)
def test_a_suspend_program_ends_well_where_nothing_can_be_said(streams: str, answer: str) -> None:
    """The streams of a program of Slurm may be closed, or its log may be on a full disk."""
    code = (
        "import sys; from boa_daemon.api import slurm_orders; from boa_daemon.__main__ import main\n"
        f"slurm_orders.PATIENCE_SECONDS = 0.0; slurm_orders.send_order = {answer}\n"
        "sys.argv = ['boa', 'slurm', 'suspend', 'c1', '--socket', '/nonexistent/boa.sock']\n"
        "main()"
    )
    done = subprocess.run(
        ["bash", "-c", f'exec "$0" -c "$1" {streams}', sys.executable, code],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0
