"""The kappa that link speeds and message sizes suggest, and why, as a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from policies.links.contention import Link
from policies.links.link_share import network_share
from policies.model import InstanceType, JobClass
from policies.placement.kappa import widest_to_spread


def kappa_document(
    classes: Iterable[JobClass], machines: Mapping[str, InstanceType], *, kappa: float
) -> dict[str, Any]:
    """Return the configured kappa, the largest that may pay for every class, and that of each class.

    Only widths of more than one GPU that fit on a node matter. A class that does not say what it sends
    (`network`) is ignored.
    """
    rows = [row for each in classes for row in _rows(each, machines)]
    most = min((row["most"] for row in rows), default=None)
    return {"set": kappa, "most": most, "rows": rows, "why": _why(rows, kappa)}


def _rows(job_class: JobClass, machines: Mapping[str, InstanceType]) -> Iterable[dict[str, Any]]:
    """Yield for each machine of a class the cost of its messages there, and the largest useful kappa."""
    if job_class.network is None:
        return
    for kind, curve in job_class.phases[0].speedups.items():
        machine = machines.get(kind)
        if machine is None or not any(1 < width <= machine.gpus for width in curve.whole_widths()):
            continue
        share = network_share(Link.of_gigabits(machine.link_gigabits_per_second), job_class.network)
        yield {
            "class": job_class.name,
            "instance_type": machine.name,
            "gigabits_per_second": machine.link_gigabits_per_second,
            "message_bytes": job_class.network.message_bytes,
            "gpus": machine.gpus,
            "share": share,
            "most": widest_to_spread(machine.gpus, share),
        }


def _why(rows: list[dict[str, Any]], kappa: float) -> str:
    """Return the advice as a sentence; empty if no class says what it sends."""
    if not rows:
        return ""
    worst = min(rows, key=lambda row: (row["most"], -row["share"]))
    sends = (
        f"spread over several {worst['instance_type']}, jobs of {worst['class']} send "
        f"{worst['message_bytes'] / 1e6:.0f} MB for {worst['share']:.2g} s per second of computing"
    )
    if worst["most"] == 1:
        said = f"jobs are best kept together (kappa 1): {sends}, which costs more than nodes of their own"
    else:
        said = f"kappa may be up to {worst['most']}: {sends}, so wider jobs are cheaper on nodes of their own"
    if kappa > worst["most"]:
        said += f". It is set to {kappa:g}: lower [workload] kappa"
    return said
