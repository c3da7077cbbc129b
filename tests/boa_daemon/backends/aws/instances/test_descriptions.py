"""`aws/instances/descriptions.py`: all instances of the cluster, or some by their ids."""

from __future__ import annotations

from typing import Any, cast

import pytest
from ec2_rows import Answers, an_instance, failed

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.descriptions import instances_by_id, instances_of


def rows(*reservations: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return reservations with instances of these names."""
    return [{"Instances": [an_instance(name) for name in names]} for names in reservations]


def test_all_instances_of_all_reservations_with_the_tag_are_listed() -> None:
    """A reservation has as many instances as its order asked for."""
    calls = Answers(DescribeInstances=rows(("i-1", "i-2"), ("i-3",), ()))
    found = instances_of(cast(AwsCalls, calls), "lab")
    assert [each["InstanceId"] for each in found] == ["i-1", "i-2", "i-3"]
    assert calls.asked[0][1]["Filters"] == [{"Name": "tag:boa:cluster", "Values": ["lab"]}]


@pytest.mark.parametrize(("count", "batches"), [(0, []), (1, [1]), (200, [200]), (401, [200, 200, 1])])
def test_each_id_is_asked_for_once_in_batches_that_ec2_takes(count: int, batches: list[int]) -> None:
    """A filter has at most 200 values."""
    names = [f"i-{number}" for number in range(count)]
    calls = Answers(DescribeInstances=lambda Filters: rows(tuple(Filters[0]["Values"])))  # noqa: N803
    found = instances_by_id(cast(AwsCalls, calls), names)
    assert [each["InstanceId"] for each in found] == names
    assert [len(asked["Filters"][0]["Values"]) for _, asked in calls.asked] == batches


def test_no_answer_is_not_an_empty_list() -> None:
    """An instance is gone when EC2 says so, not when EC2 says nothing."""
    calls = cast(AwsCalls, Answers(DescribeInstances=failed("ec2:DescribeInstances", "InternalError")))
    for ask in (lambda: instances_of(calls, "lab"), lambda: instances_by_id(calls, ["i-1"])):
        with pytest.raises(CallFailed):
            ask()
