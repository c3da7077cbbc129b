"""A sample store in memory, for tests that need no database."""

from __future__ import annotations

from collections.abc import Iterable

from boa_daemon.learning.samples import Sample, SampleHistory


class MemorySamples:
    """Implements `SampleStore` in memory."""

    def __init__(self) -> None:
        self._rows: dict[str, Sample] = {}
        self._arrived_through = 0

    def read(self) -> SampleHistory:
        """Return everything."""
        return SampleHistory(rows=tuple(self._rows.values()), arrived_through=self._arrived_through)

    def write(
        self, rows: Iterable[Sample], *, forget: Iterable[str] = (), arrived_through: int | None = None
    ) -> None:
        """Replace rows with the same keys, and drop the rows of the keys in `forget`."""
        for key in forget:
            self._rows.pop(key, None)
        self._rows.update((row.key, row) for row in rows)
        if arrived_through is not None:
            self._arrived_through = arrived_through
