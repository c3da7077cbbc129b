"""Ray Train under the `ray` engine: the trainer's workers get the GPUs that BOA has planned for the job.

    with job.ray_workers() as scaling:
        TorchTrainer(loop, scaling_config=ScalingConfig(**scaling)).fit()

In `loop`, which runs on every worker, `job.steps` works as elsewhere. The engine has reserved the job's GPUs
in a Ray placement group; this module releases them, so that the trainer can take them. The workers belong to
Ray and get no signal: they find the stop request of this process's unit in the folder that all nodes share.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from boa_daemon.job.run import RAY_WORKER, current
from boa_daemon.job.stops import STOP_FILE

RESERVED_SECONDS = 60.0
"""Longest wait for Ray to grant the engine's reservation; after that, something else has the GPUs."""
NODE_LABEL = "ray.io/node-id"


@contextmanager
def ray_workers() -> Iterator[dict[str, Any]]:
    """Yield the arguments of Ray's `ScalingConfig`: one worker per GPU of this generation, on its nodes.

    Connects this process to the Ray cluster. On all nodes but the first, the script exits here.

    Raises:
        RuntimeError: outside the `ray` engine, or when Ray does not grant the GPUs within 60 seconds.
    """
    if os.environ.get("BOA_NODE_RANK", "0") != "0":
        raise SystemExit(0)
    import ray  # noqa: PLC0415  only where it is in use

    generation = Path(os.environ["BOA_GATE"]).parent
    stop = Path(os.environ.get(STOP_FILE) or generation / "stop")
    current()  # So the keeper waits for this process, which ends after its workers.
    told = {name: value for name, value in os.environ.items() if name.startswith("BOA_")}
    ray.init(
        address="auto",
        namespace="boa",
        log_to_driver=True,
        runtime_env={"env_vars": {**told, STOP_FILE: str(stop), RAY_WORKER: "1"}},
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
    """Release the engine's reservation; return a scaling configuration for the same GPUs and nodes."""
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
