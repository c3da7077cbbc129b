"""A plan for those who stay where they are: widths and quotas in the files of other schedulers.

`EXPORTS` is the table of kinds: a new kind is a function and an entry. Each file states per class the widths
of the plan on the GPU type that does most of its work, or per GPU type the GPUs that suffice for 99 % of the
time. What a plan does not know (an image, a namespace, a node class) has a placeholder in capitals or the
usual name, and a comment says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import yaml

from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.planning.budget_plan import BudgetPlan, PackingWaste
from boa_daemon.units import counted
from policies.kinds import kind_of
from policies.model import InstanceType
from policies.optimum.solution import ClassSolution

_RAY_TYPES = (
    *("V100", "P100", "T4", "P4", "K80", "A10G", "L4", "L40S", "A100", "H100", "H200", "B200", "B300"),
)
_RAY_CONFIG = 'ScalingConfig(num_workers={}, use_gpu=True, resources_per_worker={{"GPU": 1}}{})'
_GPU = "nvidia.com/gpu"
_NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
_TYPE_LABEL = "node.kubernetes.io/instance-type"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassWidths:
    """The widths of a class on one GPU type, each with the fraction of its time that jobs spend there."""

    name: str
    gpu_type: str
    machine: InstanceType
    shares: Mapping[int, float]
    others: tuple[str, ...] = ()

    @property
    def widths(self) -> list[int]:
        """The widths, narrowest first."""
        return sorted(self.shares)

    @property
    def main(self) -> int:
        """The width at which jobs spend most of their time; the narrower of two equals."""
        return min(self.shares, key=lambda width: (-self.shares[width], width))

    @property
    def sentence(self) -> str:
        """The widths in words, with the fraction of time of each."""
        parts = [f"{width} ({self.shares[width]:.0%} of their time)" for width in self.widths]
        said = f"{kind_of(self.gpu_type).card} GPUs: {', '.join(parts)}"
        return f"{said}; the plan also uses {', '.join(self.others)}" if self.others else said


EXPORT_KINDS = ("hyperpod", "ray", "sbatch", "kueue", "karpenter")
"""The names of `EXPORTS`, which `boa plan --help` lists without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportKind:
    """A kind of export: its function, and its row of the page."""

    render: Callable[[BudgetPlan, Catalog], str]
    what: str
    checked: str


def export(kind: str, plan: BudgetPlan, catalog: Catalog) -> str:
    """Return the text of an export.

    Raises:
        InputError: when the plan has nothing that this kind can say.
    """
    return EXPORTS[kind].render(plan, catalog)


def class_widths(plan: BudgetPlan) -> list[ClassWidths]:
    """Return the widths of every class on the GPU type that does most of its work.

    Raises:
        InputError: when a class shares GPUs, which none of the exports can say.
    """
    machines = {packed.gpu_type: packed.instance_type for packed in plan.packing}
    return [_widths(answer, machines) for answer in plan.solution.classes]


def _widths(answer: ClassSolution, machines: Mapping[str, InstanceType]) -> ClassWidths:
    hours: dict[tuple[str, int], float] = {}
    for share in answer.plans:
        for step in share.steps:
            at = (step.gpu_type, int(step.gpus))
            hours[at] = hours.get(at, 0.0) + share.job_fraction * step.hours
    work: dict[str, float] = {}
    for (gpu_type, gpus), spent in hours.items():
        work[gpu_type] = work.get(gpu_type, 0.0) + spent * gpus
    main = max(work, key=lambda name: (work[name], name))
    machine = machines[main]
    if machine.places_per_gpu > 1:
        problem = f"class {answer.name} shares GPUs in this plan, which no export can say"
        raise InputError(problem, hint="Leave places_per_gpu out of gpu_types")
    total = sum(spent for (gpu_type, _), spent in hours.items() if gpu_type == main)
    return ClassWidths(
        name=answer.name,
        gpu_type=main,
        machine=machine,
        shares={gpus: spent / total for (gpu_type, gpus), spent in hours.items() if gpu_type == main},
        others=tuple(f"{gpus} x {name}" for name, gpus in sorted(hours) if name != main),
    )


def _hyperpod(plan: BudgetPlan, catalog: Catalog) -> str:
    """Return a HyperPodPyTorchJob for each class: its widths are the discrete values of its replicas."""
    documents = []
    widths = class_widths(plan)
    labels = _labels(one.name for one in widths)
    for one in widths:
        common = math.gcd(*one.widths)
        pod_gpus = max(d for d in range(1, min(common, one.machine.gpus) + 1) if common % d == 0)
        values = [width // pod_gpus for width in one.widths]
        job: dict[str, Any] = {
            "apiVersion": "sagemaker.amazonaws.com/v1",
            "kind": "HyperPodPyTorchJob",
            "metadata": {"name": labels[one.name]},
            "spec": {
                "nprocPerNode": str(pod_gpus),
                "elasticPolicy": {
                    "minReplicas": values[0],
                    "maxReplicas": values[-1],
                    "replicaDiscreteValues": values,
                },
                "replicaSpecs": [
                    {
                        "name": "pods",
                        "replicas": one.main // pod_gpus,
                        "maxReplicas": values[-1],
                        "template": {
                            "spec": {
                                "nodeSelector": {_TYPE_LABEL: f"ml.{_type(one.machine, catalog)}"},
                                "containers": [
                                    {
                                        "name": "pytorch",
                                        "image": "IMAGE",
                                        "command": ["hyperpodrun", "TRAIN.PY"],
                                        "resources": {
                                            "requests": {_GPU: str(pod_gpus)},
                                            "limits": {_GPU: str(pod_gpus)},
                                        },
                                    }
                                ],
                            }
                        },
                    }
                ],
            },
        }
        comment = (
            f"Class {one.name}: {one.sentence}.\nReplace what is in capitals; "
            f"{counted(pod_gpus, 'GPU')} a pod."
        )
        documents.append(_yaml(job, comment))
    return "---\n".join(documents)


def _ray(plan: BudgetPlan, catalog: Catalog) -> str:
    """Return a Python module with a ScalingConfig for each class; elastic where it has several widths."""
    del catalog
    rows = []
    for one in class_widths(plan):
        workers = str(one.main) if len(one.widths) == 1 else f"({one.widths[0]}, {one.widths[-1]})"
        card = kind_of(one.gpu_type).card.upper()
        kind = f', accelerator_type="{card}"' if card in _RAY_TYPES else ""
        rows.append(
            f"    # {_one_line(one.sentence)}.\n    {one.name!r}: {_RAY_CONFIG.format(workers, kind)},\n"
        )
    return (
        f'"""Widths of {_one_line(_head(plan))}\n\n'
        'One worker per GPU; (least, most) workers for elastic jobs.\n"""\n\n'
        f"from ray.train import ScalingConfig\n\nSCALING = {{\n{''.join(rows)}}}\n"
    )


def _sbatch(plan: BudgetPlan, catalog: Catalog) -> str:
    """Return the lines of a batch script for each class and width."""
    del catalog
    blocks = []
    classes = class_widths(plan)
    labels = _labels(one.name for one in classes)
    for one in classes:
        for width in one.widths:
            nodes = next(n for n in range(-(-width // one.machine.gpus), width + 1) if width % n == 0)
            each = width // nodes
            card = re.sub(r"[^a-z0-9_.-]", "", kind_of(one.gpu_type).card.lower())
            share = "" if len(one.widths) == 1 else f", {one.shares[width]:.0%} of their time"
            blocks.append(
                f"# class {_one_line(one.name)}: {width} GPUs{share}\n"
                f"#SBATCH --job-name={labels[one.name]}\n"
                f"#SBATCH --nodes={nodes}\n"
                f"#SBATCH --ntasks-per-node={each}\n"
                f"#SBATCH --gpus-per-node={'' if card == 'gpu' else f'{card}:'}{each}\n"
            )
    return f"# {_one_line(_head(plan))}\n" + "\n".join(blocks)


def _kueue(plan: BudgetPlan, catalog: Catalog) -> str:
    """Return a flavor for each GPU type, and queues with the GPUs that suffice for 99 % of the time."""
    flavors, quotas = [], []
    packed = _rented(plan)
    labels = _labels(one.gpu_type for one in packed)
    listed = {one.gpu_type: str(one.instance_type.machine_name.listed) for one in packed}
    entries = {kind: catalog.entries.get(name) for kind, name in listed.items()}
    has_hosts = all(entry is not None and entry.vcpus and entry.memory_mib for entry in entries.values())
    for one in packed:
        name, entry = labels[one.gpu_type], entries[one.gpu_type]
        flavors.append(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "ResourceFlavor",
                "metadata": {"name": name},
                "spec": {"nodeLabels": {_TYPE_LABEL: _type(one.instance_type, catalog)}},
            }
        )
        resources = [{"name": _GPU, "nominalQuota": one.quota_gpus}]
        if has_hosts and entry is not None:
            nodes = one.quota_nodes
            resources += [
                {"name": "cpu", "nominalQuota": nodes * entry.vcpus},
                {"name": "memory", "nominalQuota": f"{nodes * entry.memory_mib}Mi"},
            ]
        quotas.append({"name": name, "resources": resources})
    covered = [_GPU, "cpu", "memory"] if has_hosts else [_GPU]
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "boa"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": covered, "flavors": quotas}],
        },
    }
    local = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "boa", "namespace": "default"},
        "spec": {"clusterQueue": "boa"},
    }
    comment = f"{_head(plan)}\nQuotas suffice for 99 % of the time." + (
        ""
        if has_hosts
        else "\nCores and memory are not known: let Kueue's resources.excludeResourcePrefixes leave them out."
    )
    return "---\n".join(
        _yaml(one, comment if not n else "") for n, one in enumerate([*flavors, queue, local])
    )


def _karpenter(plan: BudgetPlan, catalog: Catalog) -> str:
    """Return a NodePool for each GPU type, limited to the whole nodes that suffice for 99 % of the time."""
    documents = []
    packed = _rented(plan)
    labels = _labels(f"boa-{one.gpu_type}" for one in packed)
    for one in packed:
        market = kind_of(one.gpu_type).market
        pool: dict[str, Any] = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": labels[f"boa-{one.gpu_type}"]},
            "spec": {
                "template": {
                    "spec": {
                        "nodeClassRef": _NODE_CLASS,
                        "requirements": [
                            {
                                "key": _TYPE_LABEL,
                                "operator": "In",
                                "values": [_type(one.instance_type, catalog)],
                            },
                            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [market]},
                        ],
                    }
                },
                "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5m"},
                "limits": {_GPU: one.quota_nodes * one.instance_type.gpus},
            },
        }
        comment = (
            f"{_head(plan)}\n{counted(one.quota_nodes, 'node')} of {counted(one.instance_type.gpus, 'GPU')} "
            "suffice for 99 % of the time. The node class is yours; replace what is in capitals."
        )
        documents.append(_yaml(pool, comment))
    return "---\n".join(documents)


EXPORTS: Mapping[str, ExportKind] = {
    "hyperpod": ExportKind(
        render=_hyperpod,
        what="a `HyperPodPyTorchJob` per class: `replicaDiscreteValues` of its `elasticPolicy`, GPUs a pod",
        checked="the model of `sagemaker-hyperpod-cli`",
    ),
    "ray": ExportKind(
        render=_ray,
        what="a Python module with a `ScalingConfig` of Ray Train per class; (least, most) workers",
        checked="Ray Train itself",
    ),
    "sbatch": ExportKind(
        render=_sbatch,
        what="`#SBATCH` lines for each class and width: nodes, tasks and GPUs per node",
        checked="Slurm's `sbatch`, where it is installed",
    ),
    "kueue": ExportKind(
        render=_kueue,
        what="a `ResourceFlavor` for each GPU type, a `ClusterQueue` with quotas, a `LocalQueue`",
        checked="Kueue's definitions, v1beta2",
    ),
    "karpenter": ExportKind(
        render=_karpenter,
        what="a `NodePool` for each GPU type with `limits` in GPUs",
        checked="Karpenter's definition, v1",
    ),
}
"""In the order of the page."""


def _rented(plan: BudgetPlan) -> Sequence[PackingWaste]:
    """Return the GPU types that the plan uses.

    Raises:
        InputError: when one has places for several jobs on each GPU.
    """
    for one in plan.packing:
        if one.instance_type.places_per_gpu > 1:
            problem = f"{one.gpu_type} has several jobs on each GPU, which no export can say"
            raise InputError(problem, hint="Leave places_per_gpu out of gpu_types")
    return [one for one in plan.packing if one.quota_gpus]


def _type(machine: InstanceType, catalog: Catalog) -> str:
    """Return the cloud's name of a machine; a placeholder for one that the file describes itself."""
    name = str(machine.machine_name.listed)
    return name if name in catalog.entries else f"INSTANCE-TYPE-WITH-{machine.gpus}-{machine.kind.card}"


def _head(plan: BudgetPlan) -> str:
    return f"`boa plan` for {plan.budget}: mean JCT {plan.solution.mean_jct_hours:.2f} h."


def _labels(names: Iterable[str]) -> dict[str, str]:
    """Return names as Kubernetes and Slurm take them: small letters, digits and hyphens, at most 63.

    Names that would be the same get a number: the second manifest of one name would replace the first.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-") or "class"
        numbered = (f"{plain[: 62 - len(str(number))].rstrip('-')}-{number}" for number in count(2))
        label = next(one for one in (plain, *islice(numbered, len(taken))) if one not in taken)
        found[name] = label
        taken.add(label)
    return found


def _one_line(text: str) -> str:
    """Return a text that stays in one comment or docstring."""
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029\"\\]+", " ", text)


def _yaml(document: Mapping[str, Any], comment: str) -> str:
    head = "".join(f"# {_one_line(line)}\n" for line in comment.split("\n") if line)
    return head + yaml.safe_dump(dict(document), sort_keys=False)
