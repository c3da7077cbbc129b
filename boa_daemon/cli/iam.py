"""``boa iam``: the least-privilege policy, made from the calls that the code makes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from boa_daemon.backends.aws_image_policy import image_policy
from boa_daemon.backends.aws_policy import node_policy, policy
from boa_daemon.backends.aws_stack import as_yaml, stack_template
from boa_daemon.cli.aws_site import (
    DEFAULT_CONFIG,
    ClusterOption,
    ConfigOption,
    RegionOption,
    settings_of,
    uses_of,
)
from boa_daemon.cli.output import OutputFormat, OutputOption, print_json
from boa_daemon.errors import InputError


def iam(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    cluster: ClusterOption = None,
    cloudformation: Annotated[
        bool, typer.Option("--cloudformation", help="The template that `boa up` makes its stack of.")
    ] = False,
    node: Annotated[
        bool, typer.Option("--node", help="The policy of the nodes, in place of the daemon's.")
    ] = False,
    image: Annotated[
        bool,
        typer.Option("--image", help="The policy of whoever types `boa image`, in place of the daemon's."),
    ] = False,
    account: Annotated[str, typer.Option(help="Account id to write into the ARNs.")] = "*",
    node_role: Annotated[str, typer.Option(metavar="ARN", help="The role of the nodes.")] = "",
    control_role: Annotated[str, typer.Option(metavar="ARN", help="The role of the daemon.")] = "",
    output: OutputOption = OutputFormat.table,
) -> None:
    """Print the policy that the daemon needs: these calls, on what bears the cluster's tag, and no more."""
    settings = settings_of(config, region=region, cluster=cluster)
    if account != "*" and not (account.isdigit() and len(account) == 12):
        raise InputError(f"--account {account!r} is not an account id", hint="It has 12 digits")
    uses = uses_of(config)
    if cloudformation:
        document = stack_template(settings)
    elif node:
        document = node_policy(settings, uses, account=account)
    elif image:
        document = image_policy(settings, uses=uses, account=account, role=control_role)
    else:
        document = policy(
            settings, uses=uses, account=account, node_role=node_role, control_role=control_role
        )
    match output:
        case OutputFormat.json:
            print_json(document)
        case OutputFormat.csv:
            raise InputError("a policy is no table", hint="Leave -o out, or use -o json")
        case OutputFormat.table:
            typer.echo(as_yaml(document).rstrip() if cloudformation else _indented(document))


def _indented(document: object) -> str:
    """Return JSON for people: IAM takes it as it stands."""
    return json.dumps(document, indent=2)
