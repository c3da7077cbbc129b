"""A daemon with a day of history, served over TCP and a Unix socket, for tests of the dashboard page."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.server import ApiServer, tcp_socket, unix_socket
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.ports import LogChunk, RunReport

TOKEN = "a-token-that-is-long-enough"
TOKENS = {"ann": TOKEN, "bob": "another-token-of-bob-here", "root": "the-token-of-administrators"}
CLASSES = """
gpu_types:
  a10g: {instance_type: g5.12xlarge}
classes:
- name: vision
  arrivals_per_hour: 3.0
  phases: [{size_gpu_hours: 2.0, speedup: {a10g: {table: {1: 1.0, 2: 1.9, 4: 3.5, 8: 5.8}}}}]
- name: language
  arrivals_per_hour: 0.7
  phases: [{size_gpu_hours: 14.0, speedup: {a10g: {table: {1: 1.0, 2: 1.95, 4: 3.8, 8: 7.2, 16: 12.5}}}}]
- name: speech
  arrivals_per_hour: 2.0
  phases: [{size_gpu_hours: 1.0, speedup: {a10g: {table: {1: 1.0, 2: 1.7, 4: 2.6}}}}]
"""
COMMITMENTS = """
as_of = 2026-07-01
source = "a contract"
[[commitments]]
name = "g5 for a year"
kind = "compute"
discounts = {g5 = 0.28}
usd_per_hour = 8.5
"""
USERS = {"vision": ("ann", "bob"), "language": ("carol",), "speech": ("dora", "ann")}
MOST = {"vision": 8, "language": 16, "speech": 4}
SIZES = {"vision": 2.0, "language": 14.0, "speech": 1.0}
TICK_SECONDS = 180.0


class Talking:
    """A runner whose jobs report and print a step and a falling loss every minute."""

    def __init__(self, inner: Any, clock: ManualClock) -> None:
        self._inner, self._clock = inner, clock
        self._begun: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _step(self, job: str) -> int:
        return 60 * int((self._clock.now() - self._begun.setdefault(job, self._clock.now())) / 60.0)

    @staticmethod
    def _loss(job: str, step: int) -> float:
        return 0.4 + 2.2 / (1.0 + step / 400.0) ** 0.6 + 0.03 * random.Random(f"{job} {step}").random()

    def poll(self) -> Mapping[str, RunReport]:
        return {
            job: replace(
                report,
                step=(step := self._step(job)),
                loss=self._loss(job, step),
                gpu_use=0.7 + 0.25 * random.Random(f"{job} {step} use").random(),
            )
            if report.phase == "running"
            else report
            for job, report in self._inner.poll().items()
        }

    def logs(self, job: str, *, since: int = 0, **where: Any) -> LogChunk:
        whole = "".join(
            f"step {step:6,d}  loss {self._loss(job, step):.4f}\n"
            for step in range(60, self._step(job) + 1, 60)
        )
        return LogChunk(text=whole[since:], next_offset=len(whole))


def a_day(folder: Path, *, hours: float = 24.0, now: float | None = None) -> DaemonInAFolder:
    """Return a daemon with `hours` of history up to now: jobs arrived, ran, were resized and ended."""
    (folder / "classes.yaml").write_text(CLASSES)
    (folder / "commitments.toml").write_text(COMMITMENTS)
    ends_at = time.time() if now is None else now
    clock = ManualClock(ends_at - hours * 3600.0)
    settings = {
        "budget": {
            "usd_per_hour": 42.0,
            "usd_per_day_cap": 1300.0,
            "usd_per_month_cap": 32000.0,
            "max_instances": 9,
        },
        "cloud": {
            "instance_types": ["g5.12xlarge"],
            "boot_seconds": 240.0,
            "commitments": str(folder / "commitments.toml"),
        },
        "teams": {
            "vision": {"members": ["ann", "bob"], "usd_per_day_cap": 900.0, "usd_per_month_cap": 9000.0},
            "language": {"members": ["carol"], "usd_per_day_cap": 450.0, "share": 1.0},
            "speech": {"members": ["dora"], "usd_per_month_cap": 4000.0, "share": 1.0},
        },
        "workload": {"classes": str(folder / "classes.yaml")},
        "daemon": {"tick_seconds": 60.0},
    }
    found = DaemonInAFolder(folder, clock, settings, wrap_runner=lambda inner: Talking(inner, clock))
    draw = random.Random(3)
    rates = {"vision": 3.0, "language": 0.7, "speech": 2.0}
    while clock.instant < ends_at:
        for name, rate in rates.items():
            if draw.random() < rate * TICK_SECONDS / 3600.0:
                size = SIZES[name] * draw.lognormvariate(-0.1, 0.5)
                content = job_content(
                    name, hours=size, **{"class": name}, max_gpus=MOST[name], scale=size / SIZES[name]
                )
                found.service.submit([content], user=draw.choice(USERS[name]))
        found.daemon.tick()
        clock.instant += TICK_SECONDS
    # Submit many jobs at the end, so that nodes boot and jobs wait.
    rush = [("vision", 2.0), ("language", 14.0), ("vision", 1.5), ("language", 11.0), ("vision", 3.0)]
    for name, size in rush:
        more = {"class": name, "max_gpus": MOST[name], "scale": size / SIZES[name]}
        found.service.submit([job_content(name, hours=size, **more)], user=USERS[name][0])
    clock.instant = ends_at - 60.0
    found.daemon.tick()
    clock.instant = ends_at
    found.daemon.tick()
    return found


@dataclass(frozen=True)
class Served:
    """A served daemon with its socket and port."""

    play: DaemonInAFolder
    socket: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@contextmanager
def served(play: DaemonInAFolder, folder: Path) -> Iterator[Served]:
    """Serve a daemon on a Unix socket and on a local port."""
    tokens = folder / "tokens"
    tokens.write_text("".join(f"{token} {user}\n" for user, token in TOKENS.items()))
    tokens.chmod(0o600)
    settings = ApiSettings.model_validate(
        {"listen": "127.0.0.1:0", "tokens": str(tokens), "admins": ["root"]}
    )
    tcp = tcp_socket("127.0.0.1:0")
    app = create_app(play.service, Authenticator(settings))
    server = ApiServer(app, [unix_socket(folder / "boa.sock"), tcp])
    server.start()
    try:
        yield Served(play, folder / "boa.sock", tcp.getsockname()[1])
    finally:
        server.stop()
