"""Alerts about money and faults, each sent once, to the log, a webhook, SNS, apprise or a command.

`due_alerts` is a pure function of a cluster state and its caps. It reports when a fraction of the day's or
month's cap is used up, or when the forecast to the end of the day or month at the present burn rate exceeds
the cap. Each alert's key contains its period and the cap, so it is sent once for both, also after a restart.

A separate thread sends, with time limits. A channel that fails is logged without its address, which may be a
secret, and does not affect the others; its message is sent again for two hours.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.daemon.settings.config import AlertSettings, Settings, TeamSettings, UserSettings
from boa_daemon.daemon.watch.purse_alerts import cap_key
from boa_daemon.errors import BoaError, CloudFailed, InputError, MissingExtra
from boa_daemon.extras import install_command
from boa_daemon.inputs.plain_text import one_line, plain_text
from boa_daemon.store.database import Database
from boa_daemon.store.sql import put
from boa_daemon.store.tables import ALERTS
from boa_daemon.tick.facts.limits import Caps, Window, day_of, fixed_usd, month_of
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.ledger import bill_within
from boa_daemon.units import SECONDS_PER_HOUR, dollars
from policies import plugins
from policies.errors import BrokenPlugin
from policies.money_text import in_dollars

_LOG = logging.getLogger("boa.alerts")
SUBJECT_LETTERS = 100
SEND_SECONDS, MOST_SEND_SECONDS, CLOSE_SECONDS = 10.0, 30.0, 10.0
"""Seconds for each part of an answer, for a whole message, and for all that wait when the daemon stops."""
PROBE_SECONDS, CONNECT_SECONDS = 120.0, 5.0
AGAIN_SECONDS, MOST_TRIES, MOST_WAITING = 30.0, 9, 200
"""Seconds until a message that a channel did not take is sent again, each time twice as many (two hours in
all), and how many such messages are kept, the newest."""


def spent_in(state: ClusterState, window: Window, settled: int) -> float:
    """Return dollars spent in a window so far: `settled` micro-dollars plus the running nodes' bills."""
    running = sum(bill_within(node, window, until=state.now) for node in state.nodes.values())
    return dollars(settled + running)


def budget_figures(state: ClusterState, caps: Caps | None) -> dict[str, dict[str, float | None]]:
    """Return dollars spent, the cap and the forecast at the present burn rate, by day and by month."""
    found: dict[str, dict[str, float | None]] = {}
    limits = caps or Caps()
    for name, window, settled, cap in (
        ("day", day_of(state.now), state.settled_today_micro_dollars, limits.usd_per_day),
        ("month", month_of(state.now), state.settled_month_micro_dollars, limits.usd_per_month),
    ):
        spent = spent_in(state, window, settled) + fixed_usd(limits.fixed, window.begins_at, state.now)
        hours = (window.ends_at - state.now) / SECONDS_PER_HOUR
        found[name] = {
            "spent_usd": spent,
            "cap_usd": cap,
            "forecast_usd": spent
            + state.usd_per_hour * hours
            + fixed_usd(limits.fixed, state.now, window.ends_at),
        }
    return found


def due_alerts(
    state: ClusterState,
    caps: Caps | None,
    fractions: Sequence[float],
    *,
    figures: Mapping[str, Mapping[str, float | None]] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield (key, sentence) for every threshold that is crossed now; keys contain day or month, and the cap.

    `figures` are the state's `budget_figures`, when the caller has them already.
    """
    today = datetime.fromtimestamp(state.now, UTC)
    labels = {"day": today.strftime("%Y-%m-%d"), "month": today.strftime("%Y-%m")}
    for name, one in (figures or budget_figures(state, caps)).items():
        spent, cap, forecast = one["spent_usd"], one["cap_usd"], one["forecast_usd"]
        if cap is None or spent is None or forecast is None:
            continue
        label = f"{name}:{labels[name]}:{cap_key(cap)}"
        for fraction in fractions:
            if spent >= fraction * cap:
                yield (
                    f"{label}:{fraction:g}",
                    f"{in_dollars(spent)} spent this {name}: "
                    f"{spent / cap:.0%} of the cap of {in_dollars(cap)}",
                )
        if forecast > cap:
            yield (
                f"{label}:forecast",
                f"at {in_dollars(state.usd_per_hour)}/hour this {name} would end at {in_dollars(forecast)}; "
                f"the cap of {in_dollars(cap)} will hold it back",
            )


class Alerts:
    """Sends each alert once, also after a restart, without delaying a tick."""

    def __init__(self, database: Database | None, settings: AlertSettings) -> None:
        self._database, self.settings = database, settings
        self._said: set[str] = set()
        if database is not None:
            with database.read() as connection:
                self._said = set(connection.scalars(select(ALERTS.c.key)))
        self._failed: dict[str, str] = {}
        self._probed: tuple[float, str] = (float("-inf"), "")
        self._sender = _Sender()

    def say(self, key: str, sentence: str, *, at: float) -> bool:
        """Send an alert unless it was sent before; return whether it was sent."""
        if not self.once(key, sentence, at=at):
            return False
        self.shout(sentence, key=key)
        return True

    def once(self, key: str, sentence: str, *, at: float) -> bool:
        """Record that an alert is sent; return False when it was recorded before."""
        if key in self._said:
            return False
        sentence = plain_text(sentence)
        self._said.add(key)
        if self._database is not None:
            try:
                with self._database.write() as connection:
                    put(connection, ALERTS, key=key, at=at, sentence=sentence)
            except (SQLAlchemyError, OSError, BoaError) as error:
                # Send it anyway: twice after a restart is better than never.
                _LOG.error("an alert could not be written down: %s", type(error).__name__)
        return True

    def was_sent(self, key: str) -> bool:
        """Whether an alert of this key was sent before."""
        return key in self._said

    def shout(self, sentence: str, *, key: str = "", page: Path | None = None) -> None:
        """Send an alert even if it was sent before, without using the database, which may be the fault.

        A `page` goes with it where the channel takes files, such as mail by apprise.
        """
        sentence = plain_text(sentence)
        _LOG.warning(one_line(sentence), extra={"alert": key})
        if channels := self._own_channels(page=page):
            self._sender.send(channels, sentence, self._failed)

    def fault(self) -> str:
        """Return which channels lost their last message or do not answer; empty if all is well.

        The hosts of webhooks and the program of the command are looked for every few minutes, without
        sending anything. The addresses are not quoted, as they may be secrets.
        """
        now = time.monotonic()
        if now - self._probed[0] >= PROBE_SECONDS:
            self._probed = (now, "; ".join(_unreachable(self.settings)))
        lost = list(self._failed.items())
        sent = [f"a message could not be sent to the {name}: {said}" for name, said in lost]
        return "; ".join([*sent, *([self._probed[1]] if self._probed[1] else [])])

    def use(self, settings: AlertSettings) -> None:
        """Take over new settings: what the old channels lost does not matter any more."""
        self.settings, self._probed = settings, (float("-inf"), "")
        self._failed.clear()
        self._sender.forget("", self._own_channels())

    def send_again(self) -> None:
        """Send messages again that a channel did not take; to be called now and then."""
        self._sender.send_again()

    def _own_channels(self, *, page: Path | None = None) -> list[_Channel]:
        """Return the site's channels; a `page` goes to those that take files."""
        of = self.settings
        return _channels(of.webhook, of.sns_topic, of.command, of.apprise, of.notifiers, page=page)

    def tell(self, user: UserSettings, sentence: str, *, whose: str = "a user") -> None:
        """Send one user a message about their jobs, over the channels in the user's settings."""
        sentence = plain_text(sentence)
        _LOG.info(sentence)
        channels = _channels(user.webhook, None, None, user.apprise)
        if channels:
            self._sender.send(channels, sentence, self._failed, f" of {whose}")

    def tell_owners(
        self,
        key: str,
        sentence: str,
        owners: Sequence[UserSettings | TeamSettings],
        *,
        at: float,
        is_site: bool,
        page: Path | None = None,
        message: str = "",
    ) -> bool:
        """Send an alert once, over the channels of its owners; return whether it was sent.

        With `is_site` it goes over the site's channels when no owner has any. A `page` goes with it where a
        channel takes files. A `message` is sent in place of the sentence, which is recorded.
        """
        if not self.once(key, sentence, at=at):
            return False
        channels = [
            one for owner in owners for one in _channels(owner.webhook, None, None, owner.apprise, page=page)
        ]
        if not channels and is_site:
            self.shout(message or sentence, key=key, page=page)
            return True
        _LOG.warning(sentence, extra={"alert": key})
        if channels:
            once = list({one[:2]: one for one in channels}.values())
            self._sender.send(once, plain_text(message or sentence), self._failed, " of an owner")
        return True

    def latest(self, limit: int) -> list[dict[str, Any]]:
        """Return the newest alerts: key, instant and sentence."""
        if self._database is None:
            return []
        with self._database.read() as connection:
            rows = connection.execute(select(ALERTS).order_by(ALERTS.c.at.desc()).limit(limit))
            return [{"key": row.key, "at": row.at, "sentence": row.sentence} for row in rows]

    def close(self) -> None:
        """Send the waiting alerts, and stop."""
        self._sender.close()


_Channel: TypeAlias = tuple[str, str, Callable[[str, str], None]]
"""A channel's name, its address, and the function that sends a sentence there."""


def _channels(
    webhook: str | None,
    topic: str | None,
    command: str | None,
    apprise: Sequence[str],
    notifiers: Mapping[str, str] = MappingProxyType({}),
    *,
    page: Path | None = None,
) -> list[_Channel]:
    found = (
        ("webhook", webhook, _to_webhook),
        ("SNS topic", topic, _to_topic),
        ("command", command, _to_command),
    )
    set_ones = [(name, address, do) for name, address, do in found if address]
    plugged = [(name, address, partial(_to_plugin, name)) for name, address in notifiers.items()]
    return [
        *set_ones,
        *(("apprise channel", url, partial(_to_apprise, page=page)) for url in apprise),
        *plugged,
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A sentence for one channel; `tries` is how often it was not taken, `again_at` when it is due again."""

    channel: _Channel
    sentence: str
    failed: dict[str, str]
    whose: str
    said_at: datetime
    tries: int = 0
    again_at: float = 0.0


class _Sender:
    """Sends messages one after the other, away from the ticks, each with a limit of time."""

    def __init__(self) -> None:
        self._line = ThreadPoolExecutor(max_workers=1, thread_name_prefix="boa-alerts")
        self._until = inf
        self._lock = threading.Lock()
        self._waiting: list[_Message] = []

    def send(
        self, channels: Sequence[_Channel], sentence: str, failed: dict[str, str], whose: str = ""
    ) -> None:
        """Have a sentence sent over channels; a failed channel is logged and does not stop the others.

        `failed` has why the last message of each kind of channel was lost; `whose` tells channels apart.
        """
        now = datetime.now(UTC)
        for channel in channels:
            message = _Message(channel=channel, sentence=sentence, failed=failed, whose=whose, said_at=now)
            self._line.submit(self._send, message)

    def send_again(self) -> None:
        """Have messages sent again that were not taken, as their server was down or had enough."""
        now = time.monotonic()
        with self._lock:
            due = [one for one in self._waiting if one.again_at <= now]
            self._waiting = [one for one in self._waiting if one.again_at > now]
        for message in due:
            self._line.submit(self._send, message)

    def forget(self, whose: str, kept: Sequence[_Channel]) -> None:
        """Give up messages that wait for channels which are no longer among somebody's."""
        known = {channel[:2] for channel in kept}
        with self._lock:
            self._waiting = [one for one in self._waiting if one.whose != whose or one.channel[:2] in known]

    def close(self) -> None:
        """Send what waits, for `CLOSE_SECONDS` at most, and stop."""
        self._until = time.monotonic() + CLOSE_SECONDS
        self._line.shutdown(wait=True)

    def _send(self, message: _Message) -> None:
        name, address, do = message.channel
        late = "" if message.tries == 0 else f" (said first at {message.said_at:%Y-%m-%d %H:%M} UTC)"
        said = self._tried(partial(do, address, message.sentence + late))
        if not said:
            message.failed.pop(f"{name}{message.whose}", None)
            return
        tries = message.tries + 1
        more = "" if tries < MOST_TRIES else "; it is given up"
        # The address of a webhook is a secret, and errors quote it.
        _LOG.error("an alert could not be sent to the %s: %s%s", name, said, more)
        message.failed[f"{name}{message.whose}"] = said
        if tries < MOST_TRIES:
            again_at = time.monotonic() + AGAIN_SECONDS * 2.0 ** (tries - 1)
            with self._lock:
                self._waiting = [*self._waiting, replace(message, tries=tries, again_at=again_at)][
                    -MOST_WAITING:
                ]

    def _tried(self, do: Callable[[], None]) -> str:
        """Return why a message could not be sent; empty if it was.

        Limits of libraries are for each part of an answer, and a server that sends a byte now and then would
        keep every later message waiting, and the daemon from stopping.
        """
        said: list[str] = []

        def tell() -> None:
            try:
                do()
            except Exception as error:
                said.append(_said(error))
            else:
                said.append("")

        began = time.monotonic()
        thread = threading.Thread(target=tell, name="boa-alert", daemon=True)
        thread.start()
        # The daemon may be told to stop meanwhile.
        while thread.is_alive() and time.monotonic() < min(began + MOST_SEND_SECONDS, self._until):
            thread.join(0.1)
        return said[0] if said else f"no answer within {time.monotonic() - began:.0f} s"


def _unreachable(settings: AlertSettings) -> Iterator[str]:
    """Yield what cannot be reached of the channels in the settings, without sending anything."""
    if settings.command:
        program = shlex.split(settings.command)[0]
        if shutil.which(program) is None:
            yield f"the command of [alerts] command is not there: {Path(program).name}"
    places = []
    if settings.webhook:
        url = urlsplit(settings.webhook)
        port = url.port or (443 if url.scheme == "https" else 80)
        places.append(("the host of [alerts] webhook", url.hostname or "", port))
    for number, address in enumerate(settings.apprise):
        places += [(f"the server of [alerts] apprise[{number}]", *each) for each in _servers(address)]
    for what, host, port in places:
        try:
            socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            yield f"{what} does not answer: {error.strerror or type(error).__name__}"


_WITHOUT_ANSWER = ("rsyslog",)
"""Services of apprise that send datagrams, which nobody confirms and no connection can try."""


def _servers(address: str) -> Iterator[tuple[str, int]]:
    """Yield host and port of an apprise URL that names its own server, such as one of mail."""
    try:
        from apprise import Apprise  # noqa: PLC0415 - optional, and slow to import

        service = Apprise.instantiate(address)
    except Exception:
        # What apprise cannot use is refused with the settings, and told when a message is sent.
        return
    if getattr(service, "protocol", "") in _WITHOUT_ANSWER:
        return
    host = getattr(service, "smtp_host", None) or getattr(service, "host", None)
    port = getattr(service, "port", None)
    # Other services have a token in the place of the host, and no port.
    if isinstance(host, str) and isinstance(port, int):
        yield host, port


def check_channels(settings: Settings) -> None:
    """Refuse apprise URLs that apprise cannot use; the error does not quote them, as they are secrets.

    Raises:
        InputError: when apprise cannot use a URL; the error names the setting.
        MissingExtra: when the library apprise is not installed.
    """
    named = {"[alerts]": settings.alerts.apprise} | {
        f"[users.{name}]": user.apprise for name, user in settings.users.items()
    }
    named |= {f"[teams.{name}]": team.apprise for name, team in settings.teams.items()}
    for section, urls in named.items():
        for number, url in enumerate(urls):
            try:
                from apprise import Apprise  # noqa: PLC0415 - optional, and slow to import
            except ImportError:
                hint = install_command("apprise")
                raise MissingExtra(f"{section} apprise needs the library apprise", hint=hint) from None
            if not Apprise().add(url):
                raise InputError(
                    f"{section} apprise[{number}] is no URL of apprise",
                    hint="For example mailtos://USER:PASSWORD@HOST",
                    setting=(*section.strip("[]").split("."), "apprise"),
                )


class _NotTaken(CloudFailed):
    """A service of apprise refused a message; the sentence has no address."""


def _to_apprise(url: str, sentence: str, *, page: Path | None = None) -> None:
    from apprise import Apprise, NotifyFormat  # noqa: PLC0415 - optional, and slow to import

    service, title = Apprise(), subject_of(sentence)
    if not service.add(url):
        raise _NotTaken("it is no URL of apprise")
    attach = str(page) if page is not None and page.is_file() and takes_files(service) else None
    # Without its format a text is sent as HTML: lines run together, and names with < are markup.
    if not service.notify(title=title, body=sentence, body_format=NotifyFormat.TEXT, attach=attach):
        raise _NotTaken("the service did not take it; the log of apprise says why")


def takes_files(service: Any) -> bool:
    """Return whether all servers of an apprise service take files; others would refuse the message."""
    return all(getattr(server, "attachment_support", False) for server in service)


def subject_of(sentence: str) -> str:
    """Return a mail subject for a sentence: its beginning, so that an inbox tells alerts apart."""
    beginning = re.split(r"[:;] |\n", sentence)[0]
    return f"BOA: {one_line(beginning)[:SUBJECT_LETTERS]}"


def _to_webhook(url: str, sentence: str) -> None:
    """Post a sentence as Slack-compatible JSON."""
    import httpx  # noqa: PLC0415 - slow to import, and no daemon but one with a webhook needs it

    httpx.post(url, json={"text": f"BOA: {sentence}"}, timeout=SEND_SECONDS).raise_for_status()


def _to_topic(arn: str, sentence: str) -> None:
    """Publish a sentence to SNS, in the topic's region."""
    settings = AwsSettings(region=arn.split(":")[3])
    AwsCalls(settings, connect_timeout_seconds=SEND_SECONDS, read_timeout_seconds=SEND_SECONDS).call(
        "sns:Publish", TopicArn=arn, Subject="BOA", Message=sentence
    )


def _to_command(command: str, sentence: str) -> None:
    """Run the configured command, without a shell, with the sentence in BOA_ALERT."""
    subprocess.run(
        shlex.split(command),
        env={**os.environ, "BOA_ALERT": sentence},
        timeout=SEND_SECONDS,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _to_plugin(name: str, address: str, sentence: str) -> None:
    """Send a sentence to an address through a plug-in."""
    tell = plugins.load("boa.notifiers", name)
    if tell is None:
        known = ", ".join(plugins.names("boa.notifiers")) or "none is installed"
        raise InputError(f"[alerts] notifiers: no plug-in {name!r}; {known}")
    tell(address, sentence)


def _said(error: Exception) -> str:
    """Describe a failure without quoting any address."""
    if (answer := getattr(error, "response", None)) is not None and hasattr(answer, "status_code"):
        return f"answer {answer.status_code}"
    if isinstance(error, subprocess.CalledProcessError):
        return f"exit code {error.returncode}"
    if isinstance(error, InputError | BrokenPlugin | _NotTaken):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
