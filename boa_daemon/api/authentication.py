"""Identify callers: a user of this machine, as the kernel reports, the owner of a token, or a proxy's user.

A proxy that signs people in (with OIDC, for example) names them in a header. The header counts only from the
peers that `[api] proxies` lists, which are no users themselves; from anybody else it says nothing. People
choose names at the place where they sign in, so a proxy cannot name an account of the system, as whom a job
might run.
"""

from __future__ import annotations

import asyncio
import grp
import hashlib
import hmac
import logging
import os
import pwd
import re
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

from fastapi import Request
from starlette.exceptions import HTTPException

from boa_daemon.api.browser_security import COOKIE, PAGE_ORDERS, WORD_HEADER, Sessions
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.errors import InputError
from boa_daemon.inputs.watched_files import WatchedFiles

_LOG = logging.getLogger("boa.api")
_USER = re.compile(r"[A-Za-z0-9_.@+-]{1,64}")
USER_SECONDS = 300.0
"""Seconds that the name of a user is kept."""
FIRST_PERSON = 1000
"""First user id of people; those below are of the system, and so is `nobody` (`_OVERFLOW_UID`)."""
WRONG_TOKEN_SECONDS = 1.0
"""Delay of the answer to a wrong token; with few connections, guessing takes too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A user, and whether they may administer or read the jobs of others."""

    user: str
    is_admin: bool
    is_reader: bool = False

    def may_read(self, owner: str) -> bool:
        """Whether the caller may read the files and logs of the owner's jobs."""
        return self.is_admin or self.is_reader or self.user == owner


def read_tokens(path: Path) -> dict[str, str]:
    """Return user names by the digest of their token, from lines of ``TOKEN USER``.

    Raises:
        InputError: when the file can be read by others, a line is not a token and a user, or two users have
            one token.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise InputError("the tokens are to be a file, and no folder, pipe or device", file=path)
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the tokens cannot be read: {error}", file=path) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError("others can read the tokens", file=path, hint=f"chmod 600 {path}")
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or len(words[0]) < 16:
            raise InputError("a line is a token of at least 16 characters and a user", file=path, line=number)
        digest = _digest(words[0])
        if found.setdefault(digest, words[1]) != words[1]:
            hint = "Give each user a token of their own"
            raise InputError(
                f"the token of {words[1]} is also that of {found[digest]}", file=path, line=number, hint=hint
            )
    return found


def is_address(name: str) -> bool:
    """Whether a proxy is named by its IP address, and not as a user of this machine."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _digest(token: str) -> str:
    """Return the digest that is compared instead of the token."""
    return hashlib.sha256(token.encode()).hexdigest()


class Authenticator:
    """Identifies callers; administrators are root, the daemon's own user, and `[api] admins`."""

    def __init__(self, settings: ApiSettings) -> None:
        self._admins, self._readers = set(settings.admins), set(settings.readers)
        self._tokens: WatchedFiles[Mapping[str, str]] | None = None
        self.sessions = Sessions()
        self._lookups: dict[int, asyncio.Future[str]] = {}
        self.page_may_order: Callable[[], bool] = lambda: False
        self.listen, self.hosts = settings.listen, tuple(settings.hosts)
        self._header, self._domain = settings.proxy_user_header.lower(), settings.proxy_user_domain
        self._proxy_users = frozenset(one for one in settings.proxies if not is_address(one))
        self.proxy_hosts = frozenset(str(ip_address(one)) for one in settings.proxies if is_address(one))
        if settings.listen is not None:
            if settings.tokens is None and not self.proxy_hosts:
                raise InputError(
                    "[api] listen needs tokens", hint="Set [api] tokens to a file", setting=("api", "listen")
                )
            if settings.tokens is not None:
                file = Path(settings.tokens)
                self._tokens = WatchedFiles([file], lambda: read_tokens(file))

    def fault(self) -> str:
        """Return why a changed file of tokens is not in use; empty if it is."""
        if self._tokens is None:
            return ""
        self._tokens.get()
        return self._tokens.fault

    async def admit(self, request: Request) -> Caller:
        """Return the caller; a coroutine, because a thread for this would cost more than the answer.

        Raises:
            HTTPException: 401 without a known token or session; 403 when a session tries to write, or
                when the kernel does not tell who calls.
        """
        known_caller = request.scope.get("state", {}).get("caller")
        if isinstance(known_caller, Caller):
            return known_caller
        host = "" if request.client is None else request.client.host
        if host.startswith("uid:"):
            await self._look_up(int(host.removeprefix("uid:")))
        is_proxied = self.is_proxied(host)
        if is_proxied and self._header in request.headers:
            return self._caller(self._named_by_proxy(request))
        if host.startswith("uid:") and not is_proxied:
            uid = int(host.removeprefix("uid:"))
            if uid == unmapped_uid():
                raise HTTPException(403, _UNMAPPED)
            user = user_name(uid)
            is_admin = uid in (0, os.getuid()) or user in self._admins
            return Caller(user=user, is_admin=is_admin, is_reader=user in self._readers)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return await self.of_token(token, request)
        self._read_again()
        known = self.sessions.user(request.cookies.get(COOKIE))
        if known is not None:
            if request.method not in ("GET", "HEAD"):
                self._check_order(request)
            return self._caller(known)
        raise _unknown()

    async def _look_up(self, uid: int) -> None:
        """Look a user's name up aside: a directory that does not answer keeps that user waiting alone."""
        if _known_name(uid) is not None:
            return
        lookup = self._lookups.get(uid)
        if lookup is None:
            lookup = self._lookups[uid] = asyncio.ensure_future(asyncio.to_thread(user_name, uid))
            lookup.add_done_callback(lambda _: self._lookups.pop(uid, None))
        await asyncio.shield(lookup)

    def _check_order(self, request: Request) -> None:
        """Refuse a session's request to change something, unless the page may order it and it bears its word.

        Raises:
            HTTPException: 403 when the page only reads, may not order this, or the word is missing or wrong.
        """
        if not self.page_may_order():
            raise HTTPException(403, "a session of the page only reads; send the token itself")
        if not PAGE_ORDERS.fullmatch(request.url.path):
            raise HTTPException(403, "the page may not order that; send the token itself")
        word = self.sessions.word(request.cookies.get(COOKIE))
        if not hmac.compare_digest(word.encode(), request.headers.get(WORD_HEADER, "").encode()):
            raise HTTPException(403, "the order does not come from the page: reload it and try again")

    async def of_token(self, token: str, request: Request) -> Caller:
        """Return the owner of a token.

        Raises:
            HTTPException: 401 when the token is unknown, after `WRONG_TOKEN_SECONDS`.
        """
        user = self.user_of(token)
        if user is not None:
            return self._caller(user)
        _LOG.warning("a wrong token came from %s", "" if request.client is None else request.client.host)
        await asyncio.sleep(WRONG_TOKEN_SECONDS)
        raise _unknown("the token is not known here: it is misspelt, of another daemon, or was withdrawn")

    def user_of(self, token: str) -> str | None:
        """Return the owner of a token, or None."""
        digest, found = _digest(token.strip()), None
        for known, user in self._read_again().items():
            if hmac.compare_digest(known, digest):
                found = user
        return found

    def begin_session(self, token: str, user: str) -> str:
        """Begin a session that lasts no longer than its token; return its key."""
        return self.sessions.begin(user, _digest(token.strip()))

    def _read_again(self) -> Mapping[str, str]:
        """Return the tokens, read again when their file has changed; sessions of tokens that are gone end."""
        tokens: Mapping[str, str] = {} if self._tokens is None else self._tokens.get()
        self.sessions.keep(tokens)
        return tokens

    def is_proxied(self, host: str) -> bool:
        """Whether a peer, by its address or as ``uid:NUMBER``, is a proxy that names its users."""
        if host.startswith("uid:"):
            return bool(self._proxy_users) and user_name(int(host.removeprefix("uid:"))) in self._proxy_users
        return host in self.proxy_hosts

    def _named_by_proxy(self, request: Request) -> str:
        """Return the user whom a proxy names.

        Raises:
            HTTPException: 401 when it names none whom BOA could know, or more than one.
        """
        named = request.headers.getlist(self._header)
        if len(named) != 1 or not _USER.fullmatch(named[0]):
            raise HTTPException(401, f"the proxy has to name one user in the header {self._header}")
        user = named[0]
        if self._domain is not None:
            user, _, domain = user.rpartition("@")
            if domain.lower() != self._domain.lower() or not user:
                raise HTTPException(401, f"the proxy names {named[0]}, who is not of {self._domain}")
        if user not in self._admins and is_system_account(user):
            raise HTTPException(401, f"{user} is an account of the system here, and no person to sign in")
        return user

    def _caller(self, user: str) -> Caller:
        """Return the caller for a user who connected over TCP."""
        return Caller(user=user, is_admin=user in self._admins, is_reader=user in self._readers)


def _unknown(said: str = "a bearer token is needed over TCP") -> HTTPException:
    return HTTPException(401, said, headers={"WWW-Authenticate": "Bearer"})


_UNMAPPED = (
    "the kernel does not tell the daemon who you are: it runs in a user namespace that lacks your user. "
    "Its administrator should take PrivateUsers out of its unit (`boa systemd install` writes one without)"
)
_EVERY_UID, _OVERFLOW_UID = 2**32 - 1, 65_534


@lru_cache(maxsize=1)
def unmapped_uid() -> int | None:
    """Return the user id that stands for all users that our user namespace lacks; None if it lacks none.

    Users with this id cannot be told apart: they would own each other's jobs.
    """
    try:
        rows = Path("/proc/self/uid_map").read_text().split()
        if _EVERY_UID in map(int, rows[2::3]):
            return None
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return _OVERFLOW_UID if Path("/proc/self/uid_map").exists() else None


_NAMES: dict[int, tuple[str, float]] = {}
MOST_NAMES = 1024


def user_name(uid: int) -> str:
    """Return the name of a user, or the number as text; kept for a while, as a user directory may be slow."""
    name = _known_name(uid)
    if name is None:
        name = str(uid)
        with suppress(KeyError):
            name = pwd.getpwuid(uid).pw_name
        if len(_NAMES) >= MOST_NAMES:
            _NAMES.clear()
        _NAMES[uid] = (name, time.monotonic())
    return name


def _known_name(uid: int) -> str | None:
    """Return the name of a user if it was looked up lately."""
    name, at = _NAMES.get(uid, (None, 0.0))
    return name if time.monotonic() - at < USER_SECONDS else None


def is_system_account(name: str) -> bool:
    """Whether a name is root's, the daemon's or another account of the system on this machine."""
    return _is_system_account(name, int(time.monotonic() // USER_SECONDS))


@lru_cache(maxsize=1024)
def _is_system_account(name: str, era: int) -> bool:
    del era
    try:
        uid = pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return name.isdecimal()  # `user_name` says the number of a user without a name.
    return uid < FIRST_PERSON or uid in (_OVERFLOW_UID, os.getuid())


def group_id(name: str) -> int | None:
    """Return the number of a group, or None."""
    with suppress(KeyError):
        return grp.getgrnam(name).gr_gid
    return None
