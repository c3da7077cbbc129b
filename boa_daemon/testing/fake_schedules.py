"""EventBridge Scheduler in the fake cloud: one-time schedules that end instances, with a role's rights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from boa_daemon.testing.fake_answers import Answer, Call, json_answer, json_error
from boa_daemon.testing.fake_checks import ACCOUNT
from boa_daemon.testing.fake_iam import FakeIam, decide
from boa_daemon.testing.fake_terms import Lifetime


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scheduled end of instances, with the role that ends them."""

    at: float
    instances: tuple[str, ...]
    role: str
    region: str


class FakeScheduler:
    """Keeps schedules by name; each is removed when it runs. `refused` are ends that were denied."""

    def __init__(self, iam: FakeIam, end: Callable[[str, str], None]) -> None:
        self._iam, self._end = iam, end
        self.schedules: dict[str, Schedule] = {}
        self.refused: list[str] = []

    def create(self, call: Call) -> Answer:
        """Create a schedule; refuse a name that exists."""
        name = call.path.partition("?")[0].rpartition("/")[2]
        if name in self.schedules:
            return json_error("ConflictException", f"Schedule {name} already exists.", 409)
        document, target = call.document, call.document["Target"]
        when = datetime.fromisoformat(document["ScheduleExpression"][3:-1]).replace(tzinfo=UTC)
        instances = tuple(json.loads(target["Input"])["InstanceIds"])
        self.schedules[name] = Schedule(when.timestamp(), instances, target["RoleArn"], call.region)
        return json_answer(
            {"ScheduleArn": f"arn:aws:scheduler:{call.region}:{ACCOUNT}:schedule/default/{name}"}
        )

    def advance(
        self, now: float, lives: Mapping[str, Lifetime], tags_of: Callable[[str, str], Mapping[str, str]]
    ) -> None:
        """Run the schedules that are due, with the rights of their roles."""
        for name in [name for name, each in self.schedules.items() if each.at <= now]:
            due = self.schedules.pop(name)
            for instance in due.instances:
                if instance in lives and lives[instance].ended_at is None:
                    self._try(instance, due, tags_of(due.region, instance))

    def _try(self, instance: str, due: Schedule, tags: Mapping[str, str]) -> None:
        """End an instance if the role may; an unknown role may do nothing."""
        documents = [
            document
            for principal in self._iam.principals.values()
            if principal.arn == due.role
            for document in principal.documents
        ]
        context = {f"aws:ResourceTag/{key}": value for key, value in tags.items()}
        arn = f"arn:aws:ec2:{due.region}:{ACCOUNT}:instance/{instance}"
        if decide(documents, "ec2:TerminateInstances", arn, context).is_allowed:
            self._end(instance, "User initiated")
        else:
            self.refused.append(instance)
