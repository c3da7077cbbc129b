"""Inputs of a stack: the options, the names of its resources, and the settings that use them."""

from __future__ import annotations

from dataclasses import dataclass, field

from boa_daemon.backends.aws.client.resource_names import control_role_name, domain_of, partition_of, slug_of
from boa_daemon.backends.aws.instances.termination_schedule import termination_role_name
from boa_daemon.backends.aws.rights.policy_statements import UsedResources
from boa_daemon.backends.settings import AwsSettings

ACCOUNT, REGION = "${AWS::AccountId}", "${AWS::Region}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """Optional parts of the stack.

    `private_zones` create a network of its own with a private subnet in each zone and one NAT gateway;
    without them the nodes use the network of `boa.toml` or the default one. Objects in the bucket expire
    after `expire_days`; None keeps them.
    """

    private_zones: tuple[str, ...] = ()
    efa_zones: tuple[str, ...] = ()
    expire_days: int | None = None
    email: str = ""
    is_further: bool = False
    """A region beside the home region, which has the roles, the bucket and the queue of reports."""
    usd_per_month: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackNames:
    """Names of the resources of a cluster's stack; ARNs and URLs derive from them."""

    stack: str
    bucket: str
    warnings: str
    reports: str
    control: str
    node: str

    @classmethod
    def of(cls, settings: AwsSettings) -> StackNames:
        """Return the names for a cluster."""
        slug = slug_of(settings)
        return cls(
            stack=f"boa-{slug}",
            bucket=f"boa-{slug}-{ACCOUNT}-{REGION}",
            warnings=f"boa-{slug}-warnings",
            reports=f"boa-{slug}-reports",
            control=control_role_name(settings),
            node=f"boa-{slug}-node",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """The settings that use the resources of a stack."""

    settings: AwsSettings
    uses: UsedResources
    names: StackNames = field(repr=False)


def stack_settings_of(settings: AwsSettings, *, account: str = ACCOUNT) -> StackSettings:
    """Return the settings as they are once the stack exists."""
    names = StackNames.of(settings)
    base = f"https://sqs.{settings.region}.{domain_of(settings.region)}/{account}"
    bucket = names.bucket.replace(ACCOUNT, account).replace(REGION, settings.region)
    role = f"arn:{partition_of(settings.region)}:iam::{account}:role/{termination_role_name(settings)}"
    return StackSettings(
        settings=settings.model_copy(
            update={
                "instance_profile": names.node,
                "queue_url": f"{base}/{names.warnings}",
                "pool_end_role": role,
            }
        ),
        uses=UsedResources(reports_queue_url=f"{base}/{names.reports}", uri=f"s3://{bucket}/jobs"),
        names=names,
    )


def stack_tags(site: StackSettings) -> list[dict[str, str]]:
    """Return the tags of the stack's resources, without the cluster's own tag, which marks rented ones."""
    return tags_of_stack(site.settings)


def tags_of_stack(settings: AwsSettings) -> list[dict[str, str]]:
    """Return the tags of a cluster's stack, which CloudFormation also gives to its resources."""
    tags = {**settings.tags, "boa:stack": settings.cluster}
    return [{"Key": key, "Value": value} for key, value in tags.items()]
