"""What BOA asks of AWS: calls by service, and the statements that allow them, as a table for the docs.

    python benchmarks/aws_calls.py

Nothing is asked of anybody. How many requests of a whole life were validated
`tests/integration/test_aws_scenario.py` prints with `-m '' -s`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from boa_daemon.backends.aws_calls import NODE_OPERATIONS, OPERATIONS
from boa_daemon.backends.aws_image_policy import image_policy
from boa_daemon.backends.aws_policy import Uses, node_policy, policy
from boa_daemon.backends.aws_stack import Wishes, stack_template
from boa_daemon.backends.settings import AwsSettings

SETTINGS = AwsSettings(
    cluster="lab",
    instance_types=("g5.xlarge",),
    instance_profile="boa-lab-node",
    queue_url="https://sqs.us-east-1.amazonaws.com/123456789012/boa-lab-warnings",
)
USES = Uses(
    reports_queue_url="https://sqs.us-east-1.amazonaws.com/123456789012/boa-lab-reports",
    uri="s3://boa-lab-123456789012/jobs",
    sns_topic="arn:aws:sns:us-east-1:123456789012:boa",
)


def table() -> list[str]:
    """Return the table, a line each."""
    daemon, node = policy(SETTINGS, uses=USES), node_policy(SETTINGS, USES)
    resources = stack_template(SETTINGS, Wishes())["Resources"]
    apart = ("stack", "free", "bake", "unbake", "baked")
    mine = {name: group for name, group in OPERATIONS.items() if group not in apart}
    images = [name for name, group in OPERATIONS.items() if group in apart[2:]]
    stack = [name for name, group in OPERATIONS.items() if group == "stack"]
    return [
        "| what | how many | which |",
        "|---|---|---|",
        f"| calls of the daemon | {len(mine)} | {_by_service(mine)} |",
        "| calls of `boa up`, `boa down --stack` and `boa blocks --buy` "
        f"| {len(stack)} | {_by_service(stack)} |",
        f"| calls of `boa image` beside the daemon's | {len(images)} | {_by_service(images)} |",
        f"| calls of a node's scripts | {len(NODE_OPERATIONS)} | {_by_service(NODE_OPERATIONS)} |",
        _row("statements of the daemon's policy", daemon),
        _row("statements of the nodes' policy", node),
        _row("statements of the policy for images", image_policy(SETTINGS, uses=USES)),
        f"| resources of the stack | {len(resources)} | {_types(resources)} |",
    ]


def _by_service(names: Any) -> str:
    """Return how many calls there are of each service."""
    counts = Counter(str(name).partition(":")[0] for name in names)
    return ", ".join(f"{service} {count}" for service, count in sorted(counts.items()))


def _row(what: str, document: dict[str, Any]) -> str:
    """Return the row of a policy."""
    statements = document["Statement"]
    return f"| {what} | {len(statements)} | {', '.join(each['Sid'] for each in statements)} |"


def _types(resources: dict[str, Any]) -> str:
    """Return how many resources there are of each service."""
    counts = Counter(each["Type"].split("::")[1] for each in resources.values())
    return ", ".join(f"{service} {count}" for service, count in sorted(counts.items()))


if __name__ == "__main__":
    print("\n".join(table()))
