"""Capacity Blocks that were bought: machines between two instants, paid in advance.

```toml
[[blocks]]
name = "december"
instance_type = "p5.48xlarge"
instances = 2
begins = 2026-12-01T11:30:00Z
ends = 2026-12-03T11:30:00Z
usd = 4200.0                     # the fee of the whole block
```
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from boa_daemon.inputs.document_file import Document, KeyPath, read_document
from boa_daemon.inputs.jobs_file import parse_instant
from boa_daemon.inputs.schema import Gpus, Name, Positive, Strict, checked

RECLAIM_HOURS = 0.5
"""EC2 begins to end the instances of a block this long before its end."""
# TOML has instants of its own; YAML and JSON write them as text.
_Instant = Annotated[str, BeforeValidator(lambda at: at.isoformat() if isinstance(at, datetime) else at)]


class _Block(Strict):
    name: Name = Field(description="text")
    instance_type: Name = Field(description="such as p5.48xlarge")
    instances: Gpus = Field(description="how many")
    begins: _Instant = Field(description="an instant, 2026-12-01T11:30:00Z")
    ends: _Instant = Field(description="an instant; EC2 ends its instances half an hour before")
    usd: Positive = Field(description="dollars of the whole block, paid in advance")


class _File(Strict):
    blocks: list[_Block] = Field(min_length=1, description="blocks that were bought")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoughtBlock:
    """A block of instances of a type, usable from `begins` until `RECLAIM_HOURS` before `ends`."""

    name: str
    instance_type: str
    instances: int
    begins: datetime
    ends: datetime
    usd: float

    def hours(self, start: datetime) -> tuple[float, float]:
        """Return begin and end of the usable time, in hours after an instant."""
        begin, end = ((at - start).total_seconds() / 3600.0 for at in (self.begins, self.ends))
        return begin, end - RECLAIM_HOURS


def read_blocks(path: Path) -> tuple[BoughtBlock, ...]:
    """Return the blocks of a file.

    Raises:
        InputError: with file and line, for an invalid block, or two blocks of a type that overlap.
    """
    document = read_document(path)
    file = checked(_File, document.content, document=document)
    found: list[BoughtBlock] = []
    for index, row in enumerate(file.blocks):
        at: KeyPath = ("blocks", index)
        begins, ends = (_instant(document, (*at, key), getattr(row, key)) for key in ("begins", "ends"))
        if (ends - begins).total_seconds() <= 3600.0 * RECLAIM_HOURS:
            hint = "EC2 ends the instances of a block half an hour before its end"
            raise document.error(f"block {row.name!r} leaves no time to work", at=(*at, "ends"), hint=hint)
        for other in found:
            if other.name == row.name:
                raise document.error(f"block {row.name!r} is given twice", at=(*at, "name"))
            if other.instance_type == row.instance_type and begins < other.ends and other.begins < ends:
                problem = f"blocks {other.name!r} and {row.name!r} of {row.instance_type} overlap"
                raise document.error(problem, at=(*at, "begins"), hint="One reservation holds at a time")
        values = row.model_dump() | {"begins": begins, "ends": ends}
        found.append(BoughtBlock(**values))
    return tuple(found)


def _instant(document: Document, at: KeyPath, text: str) -> datetime:
    """Return the instant in a text, UTC without a zone.

    Raises:
        InputError: when the text is not an instant.
    """
    try:
        return parse_instant(text).astimezone(UTC)
    except ValueError:
        problem = f"{at[-1]} must be an instant; got {text!r}"
        raise document.error(problem, at=at, hint="Write 2026-12-01T11:30:00Z") from None
