"""BOA's calls to AWS by service, and the IAM statements that allow them, as a table for the docs.

python benchmarks/aws_calls.py          # makes no calls
python benchmarks/aws_calls.py --life   # also counts validated requests of a life on the fake AWS
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from boa_daemon.backends.aws.client.calls import NODE_OPERATIONS, OPERATIONS
from boa_daemon.backends.aws.image_builder.policy import image_policy
from boa_daemon.backends.aws.instances.termination_schedule import termination_policy
from boa_daemon.backends.aws.rights.policy import node_policy, policy
from boa_daemon.backends.aws.rights.policy_statements import UsedResources
from boa_daemon.backends.aws.rights.resource_policies import bucket_policy, queue_policy
from boa_daemon.backends.aws.stack.settings import StackOptions
from boa_daemon.backends.aws.stack.template import stack_template
from boa_daemon.backends.settings import AwsSettings

SETTINGS = AwsSettings(
    cluster="lab",
    instance_types=("g5.xlarge",),
    instance_profile="boa-lab-node",
    queue_url="https://sqs.us-east-1.amazonaws.com/123456789012/boa-lab-warnings",
    warm_pool_nodes=4,
    pool_end_role="arn:aws:iam::123456789012:role/boa-lab-pool-end",
)
USES = UsedResources(
    reports_queue_url="https://sqs.us-east-1.amazonaws.com/123456789012/boa-lab-reports",
    uri="s3://boa-lab-123456789012/jobs",
    sns_topic="arn:aws:sns:us-east-1:123456789012:boa",
)


def table() -> list[str]:
    """Return the lines of the table."""
    daemon, node = policy(SETTINGS, uses=USES), node_policy(SETTINGS, USES)
    resources = stack_template(SETTINGS, StackOptions())["Resources"]
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
        _row("statements of the role that ends what stays stopped", termination_policy(SETTINGS)),
        _row("statements of the queue of the warnings", queue_policy("warnings", "", "")),
        _row("statements of the queue of the reports", queue_policy("reports", "", "")),
        _row("statements of the bucket", bucket_policy("", "")),
        f"| resources of the stack | {len(resources)} | {_types(resources)} |",
    ]


def life() -> str:
    """Return the row of the scenario `test_aws_scenario.py`, which counts its requests to the fake AWS."""
    root = Path(__file__).resolve().parents[1]
    test = "tests/integration/test_aws_scenario.py::test_a_life_under_the_printed_policies"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "", "-s", test],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.search(r"(\d+) requests of (\d+) operations, (.* statements used)", done.stdout)
    assert found is not None, done.stdout
    said = f"{found[1]} | of {found[2]} calls; {found[3]}"
    return f"| requests of a whole life, validated without a fault | {said} |"


def _by_service(names: Any) -> str:
    """Return the number of calls of each service."""
    counts = Counter(str(name).partition(":")[0] for name in names)
    return ", ".join(f"{service} {count}" for service, count in sorted(counts.items()))


def _row(what: str, document: dict[str, Any]) -> str:
    """Return the row of a policy."""
    statements = document["Statement"]
    return f"| {what} | {len(statements)} | {', '.join(each['Sid'] for each in statements)} |"


def _types(resources: dict[str, Any]) -> str:
    """Return the number of resources of each service."""
    counts = Counter(each["Type"].split("::")[1] for each in resources.values())
    return ", ".join(f"{service} {count}" for service, count in sorted(counts.items()))


if __name__ == "__main__":
    print("\n".join([*table(), *([life()] if "--life" in sys.argv[1:] else [])]))
