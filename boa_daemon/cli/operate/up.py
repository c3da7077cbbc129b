"""``boa up``: create the CloudFormation stack of a site, and write its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.instances.market import AwsMarket
from boa_daemon.backends.aws.prices.extra_costs import HOURS_OF_A_MONTH
from boa_daemon.backends.aws.prices.region_prices import catalog_of
from boa_daemon.backends.aws.prices.side_prices import side_prices
from boa_daemon.backends.aws.stack.deployment import Stack
from boa_daemon.backends.aws.stack.settings import StackOptions
from boa_daemon.backends.aws.stack.template import as_yaml, monthly_costs, stack_template
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.cli.common.aws_options import DEFAULT_CONFIG, ClusterOption, ConfigOption, RegionOption
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.cli.common.toml_keys import Value, write_keys
from boa_daemon.clock import SystemClock
from boa_daemon.daemon.settings.setting_layers import load_aws_settings
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from policies.money_text import in_dollars, price_in_dollars

_DAY_CAP_DAYS = 2.0
_PUBLIC_CARDS = 1
"""An instance with more network interfaces than this gets no public address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """The stack that `boa up` would create, with its template, parameters, zones and prices."""

    settings: AwsSettings
    wishes: StackOptions
    template: Mapping[str, Any]
    parameters: Mapping[str, str]
    account: str
    is_there: bool
    zones: Mapping[str, tuple[str, ...]]
    prices: Mapping[str, float | None]

    def standing(self) -> list[tuple[str, float, str]]:
        """Return the monthly costs of the stack itself, at the prices of the region."""
        return monthly_costs(self.wishes, side_prices(self.settings))


def up(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    cluster: ClusterOption = None,
    instance_type: Annotated[
        list[str] | None, typer.Option("--type", help="Instance type to rent; may be repeated.")
    ] = None,
    market: Annotated[
        str | None, typer.Option(help="Market: on-demand, spot, spot-then-on-demand or planned.")
    ] = None,
    usd_per_hour: Annotated[
        float | None, typer.Option(min=0.01, help="Budget to write to the settings.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Create a network with private subnets and a NAT gateway.")
    ] = False,
    expire_days: Annotated[
        int | None,
        typer.Option(min=1, help="Days after which checkpoints and logs are deleted. Default: never."),
    ] = None,
    email: Annotated[
        str, typer.Option(help="Address that AWS mails when the account's bill passes the budget.")
    ] = "",
    template: Annotated[
        bool, typer.Option("--template", help="Print the CloudFormation template, and create nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Create the stack; without this nothing is created.")
    ] = False,
    wait_seconds: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the stack.")] = 900.0,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show what BOA needs in this AWS account and what that costs; with --yes create it, and write boa.toml.

    One CloudFormation stack holds all of it: roles and policies of the daemon and nodes, bucket, queues,
    rules, security group and, with --private, a network. The same command updates an existing stack.
    """
    usd_per_month = None if usd_per_hour is None else usd_per_hour * 730.0
    if email and usd_per_month is None:
        raise InputError("--email needs --usd-per-hour: the alarm is about that budget")

    def planned(where: str | None) -> tuple[Stack, StackPlan]:
        settings = _settings(config, where, cluster, instance_type, market)
        stack = Stack(AwsCalls(settings))
        is_further = where in _further_regions(config)
        return stack, _plan(
            stack, private=private, expire_days=expire_days, email="" if is_further else email,
            usd=usd_per_month, is_further=is_further,
        )  # fmt: skip

    if template:
        typer.echo(as_yaml(planned(region)[1].template).rstrip())
        return
    # The home region comes last: its roles name the queues of the others.
    targets = [region] if region else [*_further_regions(config), None]
    for where in targets:
        # Compute the costs first, so that nothing is created if a price is missing.
        planned(where)[1].standing()
    documents: list[dict[str, Any]] = []
    for where in targets:
        stack, plan = planned(where)
        outputs: Mapping[str, str] = {}
        is_changed = False
        if yes:
            is_changed = stack.make(plan.template, plan.parameters, wait_seconds=wait_seconds)
            if "spot" in plan.settings.markets:
                stack.make_spot_role()
            outputs = stack.outputs()
            write_keys(config, _keys(plan, outputs, usd_per_hour=usd_per_hour))
        documents.append(_document(plan, stack, config, outputs, is_made=yes, is_changed=is_changed))
    document = {**documents[-1], "further": documents[:-1]}
    show(
        output,
        document,
        rows=lambda: [row for each in documents for row in each["makes"]],
        table=lambda: _print_all(documents),
    )


def _further_regions(config: Path) -> list[str]:
    """Return the regions of the file beside its home region."""
    settings = load_aws_settings(config)
    return [each for each in settings.regions if each != settings.region]


def _settings(
    config: Path, region: str | None, cluster: str | None, types: list[str] | None, market: str | None
) -> AwsSettings:
    """Return the settings of the file, overridden by the flags.

    Raises:
        InputError: when no instance type is named.
    """
    settings = load_aws_settings(
        config, region=region, cluster=cluster, market=market, instance_types=tuple(types) if types else None
    )
    if not settings.instance_types:
        raise InputError(
            "no instance type is named", hint="Give --type g5.xlarge, or instance_types under [cloud]"
        )
    catalog = Catalog.load()
    for name in settings.instance_types:
        catalog.entry(name)
    return settings


def _plan(
    stack: Stack,
    *,
    private: bool,
    expire_days: int | None,
    email: str,
    usd: float | None,
    is_further: bool,
) -> StackPlan:
    """Return the plan of the stack.

    Raises:
        CallFailed: when AWS cannot be asked.
        InputError: when no zone offers a type, or nodes would not be reachable.
    """
    calls = stack.calls
    settings, catalog = calls.settings, catalog_of(calls.settings)
    account = str(calls.call("sts:GetCallerIdentity")["Account"])
    market = AwsMarket(settings, calls, catalog, SystemClock())
    zones = market.zones()
    lacking = [name for name in settings.instance_types if not zones.get(name)]
    if lacking:
        raise InputError(
            f"no zone in {settings.region} offers {', '.join(lacking)}",
            hint="Choose another region or type; `boa catalog` lists them",
        )
    every_zone = sorted({zone for found in zones.values() for zone in found})
    cards = {name: catalog.entry(name).efa_interfaces for name in settings.instance_types}
    efa = [name for name, count in cards.items() if count and settings.efa]
    wide = [name for name in efa if cards[name] > _PUBLIC_CARDS]
    if wide and not (private or settings.subnets):
        raise InputError(
            f"{', '.join(wide)} with EFA has several interfaces, so EC2 gives it no public address, and it "
            "would reach neither SSM nor S3 from a default subnet",
            hint="Give --private, or private subnets of your own or efa = false under [cloud]",
        )
    wishes = StackOptions(
        private_zones=tuple(every_zone[:6]) if private else (),
        efa_zones=tuple(sorted({zone for name in efa for zone in zones[name]})),
        expire_days=expire_days,
        email=email,
        usd_per_month=usd,
        is_further=is_further,
    )
    return StackPlan(
        settings=settings,
        wishes=wishes,
        template=stack_template(settings, wishes),
        parameters={} if private else {"VpcId": _vpc(calls, settings)},
        account=account,
        is_there=stack.state() is not None,
        zones=zones,
        prices={name: market.price(name, zones[name][0], "on-demand") for name in settings.instance_types},
    )


def _vpc(calls: AwsCalls, settings: AwsSettings) -> str:
    """Return the VPC of the configured subnets, else the default VPC.

    Raises:
        CallFailed: when AWS cannot be asked.
        InputError: when there is no default VPC, or the subnets are in several VPCs.
    """
    if settings.subnets:
        rows = calls.call("ec2:DescribeSubnets", SubnetIds=list(settings.subnets))["Subnets"]
        found = {row["VpcId"] for row in rows}
        if len(found) != 1:
            raise InputError(
                f"[cloud] subnets are in {len(found)} networks, but a security group serves only one"
            )
        return str(found.pop())
    vpcs = calls.call("ec2:DescribeVpcs", Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    if not vpcs:
        raise InputError(
            f"{settings.region} has no default network",
            hint="Give --private for one of its own, or name subnets under [cloud]",
        )
    return str(vpcs[0]["VpcId"])


def _keys(
    plan: StackPlan, outputs: Mapping[str, str], *, usd_per_hour: float | None
) -> dict[str, dict[str, Value]]:
    """Return the keys to write to `boa.toml`."""
    settings = plan.settings
    cloud: dict[str, Value] = {
        "queue_url": outputs["WarningsQueueUrl"],
        "security_groups": (outputs["SecurityGroupId"],),
    }
    if not plan.wishes.is_further:
        cloud = {
            "provider": "aws",
            "cluster": settings.cluster,
            "region": settings.region,
            "instance_types": settings.instance_types,
            "market": settings.market,
            "instance_profile": outputs["NodeProfileName"],
            **cloud,
        }
    if outputs.get("PoolEndRoleArn"):
        cloud["pool_end_role"] = outputs["PoolEndRoleArn"]
    if outputs.get("SubnetIds"):
        cloud["subnets"] = tuple(outputs["SubnetIds"].split(","))
    groups = [value for key, value in sorted(outputs.items()) if key.startswith("PlacementGroup")]
    pairs = dict(each.split("=", 1) for each in groups if "=" in each)
    if pairs:
        cloud["placement_groups"] = pairs
    if plan.wishes.is_further:
        return {f"cloud.by_region.{settings.region}": cloud}
    found: dict[str, dict[str, Value]] = {
        "cloud": cloud,
        "engine": {
            "name": "ssm",
            "queue_url": outputs["ReportsQueueUrl"],
            "uri": f"s3://{outputs['BucketName']}/jobs",
        },
    }
    if usd_per_hour is not None:
        cap = _DAY_CAP_DAYS * 24.0 * usd_per_hour
        budget: dict[str, Value] = {"usd_per_hour": usd_per_hour, "usd_per_day_cap": cap}
        found = {"budget": budget, **found}
    standing = sum(usd for _, usd, _ in plan.standing()) / HOURS_OF_A_MONTH
    if standing:
        found["budget"] = {**found.get("budget", {}), "standing_usd_per_hour": round(standing, 6)}
    return found


def _document(
    plan: StackPlan,
    stack: Stack,
    config: Path,
    outputs: Mapping[str, str],
    *,
    is_made: bool,
    is_changed: bool,
) -> dict[str, Any]:
    costs = [
        {"what": what, "usd_per_month": round(usd, 2), "terms": terms} for what, usd, terms in plan.standing()
    ]
    total = sum(usd for _, usd, _ in plan.standing())
    disk = plan.settings.volume_gib * side_prices(plan.settings).gp3_usd_per_gib_month / HOURS_OF_A_MONTH
    return {
        "stack": stack.name,
        "account": plan.account,
        "region": plan.settings.region,
        "cluster": plan.settings.cluster,
        "is_there": plan.is_there,
        "is_made": is_made,
        "is_changed": is_changed,
        "makes": [{"name": name, "type": each["Type"]} for name, each in plan.template["Resources"].items()],
        "usd_per_month": round(total, 2),
        "costs": costs,
        "nodes": [
            {
                "instance_type": name,
                "zones": list(plan.zones[name]),
                "usd_per_hour": plan.prices[name],
                "disk_usd_per_hour": round(disk, 4),
            }
            for name in plan.settings.instance_types
        ],
        "writes": str(config),
        "control_role": outputs.get("ControlRoleArn"),
        "outputs": dict(outputs),
    }


def _print_all(documents: Sequence[Mapping[str, Any]]) -> None:
    for document in documents:
        _print(document)


def _print(document: Mapping[str, Any]) -> None:
    console = stdout_console()
    verb = "Made" if document["is_made"] else "Would make"
    if document["is_there"]:
        verb = "Is up to date:" if document["is_made"] and not document["is_changed"] else (
            "Changed" if document["is_made"] else "Would bring up to date"
        )  # fmt: skip
    title = f"{verb} stack {document['stack']} in {document['region']}, account {document['account']}"
    table = a_table(title, "name", "type")
    for row in document["makes"]:
        table.add_row(row["name"], row["type"].removeprefix("AWS::"))
    console.print(table)
    for row in document["costs"]:
        console.print(
            f"{row['what']}: {in_dollars(row['usd_per_month'])}/month; {row['terms']}", soft_wrap=True
        )
    for row in document["nodes"]:
        price = (
            "an unknown price"
            if row["usd_per_hour"] is None
            else f"{price_in_dollars(row['usd_per_hour'])}/hour"
        )
        console.print(
            f"a {row['instance_type']}, while it is rented: {price}, and "
            f"{price_in_dollars(row['disk_usd_per_hour'])}/hour for its disk",
            soft_wrap=True,
        )
    if not document["is_made"]:
        console.print(
            "Nothing was made. `boa up --yes` makes it, and writes " + escape(document["writes"]) + "."
        )
        return
    console.print(f"Wrote {escape(document['writes'])}.", soft_wrap=True)
    if document["control_role"]:
        console.print(f"The daemon's role: {document['control_role']}.", soft_wrap=True)
        console.print("Next: `boa doctor`, then `boa daemon`.")
    else:
        console.print("The daemon's role is the home region's: `boa up --yes` brings it up to date.")
