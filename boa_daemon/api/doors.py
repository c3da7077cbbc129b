"""The daemon's API servers: one on its unix socket, and one on TCP if that is configured."""

from __future__ import annotations

import logging
from typing import Any

from boa_daemon.api.server import ApiServer, tcp_socket, unix_socket
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import DaemonPaths
from boa_daemon.errors import InputError
from boa_daemon.job.regular_files import device_and_inode
from boa_daemon.store.database_troubles import trouble_of

_LOG = logging.getLogger("boa")


class Doors:
    """The API servers. The socket is opened again if its file is gone, or is not the daemon's any more."""

    def __init__(self, settings: Settings, there: DaemonPaths, app: Any) -> None:
        self._servers = _servers(settings, there, app)
        self._app, self._path, self._said = app, there.socket, ""
        self._identity = device_and_inode(there.socket)

    def start(self) -> None:
        """Start serving."""
        for server in self._servers:
            server.start()

    def keep(self) -> None:
        """Listen at the socket's path again if it is gone from there; requests in progress are answered."""
        if (found := device_and_inode(self._path)) is not None and found == self._identity:
            return
        try:
            opened = ApiServer(self._app, [unix_socket(self._path)], is_on_unix=True)
        except OSError as error:
            if str(error) != self._said:
                self._said = str(error)
                _LOG.error("the socket %s is gone and cannot be made again: %s", self._path, error)
            return
        _LOG.warning("the socket %s was swept away, and is made again", self._path)
        self._identity = device_and_inode(self._path)
        opened.start()
        swept = [server for server in self._servers if server.is_on_unix]
        self._servers = [opened, *(server for server in self._servers if not server.is_on_unix)]
        for server in swept:
            server.stop()

    def fault(self) -> str:
        """Return why a changed certificate is not in use; empty if it is."""
        return "; ".join(said for server in self._servers if (said := server.fault()))

    def stop(self) -> None:
        """Finish running requests and stop."""
        for server in self._servers:
            server.stop()


def _servers(settings: Settings, there: DaemonPaths, app: Any) -> list[ApiServer]:
    """Return the API servers: one on the unix socket, and one on TCP when `[api] listen` is set.

    Raises:
        InputError: when TCP would reach other machines without TLS.
    """
    api = settings.api
    found: list[ApiServer] = []
    if api.listen is not None:
        if (api.tls_cert is None) != (api.tls_key is None):
            raise InputError("[api] tls_cert and tls_key go together", hint="Set both, or neither")
        tls = None if api.tls_cert is None or api.tls_key is None else (api.tls_cert, api.tls_key)
        found.append(ApiServer(app, [tcp_socket(api.listen, is_secret=tls is not None)], tls=tls))
    try:
        return [ApiServer(app, [unix_socket(there.socket)], is_on_unix=True), *found]
    except OSError as error:
        if trouble_of(error) not in ("full", "read-only", "disk", "descriptors", "memory"):
            raise
        _LOG.error("the socket %s cannot be made yet: %s", there.socket, error)
        return found
