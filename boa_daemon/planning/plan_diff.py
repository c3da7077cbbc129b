"""Compare two answers of `boa plan -o json`: figures, classes, jobs and prices, old and new.

Numbers that agree to a millionth are the same. Both answers must be of a stream, or both of a list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import read_text

ChangeKind: TypeAlias = Literal["new", "gone", "changed"]
SIGNS: Mapping[ChangeKind, str] = {"new": "+", "gone": "-", "changed": "~"}
_FIGURES = (
    "budget_unit",
    "budget",
    "status",
    "mean_spend",
    "spend",
    "mean_jct_hours",
    "weighted_mean_jct_hours",
)
_WHOLE = (*_FIGURES, "all_done_at", "all_done_hours", "cheapest_feasible_spend")
_PARTS: Mapping[str, tuple[str, str]] = {
    "classes": ("class", "name"),
    "jobs": ("job", "job_id"),
    "prices": ("price", "instance_type"),
}
_OF_A_PART: Mapping[str, tuple[str, ...]] = {
    "classes": ("widths", "mean_jct_hours", "mean_spend_per_job"),
    "jobs": ("on", "start_at", "start_hours", "end_at", "end_hours", "is_late", "spend"),
    "prices": ("usd_per_hour", "as_of"),
}
_SAME = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One changed figure; `old` or `new` is None if the figure was or is missing."""

    kind: ChangeKind
    what: str
    figure: str = ""
    old: Any = None
    new: Any = None

    @property
    def document(self) -> dict[str, Any]:
        """The change as JSON."""
        return {
            "kind": self.kind,
            "what": self.what,
            "figure": self.figure or None,
            "old": self.old,
            "new": self.new,
        }


def read_plan(path: Path) -> Mapping[str, Any]:
    """Return a saved answer.

    Raises:
        InputError: when the file is not an answer of boa plan.
    """
    hint = "Save one with `boa plan ... -o json > old.json`"
    try:
        found = json.loads(read_text(path))
    except ValueError as error:
        raise InputError(f"not JSON: {error}", file=path, hint=hint) from error
    if not isinstance(found, Mapping) or not {"classes", "jobs"} & found.keys():
        raise InputError("not an answer of boa plan: it has neither classes nor jobs", file=path, hint=hint)
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[PlanChange]:
    """Return the changes, the plan's own figures first.

    Raises:
        InputError: when one plan is of a stream and the other of a list.
    """
    if ("jobs" in old) is not ("jobs" in new):
        kinds = ["a list" if "jobs" in one else "a stream" for one in (old, new)]
        raise InputError(f"the old plan is of {kinds[0]}, this one of {kinds[1]}")
    return [*_changed("plan", old, new, _WHOLE), *_of_parts(old, new)]


def _of_parts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[PlanChange]:
    """Yield new, removed and changed classes, jobs and prices."""
    for part, (what, key) in _PARTS.items():
        before, after = (
            {
                str(row[key]): _said(row)
                for row in answer.get(part) or []
                if isinstance(row, Mapping) and key in row
            }
            for answer in (old, new)
        )
        for name in dict.fromkeys((*before, *after)):
            if name not in after:
                yield PlanChange(kind="gone", what=f"{what} {name}")
            elif name not in before:
                yield PlanChange(kind="new", what=f"{what} {name}")
            else:
                yield from _changed(f"{what} {name}", before[name], after[name], _OF_A_PART[part])


def _said(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row with its widths or machines as text."""
    found = dict(row)
    if "plans" in row:
        found["widths"] = " or ".join(
            ", ".join(f"{phase['gpus']} x {phase['gpu_type']}" for phase in plan["phases"])
            for plan in row["plans"]
        )
    if "instance_type" in row and "instances" in row:
        found["on"] = f"{row['instances']} x {row['instance_type']}"
    if found.get("start_at") is not None:
        del found["start_hours"], found["end_hours"]
    return found


def _changed(
    what: str, old: Mapping[str, Any], new: Mapping[str, Any], figures: tuple[str, ...]
) -> Iterator[PlanChange]:
    """Yield the figures that differ."""
    for figure in figures:
        before, after = old.get(figure), new.get(figure)
        if not _is_same(before, after):
            yield PlanChange(kind="changed", what=what, figure=figure, old=before, new=after)


def _is_same(old: Any, new: Any) -> bool:
    numbers = [one for one in (old, new) if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) == 2:
        return math.isclose(numbers[0], numbers[1], rel_tol=_SAME, abs_tol=1e-12)
    return bool(old == new)
