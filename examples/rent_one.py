"""Rent one instance by hand, watch it boot, and give it back. The daemon does these steps automatically.

python examples/rent_one.py            # the settings in boa.toml; costs at least a minute of one instance
"""

from __future__ import annotations

import time
from pathlib import Path

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.settings import load_aws_settings
from boa_daemon.clock import SystemClock
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.tick.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.ports import Launched


def main() -> None:
    """Rent the cheapest offer, wait until it is ready, end it, and print its cost."""
    catalog, clock = Catalog.load(), SystemClock()
    cloud = AwsCloud(load_aws_settings(Path("boa.toml")), catalog=catalog, clock=clock, say=print)
    offer = min(cloud.offers(), key=lambda offer: offer.usd_per_hour or float("inf"))
    print(f"cheapest: {offer.instance_type} in {offer.zone}, ${offer.usd_per_hour}/hour")
    kind = catalog.instance_type(offer.instance_type)
    outcome = cloud.launch(
        LaunchNodes(id=f"by-hand-{clock.now():.0f}", instance_type=kind, offer=offer, reason="a first try")
    )
    if not isinstance(outcome, Launched):
        raise SystemExit(f"not launched: {outcome.reason}")
    [name] = outcome.nodes
    wait_for(cloud, name, "ready")
    cloud.terminate([TerminateNode(id="by-hand-end", node=name, reason="that was all")])
    wait_for(cloud, name, "terminated")


def wait_for(cloud: AwsCloud, name: str, phase: str) -> None:
    """Wait until a node is in a phase, and print each change."""
    seen = ""
    while seen != phase:
        found = {node.id: node.phase for node in cloud.nodes()}.get(name, "not listed yet")
        if found != seen:
            seen = found
            print(f"{name}: {seen}")
        time.sleep(0.0 if seen == phase else 1.0)


if __name__ == "__main__":
    main()
