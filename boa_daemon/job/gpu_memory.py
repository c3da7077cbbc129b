"""Limits a process to its share of a GPU's memory where jobs share GPUs.  Standard library only.

`BOA_GPU_MEMORY_FRACTION` is the share of each process; it is not set if the GPU has one job. PyTorch's
allocator enforces it, so that the job that asks for too much memory is the one that fails. JAX reads its own
variable, which the engine sets. Memory that is allocated in other ways is not limited.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

VARIABLE = "BOA_GPU_MEMORY_FRACTION"
_done: set[int] = set()


def keep_to_share(environment: Mapping[str, str]) -> bool:
    """Set the limit in PyTorch if the script has loaded it; return whether a limit is set now."""
    said = environment.get(VARIABLE)
    torch: Any = sys.modules.get("torch")
    if not said or torch is None or not torch.cuda.is_available():
        return False
    device = int(environment.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    if device not in _done:
        _done.add(device)
        torch.cuda.set_per_process_memory_fraction(float(said), device)
    return True
