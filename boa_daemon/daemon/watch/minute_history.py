"""History by the minute for 90 days: burn rates by purpose, GPUs, and jobs.

Each hour is one compressed document of columns, about a kilobyte, so 90 days take a few megabytes. A minute
records the figures of its first tick; a minute without a tick has none.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, select

from boa_daemon.store.database import Database
from boa_daemon.store.records import JobRecord
from boa_daemon.store.sql import put
from boa_daemon.store.tables import DOCUMENTS
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import JobId, NodeId

KIND = "history"
KEPT_SECONDS = 90 * 86_400.0
MINUTE_SECONDS = 60.0
MOST_NAMES = 12
"""Largest number of classes, users or teams per minute; the cheaper ones are combined."""
OTHERS = "(others)"
Series = dict[str, float]


def current_figures(state: ClusterState, jobs: Mapping[JobId, JobRecord]) -> Series:
    """Return the present figures; burn rates in dollars per hour, by state, market, class, user and team.

    Which job holds a GPU is read from the `jobs`, as after the starts and stops of the tick that saw `state`:
    a GPU whose job has just started is not idle. O(jobs + GPUs). The parts by state and by market each add
    up to the burn rate. Those by class, user and team leave out GPUs without a job.
    """
    found: Series = defaultdict(float)
    by: dict[str, Counter[str]] = {kind: Counter() for kind in ("class", "user", "team")}
    starting = {name for name, job in jobs.items() if _starts_again(job)}
    holders: dict[NodeId, dict[int, JobId]] = {}
    for name, job in jobs.items():
        for slot in job.slots:
            holders.setdefault(slot.node, {})[slot.index] = name
    for node in state.nodes.values():
        usd, gpus = node.usd_per_hour, len(node.gpus)
        found["usd_per_hour"] += usd
        found[f"market:{node.market}"] += usd
        found["gpus"] += gpus
        if node.phase == "stopped":
            found["state:stopped"] += usd
            continue
        if node.phase == "requested":
            found["state:boot"] += usd
            continue
        held = holders.get(node.id, {})
        gpus_of: dict[JobId | None, int] = {}
        for gpu in range(gpus):
            holder = held.get(gpu)
            gpus_of[holder] = gpus_of.get(holder, 0) + 1
        for holder, count in gpus_of.items():
            part = usd * count / gpus
            if holder is None:
                found["state:idle"] += part
                continue
            found["gpus_used"] += count
            found["state:restart" if holder in starting else "state:work"] += part
            job = jobs[holder]
            by["class"][job.class_name.partition("[")[0]] += part  # type: ignore[assignment]
            by["user"][job.user] += part  # type: ignore[assignment]
            by["team"][str(job.content.get("team") or "(none)")] += part  # type: ignore[assignment]
    running = sum(1 for job in jobs.values() if job.slots)
    nodes = sum(node.phase != "stopped" for node in state.nodes.values())
    found |= {"nodes": nodes, "running": running, "waiting": len(jobs) - running}
    for kind, counts in by.items():
        for rank, (name, usd) in enumerate(counts.most_common()):
            found[f"{kind}:{name if rank < MOST_NAMES else OTHERS}"] += usd
    return {name: round(value, 4) for name, value in found.items() if value}


def _starts_again(job: JobRecord) -> bool:
    """Whether a job that was started before has made no step since."""
    return job.generation > 1 and job.has_reported and (job.step is None or job.step <= job.begun_step)


class MinuteHistory:
    """Stores one row per minute."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hour = -1
        self._minutes: list[int] = []
        self._columns: dict[str, list[float]] = {}
        self._cleaned = -1

    def is_due(self, now: float) -> bool:
        """Whether the minute of `now` has no row yet."""
        hour, minute = divmod(int(now // MINUTE_SECONDS), 60)
        return hour != self._hour or not self._minutes or self._minutes[-1] < minute

    def take(self, figures: Mapping[str, float], *, now: float) -> None:
        """Write the row of this minute, unless it has one."""
        if not self.is_due(now):
            return
        hour, minute = divmod(int(now // MINUTE_SECONDS), 60)
        if hour != self._hour:
            self._open(hour)
            if not self.is_due(now):
                return
        for name in figures.keys() - self._columns.keys():
            self._columns[name] = [0.0] * len(self._minutes)
        self._minutes.append(minute)
        for name, column in self._columns.items():
            column.append(figures.get(name, 0.0))
        text = pack(self._minutes, self._columns)
        with self._database.write() as connection:
            put(connection, DOCUMENTS, kind=KIND, key=_key(hour), document=text)
            day = hour // 24
            if day != self._cleaned:
                oldest = _key(int((now - KEPT_SECONDS) // SECONDS_PER_HOUR))
                old = (DOCUMENTS.c.kind == KIND) & (DOCUMENTS.c.key < oldest)
                connection.execute(delete(DOCUMENTS).where(old))
                self._cleaned = day

    def _open(self, hour: int) -> None:
        """Continue an hour that an earlier process began, or begin it."""
        query = select(DOCUMENTS.c.document).where(DOCUMENTS.c.kind == KIND, DOCUMENTS.c.key == _key(hour))
        with self._database.read() as connection:
            text = connection.scalar(query)
        self._hour = hour
        self._minutes, self._columns = ([], {}) if text is None else unpack(text)

    def read(self, *, since: float, until: float, points: int) -> dict[str, Any]:
        """Return averages over at most `points` equal intervals; None for intervals without rows."""
        step = max(MINUTE_SECONDS, (until - since) / points)
        count = max(1, round((until - since) / step))
        sums: dict[str, list[float]] = {}
        rows = [0] * count
        query = (
            select(DOCUMENTS.c.key, DOCUMENTS.c.document)
            .where(DOCUMENTS.c.kind == KIND)
            .where(DOCUMENTS.c.key >= _key(int(since // SECONDS_PER_HOUR)))
            .where(DOCUMENTS.c.key <= _key(int(until // SECONDS_PER_HOUR)))
        )
        with self._database.read() as connection:
            documents = [(int(row.key), row.document) for row in connection.execute(query)]
        for hour, text in documents:
            minutes, columns = unpack(text)
            at = [int((hour * 3600.0 + minute * 60.0 - since) // step) for minute in minutes]
            inside = [number for number, slot in enumerate(at) if 0 <= slot < count]
            for number in inside:
                rows[at[number]] += 1
            for name, column in columns.items():
                total = sums.setdefault(name, [0.0] * count)
                for number in inside:
                    total[at[number]] += column[number]
        return {
            "since": since,
            "step_seconds": step,
            "minutes": rows,
            "series": {
                name: [round(total / rows[i], 4) if rows[i] else None for i, total in enumerate(totals)]
                for name, totals in sums.items()
            },
        }


def pack(minutes: Sequence[int], columns: Mapping[str, Sequence[float]]) -> str:
    """Return an hour's minutes and columns as compressed text."""
    text = json.dumps({"minutes": minutes, "columns": columns}, separators=(",", ":"))
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def unpack(text: str) -> tuple[list[int], dict[str, list[float]]]:
    """Return the minutes and columns of an hour from the text of `pack`."""
    found = json.loads(zlib.decompress(base64.b85decode(text)))
    return list(found["minutes"]), dict(found["columns"])


def _key(hour: int) -> str:
    """Return the key of an hour since the epoch, padded so that keys sort like hours."""
    return f"{hour:08d}"
