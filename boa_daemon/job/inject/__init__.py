"""Installs the gate's hooks through the environment, without a change to the user's script.

At start-up, Python imports `sitecustomize` from the first folder on its path that has one. `hooked` puts the
folder beside this file first. The `sitecustomize` there waits until DDP, FSDP or ZeRO is imported, and then
wraps it. A script that never imports PyTorch pays nothing, and the job sees no other package than
`boa_daemon`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "site"
PACKAGE_ROOT = Path(__file__).resolve().parents[3]


def hooked(environment: Mapping[str, str], *, gate: str = "", library: str = "") -> dict[str, str]:
    """Return a job's environment with the hooks installed, and with `BOA_GATE` if `gate` is given.

    `library` is the folder that holds `boa_daemon` on the job's node, for jobs whose Python does not have it.
    """
    root = Path(library) if library else PACKAGE_ROOT
    path = environment.get("PYTHONPATH", "")
    parts = [str(root / FOLDER.relative_to(PACKAGE_ROOT)), *([path] if path else [])]
    found = {"BOA_GATE": gate} if gate else {}
    return {**environment, **found, "PYTHONPATH": os.pathsep.join(parts)}
