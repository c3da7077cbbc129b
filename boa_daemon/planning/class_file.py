"""Write a class file for `boa plan` from measured or learnt figures.

Unmeasured widths are left out if others were measured; if none was, a comment says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from policies.model import InstanceType


def gpu_types_text(machines: Mapping[str, InstanceType]) -> str:
    """Return the `gpu_types` section; machines that are not in the catalogue get their price."""
    catalog = Catalog.load()
    lines = ["gpu_types:"]
    for kind, machine in machines.items():
        try:
            catalog.entry(machine.name)
            row = f"instance_type: {_text(machine.name)}"
        except InputError:
            row = f"usd_per_gpu_hour: {machine.usd_per_gpu_hour!r}, gpus_per_instance: {machine.gpus}"
        lines.append(f"  {_text(kind)}: {{{row}}}")
    return "\n".join(lines) + "\n"


def measured_class(name: str, seconds: Mapping[str, Mapping[int, float]], *, steps: int, note: str) -> str:
    """Return a class of one phase from the seconds per step by GPU type and width."""
    times = ", ".join(
        f"{_text(kind)}: {{{', '.join(f'{gpus}: {one:.6g}' for gpus, one in sorted(by_width.items()))}}}"
        for kind, by_width in seconds.items()
    )
    return (
        f"classes:\n  - name: {_text(name)}\n    phases:\n      - steps: {steps}  # {note}\n"
        f"        step_seconds: {{{times}}}\n"
    )


def learnt_classes(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the classes that a daemon estimated (`boa classes -o json`): rate, size, speed-ups, needs.

    All phases are merged into one.
    """
    lines = ["classes:"]
    for row in rows:
        rate, size = row["arrivals_per_hour"], row["size_gpu_hours"]
        lines += [
            f"  - name: {_text(row['name'])}",
            f"    arrivals_per_hour: {_best(rate):.6g}  # from {rate['jobs']} jobs",
            *([f"    needs: {json.dumps(row['needs'])}"] if row.get("needs") else []),
            *_spread(size),
            "    phases:",
            f"      - size_gpu_hours: {_best(size):.6g}  # from {size['ended']} that ended",
            "        speedup:",
        ]
        kinds = dict.fromkeys(width["gpu_type"] for width in row["speedups"])
        for kind in kinds:
            lines.append(_speedups(kind, [one for one in row["speedups"] if one["gpu_type"] == kind]))
    return "\n".join(lines) + "\n"


def _speedups(kind: str, widths: Sequence[Mapping[str, Any]]) -> str:
    """Return a type's speed-ups at the measured widths and the narrowest one; else the stated ones."""
    level = float(widths[0]["stated_speed"])
    measured = [one for one in widths if one["measurements"]]
    shown = [one for one in widths if one["measurements"] or one is widths[0]] if measured else widths
    table = ", ".join(
        f"{one['gpus']}: {level * float(one['stated' if one['estimate'] is None else 'estimate']):.6g}"
        for one in shown
    )
    hours = sum(float(one["measured_seconds"]) for one in widths) / 3600.0
    note = f"measured for {hours:.1f} h" if measured else "as stated, not measured"
    return f"          {_text(kind)}: {{table: {{{table}}}}}  # {note}"


def _spread(size: Mapping[str, Any]) -> list[str]:
    """Return the `spread` line: the 95 % interval of the mean size as a fraction of it, at most 0.9."""
    best, low, high = (size.get(key) for key in ("estimate", "low", "high"))
    if not best or low is None or high is None:
        return []
    return [f"    spread: {min(max(high / best - 1.0, 1.0 - low / best), 0.9):.3g}  # 95 % of its mean size"]


def _best(figure: Mapping[str, Any]) -> float:
    """Return the estimate of a figure; the planned value if there is none."""
    return float(figure["planned"] if figure["estimate"] is None else figure["estimate"])


def _text(name: str) -> str:
    """Return a name, quoted if YAML needs it."""
    return name if name.replace("-", "").replace("_", "").replace(".", "").isalnum() else json.dumps(name)
