"""`tick/facts/job_spec.py`: an order from a job file, and orders that earlier versions wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from boa_daemon.engines.generation_units import units_of
from boa_daemon.engines.layout import Layout
from boa_daemon.engines.ssm_runs import SsmJob, document_of, ssm_job_from
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import check_job
from boa_daemon.job.unit import Unit, write_json
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts import ports
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.job_spec import JobSpec
from policies.model import GpuSlot, Width

ORDERS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "data" / "job_orders.json").read_text()
)
"""Two jobs as the first version wrote them: content of the record, specification and unit."""


def a_record(name: str, number: int) -> JobRecord:
    """Return the record of one of those jobs."""
    return JobRecord(
        id=f"{name}-{number}",
        seq=number,
        user="ann",
        class_name="vision",
        content=ORDERS[name]["content"],
        arrived_at=1e9,
        remaining_gpu_hours=2.0,
        size_gpu_hours=2.0,
    )


def of_then(document: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as JSON with the keys of an earlier version alone: later ones may have more."""
    return {key: value for key, value in json.loads(json.dumps(document)).items() if key in known}


@pytest.mark.parametrize(("name", "number"), [("train", 1), ("plain", 2)])
def test_the_record_of_an_earlier_version_gives_the_order_and_the_unit_that_it_gave(
    name: str, number: int
) -> None:
    """Order and `unit.json` are equal in all keys of then, for a job with every key and one without."""
    spec = a_record(name, number).spec
    assert of_then(spec.to_document(), ORDERS[name]["spec"]) == ORDERS[name]["spec"]

    slots = (GpuSlot("n1", 0), GpuSlot("n1", 1))
    action = StartJob(id="t", reason="r", job=spec.job, generation=2, width=Width("t4", 2), slots=slots)
    [unit] = units_of(
        spec,
        action,
        Layout(root=Path("/var/lib/boa/jobs")),
        addresses={"n1": "127.0.0.1"},
        port=12000,
        code_at="/code",
    )
    written = {field: getattr(unit, field) for field in Unit.__dataclass_fields__}
    document = {**written, "folder": str(unit.folder)}
    assert of_then(document, ORDERS[name]["unit"]) == ORDERS[name]["unit"]


@pytest.mark.parametrize("name", sorted(ORDERS))
def test_orders_on_disk_of_an_earlier_version_are_read(name: str, tmp_path: Path) -> None:
    """`spec.json`, the state file on AWS and `unit.json` say what they said."""
    row: dict[str, Any] = {"spec": ORDERS[name]["spec"], "stands": True, "run": None}
    document = document_of(ssm_job_from(row))
    assert {**document, "spec": of_then(document["spec"], row["spec"])} == row

    write_json(tmp_path / "unit.json", ORDERS[name]["unit"])
    unit = Unit.read(tmp_path)
    assert (unit.folder, unit.image, unit.cpus) == (
        tmp_path,
        ORDERS[name]["spec"]["image"],
        ORDERS[name]["spec"]["cpus"],
    )


def test_an_order_may_be_written_whatever_kind_of_mapping_it_holds() -> None:
    """What plug-ins hand over as a read-only mapping is written as JSON like any other."""
    spec = a_record("train", 1).spec
    other = replace(
        spec, environment=MappingProxyType(spec.environment), secrets=MappingProxyType(spec.secrets)
    )
    document = document_of(SsmJob(spec=other))["spec"]
    assert of_then(document, ORDERS["train"]["spec"]) == ORDERS["train"]["spec"]


def test_null_and_missing_keys_of_a_file_mean_the_default() -> None:
    """A record of a version without a key, and one that says null, give the same order."""
    given = {"name": "a", "class": "c", "run": "true"}
    whole = check_job(Document(name="a", content=given, language="json"))
    others = {"job": "a-1", "class_name": "c", "code": ""}
    assert JobSpec.of(whole, **others) == JobSpec.of(given, **others)


def test_the_name_of_an_order_is_found_beside_the_ports() -> None:
    """Engines of other projects import it from there; other names are an error."""
    assert ports.JobSpec is JobSpec
    with pytest.raises(AttributeError, match="no attribute 'JobSpecs'"):
        ports.JobSpecs  # noqa: B018


def test_ports_and_the_simulator_do_not_bring_what_a_job_imports() -> None:
    """A simulation starts without the helper of training scripts."""
    said = "import sys, boa_daemon.sim.wiring; print('boa_daemon.job' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
