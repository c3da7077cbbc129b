"""Standard streams that the starting program has closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
from boa_daemon.api.standard_streams import open_standard_streams
open_standard_streams()
file = os.open("database", os.O_RDWR | os.O_CREAT)
print("said"); print("said", file=sys.stderr); sys.stderr.flush(); sys.stdout.flush()
os.write(2, b"said")
sys.stderr.isatty(), sys.stdin.read()
assert file > 2, file
open("fine", "w").close()
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_leads_nowhere_and_never_into_a_file(tmp_path: Path, closed: str) -> None:
    """The number of a closed stream is not given to the next file that is opened."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = ["bash", "-c", f'exec "$0" script.py {closed}', sys.executable]
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    subprocess.run(command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, check=False)
    assert (tmp_path / "fine").exists()
    assert (tmp_path / "database").read_bytes() == b""
