"""What the verbs about the cloud share: settings, and a cloud made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from boa_daemon.backends.aws.calls import check_region
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.policy_statements import UsedResources
from boa_daemon.backends.settings import AwsSettings, load_aws_settings
from boa_daemon.clock import SystemClock
from boa_daemon.daemon.setting_layers import load_settings
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog

ConfigOption: TypeAlias = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="Settings; the [cloud] part is read.")
]
RegionOption: TypeAlias = Annotated[
    str | None, typer.Option("--region", help="Instead of the region of the settings.")
]
ClusterOption: TypeAlias = Annotated[
    str | None, typer.Option("--cluster", help="Instead of the cluster of the settings.")
]
DEFAULT_CONFIG = Path("boa.toml")


def settings_of(config: Path, *, region: str | None = None, cluster: str | None = None) -> AwsSettings:
    """Return the settings; a file that was named must exist.

    Raises:
        InputError: when the file is missing or wrong, or there is no such region.
    """
    if config != DEFAULT_CONFIG and not config.exists():
        raise InputError("there is no such settings file", file=config)
    found = load_aws_settings(config, region=region, cluster=cluster)
    if not found.endpoint:
        check_region(found.region)
    return found


def regions_of(named: list[str] | None, settings: AwsSettings) -> list[str]:
    """Return the regions that a flag names, each once, or that of the settings.

    Raises:
        InputError: when there is none of a name.
    """
    for region in named or ():
        check_region(region)
    return list(dict.fromkeys(named or [settings.region]))


def used_resources(config: Path) -> UsedResources:
    """Return what the daemon uses beside `[cloud]`: the reports, the bucket, the topic of its alerts.

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
    """Return a cloud that only looks: no lease is renewed by a verb."""
    return AwsCloud(settings, catalog=Catalog.load(), clock=SystemClock(), touches=False)
