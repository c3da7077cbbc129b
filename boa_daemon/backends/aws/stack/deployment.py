"""Create, update, inspect and delete a site's CloudFormation stack and its bucket, which outlives it.

Every call uses the rights of the administrator who types `boa up` or `boa down --stack`; the daemon has none
of these rights.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.stack.settings import StackNames, stack_settings_of, tags_of_stack
from boa_daemon.errors import CloudFailed

_LOOK_SECONDS = 5.0
_DELETE_BATCH = 1000
_BEGINS = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS")
"""States of the stack itself with which an order begins; a rollback belongs to the order that failed."""


class StackFailed(CloudFailed):
    """The stack could not be created, updated or deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedBucket:
    """Contents of a bucket that outlives its stack."""

    bucket: str
    objects: int
    size_bytes: int
    is_gone: bool = False


class Stack:
    """The stack of a cluster in a region."""

    def __init__(
        self,
        calls: AwsCalls,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.calls, self._now, self._sleep, self.settings = calls, now, sleep, calls.settings
        self.name = StackNames.of(calls.settings).stack

    def state(self) -> dict[str, Any] | None:
        """Return the stack as CloudFormation describes it; None if there is none.

        Raises:
            CallFailed: when AWS cannot be asked.
        """
        try:
            found = self.calls.call("cloudformation:DescribeStacks", StackName=self.name)["Stacks"]
        except CallFailed as error:
            if "does not exist" in error.message:
                return None
            raise
        stacks: list[dict[str, Any]] = [each for each in found if each["StackStatus"] != "DELETE_COMPLETE"]
        return stacks[0] if stacks else None

    def bucket(self) -> str:
        """Return the name of the bucket, for when no stack is left that names it.

        Raises:
            CallFailed: when AWS cannot be asked.
        """
        settings = self.calls.settings
        account = str(self.calls.call("sts:GetCallerIdentity")["Account"])
        return stack_settings_of(settings, account=account).uses.uri.split("/")[2]

    def outputs(self) -> dict[str, str]:
        """Return the outputs of the stack; empty if there is no stack."""
        found = self.state() or {}
        return {row["OutputKey"]: row["OutputValue"] for row in found.get("Outputs", ())}

    def make(
        self, template: Mapping[str, Any], parameters: Mapping[str, str], *, wait_seconds: float = 900.0
    ) -> bool:
        """Create the stack, or update it to the template; return whether anything changed.

        Raises:
            CallFailed: when AWS refuses.
            StackFailed: when creation or update failed; it names the first resource that failed, and why.
        """
        found = self.state()
        if found is not None and found["StackStatus"] == "ROLLBACK_COMPLETE":
            # A stack whose creation was rolled back has no resources, and cannot be updated.
            self.remove(wait_seconds=wait_seconds)
            found = None
        arguments: dict[str, Any] = {
            "StackName": self.name,
            "TemplateBody": json.dumps(template, separators=(",", ":")),
            "Capabilities": ["CAPABILITY_NAMED_IAM"],
            "Parameters": [
                {"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()
            ],
        }
        arguments["Tags"] = tags_of_stack(self.calls.settings)
        if found is None:
            self.calls.call("cloudformation:CreateStack", **arguments)
        else:
            try:
                self.calls.call("cloudformation:UpdateStack", **arguments)
            except CallFailed as error:
                if "No updates are to be performed" in error.message:
                    return False
                raise
        self._wait(wait_seconds)
        return True

    def make_spot_role(self) -> None:
        """Create the role that EC2 needs for spot instances, unless the account has it.

        Raises:
            CallFailed: when AWS refuses.
        """
        try:
            self.calls.call("iam:CreateServiceLinkedRole", AWSServiceName="spot.amazonaws.com")
        except CallFailed as error:
            if "taken" not in error.message and "exists" not in error.message:
                raise

    def remove(self, *, wait_seconds: float = 900.0) -> bool:
        """Delete the stack, but not its bucket; return whether there was a stack.

        Raises:
            CallFailed: when AWS refuses.
            StackFailed: when a resource could not be deleted in time.
        """
        if self.state() is None:
            return False
        self.calls.call("cloudformation:DeleteStack", StackName=self.name)
        deadline = self._now() + wait_seconds
        while (found := self.state()) is not None:
            if found["StackStatus"] == "DELETE_FAILED" or self._now() >= deadline:
                raise self._failed(found)
            self._sleep(_LOOK_SECONDS)
        return True

    def kept(self, bucket: str, *, delete: bool = False) -> RetainedBucket:
        """Return the contents of the bucket; with `delete`, delete them and the bucket.

        Raises:
            CallFailed: when AWS refuses.
        """
        objects, size = 0, 0
        try:
            for page in self._pages(bucket):
                objects += len(page)
                size += sum(int(row["Size"]) for row in page)
                for begin in range(0, len(page) if delete else 0, _DELETE_BATCH):
                    keys = [{"Key": row["Key"]} for row in page[begin : begin + _DELETE_BATCH]]
                    self.calls.call(
                        "s3:DeleteObjects", Bucket=bucket, Delete={"Objects": keys, "Quiet": True}
                    )
            if delete:
                self.calls.call("s3:DeleteBucket", Bucket=bucket)
        except CallFailed as error:
            if error.code != "NoSuchBucket":
                raise
            return RetainedBucket(bucket=bucket, objects=0, size_bytes=0, is_gone=True)
        return RetainedBucket(bucket=bucket, objects=objects, size_bytes=size, is_gone=delete)

    def _pages(self, bucket: str) -> Iterator[list[dict[str, Any]]]:
        """Yield the objects of a bucket, page by page."""
        arguments: dict[str, Any] = {"Bucket": bucket}
        while True:
            answer = self.calls.call("s3:ListObjectsV2", **arguments)
            yield list(answer.get("Contents", ()))
            if not answer.get("NextContinuationToken"):
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    def _wait(self, wait_seconds: float) -> None:
        """Wait until the stack is created or updated.

        Raises:
            StackFailed: when it failed, or the time is up.
        """
        deadline = self._now() + wait_seconds
        while True:
            found = self.state() or {"StackStatus": "gone"}
            status = found["StackStatus"]
            if status in ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"):
                return
            if not status.endswith("_IN_PROGRESS") or "ROLLBACK" in status or self._now() >= deadline:
                raise self._failed(found)
            self._sleep(_LOOK_SECONDS)

    def _events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the last order, newest first: those of earlier orders stay in the list.

        Raises:
            CallFailed: when AWS refuses.
        """
        for event in self.calls.pages(
            "cloudformation:DescribeStackEvents", "StackEvents", StackName=self.name
        ):
            yield event
            if event.get("LogicalResourceId") == self.name and event.get("ResourceStatus") in _BEGINS:
                return

    def _failed(self, found: Mapping[str, Any]) -> StackFailed:
        """Return the error of a failed stack: the first resource that failed, and why."""
        said = str(found.get("StackStatusReason", ""))
        with suppress(CallFailed):
            for event in self._events():
                if str(event.get("ResourceStatus", "")).endswith("FAILED"):
                    said = f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', '')}"
        status = str(found["StackStatus"])
        return StackFailed(
            f"stack {self.name} is {status}" + (f": {said}" if said else ""),
            code=status,
            hint="Fix the cause and run the same command again; the CloudFormation console shows every step",
        )
