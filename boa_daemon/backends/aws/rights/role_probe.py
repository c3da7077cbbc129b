"""Asks IAM every few minutes whether the roles that act for us still may: of nodes, and of the pool's end.

Nodes save checkpoints and report with their own role, and EventBridge Scheduler ends stopped nodes with
another one. A right that such a role has lost shows when it is needed: a checkpoint is not saved, or a
stopped node is billed for ever. IAM's simulator decides as for the real call, and does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from boa_daemon.backends.aws.client.calls import NODE_OPERATIONS, AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.resource_names import (
    bucket_and_prefix,
    everything_of,
    partition,
    queue_arn,
    role_of,
)
from boa_daemon.backends.aws.instances.instance_lives import LIFE_TAG
from boa_daemon.backends.aws.instances.launch_request import CLUSTER_TAG
from boa_daemon.backends.aws.rights.missing_rights import may_not_ask
from boa_daemon.backends.aws.rights.policy_statements import UsedResources, actions_of
from boa_daemon.tick.facts.ports import Clock

PROBE_SECONDS, UNREACHED_SECONDS = 170.0, 3600.0
"""How often IAM is asked, and again where it does not answer, as in a network without a way to it: each try
holds the tick until its time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleNeed:
    """An action that a role must be allowed, and what fails without it; one `is_named` in the settings.

    Where `has_policy` the resource may allow it by a policy of its own, which the simulator does not know.
    """

    role: str
    action: str
    resource: str
    otherwise: str
    is_named: bool = False
    has_policy: bool = False
    context: dict[str, str] = field(default_factory=dict)


class RoleProbe:
    """Keeps why a role cannot do its work; empty where IAM may not be asked, which the doctor says."""

    def __init__(self, calls: AwsCalls, uses: UsedResources, clock: Clock) -> None:
        self._calls, self._uses, self._clock = calls, uses, clock
        self._ask_at = 0.0
        self._account = ""
        self._allowed: set[tuple[str, str]] = set()
        """Roles with an action that the simulator has found allowed."""
        self.fault = ""

    def forget(self) -> None:
        """Ask at the next refresh."""
        self._ask_at = 0.0

    def refresh(self) -> None:
        """Ask IAM about each need if it is time."""
        now = self._clock.now()
        settings = self._calls.settings
        if now < self._ask_at or not (
            self._uses.uri or self._uses.reports_queue_url or settings.pool_end_role
        ):
            return
        self._ask_at = now + PROBE_SECONDS
        try:
            self._account = self._account or str(self._calls.call("sts:GetCallerIdentity")["Account"])
            self.fault = "; ".join(said for need in self._needs() if (said := self._lack(need)))
        except CallFailed as error:
            # Whatever keeps us from asking says nothing of the roles, and is told where it matters.
            if error.meaning == "unknown":
                self._ask_at = now + UNREACHED_SECONDS

    def _needs(self) -> Iterator[RoleNeed]:
        """Yield what the roles of the settings have to do."""
        settings, uses = self._calls.settings, self._uses
        node = role_of(settings, self._account)
        if node and uses.uri:
            bucket, prefix = bucket_and_prefix(uses.uri)
            arn = f"arn:{partition(settings)}:s3:::{bucket}/{prefix}x"
            yield RoleNeed(
                role=node,
                action="s3:PutObject",
                resource=arn,
                otherwise="no checkpoint of a job is saved",
                has_policy=True,
            )
        if node and uses.reports_queue_url:
            arn = queue_arn(settings, uses.reports_queue_url, self._account)
            (tell,) = actions_of("tell", NODE_OPERATIONS)
            yield RoleNeed(
                role=node,
                action=tell,
                resource=arn,
                otherwise="nodes cannot report on jobs",
                has_policy=True,
            )
        if settings.pool_end_role and settings.warm_pool_nodes:
            yield RoleNeed(
                role=settings.pool_end_role,
                action="ec2:TerminateInstances",
                resource=everything_of(settings, self._account, "instance").replace("*", "i-0"),
                otherwise="a stopped node whose daemon is gone is billed for ever",
                is_named=True,
                context={
                    f"aws:ResourceTag/{CLUSTER_TAG}": settings.cluster,
                    f"aws:ResourceTag/{LIFE_TAG}": "2",
                },
            )

    def _lack(self, need: RoleNeed) -> str:
        """Return what is wrong if a role may not do what it must; empty if it may, or if nobody can say.

        Raises:
            CallFailed: when AWS cannot be asked at all.
        """
        context: list[dict[str, Any]] = [
            {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in need.context.items()
        ]
        try:
            answer = self._calls.call(
                "iam:SimulatePrincipalPolicy",
                PolicySourceArn=need.role,
                ActionNames=[need.action],
                ResourceArns=[need.resource],
                ContextEntries=context,
            )
        except CallFailed as error:
            if error.code == "NoSuchEntity" and need.is_named:
                return f"{need.role} does not exist: {need.otherwise}. `boa up --yes` makes it again"
            if may_not_ask(error):
                return ""
            raise
        decisions = {row.get("EvalDecision") for row in answer.get("EvaluationResults", ())}
        if decisions <= {"allowed"}:
            self._allowed.add((need.role, need.action))
            return ""
        may_be_allowed = need.has_policy and (need.role, need.action) not in self._allowed
        if may_be_allowed and "explicitDeny" not in decisions:
            return ""
        return (
            f"{need.role} may not {need.action} on {need.resource}: {need.otherwise}. `boa doctor` prints "
            "the command that gives it back"
        )
