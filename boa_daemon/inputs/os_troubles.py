"""What an error of the operating system means: which kind of trouble it is, if it is one that passes.

`boa_daemon/store/database_troubles.py` asks this about errors of the database too, and says each kind in
words. This module imports nothing, for those who only make a folder or take a lock.
"""

from __future__ import annotations

import errno
import socket
from typing import Literal, TypeAlias

Trouble: TypeAlias = Literal[
    "full",
    "read-only",
    "disk",
    "busy",
    "descriptors",
    "memory",
    "place",
    "rights",
    "server",
    "login",
    "certificate",
    "address",
    "tables",
    "file size",
    "beside",
]
_OF_ERRNO: dict[int, Trouble] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EFBIG: "file size",
    errno.EROFS: "read-only",
    errno.EIO: "disk",
    errno.ESTALE: "disk",
    errno.ENXIO: "disk",
    errno.ENODEV: "disk",
    errno.ENOTCONN: "disk",
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "busy",
    errno.EBUSY: "busy",
    errno.ETXTBSY: "busy",
    errno.ENOLCK: "busy",
    errno.ENOENT: "place",
    errno.ENOTDIR: "place",
    errno.EACCES: "rights",
    errno.EPERM: "rights",
    errno.ECONNREFUSED: "server",
    errno.ECONNRESET: "server",
    errno.EPIPE: "server",
    errno.ETIMEDOUT: "server",
    errno.EHOSTUNREACH: "server",
    errno.ENETUNREACH: "server",
}


def trouble_of_os(error: OSError) -> Trouble | None:
    """Return the kind of a trouble that passes; None for every other error."""
    if isinstance(error, socket.gaierror):
        return "server"
    found = _OF_ERRNO.get(error.errno or 0)
    if found is None and isinstance(error, TimeoutError | ConnectionError):
        return "server"
    return found
