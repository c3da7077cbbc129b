"""Accelerate under BOA: what `job.steps` needs to save and load all that an `Accelerator` has prepared.

    for step in job.steps(total, every=500, **accelerator_state(accelerator)):
        ...

Let the loader begin at `job.resume()`'s step with a `SampleStream`, and do not have it prepared: the stream
gives each rank its own part already.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def accelerator_state(accelerator: Any) -> dict[str, Any]:
    """Return `load`, `save` and `folder` for `steps`, of all that was prepared or registered."""

    def load(path: Path) -> None:
        accelerator.load_state(str(path))

    def save(path: Path) -> None:
        accelerator.save_state(str(path))

    return {"load": load, "save": save, "folder": True}
