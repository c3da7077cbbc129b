"""The machines of a problem file: priced by hand, rented from the catalogue, or several of one GPU."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.errors import InputError, MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.gpu_file import DEFAULT_GPU_TYPE, GpuRow, read_machines
from policies.model import InstanceType

CATALOG = Catalog.load()


def read(**rows: dict[str, Any] | None) -> dict[str, InstanceType]:
    """Return the machines of some rows."""
    document = Document(name="p.yaml", content={"gpu_types": rows}, language="json")
    parsed = {name: None if row is None else GpuRow.model_validate(row) for name, row in rows.items()}
    return read_machines(parsed, document=document, catalog=CATALOG)


def test_a_file_without_gpu_types_has_one_that_costs_one() -> None:
    """An empty table is a mistake, though."""
    document = Document(name="p.yaml", content={}, language="json")
    (machine,) = read_machines(None, document=document, catalog=None).values()
    assert (machine.gpu_type, machine.gpus, machine.usd_per_hour) == (DEFAULT_GPU_TYPE, 1, 1.0)
    with pytest.raises(InputError, match="gpu_types is empty"):
        read()


def test_a_price_by_hand_is_of_one_gpu_of_the_machine() -> None:
    """Its name says how many it has; its card has 10 Gbit/s unless stated."""
    row = {"usd_per_gpu_hour": 2.0, "gpus_per_instance": 4, "link_gigabits_per_second": 25.0}
    machine = read(x=row)["x"]
    assert (machine.name, machine.gpus, machine.usd_per_hour) == ("x-x4", 4, 8.0)
    assert machine.link_gigabits_per_second == 25.0
    plain = read(x={"usd_per_gpu_hour": 2.0})["x"]
    assert (plain.name, plain.gpus, plain.link_gigabits_per_second) == ("x", 1, 10.0)


def test_a_rented_machine_is_the_catalogues_at_its_price_or_the_files() -> None:
    """The file's price is of one GPU."""
    entry = CATALOG.entry("p4d.24xlarge")
    machine = read(a100={"instance_type": "p4d.24xlarge"})["a100"]
    assert (machine.name, machine.gpus) == ("p4d.24xlarge", 8)
    assert machine.usd_per_hour == CATALOG.price_of("p4d.24xlarge")
    assert machine.link_gigabits_per_second == entry.link_gigabits_per_second
    own = read(a100={"instance_type": "p4d.24xlarge", "usd_per_gpu_hour": 1.5, "gpus_per_instance": 8})[
        "a100"
    ]
    assert own.usd_per_hour == 12.0


def test_several_machines_of_a_gpu_have_names_of_their_own() -> None:
    """The first one has the GPU's; each is named once and has no other key."""
    found = read(a10g={"instance_types": ["g5.xlarge", "g5.12xlarge"]})
    assert {kind: machine.name for kind, machine in found.items()} == {
        "a10g": "g5.xlarge",
        "a10g@g5.12xlarge": "g5.12xlarge",
    }
    assert all(machine.gpu_type == kind for kind, machine in found.items())


def test_places_on_a_gpu_are_another_machine_at_the_same_price() -> None:
    """Two jobs on each of eight GPUs are sixteen places."""
    found = read(a100={"instance_type": "p4d.24xlarge", "places_per_gpu": 2})
    (shared,) = (machine for kind, machine in found.items() if kind != "a100")
    assert (shared.gpus, shared.places_per_gpu, shared.whole_gpus) == (16, 2, 8)
    assert shared.usd_per_hour == found["a100"].usd_per_hour
    assert shared.name != "p4d.24xlarge"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"amdahl": {"usd_per_gpu_hour": 1.0}}, "is a form of speed-up and cannot name a GPU type"),
        ({"a10g": {"instance_type": "g5.huge"}}, "g5.huge"),
        ({"a100": {"instance_type": "g5.xlarge"}}, "GPU type 'a100': g5.xlarge carries a10g GPUs"),
        (
            {"a10g": {"instance_type": "g5.xlarge", "gpus_per_instance": 2}},
            "g5.xlarge has 1 GPUs; got gpus_per_instance 2",
        ),
        ({"a10g": {"instance_types": ["g5.xlarge", "g5.xlarge"]}}, "names g5.xlarge twice"),
        (
            {"a10g": {"instance_types": ["g5.xlarge"], "usd_per_gpu_hour": 1.0}},
            "has usd_per_gpu_hour besides instance_types",
        ),
        (
            {
                "a10g": {"instance_types": ["g5.xlarge", "g5.12xlarge"]},
                "a10g@g5.12xlarge": {"instance_type": "g5.12xlarge"},
            },
            "GPU type 'a10g@g5.12xlarge' is given twice",
        ),
    ],
)
def test_a_wrong_row_is_refused(rows: dict[str, Any], said: str) -> None:
    """The error says what the machine is."""
    with pytest.raises(InputError, match=said):
        read(**rows)


@pytest.mark.parametrize("row", [None, {}, {"gpus_per_instance": 4}])
def test_a_gpu_type_needs_a_price(row: dict[str, Any] | None) -> None:
    """The hint names a machine that has such GPUs, where there is one."""
    with pytest.raises(MissingPrice, match=r"GPU type 'a100' has no price.*or instance_type: p4d"):
        read(a100=row)
    with pytest.raises(MissingPrice, match=r"GPU type 'x' has no price\. Add usd_per_gpu_hour$"):
        read(x=row)


def test_a_name_of_ones_own_may_stand_for_any_card() -> None:
    """Only a name that is another card's is a mistake."""
    assert read(big={"instance_type": "p4d.24xlarge"})["big"].gpu_type == "big"
