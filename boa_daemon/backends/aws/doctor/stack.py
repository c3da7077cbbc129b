"""Doctor checks of what `boa up` made: the rules that fill the queue, and the settings of the bucket.

A queue without its rules stays empty and looks healthy; a bucket that is public, or keeps unfinished uploads
for ever, works. So each setting is checked, and each check that fails names its fix.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.resource_names import slug_of
from boa_daemon.backends.aws.doctor.check import DoctorCheck
from boa_daemon.backends.aws.instances.event_rules import PATTERNS, SAID, lets_through

CLOSED = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
ENCRYPTION = {"SSEAlgorithm": "AES256"}
UNFINISHED: Mapping[str, Any] = {
    "ID": "unfinished",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3},
}

_NEVER_SET = (
    "NoSuchLifecycleConfiguration",
    "NoSuchPublicAccessBlockConfiguration",
    "ServerSideEncryptionConfigurationNotFoundError",
)


class StackDoctor:
    """Checks the rules of a queue and the settings of a bucket."""

    def __init__(self, calls: AwsCalls) -> None:
        self._calls = calls

    def rules(self, queue: str) -> Iterator[DoctorCheck]:
        """Check that EventBridge sends the events we need to the queue of that ARN.

        Raises:
            CallFailed: when EventBridge cannot be asked.
        """
        names = list(self._calls.pages("events:ListRuleNamesByTarget", "RuleNames", TargetArn=queue))
        found = [self._calls.call("events:DescribeRule", Name=name) for name in names]
        for about, pattern in PATTERNS.items():
            fitting = [rule for rule in found if lets_through(str(rule.get("EventPattern", "")), pattern)]
            names = [rule["Name"] for rule in fitting if rule.get("State") == "ENABLED"]
            if names:
                yield DoctorCheck(name=f"rule of {about}", status="ok", said=f"{names[0]}: {SAID[about]}")
            elif fitting:
                name = str(fitting[0]["Name"])
                yield DoctorCheck(
                    name=f"rule of {about}",
                    status="warning",
                    said=f"{name} is disabled: the queue gets no events of {SAID[about]}",
                    fix=f"Type `aws events enable-rule --name {name}`",
                )
            else:
                yield DoctorCheck(
                    name=f"rule of {about}",
                    status="warning",
                    said=f"no rule of EventBridge sends the queue events of {SAID[about]}",
                    fix=self._a_rule(about, pattern, queue),
                )

    def _a_rule(self, about: str, pattern: Mapping[str, Any], queue: str) -> str:
        """Return the command that makes a missing rule."""
        name = f"boa-{slug_of(self._calls.settings)}-{about}"
        return (
            f"Type `aws events put-rule --name {name} --event-pattern {shlex.quote(json.dumps(pattern))} && "
            f"aws events put-targets --rule {name} --targets Id=queue,Arn={queue}`"
        )

    def bucket(self, name: str) -> Iterator[DoctorCheck]:
        """Check that a bucket is encrypted, closed to the public, and deletes unfinished uploads.

        Raises:
            CallFailed: when S3 cannot be asked.
        """
        encryption = self._of_bucket("s3:GetBucketEncryption", name, "ServerSideEncryptionConfiguration")
        rules = encryption.get("Rules", ())
        kinds = [rule.get("ApplyServerSideEncryptionByDefault", {}).get("SSEAlgorithm", "") for rule in rules]
        document = json.dumps({"Rules": [{"ApplyServerSideEncryptionByDefault": ENCRYPTION}]})
        yield _judged(
            "encryption",
            [kind for kind in kinds if kind],
            f"{name} does not encrypt new objects by default",
            f"Type `aws s3api put-bucket-encryption --bucket {name} "
            f"--server-side-encryption-configuration {shlex.quote(document)}`",
        )
        block = self._of_bucket("s3:GetPublicAccessBlock", name, "PublicAccessBlockConfiguration")
        is_closed = all(block.get(each) is True for each in CLOSED)
        yield _judged(
            "public access",
            ["blocked"] if is_closed else (),
            f"{name} can be opened to the public",
            f"Type `aws s3api put-public-access-block --bucket {name} --public-access-block-configuration "
            f"{','.join(f'{each}=true' for each in CLOSED)}`",
        )
        standing = self._of_bucket("s3:GetBucketLifecycleConfiguration", name, "Rules") or []
        days = [
            rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"]
            for rule in standing
            if rule.get("Status") == "Enabled" and "AbortIncompleteMultipartUpload" in rule
        ]
        # Keep the existing rules: the call replaces all of them.
        document = json.dumps({"Rules": [*standing, UNFINISHED]}, default=str)
        yield _judged(
            "lifecycle",
            [f"unfinished uploads are deleted after {min(days)} days"] if days else (),
            f"{name} keeps unfinished uploads for ever, and they are billed",
            f"Type `aws s3api put-bucket-lifecycle-configuration --bucket {name} "
            f"--lifecycle-configuration {shlex.quote(document)}`",
        )

    def _of_bucket(self, operation: str, name: str, key: str) -> Any:
        """Return one setting of a bucket; empty if it was never set.

        Raises:
            CallFailed: when S3 cannot be asked.
        """
        try:
            return self._calls.call(operation, Bucket=name).get(key, {})
        except CallFailed as error:
            if error.code in _NEVER_SET:
                return {}
            raise


def _judged(what: str, found: Sequence[str], lacks: str, fix: str) -> DoctorCheck:
    """Return a check that is ok if `found` is not empty."""
    if found:
        return DoctorCheck(name=f"bucket {what}", status="ok", said=", ".join(found))
    return DoctorCheck(name=f"bucket {what}", status="warning", said=lacks, fix=fix)
