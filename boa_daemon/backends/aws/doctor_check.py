"""What a check of the doctor found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """What a check found; `fix` says what to do where it is not ok."""

    name: str
    status: Status
    said: str
    fix: str = ""
