"""Logs of several nodes as one text: all lines, lines of one rank, or lines marked with their node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MARK = re.compile(r"^\[rank (\d+)\] ")
"""The prefix that torchrun puts before each line of a rank: `boa_daemon.job.logs.RANK_MARK`."""


@dataclass(slots=True)
class Reader:
    """The position in the log of one node, and the last line while it is incomplete (`begun`)."""

    offset: int = 0
    is_new: bool = False
    begun: str = ""
    node: int = 0


@dataclass(slots=True, kw_only=True)
class LogView:
    """Which log lines are shown: those of one `rank`, or all; `marks_nodes` adds the node's number."""

    rank: int | None = None
    marks_nodes: bool = False
    has_shown: bool = False
    _has_marks: bool = False

    def take(self, reader: Reader, chunk: Mapping[str, Any]) -> str:
        """Return the text to show for a piece of a log, and advance the reader."""
        reader.is_new = chunk["next_offset"] > reader.offset
        reader.offset, reader.node = int(chunk["next_offset"]), int(chunk["node"])
        if self.rank is None and not self.marks_nodes:
            return str(chunk["text"])
        *whole, reader.begun = (reader.begun + str(chunk["text"])).split("\n")
        return "".join(self._line(line, reader.node) for line in whole)

    def rest(self, reader: Reader) -> str:
        """Return the text to show for a last line without a line end."""
        begun, reader.begun = reader.begun, ""
        return self._line(begun, reader.node) if begun else ""

    def _line(self, line: str, node: int) -> str:
        """Return a line as shown; empty if it is hidden."""
        if self.rank is None:
            return f"node {node}: {line}\n"
        mark = _MARK.match(line)
        self._has_marks |= mark is not None
        # A job on one GPU has one rank and no prefixes: all its lines are of rank 0.
        is_own = int(mark[1]) == self.rank if mark else self.rank == 0 and not self._has_marks and node == 0
        if not is_own:
            return ""
        self.has_shown = True
        return f"{line[mark.end() :] if mark else line}\n"
