"""Instances as EC2 describes them, and a stand-in that answers calls from a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.settings import AwsSettings

LAUNCHED_AT = 1_800_000_000.0


def instant(at: float) -> datetime:
    """Return an instant as boto3 does."""
    return datetime.fromtimestamp(at, UTC)


def an_instance(
    name: str = "i-1", *, state: str = "running", launched_at: float = LAUNCHED_AT, **changes: Any
) -> dict[str, Any]:
    """Return an instance; `tags` are a mapping, other changes are keys of the description."""
    tags = changes.pop("tags", {})
    return {
        "InstanceId": name,
        "InstanceType": "gpu-x4",
        "State": {"Name": state},
        "LaunchTime": instant(launched_at),
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        **changes,
    }


class Answers:
    """Stands in for `AwsCalls`: a row of pages or an answer for each operation; an error is raised."""

    def __init__(self, settings: AwsSettings | None = None, **operations: Any) -> None:
        self.settings = settings or AwsSettings(cluster="lab")
        self.operations: dict[str, Any] = operations
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def call(self, operation: str, **arguments: Any) -> Any:
        """Return the answer to an operation, by its name without the service; a function is called."""
        self.asked.append((operation, arguments))
        answer = self.operations[operation.partition(":")[2]]
        if isinstance(answer, Exception):
            raise answer
        return answer(**arguments) if isinstance(answer, Callable) else answer  # type: ignore[arg-type]

    def pages(self, operation: str, key: str, **arguments: Any) -> Iterator[Any]:
        """Yield the rows of an operation."""
        del key
        yield from self.call(operation, **arguments)


def failed(operation: str, code: str, message: str = "no", status: int = 400) -> CallFailed:
    """Return an error of AWS."""
    return CallFailed(operation, code, message, http_status=status)
