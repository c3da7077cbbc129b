"""``boa doctor``: check that this machine and account can rent instances and end them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

import typer
from rich.markup import escape

from boa_daemon.backends.aws.doctor.account import Doctor
from boa_daemon.backends.aws.doctor.check import DoctorCheck
from boa_daemon.backends.aws.prices.region_prices import catalog_of
from boa_daemon.backends.aws.rights.policy_statements import NO_OTHER_RESOURCES, UsedResources
from boa_daemon.backends.cloud_kinds import cloud_kind
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.cli.common.aws_options import (
    DEFAULT_CONFIG,
    ClusterOption,
    ConfigOption,
    RegionOption,
    an_aws_cloud,
    settings_of,
    used_resources,
)
from boa_daemon.cli.common.cluster_resources import SIMULATED, find_simulated, simulated_settings
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.cli.operate.local_checks import local_checks
from boa_daemon.clock import SystemClock
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import daemon_paths
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import FAILED
from boa_daemon.units import counted

_MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failed": "[red]failed[/]", "skipped": "-"}


_OF_THE_ACCOUNT = ("credentials", "clock", "right")
"""Beginnings of the names of checks whose answer is the same in each region."""


def doctor(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Check this machine and its settings; on AWS also credentials, quotas, prices, images and permissions.

    Nothing is started: launches and terminations are tried as DryRun. Exit code 1 if a check failed.
    """
    simulated = simulated_settings(config) if region is None and cluster is None else None
    if simulated is not None:
        name, where, checks = SIMULATED, SIMULATED, [*local_checks(simulated), *_leaks(simulated)]
    else:
        settings = settings_of(config, region=region, cluster=cluster)
        name, where = settings.cluster, ", ".join(settings.regions or [settings.region])
        checks = _checks_of_aws(settings, used_resources(config))
        loaded = load_settings(config if config.exists() else None).settings
        if cloud_kind(loaded.cloud.provider).on_aws:
            checks += local_checks(loaded)
    failed = [check for check in checks if check.status == "failed"]
    rows = [asdict(check) for check in checks]
    show(
        output,
        {"cluster": name, "region": where, "is_ready": not failed, "checks": rows},
        rows=lambda: rows,
        table=lambda: _print_checks(f"Cluster {name} in {where}", checks),
    )
    if failed:
        raise typer.Exit(FAILED)


def _checks_of_aws(settings: AwsSettings, uses: UsedResources) -> list[DoctorCheck]:
    """Return the checks of all regions; of a further region without those that are about the account."""
    found = list(Doctor(an_aws_cloud(settings), catalog_of(settings), SystemClock(), uses=uses).checks())
    for region in settings.regions:
        if region != settings.region:
            mine = settings.in_region(region)
            # Bucket and queue of reports are those of the home region.
            checks = Doctor(an_aws_cloud(mine), catalog_of(mine), SystemClock(), uses=NO_OTHER_RESOURCES)
            found += (
                replace(each, name=f"{region}: {each.name}")
                for each in checks.checks()
                if not each.name.startswith(_OF_THE_ACCOUNT)
            )
    return found


def _leaks(settings: Settings) -> Iterator[DoctorCheck]:
    """Yield a check for nodes of the simulated cloud that no daemon wants."""
    if not daemon_paths(settings).state.is_dir():
        return
    leaks = [each for each in find_simulated(settings) if each.leak]
    if leaks:
        said = f"{counted(len(leaks), 'node')} that no daemon wants"
        yield DoctorCheck(name="leaks", status="warning", said=said, fix="`boa gc` ends them")
    else:
        yield DoctorCheck(name="leaks", status="ok", said="none")


def _print_checks(title: str, checks: list[DoctorCheck]) -> None:
    table = a_table(title, "check", "", "found")
    for check in checks:
        fix = f"\n[dim]{escape(check.fix)}[/]" if check.fix else ""
        table.add_row(check.name, _MARKS[check.status], escape(check.said) + fix)
    failed = sum(check.status == "failed" for check in checks)
    console = stdout_console()
    console.print(table)
    console.print(f"{counted(failed, 'check')} failed." if failed else "Ready to rent.")
