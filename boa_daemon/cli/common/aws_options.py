"""Shared by the AWS verbs: options, settings, and a read-only AWS cloud."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer

from boa_daemon.backends.aws.client.calls import check_region
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.prices.region_prices import catalog_of
from boa_daemon.backends.aws.rights.policy_statements import UsedResources
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.clock import SystemClock
from boa_daemon.daemon.settings.setting_layers import load_aws_settings, load_settings
from boa_daemon.errors import InputError

ConfigOption: TypeAlias = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="Settings file; its [cloud] section is read.")
]
RegionOption: TypeAlias = Annotated[
    str | None, typer.Option("--region", help="AWS region; overrides the settings.")
]
ClusterOption: TypeAlias = Annotated[
    str | None, typer.Option("--cluster", help="Cluster name; overrides the settings.")
]
DEFAULT_CONFIG = Path("boa.toml")
Found = TypeVar("Found")


def settings_of(config: Path, *, region: str | None = None, cluster: str | None = None) -> AwsSettings:
    """Return the AWS settings; a file named by --config must exist.

    Raises:
        InputError: when the file is missing or wrong, or the region does not exist.
    """
    if config != DEFAULT_CONFIG and not config.exists():
        raise InputError("there is no such settings file", file=config)
    found = load_aws_settings(config, region=region, cluster=cluster)
    if not found.endpoint:
        check_region(found.region)
    return found


def regions_of(named: list[str] | None, settings: AwsSettings) -> list[str]:
    """Return the regions named by --region without duplicates, else all regions of the settings.

    Raises:
        InputError: when a region does not exist.
    """
    for region in named or ():
        check_region(region)
    return list(dict.fromkeys(named or settings.regions or [settings.region]))


def in_each_region(regions: Sequence[str], ask: Callable[[str], Found]) -> tuple[list[Found], dict[str, str]]:
    """Return what `ask` finds in each region that answers, and why others do not.

    Raises:
        CallFailed: when no region answers.
    """
    found: list[Found] = []
    unanswered: dict[str, str] = {}
    for region in regions:
        try:
            found.append(ask(region))
        except CallFailed as error:
            if len(regions) == 1:
                raise
            unanswered[region] = str(error)
            last = error
    if len(unanswered) == len(regions):
        raise last
    return found, unanswered


def used_resources(config: Path) -> UsedResources:
    """Return what the daemon uses outside `[cloud]`: reports queue, bucket, alert topic, secrets, data.

    Raises:
        InputError: when the settings cannot be read.
    """
    loaded = load_settings(config if config.exists() else None).settings
    engine = loaded.engine
    return UsedResources(
        reports_queue_url=engine.queue_url,
        uri=engine.uri,
        sns_topic=loaded.alerts.sns_topic or "",
        secrets=tuple(engine.secrets),
        data=tuple(engine.data),
    )


def an_aws_cloud(settings: AwsSettings) -> AwsCloud:
    """Return a read-only AWS cloud: a verb renews no lease."""
    return AwsCloud(settings, catalog=catalog_of(settings), clock=SystemClock(), touches=False)
