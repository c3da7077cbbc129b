"""``boa doctor``: is this account ready to rent, and to release?"""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.markup import escape

from boa_daemon.backends.aws_doctor import Check, Doctor
from boa_daemon.cli.aws_site import (
    DEFAULT_CONFIG,
    ClusterOption,
    ConfigOption,
    RegionOption,
    an_aws_cloud,
    settings_of,
    uses_of,
)
from boa_daemon.cli.output import (
    JsonOption,
    OutputFormat,
    OutputOption,
    a_table,
    chosen_format,
    show,
    stdout_console,
)
from boa_daemon.clock import SystemClock
from boa_daemon.errors import FAILED
from boa_daemon.inputs.catalog import Catalog

_MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failed": "[red]failed[/]", "skipped": "-"}


def doctor(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = OutputFormat.table,
    as_json: JsonOption = False,
) -> None:
    """Check credentials, clock, types, subnets, prices, quotas, images, permissions and the queue.

    Nothing is started: launches and ends are tried as DryRun. Exit code 1 when a check failed.
    """
    settings = settings_of(config, region=region, cluster=cluster)
    catalog = Catalog.load()
    cloud = an_aws_cloud(settings)
    checks = list(Doctor(cloud, catalog, SystemClock(), uses=uses_of(config)).checks())
    failed = [check for check in checks if check.status == "failed"]
    rows = [asdict(check) for check in checks]
    show(
        chosen_format(output, as_json),
        {"cluster": settings.cluster, "region": settings.region, "is_ready": not failed, "checks": rows},
        rows=lambda: rows,
        table=lambda: _print_checks(f"Cluster {settings.cluster} in {settings.region}", checks),
    )
    if failed:
        raise typer.Exit(FAILED)


def _print_checks(title: str, checks: list[Check]) -> None:
    """Print what was checked, what was found, and how to mend what failed."""
    table = a_table(title, "check", "", "found")
    for check in checks:
        fix = f"\n[dim]{escape(check.fix)}[/]" if check.fix else ""
        table.add_row(check.name, _MARKS[check.status], escape(check.said) + fix)
    failed = sum(check.status == "failed" for check in checks)
    console = stdout_console()
    console.print(table)
    console.print(f"{failed} checks failed." if failed else "Ready to rent.")
