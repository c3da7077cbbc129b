"""Logs of several nodes as one text: whole lines, those of one rank, or each with the number of its node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MARK = re.compile(r"^\[rank (\d+)\] ")
"""What torchrun puts before each line of a rank: `boa_daemon.job.logs.RANK_MARK`."""


@dataclass(slots=True)
class Reader:
    """How far the log of one node is read, and the line that has not come whole yet."""

    offset: int = 0
    is_new: bool = False
    begun: str = ""
    node: int = 0


@dataclass(slots=True, kw_only=True)
class LogView:
    """What of the logs is shown: of one `rank` only, or of all nodes, with `marks_nodes`."""

    rank: int | None = None
    marks_nodes: bool = False
    has_shown: bool = False
    _has_marks: bool = False

    def take(self, reader: Reader, chunk: Mapping[str, Any]) -> str:
        """Return what a piece of a log shows, and remember how far it is read."""
        reader.is_new = chunk["next_offset"] > reader.offset
        reader.offset, reader.node = int(chunk["next_offset"]), int(chunk["node"])
        if self.rank is None and not self.marks_nodes:
            return str(chunk["text"])
        *whole, reader.begun = (reader.begun + str(chunk["text"])).split("\n")
        return "".join(self._line(line, reader.node) for line in whole)

    def rest(self, reader: Reader) -> str:
        """Return what the last line shows, which nothing has ended."""
        begun, reader.begun = reader.begun, ""
        return self._line(begun, reader.node) if begun else ""

    def _line(self, line: str, node: int) -> str:
        """Return a line as it is shown; empty where it is not."""
        if self.rank is None:
            return f"node {node}: {line}\n"
        mark = _MARK.match(line)
        self._has_marks |= mark is not None
        # A job on one GPU has one rank and no marks: all that it printed is of rank 0.
        is_own = int(mark[1]) == self.rank if mark else self.rank == 0 and not self._has_marks and node == 0
        if not is_own:
            return ""
        self.has_shown = True
        return f"{line[mark.end() :] if mark else line}\n"
