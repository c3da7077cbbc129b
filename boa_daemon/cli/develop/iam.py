"""``boa iam``: print least-privilege policies, derived from the AWS calls that the code makes."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from boa_daemon.backends.aws.client.resource_names import bucket_of, partition_of, queue_arn
from boa_daemon.backends.aws.image_builder.policy import image_policy
from boa_daemon.backends.aws.instances.termination_schedule import termination_policy
from boa_daemon.backends.aws.rights.policy import node_policy, policy
from boa_daemon.backends.aws.rights.policy_statements import UsedResources
from boa_daemon.backends.aws.rights.resource_policies import bucket_policy, queue_policy
from boa_daemon.backends.aws.stack.template import as_yaml, stack_template
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.cli.common.aws_options import (
    DEFAULT_CONFIG,
    ClusterOption,
    ConfigOption,
    RegionOption,
    settings_of,
    used_resources,
)
from boa_daemon.cli.common.output import OutputFormat, OutputOption, print_json
from boa_daemon.errors import InputError


class QueueName(StrEnum):
    """The SQS queues of a site."""

    warnings = "warnings"
    reports = "reports"


def iam(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    cluster: ClusterOption = None,
    cloudformation: Annotated[
        bool, typer.Option("--cloudformation", help="Print the CloudFormation template that `boa up` uses.")
    ] = False,
    node: Annotated[bool, typer.Option("--node", help="Print the policy of the nodes.")] = False,
    image: Annotated[
        bool,
        typer.Option("--image", help="Print the policy that `boa image` needs."),
    ] = False,
    pool_end: Annotated[
        bool, typer.Option("--pool-end", help="Print the policy of the role that ends stopped instances.")
    ] = False,
    bucket: Annotated[bool, typer.Option("--bucket", help="Print the policy of the S3 bucket.")] = False,
    queue: Annotated[
        QueueName | None,
        typer.Option(help="Print the policy of a queue, for `aws sqs set-queue-attributes`."),
    ] = None,
    account: Annotated[str, typer.Option(help="Account id to write into the ARNs.")] = "*",
    node_role: Annotated[str, typer.Option(metavar="ARN", help="ARN of the nodes' role.")] = "",
    control_role: Annotated[str, typer.Option(metavar="ARN", help="ARN of the daemon's role.")] = "",
    output: OutputOption = OutputFormat.table,
) -> None:
    """Print the least-privilege IAM policy that the daemon needs; with a flag, another policy."""
    settings = settings_of(config, region=region, cluster=cluster)
    if account != "*" and not (account.isascii() and account.isdigit() and len(account) == 12):
        raise InputError(f"--account {account!r} is not an account id", hint="It has 12 digits")
    uses = used_resources(config)
    if cloudformation:
        document = stack_template(settings)
    elif node:
        document = node_policy(settings, uses, account=account)
    elif image:
        document = image_policy(settings, uses=uses, account=account, role=control_role)
    elif pool_end:
        document = termination_policy(settings, account=account)
    elif bucket:
        document = _of_bucket(settings, uses)
    elif queue is not None:
        document = _of_queue(queue, settings, uses, account)
    else:
        document = policy(
            settings, uses=uses, account=account, node_role=node_role, control_role=control_role
        )
    match output:
        case OutputFormat.json:
            print_json(document)
        case OutputFormat.csv:
            raise InputError("a policy cannot be printed as CSV", hint="Leave -o out, or use -o json")
        case OutputFormat.table:
            typer.echo(as_yaml(document).rstrip() if cloudformation else _indented(document))


def _of_bucket(settings: AwsSettings, uses: UsedResources) -> dict[str, Any]:
    """Return the policy of the bucket.

    Raises:
        InputError: when the settings name no bucket.
    """
    if not uses.uri:
        raise InputError("[engine] uri names no bucket", hint="`boa up` makes one, and names it")
    arn = f"arn:{partition_of(settings.region)}:s3:::{bucket_of(uses.uri)}"
    return bucket_policy(arn, f"{arn}/*")


def _of_queue(queue: QueueName, settings: AwsSettings, uses: UsedResources, account: str) -> dict[str, Any]:
    """Return the policy of a queue as its `Policy` attribute.

    Raises:
        InputError: when the settings name no queue, or its account is not known.
    """
    is_ours = queue is QueueName.warnings
    url = settings.queue_url if is_ours else uses.reports_queue_url
    where = "[cloud] queue_url" if is_ours else "[engine] queue_url"
    if not url:
        raise InputError(f"{where} names no queue", hint="`boa up` makes one, and names it")
    owner = queue_arn(settings, url, account).split(":")[4]
    if not owner.isdigit():
        raise InputError(
            f"{where} does not contain the account of the queue", hint="Give --account, with its 12 digits"
        )
    document = queue_policy("warnings" if is_ours else "reports", queue_arn(settings, url, account), owner)
    return {"Policy": json.dumps(document, separators=(",", ":"))}


def _indented(document: object) -> str:
    """Return indented JSON, which IAM accepts."""
    return json.dumps(document, indent=2)
