"""What C code prints goes to standard error."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from boa_daemon.sim.bounds.solver_output import on_stderr

PRINTS = """
import ctypes, os
from boa_daemon.sim.bounds.solver_output import on_stderr
c = ctypes.CDLL(None)
print("before")
c.puts(b"C before")
with on_stderr():
    c.puts(b"within")
print("after")
"""


def test_a_line_of_c_code_goes_to_standard_error_and_others_stay(capfd: pytest.CaptureFixture[str]) -> None:
    """In a process whose standard output is a pipe, where C buffers its lines."""
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, text=True, check=True)

    assert sorted(done.stdout.split("\n")) == ["", "C before", "after", "before"]
    assert done.stderr == "within\n"


def test_an_error_within_leaves_standard_output_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        with on_stderr():
            ctypes.CDLL(None).puts(b"within")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    os.write(1, b"after")

    assert capfd.readouterr() == ("after", "within\n")


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_is_no_error(closed: int) -> None:
    """A daemon may have neither."""
    done = subprocess.run(
        [sys.executable, "-c", f"import os; os.close({closed})\n{PRINTS.replace('print', 'len')}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0
