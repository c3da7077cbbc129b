"""`client/refusal_codes.py`: each code closes what it is about, and says what cures it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from aws_rigs import AwsRig, RigMaker, a_launch
from benchmark_modules import benchmark_module
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampling import sampled

import boa_daemon
from boa_daemon.backends.aws.client.errors import CallFailed, meaning_of
from boa_daemon.backends.aws.client.refusal_codes import BY_CODE, BY_MEANING
from boa_daemon.backends.aws.instances.refusals import refusal_of
from boa_daemon.tick.facts.offers import Cooldown, Offer, closing, cooled, covers, open_offers
from boa_daemon.tick.facts.ports import Launched, Refused, Unknown

DOCS = Path(boa_daemon.__file__).parents[1] / "docs" / "reference" / "refusals.md"
DENIED = "You are not authorized to perform this operation."
ON = "x is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:us-east-1:1:"
SCP = "instance/* with an explicit deny in a service control policy"
UNLISTED = (
    "InvalidNews.ForUs", "InvalidSecurityGroupId.NotFound", "InvalidSubnetId.NotFound",
    "InvalidPlacementGroupId.Malformed", "InvalidCapacityReservation.Unavailable", "CapacityBlockExpired",
    "InvalidAMIName.Malformed", "InvalidKMSKey.NotFound", "InvalidKeyPair.Format", "InvalidTagValue.TooLong",
    "InvalidInstanceTypeOffering", "InvalidZoneId.NotFound", "InvalidSpotFleetRequestConfig",
    "InvalidFleetConfiguration", "InvalidHostId.NotFound", "InvalidVolume.ZoneMismatch", "ZonesMismatched",
    "InvalidParameterDependency", "InstanceCreditSpecification.NotSupported", "InvalidState",
    "MaxSpotFleetRequestCountExceeded", "HostLimitExceeded", "InvalidNextToken",
    "MalformedQueryString", "RequestResourceCountExceeded", "NonEBSInstance",
    "InvalidInstanceAttributeValue", "UnknownVolumeType",
)  # fmt: skip
"""Codes of EC2's published list, and new ones, that no row names."""
OTHERS = {
    "offer": ("p4d.24xlarge/us-east-1a/spot", "p4d.24xlarge/us-east-1b/on-demand"),
    "reservation": ("p4d.24xlarge/us-east-1a/spot", "p4d.24xlarge/us-east-1b/on-demand"),
    "order": ("p4d.24xlarge/us-east-1a/spot", "p4d.24xlarge/us-east-1b/on-demand"),
    "subnet": ("p4d.24xlarge/us-east-1b/on-demand",),
    "zone": ("p4d.24xlarge/us-east-1b/on-demand",),
    "type in zone": ("p4d.24xlarge/us-east-1b/on-demand", "g5.xlarge/us-east-1a/on-demand"),
    "type": ("g5.xlarge/us-east-1a/on-demand",),
    "image": ("g5.xlarge/us-east-1a/on-demand",),
    "market": ("p4d.24xlarge/us-east-1a/spot",),
    "quota": ("p4d.24xlarge/us-east-1a/spot", "g5.xlarge/us-east-1a/on-demand"),
    "region": (),
}
"""By scope, offers that stay open after a refusal of p4d.24xlarge/us-east-1a/on-demand."""


@pytest.mark.parametrize("code", sorted({*BY_CODE, *UNLISTED, "VolumeNewsLimitExceeded"}))
def test_a_refusal_closes_what_its_code_is_about_and_leaves_the_rest_open(
    make_rig: RigMaker, code: str
) -> None:
    """The launch of one offer is refused with each code: that offer rests, and those beside it stay open."""
    rig = make_rig(images={"p4d": "ami-03cf127a", "g5": "ssm:/other"})
    offer = Offer(instance_type="p4d.24xlarge", zone="us-east-1a", usd_per_hour=21.0)
    rig.fake.faults.plan("RunInstances", f"error:{code}", times=9)

    outcome = rig.cloud.launch(a_launch(offer))

    error = CallFailed("ec2:RunInstances", code, "", http_status=400)
    rule = error.rule
    assert rig.fake.live() == []
    assert rule.advice
    if isinstance(outcome, Unknown):
        assert error.meaning == "unknown"
        return
    assert isinstance(outcome, Refused)
    assert outcome.kind == rule.answer
    scopes = outcome.scopes_of(a_launch(offer))
    assert any(covers(scope, offer.key) for scope in scopes)
    for other in OTHERS[rule.scope]:
        assert not any(covers(scope, other) for scope in scopes), other
    assert rule.tries_others == (not any(covers(scope, "g6.xlarge/us-east-1f/spot") for scope in scopes))


@pytest.mark.parametrize(
    ("code", "message", "scope", "advice"),
    [
        ("UnauthorizedOperation", DENIED, "offer", "boa iam"),
        ("UnauthorizedOperation", f"{ON}instance/* because no policy allows it", "offer", "boa iam"),
        ("UnauthorizedOperation", f"{ON}subnet/subnet-1 because no policy allows it", "subnet", "boa iam"),
        ("UnauthorizedOperation", f"{ON}spot-instances-request/* x", "market", "boa iam"),
        ("UnauthorizedOperation", f"{ON}image/ami-1 because", "image", "boa iam"),
        (
            "UnauthorizedOperation",
            f"{ON}instance/* with an explicit deny in a service control policy",
            "offer",
            "organisation's administrator",
        ),
        (
            "UnauthorizedOperation",
            f"{ON}instance/* with an explicit deny in a permissions boundary",
            "offer",
            "boundary",
        ),
        (
            "UnauthorizedOperation",
            f"{ON}instance/* with an explicit deny in an identity-based policy",
            "offer",
            "explicit deny",
        ),
        (
            "UnauthorizedOperation",
            f"{DENIED} Encoded authorization failure message: abcd",
            "offer",
            "decode-authorization-message",
        ),
        ("UnauthorizedOperation", "not authorized to perform: iam:PassRole on y", "offer", "PassRole"),
        ("AuthFailure", "Not authorized for images: [ami-1]", "image", "shared"),
        ("AuthFailure", "not able to validate the provided access credentials", "region", "credentials"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "no", "market", "create-service-linked-role"),
        ("PendingVerification", "Your request is being verified", "region", "verifying"),
        ("InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM "
         "Instance Profile name", "region", "instance_profile"),
        ("InvalidParameterValue", "The KMS key is not accessible", "image", "kms:"),
        ("InvalidParameterValue", "The KMS key k is disabled", "image", "enable-key"),
        ("InvalidKmsKey.InvalidState", "The KMS key provided is in an incorrect state", "image", "key"),
        ("InvalidParameterCombination", "Enhanced networking with the Elastic Network Adapter (ENA) is "
         "required for the 'g5.xlarge' instance type", "type", "[cloud] images"),
        ("InvalidParameterValue", "The architecture 'x86_64' of the specified instance type does not match "
         "the architecture 'arm64' of the specified AMI", "type", "[cloud] images"),
        ("InvalidParameterValue", "The boot mode of the AMI is legacy-bios", "type", "[cloud] images"),
        ("UnsupportedOperation", "The instance configuration for this AWS Marketplace product is not "
         "supported", "type", "[cloud] images"),
        ("InvalidInput", "No default subnet for availability zone: 'us-east-1e'.", "zone", "subnets"),
        ("MissingInput", "No subnets found for the default VPC 'vpc-1'", "zone", "subnets"),
        ("UnsupportedOperation", "Instances in IPv6-only subnets must be Nitro based", "subnet", "IPv4"),
        ("InvalidParameterValue", "The capacity reservation 'cr-1' does not match the instance type",
         "reservation", "[cloud] reservations"),
        ("InvalidState", "The Capacity Block is not active", "reservation", "[cloud] reservations"),
        ("InvalidParameterValue", "Placement group 'pg' spans partitions", "zone", "placement_groups"),
        ("InvalidParameterValue", "EFA interfaces are not supported on g5.xlarge", "type", "efa = false"),
        ("Unsupported", "EFA interfaces are not supported on g5.xlarge", "type", "efa = false"),
        ("InvalidParameterCombination", "The network interface count (33) exceeds the maximum", "type",
         "efa = false"),
        ("VolumeIOPSLimit", "You have reached the limit", "offer", "Service Quotas"),
        ("InvalidParameterValue", "Invalid value 'x' for InstanceType.", "type", "boa doctor"),
        ("InvalidParameterValue", "\"9\" is an invalid spot instance price", "offer", "boa doctor"),
        ("UnauthorizedOperation", f"{ON}instance/* because no permissions boundary allows the "
         "ec2:RunInstances action", "offer", "permissions boundary"),
        ("UnauthorizedOperation", f"{ON}instance/* because no session policy allows the x action",
         "offer", "session policy"),
        ("UnauthorizedOperation", f"{ON}instance/* because no VPC endpoint policy allows the x action",
         "offer", "vpc endpoint policy"),
        ("UnauthorizedOperation", f"{ON}instance/* because no resource control policy allows the x action",
         "offer", "organisation's administrator"),
        ("UnauthorizedOperation", f"{ON}instance/* because no identity-based policy allows the x action",
         "offer", "boa iam"),
        ("UnauthorizedOperation", f"{ON}instance/* with an explicit deny in a permissions boundary",
         "offer", "permissions boundary"),
        ("UnauthorizedOperation", f"{ON}snapshot/snap-1 because no identity-based policy allows the x",
         "image", "boa iam"),
        ("UnauthorizedOperation", f"{ON}instance/* with an explicit deny in a service control policy: "
         f"arn:aws:organizations::1:policy/o-1/p-1. Encoded authorization failure message: abcd",
         "offer", "organisation's administrator"),
        ("InvalidSecurityGroupId.NotFound", "no", "region", "security_groups"),
        ("InvalidSubnetId.NotFound", "no", "subnet", "[cloud] subnets"),
        ("InvalidPlacementGroupId.Malformed", "no", "zone", "placement_groups"),
        ("InvalidCapacityReservation.Unavailable", "no", "reservation", "reservations"),
        ("CapacityBlockExpired", "no", "reservation", "reservations"),
        ("InvalidAMIName.Malformed", "no", "image", "[cloud] image"),
        ("InvalidKMSKey.NotFound", "no", "image", "kms:"),
        ("InvalidKeyPair.Format", "no", "region", "key_name"),
        ("InvalidIamInstanceProfileArn.Malformed", "no", "region", "instance_profile"),
        ("InvalidSpotFleetRequestConfig", "no", "market", "boa doctor"),
        ("ServiceLinkedRoleCreationNotPermitted", "no", "market", "create-service-linked-role"),
        ("AuthFailure.TokenExpired", "no", "region", "credentials"),
        ("Client.InvalidSubnetID.NotFound", "no", "subnet", "[cloud] subnets"),
        ("Server.InsufficientInstanceCapacity", "no", "offer", "other zones"),
        ("OptInRequired", "You are not subscribed to this service", "region", "Enable the region"),
        ("OptInRequired", "In order to use this AWS Marketplace product you need to accept terms", "image",
         "Marketplace"),
        ("RegionDisabledException", "STS is not activated in this region", "region", "Enable the region"),
        ("SubscriptionRequiredException", "The AWS Access Key Id needs a subscription", "region",
         "Enable the region"),
        ("AuthFailure", "not able to validate the provided access credentials", "region", "has not enabled"),
        ("SignatureDoesNotMatch", "Signature not yet current: 1 is still later than 2", "region", "clock"),
        ("InvalidSignatureException", "Signature expired: 1 is now earlier than 2", "region", "set-ntp"),
        ("RequestTimeTooSkewed", "The difference is too large", "region", "set-ntp"),
        ("AccountSuspended", "suspended", "region", "AWS Support"),
        ("AllAccessDisabled", "All access to this object has been disabled", "region", "AWS Support"),
        ("InvalidParameterValue", "Duplicate tag key 'costcentre' specified.", "region", "[cloud] tags"),
        ("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved", "region", "[cloud] tags"),
        ("DeclarativePolicyViolation", "disabled by a declarative policy", "offer",
         "organisation's administrator"),
        ("NewPolicyViolation", "no", "offer", "boa iam"),
        ("UnauthorizedOperation", f"{ON.replace('arn:aws:', 'arn:aws-us-gov:')}subnet/s because no policy",
         "subnet", "boa iam"),
        ("UnauthorizedOperation", f"{ON.replace('arn:aws:', 'arn:aws-eusc:')}image/ami-1 because no policy",
         "image", "boa iam"),
    ],
)  # fmt: skip
def test_a_denial_says_who_can_cure_it(code: str, message: str, scope: str, advice: str) -> None:
    """The advice names the policy, the organisation, AWS or the setting, by the code and its message."""
    error = CallFailed("ec2:RunInstances", code, message, http_status=403)

    assert error.rule.scope == scope
    assert advice in error.hint
    assert advice in str(error)
    assert ("boa iam" in error.hint) == (advice == "boa iam" or "decode" in advice or advice == "PassRole")


@pytest.mark.parametrize(
    ("code", "status", "meaning"),
    [
        ("InsufficientNewCapacity", 500, "no-capacity"),
        ("NewLimitExceeded", 400, "quota"),
        ("NewThrottlingException", 400, "throttled"),
        ("SomethingNotPermitted", 403, "denied"),
        ("NewClientFault", 400, "bad-request"),
        ("NewServerFault", 500, "unknown"),
        ("NewFault", 401, "credentials"),
        ("NewFault", 403, "denied"),
        ("NewFault", 429, "throttled"),
        ("InvalidSubnetID.NotFound", 403, "bad-request"),
        ("InvalidSubnetID.NotFound", 500, "unknown"),
    ],
)
def test_an_unlisted_code_is_judged_by_its_name_and_then_by_its_status(
    code: str, status: int, meaning: str
) -> None:
    """EC2 adds codes: a prudent class is found for each."""
    assert meaning_of(code, status) == meaning
    assert meaning in BY_MEANING


def test_without_the_spot_role_on_demand_is_tried_at_once(make_rig: RigMaker) -> None:
    """The refusal closes the spot market alone, and on-demand takes the launch."""
    rig = make_rig(market="spot-then-on-demand")
    rig.fake.terms.spot_fraction = 0.4
    rig.fake.faults.plan("RunInstances", "error:AuthFailure.ServiceLinkedRoleCreationNotPermitted")

    assert _seconds_to_a_node(rig, "g5.xlarge") <= 3.0
    assert [life.market for life in rig.fake.live()] == ["on-demand"]


NAMES = ("g5.xlarge", "p4d.24xlarge", "g4dn.xlarge", "g6.xlarge")
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1f")
MARKETS = ("spot", "on-demand")


@settings(
    max_examples=sampled(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    allowed=st.tuples(st.sampled_from(NAMES), st.sampled_from(ZONES), st.sampled_from(MARKETS)),
    message=st.sampled_from(
        [DENIED, f"{DENIED} Encoded authorization failure message: x", f"{ON}{SCP}", f"{ON}volume/* x"]
    ),
)  # fmt: skip
def test_one_allowed_offer_among_many_denied_ones_is_found_within_a_minute(
    rig: AwsRig, allowed: tuple[str, str, str], message: str
) -> None:
    """However a policy denies the 39 others, the cheapest first, one try a second finds the one it allows."""
    offers = [
        Offer(instance_type=name, zone=zone, market=market, usd_per_hour=1.0 + number)  # type: ignore[arg-type]
        for number, (name, zone, market) in enumerate(product(NAMES, ZONES, MARKETS))
    ]
    error = CallFailed("ec2:RunInstances", "UnauthorizedOperation", message, http_status=403)
    cooldowns: dict[str, Cooldown] = {}
    for now in range(60):
        best = [offer for name in NAMES for offer in open_offers(name, offers, cooldowns, now=float(now))]
        offer = min(best, key=lambda each: each.usd_per_hour or 0.0)
        if (offer.instance_type, offer.zone, offer.market) == allowed:
            return
        refused = refusal_of(error, offer, rig.cloud.market)
        assert isinstance(refused, Refused)
        for scope in refused.scopes_of(a_launch(offer)):
            cooldowns[scope] = cooled(
                None, kind=refused.kind, at=float(now), retry_after_seconds=refused.retry_after_seconds
            )
    pytest.fail(f"{allowed} was not tried within a minute")


def test_our_own_rate_limit_pauses_launches_only_until_its_next_token(rig: AwsRig) -> None:
    """EC2's throttling rests for 5 to 10 s, our own limit for less than a second."""
    error = CallFailed("ec2:RunInstances", "RequestLimitExceeded", "ours", retry_after_seconds=0.4)
    outcome = refusal_of(error, rig.offer(), rig.cloud.market)

    assert isinstance(outcome, Refused)
    assert (outcome.kind, outcome.retry_after_seconds) == ("throttled", 0.4)


def test_a_region_without_side_prices_says_that_a_price_is_missing(make_rig: RigMaker) -> None:
    """Its offers have no price rather than no quota, and a launch is a refusal that names the command."""
    rig = make_rig(region="ap-southeast-6", zones=())
    offers = rig.cloud.offers()
    outcome = rig.cloud.launch(a_launch(Offer(instance_type="g5.xlarge", zone="x")))

    assert all(offer.usd_per_hour is None and offer.nodes_left is None for offer in offers)
    assert isinstance(outcome, Refused)
    assert outcome.kind == "no-price"
    assert "boa prices" in outcome.reason
    assert rig.fake.live() == []


def test_the_page_has_the_table_of_the_code() -> None:
    """`docs/reference/refusals.md` is what `benchmarks/aws_tables.py` prints."""
    page, tables = DOCS.read_text(encoding="utf-8"), benchmark_module("aws_tables")

    assert "\n".join(tables.refusal_lines()) in page
    assert "\n".join(tables.class_lines()) in page


def _seconds_to_a_node(rig: AwsRig, name: str) -> float:
    """Return how long a node of a type takes, with one try a second, the cheapest offer first."""
    cooldowns: dict[str, Cooldown] = {}
    for second in range(60):
        now = rig.clock.now()
        offer = next(iter(open_offers(name, rig.cloud.offers(), cooldowns, now=now)))
        assert closing(cooldowns, offer.key, now=now) is None
        launch = a_launch(offer, name=f"t{second}-launch")
        outcome = rig.cloud.launch(launch)
        if isinstance(outcome, Launched):
            return float(second)
        assert isinstance(outcome, Refused)
        for scope in outcome.scopes_of(launch):
            cooldowns[scope] = cooled(
                None, kind=outcome.kind, at=now, retry_after_seconds=outcome.retry_after_seconds
            )
        rig.pass_time(1.0)
    raise AssertionError("no node within a minute")


@pytest.mark.parametrize(
    ("code", "status", "said", "wanted", "advice"),
    [
        ("RequestTimeout", 400, "", ("unknown", "order"), ""),
        ("RequestTimeoutException", 400, "", ("unknown", "order"), ""),
        ("", 408, "", ("unknown", "order"), ""),
        ("", 503, "", ("unknown", "order"), ""),
        ("PriorRequestNotComplete", 400, "", ("throttled", "region"), "by itself"),
        ("TransactionInProgressException", 400, "", ("throttled", "region"), "by itself"),
        ("ProvisionedThroughputExceededException", 400, "", ("throttled", "region"), "by itself"),
        ("BandwidthLimitExceeded", 503, "", ("throttled", "region"), "by itself"),
        ("ServiceQuotaExceededException", 400, "", ("quota", "offer"), "higher limit"),
        ("HostLimitExceeded", 400, "", ("quota", "offer"), "higher limit"),
        ("SnapshotLimitExceeded", 400, "", ("quota", "offer"), "higher limit"),
        ("SpotInstanceCountExceeded", 400, "", ("quota", "quota"), "more vCPUs"),
        ("MaxScheduledInstanceCapacityExceeded", 400, "", ("no-capacity", "offer"), "other zones"),
        (
            "InvalidParameterCombination", 400,
            "The instance type is not eligible for Free Tier.", ("bad-request", "type"), "paid plan",
        ),
        ("AccessDeniedException", 400, "the account is suspended", ("denied", "region"), "AWS Support"),
        ("OperationNotPermitted", 400, "You may not launch instances", ("denied", "offer"), "its words"),
    ],
)  # fmt: skip
def test_codes_that_no_table_lists_mean_what_they_say(
    code: str, status: int, said: str, wanted: tuple[str, str], advice: str
) -> None:
    """What may have happened is unknown, what is limited is not always vCPUs, and advice fits."""
    error = CallFailed("ec2:RunInstances", code, said, http_status=status)

    assert (error.meaning, error.rule.scope) == wanted
    assert advice in str(error)
    assert "failed: : " not in str(error)


def test_a_protected_instance_is_one_that_cannot_be_ended() -> None:
    """At an end the same code is about the instance, and its cure is another."""
    error = CallFailed("ec2:TerminateInstances", "OperationNotPermitted", "x", http_status=400)

    assert error.meaning == "protected"
    assert "termination protection" in str(error)


@pytest.mark.parametrize(
    ("operation", "code", "said", "scope", "advice"),
    [
        ("s3:PutObject", "KMS.DisabledException", "key is disabled", "", "enable-key"),
        ("s3:GetObject", "KMS.KMSInvalidStateException", "pending deletion", "", "cancel-key-deletion"),
        ("s3:PutObject", "KMS.NotFoundException", "no key", "", "names another key"),
        ("sqs:ReceiveMessage", "KmsDisabled", "key is disabled", "", "enable-key"),
        ("ec2:RunInstances", "InvalidKMSKey.InvalidState", "incorrect state", "image", "enable-key"),
        ("s3:PutObject", "AccessDenied", "Access Denied", "", "the policy of the bucket itself"),
        ("sqs:ReceiveMessage", "AccessDenied", "Access denied", "", "the policy of the queue itself"),
        ("s3:PutObject", "AccessDenied", "x with an explicit deny in a resource-based policy", "",
         "explicit deny out of the resource-based policy"),
        ("sqs:ReceiveMessage", "OverLimit", "too many in flight", "", "tries again later"),
        ("ssm:SendCommand", "QuotaExceeded", "too many", "", "higher limit"),
        ("servicequotas:GetServiceQuota", "NoSuchResourceException", "does not exist", "", "EC2 refuses"),
        ("ec2:RunInstances", "Unsupported", "Spot is not supported for p5.48xlarge", "offer", "on-demand"),
        ("ec2:RunInstances", "Unsupported", "not supported in your requested zone", "type in zone", "zone"),
        ("ec2:RunInstances", "ImageNotAllowed", "by the Allowed AMIs settings", "image", "Allowed AMIs"),
        ("ec2:RunInstances", "InvalidParameterValue", "not one of the allowed images", "image", "Allowed"),
        ("ec2:RunInstances", "ImageDisabled", "the image is disabled", "image", "[cloud] image"),
    ],
)  # fmt: skip
def test_the_advice_is_about_what_the_call_was_about(
    operation: str, code: str, said: str, scope: str, advice: str
) -> None:
    """Keys, buckets, queues and images have cures of their own, and none is about vCPUs."""
    error = CallFailed(operation, code, said, http_status=400)

    assert advice in error.hint, error.hint
    assert "vCPU" not in error.hint
    assert not scope or error.rule.scope == scope
