"""Hugging Face Accelerate under BOA: checkpoints of everything that an `Accelerator` has prepared.

    for step in job.steps(total, every=500, **accelerator_state(accelerator)):
        ...

Start the data loader at the step of `job.resume()` with a `SampleStream`. Do not pass that loader to
`prepare`: the stream already gives each rank its own part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def accelerator_state(accelerator: Any) -> dict[str, Any]:
    """Return `load`, `save` and `folder` for `job.steps`, for all prepared or registered objects."""

    def load(path: Path) -> None:
        accelerator.load_state(str(path))

    def save(path: Path) -> None:
        accelerator.save_state(str(path))

    return {"load": load, "save": save, "folder": True}
