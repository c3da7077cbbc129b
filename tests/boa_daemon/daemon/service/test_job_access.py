"""Access to a running job: only its user and administrators, and only on a terminal that is their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.service.job_access import JobAccess
from boa_daemon.daemon.service.service_base import NotAllowed, NotReady, UnknownJob
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.ports import Accepted, Refused, SaidInside, WayIn

ME: dict[str, Any] = {"user": "ana", "is_admin": False}
OTHER: dict[str, Any] = {"user": "bob", "is_admin": False}


class Doors:
    """An engine that lets every caller into a job, returns `said` at the end, and records its calls."""

    def __init__(self) -> None:
        self.said: SaidInside | None = None
        self.asked: list[str] = []

    def way(self, job: str, node: int) -> WayIn | Refused:
        del job
        self.asked.append("way")
        if node:
            return Refused(reason=f"no node {node}", kind="bad-request")
        return WayIn(kind="ssm", node="i-1", folder="/f", shell=("sudo", "true"), region="eu-west-1")

    def begin(self, job: str, node: int, command: str, *, seconds: float) -> str:
        del node, command, seconds
        self.asked.append("begin")
        return f"word of {job}"

    def end(self, word: str) -> SaidInside | None:
        del word
        self.asked.append("end")
        return self.said

    def open(
        self, job: str, node: int, terminal: str, *, term: str, may_use: Callable[[int], bool]
    ) -> Accepted | Refused:
        del job, node, terminal, term
        self.asked.append("open")
        return Accepted() if may_use(1000) else Refused(reason="not yours", kind="bad-request")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[JobAccess, Doors, str, str]]:
    """Yield the access service, its engine, a running job and a cancelled job."""
    doors = Doors()

    def with_doors(runner: Any) -> Any:
        runner.inside = doors
        return runner

    clock = ManualClock(1_800_000_000.0)
    play = DaemonInAFolder(tmp_path, clock, wrap_runner=with_doors)
    runs, over = play.service.submit([job_content("runs"), job_content("over")], user="ana")["jobs"]
    play.service.cancel(over, **ME)
    for _ in range(30):
        play.daemon.tick()
        clock.instant += 30.0
        if play.service.job(runs)["nodes"]:
            break
    yield JobAccess(play.service), doors, runs, over
    play.close()


def test_only_the_user_of_a_job_and_administrators_get_in(site: tuple[JobAccess, Doors, str, str]) -> None:
    """All four calls refuse another user, before the engine is asked anything."""
    entering, doors, runs, _ = site
    assert entering.way(runs, node=0, **ME)["node"] == "i-1"
    assert entering.way(runs, node=0, user="root", is_admin=True)["shell"] == ["sudo", "true"]
    word = entering.begin(runs, "true", node=0, seconds=1.0, **ME)["command"]
    assert not entering.end(runs, word, **ME)["is_over"]
    doors.said = SaidInside(code=2, output="x")

    asked = list(doors.asked)
    for refused in (
        lambda: entering.way(runs, node=0, **OTHER),
        lambda: entering.begin(runs, "true", node=0, seconds=1.0, **OTHER),
        lambda: entering.end(runs, word, **OTHER),
        lambda: entering.open(runs, "/dev/pts/1", node=0, term="xterm", may_use=lambda _uid: True, **OTHER),
    ):
        with pytest.raises(NotAllowed, match="is of user ana"):
            refused()
    assert asked == doors.asked == ["way", "way", "begin", "end"]
    said = entering.end(runs, word, **ME)
    assert (said["is_over"], said["exit_code"], said["output"]) == (True, 2, "x")
    with pytest.raises(UnknownJob):
        entering.end(runs, word, **ME)


def test_an_ended_job_an_unknown_node_and_a_foreign_terminal_are_refused(
    site: tuple[JobAccess, Doors, str, str],
) -> None:
    """The errors for the job and for the node say what is wrong."""
    entering, _, runs, over = site
    with pytest.raises(NotReady, match="it is cancelled"):
        entering.way(over, node=0, **ME)
    with pytest.raises(InputError, match="no node 7"):
        entering.way(runs, node=7, **ME)
    for terminal, owner in (("/etc/passwd", 1000), ("/dev/pts/1", 1001)):
        with pytest.raises(InputError):
            entering.open(
                runs, terminal, node=0, term="xterm", may_use=lambda uid, own=owner: uid == own, **ME
            )
