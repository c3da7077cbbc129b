"""Days of a whole daemon on the fake AWS whose prices change, with restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from aws_days import TYPE, Day
from aws_rigs import AwsRig, a_rig

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.prices.region_prices import catalog_of
from boa_daemon.testing.fake_terms import Terms

Path_: TypeAlias = list[tuple[float, float]]


@dataclass
class Priced:
    """A day, and what the daemon is opened with again."""

    day: Day
    folder: Path
    file: Path
    database: str = ""

    def reopen(self) -> None:
        """Restart the daemon: its process forgets everything that is not stored."""
        rig, jobs = self.day.rig, self.day.jobs
        self.day.play.close()
        rig.cloud = _cloud(rig)
        self.day = Day(self.folder, rig, is_whole=True, database=self.database)
        self.day.jobs = jobs

    def close(self) -> None:
        """Close the daemon that is open now."""
        self.day.play.close()

    def write(self, usd: float, *, file: Path | None = None, as_of: str = "2026-11-01") -> None:
        """Write the price file."""
        text = f'as_of = {as_of}\nregion = "us-east-1"\n[prices]\n"{TYPE}" = {usd}\n'
        (file or self.file).write_text(text)

    def now(self) -> float:
        """Return the instant."""
        return float(self.day.rig.clock.now())


def _cloud(rig: AwsRig) -> AwsCloud:
    settings = rig.settings
    made = rig.another()
    return AwsCloud(
        settings, catalog=catalog_of(settings), clock=rig.clock, calls=made.calls, ledger_id="test",
        say=rig.said.append, sleep=lambda seconds: None,
    )  # fmt: skip


@contextmanager
def a_priced_day(
    folder: Path, terms: Terms | None = None, *, database: str = "", **settings: Any
) -> Iterator[Priced]:
    """Yield a daemon without jobs, in one zone."""
    terms = terms or Terms()
    terms.boot_seconds, terms.shutdown_seconds = 0.0, 30.0
    terms.vcpu_quotas |= {"L-DB2E81BA": 64, "L-3819A6DF": 64}
    with ExitStack() as stack:
        values = {"instance_types": (TYPE,), "zones": ("us-east-1a",)} | settings
        rig = stack.enter_context(a_rig("process", terms, **values))
        day = Day(folder, rig, is_whole=True, database=database)
        found = Priced(day, folder, folder / "prices.toml", database)
        stack.callback(found.close)
        yield found
