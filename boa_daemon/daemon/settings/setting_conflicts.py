"""Settings that do not go together, found where they are read.

A pair with which the daemon would do harm or could do nothing at all is refused: nodes that power off before
their lease is renewed, a notifier that does not exist. A pair that only holds jobs back, or a key without any
effect, is warned of: no money is at risk, and the caps stay in force. The checks read settings and the
shipped catalogue, nothing else.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from boa_daemon.backends.cloud_kinds import cloud_kind, may_read
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.setting_changes import SettingPath
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.schema import ReadBy
from boa_daemon.tick.facts.limits import ALLOWED_TICKS, Caps
from boa_daemon.units import HOURS_PER_DAY, HOURS_PER_MONTH, SECONDS_PER_HOUR
from policies import plugins

LEASE_TICKS = 3.0
"""A lease should last this many ticks, so that one failed tick ends no node."""
SPOT_WARNING_SECONDS = 120.0
"""AWS warns a spot instance this long before it takes it."""
_CLOUD_NAMES = {"aws": "AWS", "slurm": "Slurm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingConflict:
    """Settings that do not go together: the one to change, why, and what to try.

    `is_refused` says that nothing runs with them; otherwise they are only warned of.
    """

    setting: SettingPath
    problem: str
    hint: str = ""
    is_refused: bool = False

    @property
    def sentence(self) -> str:
        """The conflict in one line."""
        return self.problem + (f". {self.hint}" if self.hint else "")


def refused(settings: Settings) -> list[SettingConflict]:
    """Return the settings with which nothing may run; cheap, because every verb reads settings."""
    return [one for check in (_times, _aws, _channels, _api) for one in check(settings) if one.is_refused]


def warned_of(settings: Settings) -> list[SettingConflict]:
    """Return the settings that hold jobs back, or have no effect."""
    checks = (_times, _money, _machines, _teams, _aws, _other_clouds, _channels, _api)
    return [one for check in checks for one in check(settings) if not one.is_refused]


def _times(settings: Settings) -> Iterator[SettingConflict]:
    """Intervals that must be shorter than others."""
    daemon, cloud = settings.daemon, settings.cloud
    tick = daemon.tick_seconds
    lease = getattr(cloud, "lease_minutes", None)
    if lease is not None and cloud_kind(cloud.provider).on_aws:
        seconds = 60.0 * lease
        said = f"a tick renews the leases of nodes every {tick:g} s, and [cloud] lease_minutes is {lease:g}"
        hint = f"Set tick_seconds to {seconds / LEASE_TICKS:g} or less, or lease_minutes to more"
        if tick >= seconds:
            problem = f"{said}: every node would power off before its first renewal"
            yield SettingConflict(
                setting=("daemon", "tick_seconds"), problem=problem, hint=hint, is_refused=True
            )
        elif tick * LEASE_TICKS > seconds:
            problem = f"{said}: one failed tick would let nodes power off"
            yield SettingConflict(setting=("daemon", "tick_seconds"), problem=problem, hint=hint)
    if daemon.stall_seconds < tick:
        yield SettingConflict(
            setting=("daemon", "stall_seconds"),
            problem=f"[daemon] stall_seconds {daemon.stall_seconds:g} is shorter than a tick of {tick:g} s: "
            "jobs would count as stalled between two looks",
            hint=f"Set it to {10.0 * tick:g} or more",
        )
    if daemon.backup_seconds < tick:
        yield SettingConflict(
            setting=("daemon", "backup_seconds"),
            problem=f"[daemon] backup_seconds {daemon.backup_seconds:g} is shorter than a tick of {tick:g} s",
            hint="Backups more often than ticks save nothing",
        )
    if (
        "spot" in cloud.market
        and cloud_kind(cloud.provider).on_aws
        and daemon.checkpoint_seconds > SPOT_WARNING_SECONDS
    ):
        yield SettingConflict(
            setting=("daemon", "checkpoint_seconds"),
            problem=f"[daemon] checkpoint_seconds {daemon.checkpoint_seconds:g} is longer than the "
            f"{SPOT_WARNING_SECONDS:g} s between AWS's spot warning and the end of an instance",
            hint="A job that needs so long to save loses its last checkpoint on spot",
        )
    if (
        cloud.start_seconds is not None
        and cloud.start_seconds > cloud.boot_seconds
        and _is_simulated(settings)
    ):
        yield SettingConflict(
            setting=("cloud", "start_seconds"),
            problem=f"[cloud] start_seconds {cloud.start_seconds:g} is longer than boot_seconds "
            f"{cloud.boot_seconds:g}: a stopped node would start more slowly than a new one",
        )


def _money(settings: Settings) -> Iterator[SettingConflict]:
    """Caps below the budget, below each other, or below what runs without a node."""
    money = settings.budget
    hour, day, month = money.mean_usd_per_hour, money.usd_per_day_cap, money.usd_per_month_cap
    if day is not None and day < HOURS_PER_DAY * hour:
        yield SettingConflict(
            setting=("budget", "usd_per_day_cap"),
            problem=f"[budget] usd_per_day_cap {day:g} is below a day of the budget, "
            f"{HOURS_PER_DAY * hour:g}: the budget can never be used",
            hint=f"Set the cap to {1.25 * HOURS_PER_DAY * hour:g}, or the budget to "
            f"{day / HOURS_PER_DAY:.4g} an hour",
        )
    if month is not None and month < HOURS_PER_MONTH * hour:
        yield SettingConflict(
            setting=("budget", "usd_per_month_cap"),
            problem=f"[budget] usd_per_month_cap {month:g} is below a month of the budget, "
            f"{HOURS_PER_MONTH * hour:g}: the last days of a month would have no money",
            hint=f"Set the budget to {month / HOURS_PER_MONTH:.4g} an hour, or usd_per_month = {month:g}",
        )
    if day is not None and month is not None and month < day:
        yield SettingConflict(
            setting=("budget", "usd_per_day_cap"),
            problem=f"[budget] usd_per_day_cap {day:g} is above usd_per_month_cap {month:g}: it never holds",
        )
    fixed = money.standing_usd_per_hour
    if fixed >= hour:
        yield SettingConflict(
            setting=("budget", "standing_usd_per_hour"),
            problem=f"[budget] standing_usd_per_hour {fixed:g} uses up the budget of {hour:g} an hour: "
            "nothing is left for nodes",
        )
    for key, cap, hours in (
        ("usd_per_day_cap", day, HOURS_PER_DAY),
        ("usd_per_month_cap", month, HOURS_PER_MONTH),
    ):
        if cap is not None and 0.0 < cap <= hours * fixed:
            yield SettingConflict(
                setting=("budget", key),
                problem=f"[budget] {key} {cap:g} is used up by standing_usd_per_hour {fixed:g}: no node fits",
            )


def _machines(settings: Settings) -> Iterator[SettingConflict]:
    """Ceilings that no machine fits under, and tables about machines that are not rented."""
    cloud, money, daemon = settings.cloud, settings.budget, settings.daemon
    prices = _prices(settings)
    reaction = Caps(
        tick_seconds=daemon.tick_seconds,
        late_tick_seconds=ALLOWED_TICKS * daemon.tick_seconds,
        checkpoint_seconds=daemon.checkpoint_seconds,
    )
    launch = reaction.launch_seconds / SECONDS_PER_HOUR
    while_launched = f"for {reaction.launch_seconds / 60.0:.0f} minutes"
    limits = (
        ("usd_per_hour_ceiling", money.usd_per_hour_ceiling, 1.0, "an hour"),
        # A node that is rented must be payable until it has booted, run a little and shut down.
        ("usd_per_day_cap", money.usd_per_day_cap, launch, while_launched),
        ("usd_per_month_cap", money.usd_per_month_cap, launch, while_launched),
    )
    cheapest = min(prices, key=prices.__getitem__, default=None)
    if cheapest is not None and len(prices) == len(set(cloud.instance_types)) and "spot" not in cloud.market:
        for key, limit, hours, said in limits:
            if limit is not None and limit < prices[cheapest] * hours:
                yield SettingConflict(
                    setting=("budget", key),
                    problem=f"[budget] {key} {limit:g} has no room for a machine: {cheapest}, the cheapest, "
                    f"costs {prices[cheapest] * hours:.4g} {said}",
                    hint="Set it to more, or name a cheaper machine in [cloud] instance_types",
                )
    most = money.max_instances
    if most is not None and cloud.warm_pool_nodes > most:
        yield SettingConflict(
            setting=("cloud", "warm_pool_nodes"),
            problem=f"[cloud] warm_pool_nodes {cloud.warm_pool_nodes} is more than [budget] max_instances "
            f"{most}",
            hint=f"At most {most} can ever be started",
        )
    if cloud.stock is not None and most is not None and cloud.warm_pool_nodes > cloud.stock:
        yield SettingConflict(
            setting=("cloud", "warm_pool_nodes"),
            problem=f"[cloud] warm_pool_nodes {cloud.warm_pool_nodes} is more than stock {cloud.stock}",
        )
    for key in ("spot_max_usd_per_hour", "reservations"):
        for name in getattr(cloud, key, None) or {}:
            if name not in cloud.instance_types:
                yield SettingConflict(
                    setting=("cloud", key, name),
                    problem=f"[cloud] {key}: {name!r} is not among instance_types, so it has no effect",
                    hint=did_you_mean(name, cloud.instance_types),
                )
    families = {name.partition(".")[0] for name in cloud.instance_types}
    for family in getattr(cloud, "images", None) or {}:
        if family not in families:
            yield SettingConflict(
                setting=("cloud", "images", family),
                problem=f"[cloud] images: no instance type is of the family {family!r}, so it has no effect",
                hint=did_you_mean(family, families),
            )


def _teams(settings: Settings) -> Iterator[SettingConflict]:
    """Caps of teams and users that never hold, and teams without members."""
    site = settings.budget
    for table, rows in (("teams", settings.teams), ("users", settings.users)):
        for name, row in rows.items():
            if (
                row.usd_per_day_cap is not None
                and site.usd_per_day_cap is not None
                and row.usd_per_day_cap > site.usd_per_day_cap
            ):
                yield SettingConflict(
                    setting=(table, name, "usd_per_day_cap"),
                    problem=f"[{table}.{name}] usd_per_day_cap {row.usd_per_day_cap:g} is above the site's "
                    f"{site.usd_per_day_cap:g}: it never holds",
                )
    for name, team in settings.teams.items():
        day, month = team.usd_per_day_cap, team.usd_per_month_cap
        if month is not None and site.usd_per_month_cap is not None and month > site.usd_per_month_cap:
            yield SettingConflict(
                setting=("teams", name, "usd_per_month_cap"),
                problem=f"[teams.{name}] usd_per_month_cap {month:g} is above the site's "
                f"{site.usd_per_month_cap:g}: it never holds",
            )
        if day is not None and month is not None and day > month:
            yield SettingConflict(
                setting=("teams", name, "usd_per_day_cap"),
                problem=f"[teams.{name}] usd_per_day_cap {day:g} is above its usd_per_month_cap {month:g}",
            )
        if not team.members:
            yield SettingConflict(
                setting=("teams", name),
                problem=f"[teams.{name}] has no members: nobody can submit jobs to it",
            )


def _aws(settings: Settings) -> Iterator[SettingConflict]:
    """Keys of AWS that do not go together."""
    cloud = settings.cloud
    if not cloud_kind(cloud.provider).on_aws:
        return
    for key in ("zones", "placement_groups"):
        for zone in getattr(cloud, key, None) or ():
            if not zone.startswith(cloud.region):
                yield SettingConflict(
                    setting=("cloud", key),
                    problem=f"[cloud] {key}: {zone!r} is not in the region {cloud.region}",
                    hint=f"Its zones begin with {cloud.region}",
                    is_refused=True,
                )
    zones = getattr(cloud, "zones", None) or ()
    for zone in getattr(cloud, "placement_groups", None) or {}:
        if zones and zone not in zones:
            yield SettingConflict(
                setting=("cloud", "placement_groups"),
                problem=f"[cloud] placement_groups: {zone!r} is not among zones, so it has no effect",
            )
    if getattr(cloud, "spot_max_usd_per_hour", None) and cloud.market == "on-demand":
        yield SettingConflict(
            setting=("cloud", "spot_max_usd_per_hour"),
            problem='[cloud] spot_max_usd_per_hour has no effect with market = "on-demand"',
        )


def _other_clouds(settings: Settings) -> Iterator[SettingConflict]:
    """Keys that the provider does not read."""
    cloud = settings.cloud
    for key, field in type(cloud).model_fields.items():
        readers = next((mark.clouds for mark in field.metadata if isinstance(mark, ReadBy)), None)
        if readers is None or key not in cloud.model_fields_set or may_read(cloud.provider, readers):
            continue
        names = " and ".join(_CLOUD_NAMES.get(name, name) for name in readers)
        yield SettingConflict(
            setting=("cloud", key),
            problem=f"[cloud] {key} is of {names}, and has no effect with provider = {cloud.provider!r}",
        )


def _channels(settings: Settings) -> Iterator[SettingConflict]:
    """Channels of alerts that no message could go through."""
    alerts = settings.alerts
    named: dict[SettingPath, str | None] = {("alerts", "webhook"): alerts.webhook}
    named |= {("users", name, "webhook"): user.webhook for name, user in settings.users.items()}
    named |= {("teams", name, "webhook"): team.webhook for name, team in settings.teams.items()}
    for path, url in named.items():
        if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
            where = f"[{'.'.join(path[:-1])}] webhook"
            yield SettingConflict(
                setting=path, problem=f"{where} is no http or https address", is_refused=True
            )
    topic = alerts.sns_topic
    if topic is not None and (not topic.startswith("arn:") or topic.count(":") != 5):
        yield SettingConflict(
            setting=("alerts", "sns_topic"),
            problem=f"[alerts] sns_topic {topic!r} is no ARN of a topic",
            hint="For example arn:aws:sns:us-east-1:123456789012:boa",
            is_refused=True,
        )
    if alerts.command is not None and not _words(alerts.command):
        yield SettingConflict(
            setting=("alerts", "command"),
            problem="[alerts] command cannot be split into words",
            hint="It runs without a shell: check its quotes",
            is_refused=True,
        )
    known = plugins.names("boa.notifiers") if alerts.notifiers else ()
    for name in alerts.notifiers:
        if name not in known:
            yield SettingConflict(
                setting=("alerts", "notifiers"),
                problem=f"[alerts] notifiers: no plug-in {name!r} is installed",
                hint=did_you_mean(name, known) or "See docs/how-to/write-a-plugin.md",
                is_refused=True,
            )
    if 0.0 in alerts.at_fractions:
        yield SettingConflict(
            setting=("alerts", "at_fractions"),
            problem="[alerts] at_fractions has 0: every purse would alert before a dollar is spent",
        )


def _api(settings: Settings) -> Iterator[SettingConflict]:
    """Keys of the API that need each other."""
    api = settings.api
    if (api.tls_cert is None) != (api.tls_key is None):
        yield SettingConflict(
            setting=("api", "tls_key" if api.tls_cert is None else "tls_cert"),
            problem="[api] tls_cert and tls_key go together",
            hint="Set both, or neither",
            is_refused=True,
        )
    if api.listen is None:
        for key in ("tokens", "tls_cert", "hosts"):
            if getattr(api, key):
                yield SettingConflict(
                    setting=("api", key), problem=f"[api] {key} has no effect without listen"
                )


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _prices(settings: Settings) -> dict[str, float]:
    """Return dollars per hour of the configured machines that the shipped catalogue prices."""
    if settings.workload.classes is not None:
        return {}  # A class file may have prices of its own.
    from boa_daemon.inputs.catalog import Catalog  # noqa: PLC0415 - slow to import, and most verbs do without

    catalog = Catalog.load()
    found = {}
    for name in settings.cloud.instance_types:
        try:
            found[name] = catalog.instance_type(name).usd_per_hour
        except InputError:
            continue
    return found


def _is_simulated(settings: Settings) -> bool:
    return cloud_kind(settings.cloud.provider).in_a_file
