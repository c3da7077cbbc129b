"""Loads of the past: exact shares of time, and usage files that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.planning.rentals import Rental, load_between, read_rentals


def test_each_load_has_its_share_of_the_time() -> None:
    """Rentals outside the period do not count."""
    rentals = [Rental("a", 4, -5.0, 15.0), Rental("a", 8, 10.0, 99.0)]
    load = load_between(rentals, ["a", "b"], 0.0, 20.0)

    assert dict(zip(map(tuple, load.gpus.tolist()), load.share.tolist(), strict=True)) == {
        (4.0, 0.0): 10.0 / 20.0,
        (12.0, 0.0): 5.0 / 20.0,
        (8.0, 0.0): 5.0 / 20.0,
    }


def test_an_empty_period_is_refused() -> None:
    """A load needs a period of positive length."""
    with pytest.raises(InputError, match="needs a period"):
        load_between([], ["a"], 3.0, 3.0)


def test_usage_is_read_with_the_machines_of_the_catalogue(tmp_path: Path) -> None:
    """A machine that still runs lasts until the last instant of the file."""
    path = tmp_path / "usage.csv"
    path.write_text(
        "instance_type,launched_at,ended_at,instances\np4d.24xlarge,0,3600,2\np4d.24xlarge,1800,,1\n"
    )
    rentals, machines, begin, end = read_rentals(path, Catalog.load())

    assert rentals == [Rental("a100", 16, 0.0, 3600.0), Rental("a100", 8, 1800.0, 3600.0)]
    assert ([m.name for m in machines], begin, end) == (["p4d.24xlarge"], 0.0, 3600.0)


def test_machines_of_one_gpu_type_are_split_by_price_per_gpu(tmp_path: Path) -> None:
    """g4dn.12xlarge and g4dn.metal have the same price per T4, and g4dn.xlarge half of it."""
    names = ("g4dn.xlarge", "g4dn.12xlarge", "g4dn.metal")
    path = tmp_path / "usage.csv"
    rows = "".join(f"{name},0,3600\n" for name in names)
    path.write_text(f"instance_type,launched_at,ended_at\n{rows}")
    rentals, machines, _, _ = read_rentals(path, Catalog.load())

    assert [one.gpu_type for one in machines] == ["t4", "t4@g4dn.12xlarge"]
    assert [(one.gpu_type, one.gpus) for one in rentals] == [
        ("t4", 1),
        ("t4@g4dn.12xlarge", 4),
        ("t4@g4dn.12xlarge", 8),
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("p4d.24xlarge,10,5", "2: ended_at 5 is before launched_at 10"),
        ("p4x.24xlarge,0,5", "2: unknown instance type 'p4x.24xlarge'"),
        ("p4d.24xlarge,-1,5", "2: "),
    ],
)
def test_impossible_rows_are_refused(tmp_path: Path, row: str, said: str) -> None:
    """The error names the line."""
    (tmp_path / "usage.csv").write_text(f"instance_type,launched_at,ended_at\n{row}\n")
    with pytest.raises(InputError, match=said):
        read_rentals(tmp_path / "usage.csv", Catalog.load())
