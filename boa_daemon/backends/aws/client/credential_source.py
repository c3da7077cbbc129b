"""The source of a session's credentials, asked before a call and not within it.

botocore asks it while it signs a call: a program (`credential_process`), a token file, a portal, the
metadata service or a person who types a code. What goes wrong there then looks like an answer of AWS that was
lost, and a launch would count as perhaps done; a program that hangs would hang the tick. So the source is
asked in a thread, with a limit of time, before anything is sent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

SOURCE_SECONDS, TYPED_SECONDS = 20.0, 120.0
"""How long a source may take, and where a person may have to type a code."""
GIVE_UP_SECONDS = 300.0
"""A source that has hung for so long is left behind, and another session asks it; the next time after twice
as long."""
_MANDATORY_SECONDS = 600
"""botocore waits for new credentials from this long before the end of the present ones on."""
_ADVISORY_SECONDS = 900
"""botocore asks for new credentials with each call from this long before the end of the present ones on."""


class SourceHangs(TimeoutError):
    """The source of credentials has not answered in time."""


class _Question(Thread):
    """One question to a session, with its own error: others may ask again meanwhile."""

    def __init__(self, ask: Callable[[], None]) -> None:
        super().__init__(name="boa-credentials", daemon=True)
        self._ask, self.began_at = ask, time.monotonic()
        self.error: Exception | None = None

    def run(self) -> None:
        """Ask, and keep what goes wrong."""
        try:
            self._ask()
        # Sources raise whatever their programs and files do.
        except Exception as error:
            self.error = error


class CredentialSource:
    """Asks for the credentials of a boto3 session; sessions of tests that have none are left alone.

    A session that has none is asked once: it would look at the metadata service before each call.
    """

    def __init__(
        self, session: Any, *, seconds: float | None = None, give_up_seconds: float = GIVE_UP_SECONDS
    ) -> None:
        self._session, self._give_up_seconds = session, give_up_seconds
        limit = TYPED_SECONDS if sys.stdin is not None and sys.stdin.isatty() else SOURCE_SECONDS
        self._seconds = limit if seconds is None else seconds
        self._credentials: Any = None
        self._fitted_to: Any = None
        self._question: _Question | None = None
        self._has_none = False
        self._lock = Lock()

    @property
    def is_given_up(self) -> bool:
        """Whether the source has hung for too long to be waited for."""
        asked = self._question
        if asked is None or not asked.is_alive():
            return False
        return time.monotonic() - asked.began_at >= self._give_up_seconds

    def check(self) -> None:
        """Return once there are credentials that can sign, or none at all, which botocore says itself.

        Raises:
            Exception: whatever the source fails with.
            SourceHangs: when it has not answered in time.
        """
        if self._has_none or not hasattr(self._session, "get_credentials") or not self._needs(None):
            return
        with self._lock:
            asked = self._question
            if asked is None or not asked.is_alive():
                asked = self._question = _Question(self._ask)
                asked.start()
        asked.join(max(asked.began_at + self._seconds - time.monotonic(), 0.0))
        if asked.is_alive():
            known = self._credentials
            limit = getattr(known, "_mandatory_refresh_timeout", _MANDATORY_SECONDS)
            if known is not None and not self._needs(limit):
                return
            seconds = time.monotonic() - asked.began_at
            raise SourceHangs(f"the source of the credentials has not answered for {seconds:.0f} s")
        if asked.error is not None:
            raise asked.error

    def _needs(self, seconds: float | None) -> bool:
        """Whether credentials are to be had: there are none yet, or they end within so many seconds."""
        known = self._credentials
        if known is None:
            return True
        needs = getattr(known, "refresh_needed", None)
        return bool(needs is not None and needs(seconds))

    def _ask(self) -> None:
        found = self._session.get_credentials()
        if found is not None:
            self._fit_to_life(found)
            found.get_frozen_credentials()
            self._fit_to_life(found)  # Some are only asked for here.
        self._credentials, self._has_none = found, found is None

    def _fit_to_life(self, credentials: Any) -> None:
        """Have new credentials that live for minutes be renewed in the last quarter of their life.

        botocore renews within fixed limits before the end, so it would ask the source of such ones twice a
        call. The limits are set once for each: what is left of old ones would put off their renewal.
        """
        ends_at, seconds = (
            getattr(credentials, name, None) for name in ("_expiry_time", "_seconds_remaining")
        )
        if ends_at is None or seconds is None or ends_at == self._fitted_to:
            return
        self._fitted_to, life = ends_at, seconds()
        credentials._advisory_refresh_timeout = min(_ADVISORY_SECONDS, life / 4.0)
        credentials._mandatory_refresh_timeout = min(_MANDATORY_SECONDS, life / 6.0)
