"""What of a PyTorch job goes into its checkpoint.  Torch is imported when it is first written or read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def torch_state(*parts: Any) -> dict[str, Callable[[Any], Any]]:
    """Return `load` and `save` for `steps`, of anything with `state_dict` and `load_state_dict`.

    A model (the bare one, not its DDP wrapper), an optimizer, a scheduler; in the same order ever after.
    """

    def load(path: Path) -> None:
        import torch  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415  only where it is in use

        for part, state in zip(parts, torch.load(path, map_location="cpu"), strict=True):
            part.load_state_dict(state)

    def save(file: BinaryIO) -> None:
        import torch  # noqa: PLC0415  only where it is in use

        torch.save([part.state_dict() for part in parts], file)

    return {"load": load, "save": save}
