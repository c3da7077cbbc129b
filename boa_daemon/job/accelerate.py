"""Hugging Face Accelerate under BOA: checkpoints of everything that an `Accelerator` has prepared.

    for step in job.steps(total, every=500, **accelerator_state(accelerator)):
        ...

Start the data loader at the step of `job.resume()` with a `SampleStream`. Do not pass that loader to
`prepare`: the stream already gives each rank its own part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boa_daemon.job.read_back import trust
from boa_daemon.job.run import current


def accelerator_state(accelerator: Any) -> dict[str, Any]:
    """Return `load`, `save` and `folder` for `job.steps`, for all prepared or registered objects."""

    def load(path: Path) -> None:
        trust(path)
        accelerator.load_state(str(path))

    current().loads_with_trust = True

    def save(path: Path) -> None:
        accelerator.save_state(str(path))

    return {"load": load, "save": save, "folder": True}
