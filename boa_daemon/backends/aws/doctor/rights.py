"""Doctor checks of rights: what is missing of every policy that BOA prints, and how to attach it.

IAM simulates the rights of the roles of the daemon, the nodes and the pool; the policies of queues and bucket
are read and compared. Each missing statement is a check, with its actions and the command that attaches it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.resource_names import bucket_of, partition_of, queue_arn, role_of, slug_of
from boa_daemon.backends.aws.doctor.check import DoctorCheck, Status
from boa_daemon.backends.aws.instances.termination_schedule import termination_policy
from boa_daemon.backends.aws.rights.missing_rights import (
    may_not_ask,
    missing_statements,
    principal_of,
    to_attach,
    to_give,
)
from boa_daemon.backends.aws.rights.policy import node_policy, policy
from boa_daemon.backends.aws.rights.policy_statements import UsedResources, iam_action
from boa_daemon.backends.aws.rights.resource_policies import (
    Queue,
    absent_statements,
    bucket_policy,
    queue_policy,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedPolicy:
    """A policy that a principal should have; `flag` makes `boa iam` print it, `of` says whose it is."""

    principal: str
    flag: str
    of: str
    document: Mapping[str, Any]


class RightsDoctor:
    """Checks rights, with the credentials of a caller."""

    def __init__(self, calls: AwsCalls, uses: UsedResources) -> None:
        self._calls, self._settings, self._uses = calls, calls.settings, uses
        self.caller, self.account = "", "*"
        self._missing: set[str] = set()

    @property
    def principal(self) -> str:
        """The ARN whose policies apply to the caller; empty for root."""
        return principal_of(self.caller)

    def policy(self) -> dict[str, Any]:
        """Return the policy that the caller should have."""
        role = self.principal if ":role/" in self.principal else ""
        return policy(self._settings, uses=self._uses, account=self.account, control_role=role)

    def fix(self, sids: Sequence[str]) -> str:
        """Return the command that gives statements to the caller; of alternatives, those found missing."""
        named = " or ".join([sid for sid in sids if sid in self._missing] or sids)
        return to_give(named, self.principal, "", name=f"boa-{slug_of(self._settings)}")

    def own(self) -> Iterator[DoctorCheck]:
        """Check which statements the caller lacks, with IAM's simulator, which does nothing else."""
        if not self.principal:
            yield DoctorCheck(name="rights", status="warning",
                              said="the account's root user may do everything",
                              fix="Work as the role that `boa up` makes")  # fmt: skip
            return
        yield from self._simulated(
            ExpectedPolicy(principal=self.principal, flag="", of="", document=self.policy())
        )

    def others(self) -> Iterator[DoctorCheck]:
        """Check which statements the nodes' role and the role that ends stopped nodes lack."""
        node = role_of(self._settings, self.account)
        if node and self.principal:
            document = node_policy(self._settings, self._uses, account=self.account)
            yield from self._simulated(
                ExpectedPolicy(principal=node, flag=" --node", of=" of nodes", document=document)
            )
        end = self._settings.pool_end_role
        if end and self.principal:
            document = termination_policy(self._settings, account=self.account)
            yield from self._simulated(
                ExpectedPolicy(principal=end, flag=" --pool-end", of=" of the pool's end", document=document)
            )

    def _simulated(self, whose: ExpectedPolicy) -> Iterator[DoctorCheck]:
        """Yield the checks of a policy's statements, as IAM simulates them."""
        try:
            missing = list(missing_statements(self._calls, whose.principal, whose.document))
        except CallFailed as error:
            if not may_not_ask(error):
                raise
            asked = f"{error.code}: {iam_action(error.operation)} about {whose.principal}"
            said = f"{asked}: rights are not checked, beyond the calls tried below"
            yield DoctorCheck(
                name=f"rights{whose.of}", status="warning", said=said, fix=self.fix(["AskOwnRights"])
            )
            return
        if not whose.flag:
            self._missing = {sid for sid, _ in missing}
        for sid, said in missing:
            status: Status = "warning" if sid == "NeverForeign" else "failed"
            fix = to_give(sid, whose.principal, whose.flag, name=f"boa-{slug_of(self._settings)}")
            yield DoctorCheck(name=f"right{whose.of} {sid}", status=status, said=said, fix=fix)
        if not missing:
            count = len(whose.document["Statement"])
            said = f"all {count} statements, as IAM simulates them"
            yield DoctorCheck(name=f"rights{whose.of}", status="ok", said=said)

    def of_queue(self, queue: Queue, url: str, standing: str) -> Iterator[DoctorCheck]:
        """Check the policy of a queue; `standing` is its policy as JSON from SQS."""
        arn = queue_arn(self._settings, url, self.account)
        command = f"aws sqs set-queue-attributes --queue-url {url} --attributes file://policy.json"
        more = f" --account {self.account}"
        wanted = queue_policy(queue, arn, self.account)
        yield from _compared(queue, wanted, standing, f" --queue {queue}", command, more=more)

    def of_bucket(self) -> Iterator[DoctorCheck]:
        """Check that the bucket's policy denies access without TLS.

        Raises:
            CallFailed: when S3 cannot be asked.
        """
        bucket = bucket_of(self._uses.uri)
        try:
            standing = str(self._calls.call("s3:GetBucketPolicy", Bucket=bucket)["Policy"])
        except CallFailed as error:
            if error.code != "NoSuchBucketPolicy":
                raise
            standing = ""
        arn = f"arn:{partition_of(self._settings.region)}:s3:::{bucket}"
        command = f"aws s3api put-bucket-policy --bucket {bucket} --policy file://policy.json"
        yield from _compared("bucket", bucket_policy(arn, f"{arn}/*"), standing, " --bucket", command)


def _compared(
    name: str, wanted: Mapping[str, Any], standing: str, flag: str, command: str, *, more: str = ""
) -> Iterator[DoctorCheck]:
    """Yield the checks of a resource policy's statements."""
    missing = absent_statements(wanted, standing)
    for sid, said in missing:
        fix = to_attach(sid, flag, command, more=more)
        yield DoctorCheck(name=f"policy of {name} {sid}", status="warning", said=said, fix=fix)
    if not missing:
        said = f"all {len(wanted['Statement'])} statements"
        yield DoctorCheck(name=f"policy of {name}", status="ok", said=said)
