"""How much this process's GPUs work, as NVIDIA's driver tells it.  Standard library only.

The driver's library is asked in this process, which takes microseconds; `nvidia-smi` would take a second. It
tells in which part of the last moment (a sixth of a second to a second) some kernel ran, which is an upper
bound of how busy a GPU is. Where there is no such library, or it refuses, nothing is known.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

VISIBLE, LIBRARY = "CUDA_VISIBLE_DEVICES", "libnvidia-ml.so.1"
MOST_GPUS = 64
_library: list[Any] = []
"""The driver's library once it was asked for; None in it if there is none."""


class _Utilization(ctypes.Structure):
    """Percent of time in which kernels ran, and in which memory was read or written."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def gpu_use(environment: Mapping[str, str]) -> float | None:
    """Return the mean fraction of time in which this process's GPUs work; None if it is not known."""
    try:
        library = _loaded()
        if library is None:
            return None
        found = [use for name in _names(library, environment) if (use := _use_of(library, name)) is not None]
    except (OSError, AttributeError, ValueError, ctypes.ArgumentError):
        return None
    return sum(found) / len(found) if found else None


def _loaded() -> Any:
    """Return the driver's library, loaded and begun once; None if there is none."""
    if not _library:
        _library.append(None)
        library = ctypes.CDLL(LIBRARY)
        if library.nvmlInit_v2() == 0:
            _library[0] = library
    return _library[0]


def _names(library: Any, environment: Mapping[str, str]) -> list[str]:
    """Return the numbers or UUIDs of the GPUs that this process sees."""
    said = environment.get(VISIBLE)
    if said is not None:
        return [name.strip() for name in said.split(",") if name.strip()][:MOST_GPUS]
    count = ctypes.c_uint()
    return (
        [str(number) for number in range(min(count.value, MOST_GPUS))]
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
        else []
    )


def _use_of(library: Any, name: str) -> float | None:
    """Return the fraction of time in which a GPU works; None if the driver does not say it."""
    device, use = ctypes.c_void_p(), _Utilization()
    if name.isdigit():
        code = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(device))
    else:
        code = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(device))
    if code != 0 or library.nvmlDeviceGetUtilizationRates(device, ctypes.byref(use)) != 0:
        return None
    return min(int(use.gpu), 100) / 100.0
