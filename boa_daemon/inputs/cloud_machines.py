"""Machines with GPUs of clouds whose price lists do not say what they have (`data/cloud_machines.csv`)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def machines_of(cloud: str) -> Mapping[str, Mapping[str, Any]]:
    """Return gpus, gpu_model, gpu_memory_mib, vcpus and memory_mib by type, in lower case, with its name."""
    text = (resources.files("boa_daemon") / "data" / "cloud_machines.csv").read_text(encoding="utf-8")
    return {
        row["instance_type"].lower(): {
            "instance_type": row["instance_type"],
            "gpu_model": row["gpu_model"],
            **{name: int(row[name]) for name in ("gpus", "gpu_memory_mib", "vcpus", "memory_mib")},
        }
        for row in csv.DictReader(text.splitlines())
        if row["cloud"] == cloud
    }
