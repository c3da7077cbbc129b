"""`BOA_GATE` as the path of a JSON file with the address, which may be written before the gate exists.

{"address": "unix:/run/boa/gate.sock?token_file=/run/boa/jobs/j1/g1/gate.token&generation=1"}

Engines write this file for each generation of a job.
"""

from __future__ import annotations

import json
from pathlib import Path

from boa_daemon.job.gate.address import BadAddress, GateAddress


def find_address(text: str) -> GateAddress | None:
    """Return the address in `BOA_GATE`, or in the file that it names; None without one.

    Raises:
        BadAddress: when the text or the file is malformed.
    """
    if not text:
        return None
    if not text.startswith(("/", "~")):
        return GateAddress.parse(text)
    try:
        content = json.loads(Path(text).expanduser().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RuntimeError) as fault:
        raise BadAddress(f"{text} holds no gate address: {fault}") from None
    if isinstance(content, dict) and "address" not in content:
        return None
    if not isinstance(content, dict) or not isinstance(content["address"], str):
        raise BadAddress(f'{text} should hold {{"address": "unix:PATH?token_file=FILE"}}')
    return GateAddress.parse(content["address"])
