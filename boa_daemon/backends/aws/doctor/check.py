"""The result of one check of `boa doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """The result of a check; `fix` says what to do if the status is not ok."""

    name: str
    status: Status
    said: str
    fix: str = ""
