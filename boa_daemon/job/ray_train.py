"""A job written for Ray Train, under the `ray` engine: its workers get the GPUs that the plan gives the job.

    with job.ray_workers() as scaling:
        TorchTrainer(loop, scaling_config=ScalingConfig(**scaling)).fit()

In `loop`, which runs on every worker, `job.steps` does what it does elsewhere. The engine has reserved the
job's GPUs in Ray's books; here they are handed over to the trainer. SIGTERM reaches this process and not
Ray's workers: they see a file on the folder that all nodes share.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from boa_daemon.job.run import STOP_FILE

RESERVED_SECONDS = 60.0
"""Ray grants what the engine asked for soon, or something else has the GPUs."""
NODE_LABEL = "ray.io/node-id"


@contextmanager
def ray_workers() -> Iterator[dict[str, Any]]:
    """Yield what Ray's `ScalingConfig` needs: one worker per GPU of this generation, on its nodes.

    Connects this process to the cluster. On all nodes but the first there is nothing to do, and the script
    ends here.

    Raises:
        RuntimeError: outside the `ray` engine, or when the GPUs are not ours in time.
    """
    if os.environ.get("BOA_NODE_RANK", "0") != "0":
        raise SystemExit(0)
    import ray  # noqa: PLC0415  only where it is in use

    generation = Path(os.environ["BOA_GATE"]).parent
    stop = generation / "stop"
    told = {name: value for name, value in os.environ.items() if name.startswith("BOA_")}
    ray.init(
        address="auto",
        namespace="boa",
        log_to_driver=True,
        runtime_env={"env_vars": {**told, STOP_FILE: str(stop)}},
    )

    def ask_workers(_number: int, _frame: FrameType | None) -> None:
        stop.touch()

    before = signal.signal(signal.SIGTERM, ask_workers)
    try:
        yield _handed_over(ray, f"boa:{generation}")
    finally:
        signal.signal(signal.SIGTERM, before)
        ray.shutdown()


def _handed_over(ray: Any, name: str) -> dict[str, Any]:
    """Free the engine's reservation, and return the same as a wish of the trainer's own."""
    try:
        group = ray.util.get_placement_group(name)
    except ValueError as error:
        raise RuntimeError("nothing is reserved for this job: it needs the ray engine") from error
    if not group.wait(RESERVED_SECONDS):
        raise RuntimeError(f"the job's GPUs were not free within {RESERVED_SECONDS:g} s")
    table = ray.util.placement_group_table(group)
    nodes = [
        table["bundles_to_node_id"][number]
        for number, bundle in sorted(table["bundles"].items())
        for _ in range(round(bundle.get("GPU", bundle.get("CPU", 1))))
    ]
    has_gpus = any("GPU" in bundle for bundle in table["bundles"].values())
    ray.util.remove_placement_group(group)
    return {
        "num_workers": len(nodes),
        "use_gpu": has_gpus,
        "resources_per_worker": {"GPU": 1} if has_gpus else {"CPU": 1},
        "label_selector": [{NODE_LABEL: node} for node in nodes],
    }
