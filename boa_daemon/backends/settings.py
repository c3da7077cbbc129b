"""Settings of the AWS backend: keys of the `[cloud]` table of `boa.toml`. Every key has a default.

`boa_daemon.daemon.settings.config` adds the keys to the section, where the same types check them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, model_validator
from pydantic_core import PydanticCustomError

from boa_daemon.backends.region_names import REGION
from boa_daemon.inputs.schema import FORMS, Free, Limit, Name, Names, Strict
from boa_daemon.tick.facts.offers import Market

DRIVER_IMAGE = "ssm:/aws/service/deeplearning/ami/x86_64/{}/latest/ami-id"
OPEN_DRIVER = DRIVER_IMAGE.format("base-oss-nvidia-driver-gpu-ubuntu-22.04")
CLOSED_DRIVER = DRIVER_IMAGE.format("base-proprietary-nvidia-driver-gpu-amazon-linux-2")
"""NVIDIA's open driver begins with Turing, so one image does not fit P3 and P4."""

BUILT = "built"
"""A value of `[cloud] image`: the newest image that `boa image build` made."""

Named: TypeAlias = Mapping[Name, Name]
"""A table of names, such as zones or instance types, with a name for each."""
Price: TypeAlias = Annotated[float, Field(gt=0.0, le=1e6)]
REGION_FORM = f"^{REGION}$"
CLUSTER_FORM, ROLE_FORM, DAY_FORM = (
    r"^[A-Za-z0-9._-]{1,64}$",
    r"^(arn:[^\s]+:role/[^\s]+)?$",
    r"^\d{4}-\d\d-\d\d$",
)
FORMS.update(
    {
        REGION_FORM: "a region, such as us-east-1",
        CLUSTER_FORM: "1 to 64 letters, digits, dots, underscores and hyphens",
        ROLE_FORM: "the ARN of a role, such as arn:aws:iam::123456789012:role/NAME",
        DAY_FORM: 'a day in quotes, such as "2026-11-01"',
    }
)
MarketChoice: TypeAlias = Literal["on-demand", "spot", "spot-then-on-demand", "planned"]


def with_home_region(value: Any) -> Any:
    """Return settings in which `region` is the first of `regions`, unless it is named."""
    if isinstance(value, Mapping) and value.get("regions") and "region" not in value:
        return {**value, "region": next(iter(value["regions"]))}
    return value


MOST_HOUSE_TAGS = 30
"""AWS allows 50 tags on a resource; BOA sets up to 15 of its own, and EC2 and CloudFormation add some."""
_TAG_KEY = re.compile(r"[A-Za-z0-9+\-=.,_:@]{1,128}")
_TAG_VALUE = re.compile(r"[\w\s+\-=.,_:/@]{1,256}")


def why_no_tag(key: str, value: str) -> str:
    """Return why AWS refuses a tag on something that BOA makes; empty if it accepts it.

    Nodes read their tags from the instance metadata, whose keys allow fewer characters than others.
    """
    if key.lower().startswith("aws:"):
        return "begins with aws:, which is AWS's own"
    if key.lower().startswith("boa:") or key == "Name":
        return "is BOA's own: it names and finds its nodes by such tags"
    if not _TAG_KEY.fullmatch(key) or key in (".", "..", "_index"):
        return (
            "is no key: 1 to 128 letters, digits and + - = . , _ : @; EC2 allows no space and no slash in "
            "keys that nodes can read"
        )
    if not _TAG_VALUE.fullmatch(value) or value != value.strip():
        return "has no value that AWS accepts: 1 to 256 letters, digits, spaces and + - = . , _ : / @"
    return ""


def _checked_tags(value: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse tags that AWS refuses on anything that BOA makes."""
    said = next(
        (f"has {key!r}, which {why}" for key, text in value.items() if (why := why_no_tag(key, text))), ""
    )
    if len(value) > MOST_HOUSE_TAGS:
        said = f"has {len(value)} tags, at most {MOST_HOUSE_TAGS}: AWS allows 50, BOA sets the others"
    folded: dict[str, str] = {}
    for key in value:
        other = folded.setdefault(key.casefold(), key)
        if other != key:
            said = f"has {other!r} and {key!r}, which differ in case alone: IAM refuses both on a role"
    if said:
        raise PydanticCustomError("one_too_many", "{said}", {"said": said, "hint": ""})
    return value


Tags: TypeAlias = Annotated[Mapping[str, str], AfterValidator(_checked_tags)]
"""Tags of the house, by key."""


NODES_LEFT = "nodes there would be counted and ended by nobody"
Counted: TypeAlias = Annotated[float, Limit("down")]
"""Dollars that count against the caps: a lower figure lets more be spent."""


class SidePrices(Strict):
    """Prices of what a region bills besides instances: list prices of the first tier."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    gp3_usd_per_gib_month: Counted = Field(gt=0.0, le=10.0)
    """Dollars per GiB of a node's disk per month."""
    gp3_usd_per_mb_month: Counted = Field(gt=0.0, le=10.0)
    """Dollars per MB/s of a disk above 125 MB/s per month."""
    snapshot_usd_per_gb_month: Counted = Field(gt=0.0, le=10.0)
    """Dollars per GB of an image per month."""
    address_usd_per_hour: Counted = Field(gt=0.0, le=10.0)
    """Dollars per public IPv4 address per hour."""
    nat_usd_per_hour: Counted = Field(gt=0.0, le=10.0)
    """Dollars per NAT gateway per hour."""
    nat_usd_per_gb: Counted = Field(gt=0.0, le=10.0)
    """Dollars per GB through a NAT gateway."""
    s3_usd_per_gb_month: Counted = Field(gt=0.0, le=10.0)
    """Dollars per GB in the bucket per month."""
    s3_usd_per_1000_writes: Counted = Field(gt=0.0, le=10.0)
    """Dollars per 1,000 writes or listings."""
    sqs_usd_per_million: Counted = Field(gt=0.0, le=100.0)
    """Dollars per million requests to a queue."""
    transfer_usd_per_gb: Annotated[float | None, Limit("down")] = Field(default=None, gt=0.0, le=10.0)
    """Dollars per GB from the region to another; unset: the most that AWS asks anywhere."""
    as_of: Free[str] = Field(pattern=DAY_FORM)
    """The day that the prices are of."""
    source: Free[str] = "set by hand"
    """Where the prices come from."""


class RegionSettings(Strict):
    """What is bound to one region: things in it by name, and its prices."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    zones: Free[Names] = ()
    """Zones to rent in; empty: every zone that offers the type."""
    subnets: Free[Names] = ()
    """Subnets to rent in; empty: the default subnet of each zone."""
    security_groups: Annotated[Names, Limit("other", "others could reach nodes")] = ()
    """Security groups of the nodes; empty: the default one."""
    image: Free[str] = ""
    """An image for all families: `ami-...`, `ssm:PARAMETER`, or `built`, the newest of `boa image build`."""
    images: Free[Named] = Field(default_factory=dict)
    """An image per family, which wins over `image`."""
    key_name: Annotated[str, Limit("other", "other people could log in on nodes")] = ""
    """Key pair for SSH; empty: none."""
    placement_groups: Free[Named] = Field(default_factory=dict)
    """Zone to cluster placement group, used for gangs of types that have EFA."""
    reservations: Free[Named] = Field(default_factory=dict)
    """Instance type to capacity reservations and blocks: ids with commas between them, or `tag:KEY=VALUE`."""
    side_prices: Free[SidePrices | None] = None
    """Prices of the region besides instances; unset: the catalogue's, which has us-east-1 only."""
    prices: Annotated[str, Limit("other", "other prices would count against the caps")] = ""
    """Price file of the region, for where the Pricing API cannot be asked; it names its region."""
    queue_url: Free[str] = ""
    """The SQS queue that EventBridge fills with spot warnings and state changes; empty: none."""
    pool_end_role: Free[str] = Field(default="", pattern=ROLE_FORM)
    """Role (IAM) that ends stopped nodes whose daemon is gone; `boa up` makes it. Empty: none does."""

    @classmethod
    def _hint(cls, key: object) -> str:
        """Return a hint; a setting of all regions stands elsewhere."""
        if key in AwsSettings.model_fields:
            return f"{key} holds for all regions: set it under [cloud]"
        return super()._hint(key)


_FurtherRegion: TypeAlias = Annotated[
    RegionSettings, PlainSerializer(lambda region: region.model_dump(exclude_unset=True))
]
"""Answers and records show what a further region sets, and not every default beside it."""


class AwsSettings(RegionSettings):
    """What to rent, where, and how the nodes are set up."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    cluster: Annotated[str, Limit("other", NODES_LEFT)] = Field(default="boa", pattern=CLUSTER_FORM)
    """Name of the cluster, in the tags of everything that is rented."""
    region: Annotated[str, Limit("other", NODES_LEFT)] = Field(default="us-east-1", pattern=REGION_FORM)
    regions: Annotated[Names, Limit("fewer", NODES_LEFT)] = ()
    """Regions to rent in, first the home region with bucket, queues and roles; empty: `region` alone."""
    by_region: Mapping[Name, _FurtherRegion] = Field(default_factory=dict)
    """Settings of a further region by its name, such as its subnets, images and queue of warnings."""
    instance_types: Free[Names] = ()
    market: Free[MarketChoice] = "on-demand"
    instance_profile: Annotated[str, Limit("other", "jobs get the rights of the nodes' profile")] = ""
    """Instance profile (IAM) of the nodes; empty: none."""
    efa: Free[bool] = True
    """Use EFA cards where a type has them."""
    volume_gib: Free[int] = Field(default=200, ge=8, le=16384)
    """GiB of the root volume of a node."""
    volume_mb_per_second: Free[int] = Field(default=125, ge=125, le=750)
    """MB/s of the root volume; MB/s above 125 cost extra, and 750 is the most that its 3,000 IOPS carry."""
    nat_gb_per_hour: Annotated[float, Limit("down")] = Field(default=0.0, ge=0.0, le=1e5)
    """GB per hour that a node receives through a NAT gateway: an estimate for ledger and caps; S3 is free."""
    spot_max_usd_per_hour: Annotated[Mapping[Name, Price], Limit("up")] = Field(default_factory=dict)
    """Instance type to the highest spot price in dollars per hour; unset: the on-demand price."""
    lease_minutes: Annotated[float, Limit("up")] = Field(default=90.0, ge=2.0, le=1440.0)
    """A node without contact to the daemon for this long powers off; 90 survives an hour's outage."""
    warm_pool_nodes: Free[int] = Field(default=0, ge=0)
    """Idle nodes kept stopped, at the cost of their disks."""
    tags: Free[Tags] = Field(default_factory=dict)
    """Tags of the house, such as a cost centre, on everything that BOA makes; their case is kept."""
    endpoint: Annotated[str, Limit("other", NODES_LEFT)] = ""
    """Another endpoint for all services, for tests; `AWS_ENDPOINT_URL` does the same."""

    @model_validator(mode="before")
    @classmethod
    def _home_is_first(cls, value: Any) -> Any:
        return with_home_region(value)

    @model_validator(mode="after")
    def _regions_fit(self) -> AwsSettings:
        """Refuse regions that do not fit together."""
        said = ""
        if self.regions and self.region not in self.regions:
            said = f"has region {self.region!r}, which is not among regions {list(self.regions)}"
        if len(set(self.regions)) < len(self.regions):
            said = "has a region twice in regions"
        for region in self.by_region:
            if region not in self.regions or region == self.region:
                said = f"has by_region.{region}, which is not a further region of {list(self.regions)}"
        if said:
            raise PydanticCustomError("one_too_many", "{said}", {"said": said, "hint": ""})
        return self

    def in_region(self, region: str) -> AwsSettings:
        """Return the settings of one of the regions: what is bound to a region comes from `by_region`."""
        zones = tuple(zone for zone in self.zones if zone.startswith(region))
        own = {"region": region, "zones": zones}
        if region == self.region:
            return self.model_copy(update={**own, "regions": (), "by_region": {}})
        bound = {*RegionSettings.model_fields, "regions", "by_region"}
        shared = self.model_dump(exclude_unset=True, exclude=bound)
        further = self.by_region.get(region, RegionSettings()).model_dump(exclude_unset=True)
        return AwsSettings.model_validate({**shared, **own, **further})

    def image_of(self, instance_type: str) -> str:
        """Return the setting that names the image of a type: `ami-...`, `ssm:PARAMETER` or `built`."""
        family = instance_type.partition(".")[0]
        return self.images.get(family) or self.image or default_image(family)

    def base_of(self, instance_type: str) -> str:
        """Return the name of the base image from which `boa image build` builds for a type."""
        family = instance_type.partition(".")[0]
        named = self.image_of(instance_type)
        return default_image(family) if named == BUILT else named

    @property
    def markets(self) -> tuple[Market, ...]:
        """The markets to rent on, besides reservations."""
        if self.market == "spot-then-on-demand" or self.market == "planned":  # noqa: PLR1714 - mypy narrows
            return ("spot", "on-demand")
        return (self.market,)


def default_image(family: str) -> str:
    """Return the image of a family when the settings name none: AWS's own with NVIDIA's driver."""
    return CLOSED_DRIVER if family in ("p3", "p3dn") else OPEN_DRIVER
