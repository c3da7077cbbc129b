"""Keep a process to its part of a GPU's memory where jobs share GPUs.  Standard library only.

`BOA_GPU_MEMORY_FRACTION` is the part that each process may take; it is not there where a GPU has one job.
PyTorch's allocator is told to keep to it, so that an allocation too many fails in the job that asks for it.
JAX reads a variable of its own, which the engine sets. What allocates in other ways is not held back.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

VARIABLE = "BOA_GPU_MEMORY_FRACTION"
_done: set[int] = set()


def keep_to_share(environment: Mapping[str, str]) -> bool:
    """Tell PyTorch, where the script has loaded it; return whether it keeps to a part now."""
    said = environment.get(VARIABLE)
    torch: Any = sys.modules.get("torch")
    if not said or torch is None or not torch.cuda.is_available():
        return False
    device = int(environment.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    if device not in _done:
        _done.add(device)
        torch.cuda.set_per_process_memory_fraction(float(said), device)
    return True
