"""Write the JSON schema of each kind of file that people write: python packaging/schemas.py FOLDER."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from boa_daemon.cli.operate.daemon import SchemaName

if __name__ == "__main__":
    for kind in SchemaName:
        done = subprocess.run(
            [sys.executable, "-m", "boa_daemon", "schema", kind.value], capture_output=True, check=True
        )
        (Path(sys.argv[1]) / f"{kind.value}.schema.json").write_bytes(done.stdout)
