"""`aws/client/calls.py`: engines call AWS through the table of operations, under its time limits."""

from __future__ import annotations

import pytest
from aws_rigs import AwsRig, OneSession
from botocore.exceptions import ClientError

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.settings import AwsSettings


class Configs(OneSession):
    """A session that records the configuration of the last client of each service."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, tuple[float, int]] = {}

    def client(self, service: str, **how: object) -> object:
        """Return a client, and record its read timeout and tries."""
        config = how["config"]
        self.asked[service] = (config.read_timeout, config.retries["total_max_attempts"])  # type: ignore[attr-defined]
        return super().client(service, **how)  # type: ignore[arg-type]


def test_a_client_offers_only_the_operations_in_the_table(rig: AwsRig) -> None:
    """Each call is counted; an operation outside the table is an AttributeError."""
    calls = rig.cloud.calls
    s3 = calls.client("s3")
    with pytest.raises(CallFailed, match="NoSuchBucket"):
        s3.list_objects_v2(Bucket="none", Prefix="")

    assert calls.counts["s3:ListObjectsV2"] == 1
    with pytest.raises(AttributeError, match="not in the table"):
        s3.get_bucket_acl(Bucket="none")


def test_s3_and_ssm_calls_time_out_after_two_tries_of_ten_seconds(rig: AwsRig) -> None:
    """A client of EC2 gets three tries of thirty seconds."""
    session = Configs()
    calls = AwsCalls(AwsSettings(), session=session)
    with pytest.raises(CallFailed):
        calls.client("s3").get_object(Bucket="none", Key="x")
    with pytest.raises(CallFailed):
        calls.client("ssm").get_command_invocation(CommandId="0" * 36, InstanceId="i-" + "0" * 17)
    calls.call("ec2:DescribeInstances")

    assert session.asked["s3"] == session.asked["ssm"] == (10.0, 2)
    assert session.asked["ec2"] == (30.0, 3)


@pytest.mark.parametrize("operation", ["ec2:RunInstances", "ec2:PurchaseCapacityBlock"])
def test_launches_and_purchases_have_one_try(rig: AwsRig, operation: str) -> None:
    """A purchase has no idempotency token, so a second try could buy a second block."""
    session = Configs()
    calls = AwsCalls(AwsSettings(), session=session)
    with pytest.raises(CallFailed):
        calls.call(operation)

    assert session.asked["ec2"] == (30.0, 1)


def test_a_denied_call_gives_its_action_and_resource() -> None:
    """`denied` holds action and resource of an UnauthorizedOperation, and is None for another error."""
    said = (
        "You are not authorized to perform this operation. User: arn:aws:iam::1:user/me is not authorized to "
        "perform: ec2:RunInstances on resource: arn:aws:ec2:us-east-1:1:subnet/subnet-1 because no "
        "identity-based policy allows it. Encoded authorization failure message: abc"
    )
    error = CallFailed("ec2:RunInstances", "UnauthorizedOperation", said, http_status=403)

    assert error.denied == ("ec2:RunInstances", "arn:aws:ec2:us-east-1:1:subnet/subnet-1")
    assert CallFailed("ec2:RunInstances", "VcpuLimitExceeded", "no").denied is None


@pytest.mark.parametrize("asked", ["AssumeRole", "AssumeRoleWithWebIdentity", "GetRoleCredentials"])
def test_a_role_that_may_not_be_taken_is_a_fault_of_credentials(rig: AwsRig, asked: str) -> None:
    """botocore asks for them within our call: a policy of `boa iam` would cure nothing, renewing does."""
    calls = rig.cloud.calls
    real, refuses = calls._client, [True]

    class Refused:
        def describe_instances(self, **_: object) -> object:
            if not refuses:
                return real("ec2:DescribeInstances", "").describe_instances()
            said = {"Code": "AccessDenied", "Message": "x is not authorized to perform: sts:AssumeRole"}
            raise ClientError({"Error": said, "ResponseMetadata": {"HTTPStatusCode": 403}}, asked)  # type: ignore[typeddict-item]

    calls._client = lambda operation, region: Refused()  # type: ignore[method-assign]
    with pytest.raises(CallFailed) as failed:
        calls.call("ec2:DescribeInstances")
    assert failed.value.meaning == "credentials"
    assert f"{asked} gave none: AccessDenied: x is not authorized" in str(failed.value)
    assert "Renew the credentials" in str(failed.value)
    assert calls.credentials_fault
    refuses.clear()
    calls.call("ec2:DescribeInstances")
    assert calls.credentials_fault == ""


@pytest.mark.parametrize("tokens", [["a", "a"], ["a", "b", "a"], ["a", "b", "c", "b"]])
def test_pages_that_go_in_circles_end(
    rig: AwsRig, monkeypatch: pytest.MonkeyPatch, tokens: list[str]
) -> None:
    """A stand-in of AWS that names earlier pages as next ones must not hold a tick for ever."""
    calls, given = rig.cloud.calls, iter(tokens)

    def answers(operation: str, **_: object) -> dict[str, object]:
        return {"Reservations": [1], "NextToken": next(given)}

    monkeypatch.setattr(calls, "call", answers)
    with pytest.raises(CallFailed, match="that we had"):
        list(calls.pages("ec2:DescribeInstances", "Reservations"))
