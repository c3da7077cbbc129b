"""The hook without a line in the user's script: an environment in which DDP asks by itself.

Python imports `sitecustomize` at start-up from the first folder on its path that has one. `hooked` puts the
folder beside this file first; the `sitecustomize` there waits for DDP to be imported and then wraps it. It
costs a script that never imports PyTorch nothing, and shows a job no package but `boa_daemon`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "site"
PACKAGE_ROOT = Path(__file__).resolve().parents[3]


def hooked(environment: Mapping[str, str], *, gate: str = "", library: str = "") -> dict[str, str]:
    """Return a job's environment with the hook put in, and `BOA_GATE` set where it is given: for engines.

    `library` is the folder that holds `boa_daemon` where the job runs; a job whose Python has none uses that.
    """
    root = Path(library) if library else PACKAGE_ROOT
    path = environment.get("PYTHONPATH", "")
    parts = [str(root / FOLDER.relative_to(PACKAGE_ROOT)), *([path] if path else [])]
    found = {"BOA_GATE": gate} if gate else {}
    return {**environment, **found, "PYTHONPATH": os.pathsep.join(parts)}
