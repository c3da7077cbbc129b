"""What an error of the operating system means."""

from __future__ import annotations

import errno
import socket

import pytest

from boa_daemon.inputs.os_troubles import trouble_of_os


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (OSError(errno.ENOSPC, "x"), "full"),
        (OSError(errno.EDQUOT, "x"), "full"),
        (OSError(errno.EROFS, "x"), "read-only"),
        (OSError(errno.EIO, "x"), "disk"),
        (OSError(errno.EMFILE, "x"), "descriptors"),
        (OSError(errno.ENOMEM, "x"), "memory"),
        (BlockingIOError(errno.EAGAIN, "x"), "busy"),
        (FileNotFoundError(errno.ENOENT, "x"), "place"),
        (PermissionError(errno.EACCES, "x"), "rights"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "server"),
        (OSError(errno.EFBIG, "x"), "file size"),
        (TimeoutError("x"), "server"),
        (ConnectionError("x"), "server"),
        (socket.gaierror(socket.EAI_NONAME, "x"), "server"),
        (socket.gaierror(errno.ENOENT, "x"), "server"),
        (OSError(errno.EINVAL, "x"), None),
        (OSError("x"), None),
    ],
)
def test_a_trouble_that_passes_has_a_kind_and_every_other_has_none(
    error: OSError, trouble: str | None
) -> None:
    """A name that is not found has numbers of its own, which are those of other errors elsewhere."""
    assert trouble_of_os(error) == trouble
