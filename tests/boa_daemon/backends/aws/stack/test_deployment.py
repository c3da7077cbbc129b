"""`aws/stack/deployment.py`: a stack is made, changed and removed, and says why it failed."""

from __future__ import annotations

from typing import Any, cast

import pytest
from ec2_rows import Answers, failed

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.stack.deployment import RetainedBucket, Stack, StackFailed

MISSING = failed("cloudformation:DescribeStacks", "ValidationError", "Stack with id boa-lab does not exist")


def an_event(name: str, status: str, why: str = "") -> dict[str, str]:
    """Return an event of a stack."""
    return {"LogicalResourceId": name, "ResourceStatus": status, "ResourceStatusReason": why}


class Site:
    """CloudFormation with one stack, whose states follow each other as they are looked at."""

    def __init__(self, *states: str, **answers: Any) -> None:
        self.states, self.seconds = list(states), 0.0
        self.calls = Answers(
            **(
                {
                    "DescribeStacks": self._described,
                    "DescribeStackEvents": [],
                    "CreateStack": {},
                    "UpdateStack": {},
                    "DeleteStack": {},
                }
                | answers
            )
        )
        self.stack = Stack(cast(AwsCalls, self.calls), now=lambda: self.seconds, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def _described(self, StackName: str) -> dict[str, Any]:  # noqa: N803
        assert StackName == "boa-lab"
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if not state:
            raise MISSING
        outputs = [{"OutputKey": "BucketName", "OutputValue": "b"}]
        return {"Stacks": [{"StackStatus": state, "Outputs": outputs}]}

    @property
    def orders(self) -> list[str]:
        """The changes that were ordered."""
        names = [operation.partition(":")[2] for operation, _ in self.calls.asked]
        return [name for name in names if not name.startswith("Describe")]

    def make(self) -> bool:
        """Make the stack within a minute."""
        return self.stack.make({"a": 1}, {"VpcId": "vpc-1"}, wait_seconds=60.0)


def test_a_stack_that_does_not_exist_or_is_deleted_is_none() -> None:
    """Any other refusal is told: not to know is not to have none."""
    for state in ("", "DELETE_COMPLETE"):
        assert (Site(state).stack.state(), Site(state).stack.outputs()) == (None, {})
    assert Site("CREATE_COMPLETE").stack.outputs() == {"BucketName": "b"}
    with pytest.raises(CallFailed):
        Site(DescribeStacks=failed("cloudformation:DescribeStacks", "AccessDenied")).stack.state()


@pytest.mark.parametrize(
    ("states", "orders"),
    [
        (["", "CREATE_IN_PROGRESS", "CREATE_COMPLETE"], ["CreateStack"]),
        (["CREATE_COMPLETE", "UPDATE_IN_PROGRESS", "UPDATE_COMPLETE"], ["UpdateStack"]),
        (["UPDATE_ROLLBACK_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"], ["UpdateStack"]),
        (
            ["ROLLBACK_COMPLETE", "ROLLBACK_COMPLETE", "DELETE_IN_PROGRESS", "", "CREATE_COMPLETE"],
            ["DeleteStack", "CreateStack"],
        ),
    ],
)
def test_a_stack_is_created_updated_or_made_anew(states: list[str], orders: list[str]) -> None:
    """One whose creation was rolled back cannot be updated: it has nothing to keep."""
    site = Site(*states)
    assert site.make()
    assert site.orders == orders
    asked = next(asked for operation, asked in site.calls.asked if operation.endswith(orders[-1]))
    assert asked["Parameters"] == [{"ParameterKey": "VpcId", "ParameterValue": "vpc-1"}]
    assert asked["TemplateBody"] == '{"a":1}'
    assert {"Key": "boa:stack", "Value": "lab"} in asked["Tags"]


def test_a_stack_that_is_as_wanted_is_left() -> None:
    """Every other refusal of a change is told."""
    none = failed("cloudformation:UpdateStack", "ValidationError", "No updates are to be performed.")
    assert not Site("CREATE_COMPLETE", UpdateStack=none).make()
    with pytest.raises(CallFailed):
        Site("CREATE_COMPLETE", UpdateStack=failed("cloudformation:UpdateStack", "AccessDenied")).make()


@pytest.mark.parametrize(
    "states",
    [
        ["", "ROLLBACK_IN_PROGRESS"],
        ["", "CREATE_FAILED"],
        ["CREATE_COMPLETE", "UPDATE_ROLLBACK_IN_PROGRESS"],
        ["CREATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"],
        ["", "CREATE_IN_PROGRESS", ""],
        ["", "CREATE_IN_PROGRESS"],
    ],
)
def test_a_stack_that_rolls_back_disappears_or_takes_too_long_has_failed(states: list[str]) -> None:
    """Whoever waits is told within the time that was given."""
    site = Site(*states)
    with pytest.raises(StackFailed, match="stack boa-lab is "):
        site.make()
    # A rollback takes minutes, and its cause is known at once.
    assert site.seconds <= (0.0 if "ROLLBACK" in states[-1] else 60.0)


def test_the_first_resource_of_this_order_that_failed_is_named() -> None:
    """Failures of earlier orders stay in the list of events, and what failed after it was cancelled."""
    events = [
        an_event("boa-lab", "UPDATE_ROLLBACK_COMPLETE"),
        an_event("boa-lab", "UPDATE_ROLLBACK_IN_PROGRESS", "failed"),
        an_event("Reports", "CREATE_FAILED", "Resource creation cancelled"),
        an_event("Bucket", "UPDATE_FAILED", "the name is taken"),
        an_event("Bucket", "UPDATE_IN_PROGRESS"),
        an_event("boa-lab", "UPDATE_IN_PROGRESS", "User Initiated"),
        an_event("boa-lab", "UPDATE_ROLLBACK_COMPLETE"),
        an_event("NodeRole", "CREATE_FAILED", "of last week"),
        an_event("boa-lab", "CREATE_IN_PROGRESS", "User Initiated"),
    ]
    site = Site("CREATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", DescribeStackEvents=events)
    with pytest.raises(StackFailed, match=r"is UPDATE_ROLLBACK_COMPLETE: Bucket: the name is taken"):
        site.make()
    quiet = Site("", "CREATE_FAILED", DescribeStackEvents=failed("cloudformation:x", "AccessDenied"))
    with pytest.raises(StackFailed, match=r"stack boa-lab is CREATE_FAILED\. Fix the cause"):
        quiet.make()


def test_a_stack_is_gone_when_cloudformation_says_so() -> None:
    """One that cannot be deleted, or takes too long, has failed; without one nothing is ordered."""
    site = Site("CREATE_COMPLETE", "DELETE_IN_PROGRESS", "DELETE_COMPLETE")
    assert site.stack.remove()
    none = Site("")
    assert (none.stack.remove(), none.orders) == (False, [])
    broken = Site("CREATE_COMPLETE", "DELETE_FAILED")
    with pytest.raises(StackFailed, match="is DELETE_FAILED"):
        broken.stack.remove()
    assert broken.seconds == 0.0
    with pytest.raises(StackFailed, match="is DELETE_IN_PROGRESS"):
        Site("DELETE_IN_PROGRESS").stack.remove(wait_seconds=20.0)


def a_bucket(**answers: Any) -> Site:
    """Return a site whose bucket has 1001 objects of 3 bytes, then one more, on two pages."""

    def listed(Bucket: str, ContinuationToken: str = "") -> dict[str, Any]:  # noqa: N803
        count = 1 if ContinuationToken else 1001
        rows = [{"Key": f"{ContinuationToken}{number}", "Size": 3} for number in range(count)]
        return {"Contents": rows} | ({} if ContinuationToken else {"NextContinuationToken": "next"})

    plain = {"ListObjectsV2": listed, "DeleteObjects": {}, "DeleteBucket": {}}
    return Site("", **(plain | answers))


def test_a_bucket_is_counted_and_only_on_request_deleted_with_all_pages() -> None:
    """S3 deletes a thousand objects at once."""
    look = a_bucket()
    assert look.stack.kept("b") == RetainedBucket(bucket="b", objects=1002, size_bytes=3006)
    assert not {"DeleteObjects", "DeleteBucket"} & {*look.orders}
    gone = a_bucket()
    wanted = RetainedBucket(bucket="b", objects=1002, size_bytes=3006, is_gone=True)
    assert gone.stack.kept("b", delete=True) == wanted
    deleted = [asked["Delete"]["Objects"] for name, asked in gone.calls.asked if name == "s3:DeleteObjects"]
    assert [len(keys) for keys in deleted] == [1000, 1, 1]
    assert deleted[2] == [{"Key": "next0"}]
    assert gone.orders[-1] == "DeleteBucket"


def test_a_bucket_that_does_not_exist_is_gone_and_one_that_cannot_be_read_is_not() -> None:
    """Its name follows from cluster, account and region."""
    missing = a_bucket(ListObjectsV2=failed("s3:ListObjectsV2", "NoSuchBucket", status=404))
    assert missing.stack.kept("b").is_gone
    with pytest.raises(CallFailed):
        a_bucket(ListObjectsV2=failed("s3:ListObjectsV2", "AccessDenied")).stack.kept("b")
    site = Site("", GetCallerIdentity={"Account": "123456789012"})
    assert site.stack.bucket() == "boa-lab-123456789012-us-east-1"


@pytest.mark.parametrize(
    ("message", "is_there"),
    [("Service role name AWSServiceRoleForEC2Spot has been taken in this account", True), ("denied", False)],
)
def test_the_role_for_spot_is_made_unless_the_account_has_it(message: str, is_there: bool) -> None:
    """Another refusal is told."""
    site = Site("", CreateServiceLinkedRole=failed("iam:CreateServiceLinkedRole", "InvalidInput", message))
    if is_there:
        site.stack.make_spot_role()
    else:
        with pytest.raises(CallFailed):
            site.stack.make_spot_role()
