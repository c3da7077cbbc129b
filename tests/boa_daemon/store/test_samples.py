"""Contract of every store of samples: rows are replaced by key, and each batch is written as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from memory_samples import MemorySamples

from boa_daemon.learning.samples import Sample, SampleStore
from boa_daemon.store.memory import MemoryStore
from boa_daemon.store.samples import SqlSamples
from boa_daemon.store.sql import SqlStore
from boa_daemon.tick.facts.ports import Store

SPEED = Sample(
    key="speed|c|v100|4|-|1.5",
    kind="speed",
    class_name="c",
    gpu_type="v100",
    gpus=4,
    at=1.5,
    total=640.0,
    seconds=10.0,
    batch=64.0,
)
ENDED = Sample(key="size|j-1", kind="size", class_name="c", at=7.25, total=2.5, moment=0.916290731874155)


@pytest.fixture
def new_samples(new_store: Callable[[], Store]) -> Callable[[], SampleStore]:
    """Return a function that opens the samples of a store; each call opens the same samples."""
    memory = MemorySamples()

    def open_them() -> SampleStore:
        store = new_store()
        if isinstance(store, MemoryStore):
            return memory
        assert isinstance(store, SqlStore)
        return SqlSamples(store.database)

    return open_them


def test_rows_are_read_back_as_they_were_written(new_samples: Callable[[], SampleStore]) -> None:
    """All values are equal, and a row with a known key replaces the old row."""
    new_samples().write([SPEED, ENDED], arrived_through=3)
    found = new_samples().read()
    assert set(found.rows) == {SPEED, ENDED}
    assert found.arrived_through == 3

    more = replace(SPEED, seconds=20.0, total=1280.0, gradient_noise=5.5)
    new_samples().write([more])
    found = new_samples().read()
    assert set(found.rows) == {more, ENDED}
    assert found.arrived_through == 3, "only what is said changes"


def test_rows_are_deleted_and_their_summary_is_written_in_one_batch(
    new_samples: Callable[[], SampleStore],
) -> None:
    """1100 rows are deleted and one is written."""
    rows = [replace(ENDED, key=f"size|j-{number}") for number in range(1100)]
    new_samples().write(rows)
    day = replace(ENDED, key="size|c|d0", count=1100.0)
    new_samples().write([day], forget=[row.key for row in rows])

    assert new_samples().read().rows == (day,)


def test_a_batch_is_written_as_a_whole_or_not_at_all(new_store: Callable[[], Store]) -> None:
    """A process that dies during the transaction leaves the old rows."""
    store = new_store()
    if isinstance(store, MemoryStore):
        return  # A store in memory ends with its process.
    assert isinstance(store, SqlStore)
    samples = SqlSamples(store.database)
    samples.write([SPEED], arrived_through=1)

    def die_in_the_middle() -> None:
        with store.database.write():
            samples.write([ENDED], forget=[SPEED.key], arrived_through=2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        die_in_the_middle()
    again = SqlSamples(new_store().database)  # type: ignore[attr-defined]
    found = again.read()
    assert found.rows == (SPEED,)
    assert found.arrived_through == 1
