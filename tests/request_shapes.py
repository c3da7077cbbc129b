"""Checks every boto3 request against the service's own model, as AWS would.

botocore checks types and required fields only; AWS also checks lengths, patterns, enumerations and numbers of
items, and a mock accepts everything. `RequestShapes` checks each request by the model that botocore ships,
and by a few limits that only the documentation states.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from botocore.client import BaseClient
from botocore.validate import ParamValidator

BEYOND_THE_MODEL: Mapping[tuple[str, str], int] = {
    ("ssm", "SendCommand.InstanceIds"): 50,
    ("sqs", "DeleteMessageBatch.Entries"): 10,
    ("sqs", "ReceiveMessage.MaxNumberOfMessages"): 10,
    ("ec2", "CreateTags.Resources"): 1000,
    ("ec2", "CreateTags.Tags"): 50,
    ("ec2", "DescribeInstances.MaxResults"): 1000,
    ("ec2", "DescribeInstanceTopology.InstanceIds"): 100,
    ("ec2", "RunInstances.ClientToken"): 64,
    ("iam", "SimulatePrincipalPolicy.ResourceArns"): 100,
    ("s3", "DeleteObjects.Delete.Objects"): 1000,
}
"""Most items, characters or the largest number, as the documentation says."""


@dataclass(slots=True)
class RequestShapes:
    """Counts requests by operation, and collects their faults."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def look(self, client: BaseClient, operation: str, arguments: Mapping[str, Any]) -> None:
        """Check one request."""
        model = client.meta.service_model
        service = str(model.service_name)
        self.counts[f"{service}:{operation}"] += 1
        shape = model.operation_model(operation).input_shape
        if shape is None:
            return
        report = ParamValidator().validate(dict(arguments), shape)
        if report.has_errors():
            self.faults.append(f"{service}:{operation}: {report.generate_report()}")
        for said in (
            *_by_model(shape, arguments, operation),
            *_by_documentation(service, operation, arguments),
        ):
            self.faults.append(f"{service}:{said}")


@contextmanager
def request_shapes() -> Iterator[RequestShapes]:
    """Check every request of this process within the context."""
    shapes, inner = RequestShapes(), BaseClient._make_api_call

    def looked_at(client: BaseClient, operation: str, arguments: Mapping[str, Any]) -> Any:
        shapes.look(client, operation, arguments)
        return inner(client, operation, arguments)

    BaseClient._make_api_call = looked_at
    try:
        yield shapes
    finally:
        BaseClient._make_api_call = inner


def _by_model(shape: Any, value: Any, where: str) -> Iterator[str]:
    """Yield the faults of a value by its shape: lengths, numbers, patterns, enumerations."""
    kind = shape.type_name
    if kind == "structure" and isinstance(value, Mapping):
        for name, inner in value.items():
            if name in shape.members:
                yield from _by_model(shape.members[name], inner, f"{where}.{name}")
        return
    if kind == "map" and isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _by_model(shape.value, inner, f"{where}.{name}")
    if kind == "list" and isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _by_model(shape.member, inner, f"{where}[{number}]")
    facts = shape.metadata
    size = value if kind in ("integer", "long", "float", "double") else None
    if size is None and isinstance(value, str | bytes | list | tuple | Mapping):
        size = len(value)
    if size is not None and ("max" in facts or "min" in facts):
        least, most = facts.get("min", 0), facts.get("max", float("inf"))
        if not float(least) <= float(size) <= float(most):
            yield f"{where} has {size}, and {least} to {most} are allowed"
    if kind == "string" and isinstance(value, str):
        if shape.enum and value not in shape.enum:
            yield f"{where} is {value!r}, which is none of {', '.join(shape.enum[:8])}"
        pattern = facts.get("pattern", "")
        if pattern and not _matches(pattern, value):
            yield f"{where} is {value[:60]!r}, which does not match {pattern}"


def _matches(pattern: str, value: str) -> bool:
    """Return whether a value matches a pattern; a pattern that Python cannot parse matches everything."""
    try:
        return re.search(pattern if "^" in pattern else f"^(?:{pattern})$", value) is not None
    except re.error:
        return True


def _by_documentation(service: str, operation: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults by limits that the model does not state."""
    for (its, path), most in BEYOND_THE_MODEL.items():
        name, _, keys = path.partition(".")
        if (its, name) != (service, operation):
            continue
        value: Any = arguments
        for key in keys.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        size = value if isinstance(value, int) else len(value or ())
        if size > most:
            yield f"{path} has {size}, and {most} are allowed"
    if operation == "DescribeInstances" and "MaxResults" in arguments and "InstanceIds" in arguments:
        yield "DescribeInstances takes MaxResults or InstanceIds, not both"
