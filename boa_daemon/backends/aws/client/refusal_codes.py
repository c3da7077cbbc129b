"""What each error code of AWS means, what it closes, for how long, and what cures it: one row for each code.

A refusal belongs to the smallest part of the market that its code is about: a subnet, an image, an offer, a
type, a quota, a market. Only codes about the account or the credentials close the region, because nothing
else can be launched then either. A denial closes the one offer that was denied: a policy may allow another
type, zone or market, so all offers are closed only once each of them was denied.

Most codes have the row of their class (`meaning`), as has a code that is listed nowhere: the prudent one. The
table is printed in `docs/reference/refusals.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

Meaning: TypeAlias = Literal[
    "no-capacity", "not-offered", "quota", "price", "throttled", "subnet-full", "denied", "credentials",
    "not-found", "token-reused", "wrong-state", "protected", "unknown", "dry-run", "bad-request",
]  # fmt: skip
"""What a failed call means to its caller."""
Scope: TypeAlias = Literal[
    "offer", "reservation", "subnet", "zone", "type in zone", "type", "image", "market", "quota", "region",
    "order",
]  # fmt: skip
"""What a refusal closes. `offer` is type, zone and market together; `order` closes nothing."""
Fact: TypeAlias = Literal["", "image", "subnets", "zones", "reservations", "quotas"]
"""The fact from outside that a refusal shows to be stale; it is asked for anew."""
Answer: TypeAlias = Literal["no-capacity", "quota", "denied", "throttled", "bad-request", "unknown"]

NOT_OFFERED_SECONDS, QUOTA_SECONDS, BAD_REQUEST_SECONDS = 4 * 3600.0, 600.0, 300.0
DENIED_SECONDS, CREDENTIALS_SECONDS, THROTTLED_SECONDS = 300.0, 60.0, 5.0
TOKEN_SECONDS, SUBNET_SECONDS, ACCOUNT_SECONDS = 30.0, 1800.0, 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRule:
    """One row: what the code means, what is closed, for how long, and the advice that cures it.

    `rest_seconds` None: three minutes, doubling up to thirty with each refusal in a row. `stale` names the
    fact that is asked for anew before the launch is repeated.
    """

    scope: Scope
    advice: str
    meaning: Meaning = "bad-request"
    answer: Answer = "bad-request"
    rest_seconds: float | None = BAD_REQUEST_SECONDS
    stale: Fact = ""

    @property
    def tries_others(self) -> bool:
        """Whether another offer may be tried at once."""
        return self.scope != "region"


_POLICY = "Attach the policy that `boa iam` prints; `boa doctor` shows which call is missing"
_IMAGE = "Name an image of this region under [cloud] image or images; `ssm:` parameters are asked anew"
_SUBNET = "Name subnets of this region under [cloud] subnets"
_GROUP = "Name security groups of the subnets' network under [cloud] security_groups"
_REQUEST = "Check [cloud] against this region; `boa doctor` checks each setting"
_SUPPORT = "Only AWS Support can change this: open a case about the account"

BY_MEANING: Mapping[str, RefusalRule] = MappingProxyType(
    {
        "no-capacity": RefusalRule(
            meaning="no-capacity", scope="offer", answer="no-capacity", rest_seconds=None,
            advice="BOA tries other zones, types and markets; name more of them under [cloud]",
        ),
        "not-offered": RefusalRule(
            meaning="not-offered", scope="type in zone", rest_seconds=NOT_OFFERED_SECONDS, stale="zones",
            advice="Leave the zone out of [cloud] zones, or the type out of instance_types",
        ),
        "quota": RefusalRule(
            meaning="quota", scope="quota", answer="quota", rest_seconds=QUOTA_SECONDS, stale="quotas",
            advice="Ask for more vCPUs in the Service Quotas console; `boa doctor` names the quota",
        ),
        "price": RefusalRule(
            meaning="price", scope="offer", answer="no-capacity", rest_seconds=None,
            advice="Raise [cloud] spot_max_usd_per_hour, or leave it out to pay at most the on-demand price",
        ),
        "throttled": RefusalRule(
            meaning="throttled", scope="region", answer="throttled", rest_seconds=THROTTLED_SECONDS,
            advice="BOA tries again later by itself",
        ),
        "subnet-full": RefusalRule(
            meaning="subnet-full", scope="subnet", answer="no-capacity", rest_seconds=SUBNET_SECONDS,
            stale="subnets",
            advice="Give a larger subnet under [cloud] subnets",
        ),
        "denied": RefusalRule(
            meaning="denied", scope="offer", answer="denied", rest_seconds=DENIED_SECONDS, advice=_POLICY
        ),
        "credentials": RefusalRule(
            meaning="credentials", scope="region", answer="denied", rest_seconds=CREDENTIALS_SECONDS,
            advice="Renew the credentials and check the clock; `boa doctor` shows both. BOA reads renewed "
            "credentials by itself. A region that the account has not enabled refuses them, too",
        ),
        "token-reused": RefusalRule(
            meaning="token-reused", scope="order", rest_seconds=TOKEN_SECONDS,
            advice="This is a fault of BOA: the request is dropped, and the next tick asks anew",
        ),
        "unknown": RefusalRule(
            meaning="unknown", scope="order", answer="unknown", rest_seconds=None,
            advice="Whether the launch happened is not known: the next listings decide, and until then it "
            "counts as spent",
        ),
        "bad-request": RefusalRule(meaning="bad-request", scope="offer", advice=_REQUEST),
        "not-found": RefusalRule(
            meaning="not-found", scope="offer",
            advice="The resource may not be visible yet; the next listing decides"
        ),
        "wrong-state": RefusalRule(
            meaning="wrong-state", scope="offer", rest_seconds=60.0,
            advice="The resource changes its state; BOA tries again"
        ),
        "protected": RefusalRule(
            meaning="protected", scope="offer",
            advice="Remove the termination protection of the instance; it costs money until then",
        ),
        "dry-run": RefusalRule(meaning="dry-run", scope="order", rest_seconds=TOKEN_SECONDS, advice=_REQUEST),
    }
)  # fmt: skip
"""The row of each class of codes, for all codes without a row of their own."""

ENABLE_KEY = (
    "The KMS key is disabled, about to be deleted or gone: an administrator types `aws kms enable-key` or "
    "`aws kms cancel-key-deletion`, or names another key"
)
_KMS = RefusalRule(
    meaning="denied", scope="image", answer="denied", rest_seconds=DENIED_SECONDS,
    advice="Let the daemon's role use the KMS key of the disks (kms:CreateGrant, kms:Decrypt, "
    "kms:GenerateDataKeyWithoutPlaintext), or name another default key for EBS",
)  # fmt: skip
_LIMIT = RefusalRule(
    meaning="quota", scope="region", answer="quota", rest_seconds=ACCOUNT_SECONDS,
    advice="Ask for a higher limit in the Service Quotas console, or delete what is not needed",
)  # fmt: skip
_ACCOUNT = RefusalRule(
    meaning="denied", scope="region", answer="denied", rest_seconds=ACCOUNT_SECONDS, advice=_SUPPORT
)
_CLOCK = replace(
    BY_MEANING["credentials"],
    advice="Set this machine's clock, such as with `timedatectl set-ntp true`: AWS refuses requests whose "
    "time is more than five minutes off; `boa doctor` says by how much it is",
)
_OPT_IN = replace(
    _ACCOUNT, advice="Enable the region for this account and complete its sign-up for EC2 in the AWS console"
)
_RESERVATION = RefusalRule(
    meaning="no-capacity", scope="reservation", answer="no-capacity", rest_seconds=None, stale="reservations",
    advice="Name a reservation of this account that is active under [cloud] reservations",
)  # fmt: skip
_FULL = replace(
    _RESERVATION, advice="Others use the reservation whole: BOA rents elsewhere, and looks again by itself"
)
_INTERFERENCE = RefusalRule(
    meaning="denied", scope="offer", answer="denied", rest_seconds=None,
    advice="A person, or a clean-up rule of the house, ends or stops nodes right after their start: "
    "CloudTrail names who. Exempt what has the tag boa:cluster, or set the tags that the rule wants under "
    "[cloud] tags",
)  # fmt: skip
_SETTING = RefusalRule(scope="region", advice=_REQUEST)
_TEMPLATE = replace(_SETTING, advice="BOA uses no launch template: a policy or a proxy has changed the call")

_OF_A_CLASS: Mapping[Meaning, Sequence[str]] = {
    "no-capacity": (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientCapacity",
        "UnfulfillableCapacity",
    ),
    "not-offered": ("Unsupported",),
    "quota": (
        "VcpuLimitExceeded",
        "MaxFleetCountExceeded",
    ),
    "price": ("SpotMaxPriceTooLow",),
    "throttled": (
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "EC2ThrottledException",
        "RequestThrottled",
        "SlowDown",
    ),
    "subnet-full": ("InsufficientFreeAddressesInSubnet",),
    "denied": (
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
    ),
    "credentials": (
        "AuthFailure",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "MissingAuthenticationToken",
        "RequestExpired",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidSecurity.RequestHasExpired",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidToken",
        "TokenRefreshRequired",
        "InvalidSignatureException",
        "InvalidIdentityToken",
        "IDPCommunicationError",
        "NotAuthorizedException",
    ),
    "not-found": (
        "InvalidInstanceID.NotFound",
        "InvalidInstanceID.Malformed",
        "InvalidSpotInstanceRequestID.NotFound",
    ),
    "token-reused": (
        "IdempotentParameterMismatch",
        "IdempotentInstanceTerminated",
    ),
    "wrong-state": (
        "IncorrectInstanceState",
        "IncorrectSpotRequestState",
        "ConcurrentTagAccess",
    ),
    "protected": ("OperationNotPermitted",),
    "unknown": (
        "InternalError",
        "InternalFailure",
        "ServerInternal",
        "Unavailable",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Timeout",
        "ConnectionLost",
        "NoAnswer",
        "TlsFailed",
        "ProxyFailed",
    ),
    "dry-run": ("DryRunOperation",),
}
"""Codes whose row is that of their class."""

BY_CODE: Mapping[str, RefusalRule] = MappingProxyType(
    {
        **{code: BY_MEANING[meaning] for meaning, codes in _OF_A_CLASS.items() for code in codes},
        # Capacity.
        "InsufficientAddressCapacity": replace(BY_MEANING["no-capacity"], scope="zone"),
        "InsufficientVolumeCapacity": replace(BY_MEANING["no-capacity"], scope="zone"),
        "ReservationCapacityExceeded": _FULL,
        "InsufficientReservedInstanceCapacity": _FULL,
        "InvalidCapacityReservationId.NotFound": _RESERVATION,
        "InvalidCapacityReservationId.Malformed": _RESERVATION,
        "InvalidCapacityReservationState": _RESERVATION,
        "CapacityReservationNotActive": _RESERVATION,
        # Quotas and limits.
        "MaxSpotInstanceCountExceeded": replace(
            BY_MEANING["quota"],
            advice="Ask for more spot vCPUs in the Service Quotas console; on-demand is tried meanwhile",
        ),
        "InstanceLimitExceeded": replace(BY_MEANING["quota"], scope="type"),
        "VolumeLimitExceeded": replace(
            _LIMIT, advice="Delete unused EBS volumes, or ask for more EBS storage in Service Quotas"
        ),
        "MaxIOPSLimitExceeded": replace(
            _LIMIT, advice="Delete unused EBS volumes, or ask for more IOPS in Service Quotas"
        ),
        "AddressLimitExceeded": _LIMIT,
        "NetworkInterfaceLimitExceeded": _LIMIT,
        "ResourceCountExceeded": _LIMIT,
        "ResourceLimitExceeded": _LIMIT,
        "AttachmentLimitExceeded": replace(_LIMIT, scope="type"),
        "PrivateIpAddressLimitExceeded": replace(_LIMIT, scope="type"),
        "SecurityGroupsPerInterfaceLimitExceeded": replace(
            _SETTING, advice="Name fewer security groups under [cloud] security_groups"
        ),
        "SecurityGroupsPerInstanceLimitExceeded": replace(
            _SETTING, advice="Name fewer security groups under [cloud] security_groups"
        ),
        "TagLimitExceeded": replace(_SETTING, advice="Set fewer tags: EC2 takes 50 for each resource"),
        # The spot market as a whole.
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted": RefusalRule(
            meaning="denied", scope="market", answer="denied", rest_seconds=ACCOUNT_SECONDS,
            advice="An administrator types `aws iam create-service-linked-role --aws-service-name "
            "spot.amazonaws.com` once; on-demand is tried meanwhile",
        ),
        "InvalidSpotInstanceRequest": replace(BY_MEANING["bad-request"], scope="market"),
        # The account.
        "PendingVerification": replace(
            _ACCOUNT,
            advice="AWS is still verifying this account for the region, mostly within minutes, at most 4 "
            "hours: wait, then write to aws-verification@amazon.com",
        ),
        "OptInRequired": _OPT_IN,
        "RegionDisabledException": _OPT_IN,
        "SubscriptionRequiredException": _OPT_IN,
        "DeclarativePolicyViolation": replace(
            BY_MEANING["denied"],
            advice="A declarative policy forbids it: ask the organisation's administrator",
        ),
        "RequestTimeTooSkewed": _CLOCK,
        "NoCredentials": replace(
            BY_MEANING["credentials"],
            advice="Renew the credentials: the environment, ~/.aws (with single sign-on: `aws sso login`), "
            "or the role of this instance, which its metadata service tells; BOA looks for them again by "
            "itself, and `boa doctor` says who it is",
        ),
        "Blocked": _ACCOUNT,
        "AccountDisabled": _ACCOUNT,
        "AccountProblem": _ACCOUNT,
        "TagPolicyViolation": replace(
            _ACCOUNT,
            advice="A tag policy of the organisation refuses a tag's value: give the value it allows",
        ),
        # The image.
        "InvalidAMIID.NotFound": RefusalRule(scope="image", advice=_IMAGE, stale="image"),
        "InvalidAMIID.Unavailable": RefusalRule(scope="image", advice=_IMAGE, stale="image"),
        "InvalidAMIID.Malformed": RefusalRule(scope="image", advice=_IMAGE, stale="image"),
        "ParameterNotFound": RefusalRule(
            scope="image", stale="image",
            advice="The SSM parameter of [cloud] image does not exist in this region: name another",
        ),
        "InvalidSnapshot.NotFound": RefusalRule(scope="image", advice=_IMAGE, stale="image"),
        "InvalidBlockDeviceMapping": replace(
            BY_MEANING["bad-request"], scope="image", stale="image",
            advice="Raise [cloud] volume_gib to at least the size of the image's disk",
        ),
        "InvalidKMSKey.InvalidState": replace(_KMS, advice=ENABLE_KEY),
        "KMSKeyNotAccessibleFault": _KMS,
        "InvalidKMSKeyId": _KMS,
        "EncryptedVolumesNotSupported": replace(
            BY_MEANING["not-offered"], scope="type", advice="Leave the type out of [cloud] instance_types"
        ),
        # Reasons of instances that were ended or stopped right after their start.
        "UserInitiatedShutdown": _INTERFERENCE,
        "UserInitiatedHibernate": _INTERFERENCE,
        "InstanceInitiatedShutdown": RefusalRule(
            scope="offer", rest_seconds=None,
            advice="It shut itself down: `aws ec2 get-console-output --latest --instance-id ...` shows why",
        ),
        # The place.
        "InvalidSubnetID.NotFound": RefusalRule(scope="subnet", advice=_SUBNET, stale="subnets"),
        "InvalidSubnetID.Malformed": RefusalRule(scope="subnet", advice=_SUBNET, stale="subnets"),
        "InvalidSubnet": RefusalRule(scope="subnet", advice=_SUBNET, stale="subnets"),
        "MissingInput": RefusalRule(scope="subnet", advice=_SUBNET, stale="subnets"),
        "VPCIdNotSpecified": RefusalRule(scope="region", advice=f"There is no default network. {_SUBNET}"),
        "VPCResourceNotSpecified": RefusalRule(
            scope="region", advice=f"There is no default network. {_SUBNET}"
        ),
        "DefaultVpcDoesNotExist": RefusalRule(
            scope="region", advice=f"There is no default network. {_SUBNET}"
        ),
        "InvalidAvailabilityZone": replace(BY_MEANING["not-offered"], scope="zone"),
        "InvalidZone.NotFound": replace(BY_MEANING["not-offered"], scope="zone"),
        "InvalidPlacementGroup.Unknown": RefusalRule(
            scope="zone", advice="Name an existing group of the zone under [cloud] placement_groups"
        ),
        "InvalidPlacementGroup.InUse": RefusalRule(
            scope="zone", advice="The placement group is being deleted: name another"
        ),
        "VolumeTypeNotAvailableInZone": replace(BY_MEANING["not-offered"], scope="zone"),
        # Settings of every launch.
        "InvalidGroup.NotFound": RefusalRule(scope="region", advice=_GROUP),
        "InvalidGroupId.Malformed": RefusalRule(scope="region", advice=_GROUP),
        "InvalidSecurityGroupID.NotFound": RefusalRule(scope="region", advice=_GROUP),
        "InvalidKeyPair.NotFound": RefusalRule(
            scope="region", advice="Name a key pair of this region under [cloud] key_name, or none"
        ),
        "InvalidIamInstanceProfile": RefusalRule(
            scope="region", rest_seconds=60.0,
            advice="Name an existing profile under [cloud] instance_profile; `boa up` makes one, and a new "
            "profile is visible to EC2 after seconds",
        ),
        "NoSuchEntity": RefusalRule(
            scope="region", rest_seconds=60.0,
            advice="Name an existing profile under [cloud] instance_profile; `boa up` makes one",
        ),
        "InvalidUserData.Malformed": _SETTING,
        "InvalidTagKey.Malformed": _SETTING,
        "InvalidLaunchTemplateId.NotFound": _TEMPLATE,
        "InvalidLaunchTemplateId.Malformed": _TEMPLATE,
        "InvalidLaunchTemplateName.NotFoundException": _TEMPLATE,
        "UnknownParameter": replace(_SETTING, advice="A newer boto3 may know the call: pip install -U boto3"),
        # The type.
        "InvalidInstanceType": replace(BY_MEANING["not-offered"], scope="type"),
        "InvalidInstanceType.NotFound": replace(BY_MEANING["not-offered"], scope="type"),
        "UnsupportedInstanceAttribute": RefusalRule(scope="type", advice=_REQUEST),
        "UnsupportedTenancy": RefusalRule(scope="type", advice=_REQUEST),
        "InvalidInterface.IpAddressLimitExceeded": RefusalRule(scope="type", advice=_REQUEST),
        "InvalidParameterValue": RefusalRule(scope="offer", advice=_REQUEST),
        "InvalidParameterCombination": RefusalRule(scope="offer", advice=_REQUEST),
        "InvalidParameter": RefusalRule(scope="offer", advice=_REQUEST),
        "MissingParameter": RefusalRule(scope="offer", advice=_REQUEST),
        "InvalidRequest": RefusalRule(scope="offer", advice=_REQUEST),
        "UnsupportedOperation": replace(BY_MEANING["not-offered"], scope="offer"),
    }
)  # fmt: skip
"""The rows, from EC2's published list of errors."""

_BY_FAMILY: Sequence[tuple[str, str]] = (
    ("InvalidAMI", "InvalidAMIID.NotFound"),
    ("InvalidImage", "InvalidAMIID.NotFound"),
    ("Image", "InvalidAMIID.NotFound"),
    ("InvalidSnapshot", "InvalidSnapshot.NotFound"),
    ("InvalidKMS", "InvalidKMSKeyId"),
    ("InvalidKms", "InvalidKMSKeyId"),
    ("KMS", "KMSKeyNotAccessibleFault"),
    ("InvalidSubnet", "InvalidSubnetID.NotFound"),
    ("InvalidGroup", "InvalidGroup.NotFound"),
    ("InvalidSecurityGroup", "InvalidGroup.NotFound"),
    ("InvalidKeyPair", "InvalidKeyPair.NotFound"),
    ("InvalidPlacementGroup", "InvalidPlacementGroup.Unknown"),
    ("InvalidCapacityReservation", "InvalidCapacityReservationId.NotFound"),
    ("InvalidCapacityBlock", "InvalidCapacityReservationId.NotFound"),
    ("CapacityReservation", "CapacityReservationNotActive"),
    ("CapacityBlock", "CapacityReservationNotActive"),
    ("ReservationCapacity", "ReservationCapacityExceeded"),
    ("InvalidLaunchTemplate", "InvalidLaunchTemplateId.NotFound"),
    ("InvalidIamInstanceProfile", "InvalidIamInstanceProfile"),
    ("InvalidInstanceType", "InvalidInstanceType"),
    ("InvalidAvailabilityZone", "InvalidAvailabilityZone"),
    ("InvalidZone", "InvalidZone.NotFound"),
    ("InvalidUserData", "InvalidUserData.Malformed"),
    ("InvalidTag", "InvalidTagKey.Malformed"),
    ("Account", "AccountProblem"),
    ("AllAccessDisabled", "AccountProblem"),
    ("RegionDisabled", "RegionDisabledException"),
    ("SubscriptionRequired", "SubscriptionRequiredException"),
    ("InvalidSpot", "InvalidSpotInstanceRequest"),
    ("AuthFailure.ServiceLinkedRole", "AuthFailure.ServiceLinkedRoleCreationNotPermitted"),
    ("ServiceLinkedRole", "AuthFailure.ServiceLinkedRoleCreationNotPermitted"),
)
"""Beginnings of codes about one thing, and the code whose row they get: AWS adds endings as it likes."""

_RESOURCE = re.compile(r"on resource: arn:[^:\s]*:[a-z0-9-]+:[^:\s]*:[^:\s]*:([a-z-]+)/")
_EXPLICIT = re.compile(r"explicit deny in an? ([a-z- ]+?polic(?:y|ies)|permissions boundary)", re.IGNORECASE)
_NO_ALLOW = re.compile(r"because no ([a-z -]+?) allows", re.IGNORECASE)
_OF_RESOURCE: Mapping[str, Scope] = MappingProxyType(
    {
        "subnet": "subnet",
        "image": "image",
        "snapshot": "image",
        "parameter": "image",
        "key": "image",
        "spot-instances-request": "market",
        "instance-profile": "offer",
    }
)
"""What a denial closes by the resource that its message names; every other resource: the offer."""


_UNFIT = RefusalRule(
    scope="type", stale="image",
    advice="The image does not fit the type, as by its architecture, network driver, boot mode or licence: "
    "name one that does under [cloud] images",
)  # fmt: skip
_CARDS = RefusalRule(
    scope="type",
    advice="The type does not take so many network cards with EFA: set [cloud] efa = false, or leave it out",
)
_BY_WORDS: Sequence[tuple[str, RefusalRule]] = (
    (r"kms.*(disabled|incorrect state|pending deletion|does not exist)", replace(_KMS, advice=ENABLE_KEY)),
    (r"capacity (reservation|block)", _RESERVATION),
    (r"default subnet|no subnets found", RefusalRule(scope="zone", stale="subnets", advice=_SUBNET)),
    (
        r"ipv6",
        RefusalRule(
            scope="subnet", stale="subnets", rest_seconds=SUBNET_SECONDS,
            advice="Nodes need an IPv4 address: name subnets that have them under [cloud] subnets",
        ),
    ),
    (
        r"placement group",
        RefusalRule(scope="zone", advice="Name an existing group of the zone under [cloud] placement_groups"),
    ),
    (r"\befa\b|network (interface|card).*(exceed|maximum|limit|count)", _CARDS),
    (r"elastic network adapter|architecture|boot mode|nitrotpm|\btpm\b|marketplace product", _UNFIT),
)  # fmt: skip
"""What words of a message say, as patterns in lower case, where EC2 gives one code to every fault."""
_OF_EVERY_FAULT = ("InvalidParameter", "InvalidInput", "InvalidState", "MissingInput", "Unsupported")
"""Beginnings of such codes."""


def has_own_row(code: str) -> bool:
    """Return whether a code has a row of its own, and not that of its class."""
    row = BY_CODE.get(code)
    return row is not None and row is not BY_MEANING[row.meaning]


def rule_of(code: str, meaning: str, message: str) -> RefusalRule:
    """Return the row of a refusal; the message decides where EC2 gives one code to several faults."""
    said = message.lower()
    if code == "AuthFailure" and "not authorized for image" in said:
        return replace(
            BY_CODE["InvalidAMIID.NotFound"],
            answer="denied",
            advice="The image is not shared with this account: share it, or name another",
        )
    if meaning == "credentials" and ("signature expired" in said or "not yet current" in said):
        return _CLOCK
    if meaning == "not-offered" and "spot" in said:
        return replace(
            BY_MEANING["not-offered"], scope="offer", advice="The type is not to be had as spot: set [cloud] "
            "market to on-demand, or leave the type out of instance_types",
        )  # fmt: skip
    if "allowed amis" in said or "allowed images" in said:
        return replace(
            BY_CODE["InvalidAMIID.NotFound"],
            answer="denied",
            advice="The account's Allowed AMIs setting lacks the image: an administrator adds its owner, or "
            "name another under [cloud] image",
        )
    if "free tier" in said or "free plan" in said:
        return replace(
            BY_MEANING["not-offered"],
            scope="type",
            rest_seconds=_ACCOUNT.rest_seconds,
            advice="The account is on AWS's free plan, which has no GPUs: upgrade it to the paid plan in the "
            "AWS console",
        )
    if meaning == "denied" and "suspended" in said:
        return _ACCOUNT
    if meaning == "denied" and code == "OperationNotPermitted":
        return replace(
            BY_MEANING["denied"],
            advice="AWS does not let this account do it: its words say why; `boa doctor` tries each call",
        )
    if code == "OptInRequired" and "marketplace" in said:
        return replace(
            BY_CODE["InvalidAMIID.NotFound"],
            answer="denied",
            advice="The image is of AWS Marketplace: accept its terms with this account, or name another",
        )
    if code.startswith("InvalidParameter") and "tag key" in said:
        return replace(_SETTING, advice="Change [cloud] tags: AWS refuses one of the keys or values")
    if code.startswith("InvalidParameterValue") and "iam instance profile" in said:
        return BY_CODE["InvalidIamInstanceProfile"]
    if code.startswith("InvalidParameter") and ("kms" in said or "encryption key" in said):
        is_off = re.search(_BY_WORDS[0][0], said) is not None
        return _BY_WORDS[0][1] if is_off else _KMS
    if code in ("InvalidParameterValue", "InvalidParameter") and "security group" in said:
        return RefusalRule(scope="region", advice=_GROUP)
    if code in ("InvalidParameterValue", "InvalidParameter") and "availability zone" in said:
        return replace(BY_MEANING["not-offered"], scope="type in zone")
    if code in ("InvalidParameterValue", "InvalidParameter") and "instancetype" in said:
        return RefusalRule(scope="type", advice=_REQUEST)
    if code.startswith(_OF_EVERY_FAULT) and meaning not in ("unknown", "throttled"):
        found = next((row for words, row in _BY_WORDS if re.search(words, said)), None)
        if found is not None:
            return found
    if meaning == "protected" and "disableapistop" in said:
        return replace(
            BY_MEANING["protected"],
            advice="Remove the stop protection of the instance (`aws ec2 modify-instance-attribute "
            "--no-disable-api-stop`): BOA ends it instead of keeping it stopped",
        )
    if has_own_row(code):
        return BY_CODE[code]
    if meaning in ("bad-request", "denied", "no-capacity", "quota", "not-found"):
        for begin, known in _BY_FAMILY:
            if code.startswith(begin):
                return BY_CODE[known]
    is_listed = code in BY_CODE
    if (
        meaning == "quota"
        and not is_listed
        and not any(part in code.lower() for part in ("vcpu", "spot", "instance"))
    ):
        # A limit on something else says nothing of the vCPUs that are left.
        return replace(_LIMIT, scope="offer")
    if meaning == "denied":
        return _denied(message)
    return BY_MEANING.get(meaning, BY_MEANING["bad-request"])


def _denied(message: str) -> RefusalRule:
    """Return the row of a denial, by the resource and the policy that its message names."""
    resource, rule = _RESOURCE.search(message), BY_MEANING["denied"]
    scope: Scope = "offer" if resource is None else _OF_RESOURCE.get(resource[1], "offer")
    explicit, missing = _EXPLICIT.search(message), _NO_ALLOW.search(message)
    policy = "" if explicit is None else explicit[1].lower()
    allower = "" if missing is None else missing[1].lower()
    if "service control" in policy or "resource control" in policy:
        advice = (
            f"A {policy} of the organisation denies it, and no policy of this account helps: ask the "
            "organisation's administrator which types, regions and tags it allows"
        )
    elif "boundary" in policy:
        advice = "The permissions boundary of the daemon's role denies it: ask who set the boundary"
    elif policy:
        advice = f"Take the explicit deny out of the {policy}; an allow beside it has no effect"
    elif allower in ("service control policy", "resource control policy"):
        advice = f"No {allower} of the organisation allows it: ask the organisation's administrator"
    elif allower == "permissions boundary":
        advice = "The permissions boundary of the daemon's role does not allow it: ask who set the boundary"
    elif allower not in ("", "policy", "identity-based policy"):
        advice = f"The {allower} does not allow it: add it there; a policy of the role alone has no effect"
    elif "iam:passrole" in message.lower():
        advice = "Allow iam:PassRole for the nodes' role; the policy that `boa iam` prints does"
    elif "encoded authorization" in message.lower():
        advice = (
            "Type `aws sts decode-authorization-message --encoded-message ...` with the message in the "
            f"daemon's log to see which policy denies it; if an allow is missing: {_POLICY[0].lower()}"
            f"{_POLICY[1:]}"
        )
    else:
        advice = _POLICY
    return replace(rule, scope=scope, advice=advice)
