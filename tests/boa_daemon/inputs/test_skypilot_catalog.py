"""SkyPilot's catalogue as prices."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.skypilot_catalog import read_skypilot

DATA = Path(__file__).parents[2] / "data" / "prices"
HEAD = (DATA / "skypilot-aws.csv").read_text().partition("\n")[0] + "\n"
ROW = "big,A100,8.0,96.0,1152.0,,20.0,9.0,east,z1\n"


def read(path: Path) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Return (dearest, cheapest) by type, region and market."""
    found = read_skypilot(path, as_of="2026-11-20").prices
    return {(one.instance_type, one.region, one.market): (one.usd_per_hour, one.usd_low) for one in found}


def test_the_examples_by_hand() -> None:
    """One price on demand per region; spot from the cheapest to the dearest zone."""
    assert read(DATA / "skypilot-aws.csv") == {
        ("p4d.24xlarge", "us-east-1", "on-demand"): (20.0, 20.0),
        ("p4d.24xlarge", "us-east-1", "spot"): (11.0, 9.0),
        ("p4d.24xlarge", "eu-west-1", "on-demand"): (24.0, 24.0),
    }
    (machine,) = read_skypilot(DATA / "skypilot-lambda.csv", as_of="").prices
    assert (machine.gpus, machine.gpu_model, machine.gpu_memory_mib) == (8, "NVIDIA A100", 40960)
    assert (machine.vcpus, machine.memory_mib) == (124, 1800 * 1024)


def test_prices_on_demand_may_differ_by_zone(tmp_path: Path) -> None:
    """A small cloud's data centres are zones of one region: a plan pays the dearest, and a note says so."""
    (tmp_path / "vms.csv").write_text(HEAD + ROW + ROW.replace("20.0", "21.0").replace("z1", "z2"))
    found = read_skypilot(tmp_path / "vms.csv", as_of="2026-11-20")
    assert [(one.market, one.usd_per_hour) for one in found.prices] == [("on-demand", 21.0), ("spot", 9.0)]
    assert found.notes == ["1 prices on demand differ by zone: the dearest of a region counts"]


LEFT_OUT = {
    "no GPU": ("c5.large,,,2.0,4.0,,0.085,0.03,east,z1\n", "without GPUs"),
    "GCP's GPU rows": (",A100,1.0,,,,2.9,1.2,us-central1,us-central1-a\n", "of a GPU without its machine"),
    "Trainium": ("trn1,Trainium,16.0,128.0,512.0,,21.5,,east,z1\n", "with other accelerators"),
    "TPU": ("TPU-VM,tpu-v3-8,1.0,96.0,340.0,,8.0,,east,z1\n", "with other accelerators"),
    "an eighth": ("g6f.large,L4,0.125,2.0,8.0,,0.2,,east,z1\n", "with a part of a GPU"),
    "no price": ("p9,A100,8.0,96.0,1152.0,,,,east,z1\n", "without a price"),
    "nan": ("p9,A100,8.0,96.0,1152.0,,nan,nan,east,z1\n", "without a price"),
}


@pytest.mark.parametrize(("row", "reason"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_is_left_out_is_counted(row: str, reason: str, tmp_path: Path) -> None:
    """By reason, and the other prices stay."""
    (tmp_path / "vms.csv").write_text(HEAD + ROW + row)
    found = read_skypilot(tmp_path / "vms.csv", as_of="")
    assert {one.instance_type for one in found.prices} == {"big"}
    assert found.left_out == {reason: 1}


REFUSED = {
    "another file": ("a,b\n1,2\n", ":1: column 'InstanceType' is missing"),
    "cut short": (HEAD + ROW + "big,A1", ":3: 2 cells where the header has 10"),
    "cut short in a quoted cell": (HEAD + ROW + 'big,"A1', ":3: not CSV"),
    "cut short in the header": ('InstanceType,"Accel', ":1: not CSV"),
    "text behind a quoted cell": (HEAD + ROW + '"big"ger,A100', ":3: not CSV"),
    "no number": (HEAD + ROW.replace("20.0", "$20"), ":2: Price must be a number"),
    "infinite": (HEAD + ROW.replace("20.0", "inf"), ":2: Price must be a finite number"),
    "negative": (HEAD + ROW.replace("9.0", "-9.0"), ":2: SpotPrice must be a finite number"),
    "two prices": (
        HEAD + ROW + ROW.replace("20.0", "21.0"),
        ":3: big in east (z1) costs $21.00/hour here and $20.00 on line 2",
    ),
    "two spot prices": (
        HEAD + ROW + ROW.replace("9.0", "9.5"),
        ":3: big in east (z1) on spot costs $9.50/hour here and $9.00 on line 2",
    ),
    "two prices without zones": (
        HEAD + (ROW + ROW.replace("20.0", "21.0")).replace("z1", ""),
        ":3: big in east costs $21.00/hour here and $20.00 on line 2",
    ),
    "another currency": (
        HEAD.replace("AvailabilityZone", "AvailabilityZone,Currency") + ROW.replace("z1", "z1,EUR"),
        ":2: a price in EUR",
    ),
    "other GPUs": (
        HEAD + ROW + ROW.replace("8.0", "4.0"),
        ":3: a second row for big in east with other GPUs",
    ),
    "no region": (HEAD + ROW.replace("east", ""), ":2: Region is empty"),
    "many GPUs": (HEAD + ROW.replace("8.0", "8e9"), ":2: AcceleratorCount must be"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_damaged_files_are_refused_by_line(text: str, said: str, tmp_path: Path) -> None:
    """The error says what is wrong and where."""
    (tmp_path / "vms.csv").write_text(text)
    with pytest.raises(InputError) as refused:
        read_skypilot(tmp_path / "vms.csv", as_of="")
    assert said in str(refused.value)
