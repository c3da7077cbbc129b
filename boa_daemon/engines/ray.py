"""The `ray` engine: runs jobs on a Ray cluster whose nodes BOA owns.  Needs the extra `boa-daemon[ray]`.

It is for sites that already run Ray, and for jobs that call `ray.init(address="auto")` themselves, such as
Ray Train. Ray's autoscaler stays off: BOA rents a node, and the node's start-up script starts Ray with a
resource that names the node. A task pinned to that resource starts the unit's keeper, the same as in other
engines. A detached placement group reserves the unit's GPUs, so that Ray assigns them to nothing else.

The root folder is on a file system that all nodes share. The status of a unit is read by a small task on its
node. If a node does not answer in time, its units are unknown; if Ray has declared a node dead, they are
lost.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from boa_daemon.engines.local import LocalEngine
from boa_daemon.engines.local_units import authentic_status, read_unit_status, send_to_keeper
from boa_daemon.engines.ray_job_access import RayJobAccess, run_ray_command
from boa_daemon.engines.run_reports import Generation, UnitStatus
from boa_daemon.errors import MissingExtra
from boa_daemon.extras import install_command
from boa_daemon.job.keeper import start_apart
from boa_daemon.job.processes import kill_all_carrying
from boa_daemon.job.unit import Unit, lost_end, read_json, sealed_document, write_json
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.ports import Accepted, JobGate, Refused, Unknown
from boa_daemon.tick.facts.state import NodeState
from policies.model import NodeId

ANSWER_SECONDS = 10.0
"""If a node does not answer within this time, the status of its units is unknown."""
_PIN = 0.001
"""Amount of a node's own resource that a task takes; a thousand tasks fit at a time."""


def resource_of(node: NodeId) -> str:
    """Return the name of the Ray resource that only this node has."""
    return f"boa_node_{node}"


class RayEngine(LocalEngine):
    """Implements `Runner` with tasks on a Ray cluster; `root` is a folder that all its nodes share."""

    name = "ray"

    def __init__(
        self,
        root: Path,
        *,
        address: str = "auto",
        environment: Mapping[str, str] | None = None,
        gate: JobGate | None = None,
        secrets_file: str = "",
    ) -> None:
        super().__init__(root, gate=gate, secrets_file=secrets_file)
        try:
            import ray  # noqa: PLC0415  an extra
        except ImportError as error:
            raise MissingExtra("the ray engine needs Ray", hint=install_command("ray")) from error
        self._ray: Any = ray
        if not ray.is_initialized():
            ray.init(address=address, namespace="boa", log_to_driver=False)
        # So jobs that call `ray.init(address="auto")` find this cluster, even if another one runs here.
        self._environment = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address, **(environment or {})}
        self._launch_task, self._look_task, self._signal_task, self._end_task, self._inside_task = (
            ray.remote(function) for function in (_launch, _look, _signal, _end, _inside)
        )
        self.inside = RayJobAccess(ray, self._running_at, self._begin_inside)

    def _begin_inside(self, folder: Path, command: str, seconds: float) -> Any:
        task = self._on(self._inside_task, _node_of(folder))
        return task.remote(str(folder), command, seconds, self._environment)

    def ahead(self, action: StartJob) -> bool:
        """Prepare nothing: in Ray, the GPUs of the next generation are still reserved for the present one."""
        del action
        return True

    @property
    def runs_jobs_as_daemon(self) -> bool:
        """Always true: jobs run as Ray's user on its nodes, the same for all."""
        return True

    def prepare(self, nodes: Sequence[NodeState]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Accept the nodes that have joined the Ray cluster."""
        joined = self._joined()
        return {
            node.id: Accepted()
            if node.id in joined
            else Unknown(reason=f"{node.id} has not joined the Ray cluster yet")
            for node in nodes
        }

    def _joined(self) -> dict[NodeId, str]:
        """Return BOA's nodes that are alive in the Ray cluster, with their addresses."""
        prefix = resource_of("")
        return {
            name.removeprefix(prefix): str(node["NodeManagerAddress"])
            for node in self._ray.nodes()
            if node["Alive"]
            for name in node["Resources"]
            if name.startswith(prefix)
        }

    def _addresses(self, nodes: Iterable[NodeId]) -> dict[NodeId, str]:
        """Return the addresses of nodes; raise `OSError` if a node is not in the cluster."""
        joined = self._joined()
        missing = [node for node in nodes if node not in joined]
        if missing:
            raise OSError(f"{', '.join(missing)} is not in the Ray cluster")
        return joined

    def _launch(self, units: Sequence[Unit], nodes: Sequence[NodeId]) -> None:
        """Reserve the units' GPUs and start their keepers, each on its node."""
        self._reserve(units, nodes)
        for unit, node in zip(units, nodes, strict=True):
            write_json(unit.folder / "node.json", {"node": node})
        for task in [self._ask_for_keeper(unit.folder) for unit in units]:
            self._answer(task)

    def _start_keeper(self, folder: Path) -> None:
        """Start the keeper of a unit on its node, if the node is in the cluster."""
        if _node_of(folder) in self._joined():
            self._answer(self._ask_for_keeper(folder))

    def _ask_for_keeper(self, folder: Path) -> Any:
        """Start a task that starts the keeper of a unit on its node; return the task."""
        return self._on(self._launch_task, _node_of(folder)).remote(str(folder), self._environment)

    def _reserve(self, units: Sequence[Unit], nodes: Sequence[NodeId]) -> None:
        """Reserve the units' GPUs (CPUs if the cluster has no GPU) in Ray; this outlives the daemon."""
        kind = "GPU" if self._ray.cluster_resources().get("GPU", 0.0) > 0.0 else "CPU"
        bundles = [
            {kind: float(unit.environment["BOA_GPUS_PER_NODE"]), resource_of(node): _PIN}
            for unit, node in zip(units, nodes, strict=True)
        ]
        self._ray.util.placement_group(bundles, name=_group_of(units[0].folder.parent), lifetime="detached")

    def _signal(self, generation: Path, number: signal.Signals) -> None:
        for folder in generation.glob("n*"):
            node = _node_of(folder)
            if node in self._joined():
                self._on(self._signal_task, node).remote(str(folder), int(number))

    def _statuses(self, folders: Sequence[Path]) -> list[UnitStatus | None]:
        """Read each unit's status on its node; None if there was no answer."""
        joined = self._joined()
        number = time.monotonic_ns()
        asked = []
        for folder in folders:
            node, look = _node_of(folder), self._look_task
            asked.append(
                self._on(look, node).remote(str(folder), number, self._environment)
                if node in joined
                else None
            )
        units = [
            authentic_status(folder, _gone(folder, number) if task is None else self._answer(task), number)
            for folder, task in zip(folders, asked, strict=True)
        ]
        if units and all(unit is not None and unit["exit"] is not None for unit in units):
            self._release(folders[0].parent)
        return units

    def _release(self, generation: Path) -> None:
        with suppress(ValueError):
            group = self._ray.util.get_placement_group(_group_of(generation))
            self._ray.util.remove_placement_group(group)

    def _runs_unknown(self, run: Generation) -> bool:
        """Return whether Ray keeps GPUs for the generation."""
        try:
            self._ray.util.get_placement_group(_group_of(self.layout.generation(run.job, run.number)))
        except ValueError:
            return False
        return True

    def _has_ended_without_files(self, run: Generation) -> bool:
        """End the processes on all nodes, as nobody knows theirs; return whether all nodes have answered."""
        marks = self._marks(run)
        tasks = [self._on(self._end_task, node).remote(marks) for node in self._joined()]
        if not all(self._answer(task) for task in tasks):
            return False
        self._release(self.layout.generation(run.job, run.number))
        return True

    def _on(self, task: Any, node: NodeId) -> Any:
        """Return a task pinned to a node."""
        return task.options(num_cpus=0, max_retries=0, resources={resource_of(node): _PIN})

    def _answer(self, task: Any) -> Any:
        """Return a task's result; None if it fails or does not answer in time."""
        try:
            return self._ray.get(task, timeout=ANSWER_SECONDS)
        except (self._ray.exceptions.RayError, TimeoutError):
            return None


def _node_of(folder: Path) -> NodeId:
    return str((read_json(folder / "node.json") or {}).get("node", ""))


def _group_of(generation: Path) -> str:
    """Return the name of a generation's placement group."""
    return f"boa:{generation}"


def _gone(folder: Path, asked: int) -> UnitStatus | None:
    """Return the status of a unit whose node has left the cluster: its recorded end, or that it is lost."""
    unit = read_unit_status(folder, asked) if (folder / "exit.json").exists() else None
    if unit is not None:
        return unit
    with suppress(OSError):
        write_json(folder / "exit.json", sealed_document(folder, lost_end()))
    return read_unit_status(folder, asked)


def _launch(folder: str, environment: Mapping[str, str]) -> None:
    """Start a keeper on this node, in an environment without the variables of Ray's tasks."""
    start_apart(Path(folder), _clean(environment)).wait()


def _inside(folder: str, command: str, seconds: float, environment: Mapping[str, str]) -> str:
    return run_ray_command(folder, command, seconds, _clean(environment))


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without the variables of Ray's tasks, updated by `environment`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "CUDA_"))}
    return {**own, **environment}


def _look(folder: str, asked: int, environment: Mapping[str, str]) -> UnitStatus | None:
    """Read the status of a unit on this node; it contains the number of the question."""
    return read_unit_status(Path(folder), asked, lambda unit: start_apart(unit, _clean(environment)).wait())


def _end(marks: Sequence[str]) -> bool:
    """End the processes on this node that carry one of the variables."""
    for mark in marks:
        kill_all_carrying(mark)
    return True


def _signal(folder: str, number: int) -> None:
    send_to_keeper(Path(folder), signal.Signals(number))
