"""Standard streams that the starting program closed (`2>&-`, some service managers) lead to nowhere."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open each closed descriptor of the three on the null device.

    The next file to be opened would get its number: what is said to standard error would then be written
    into a database.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            stream = open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as the program runs
            setattr(sys, name, stream)
