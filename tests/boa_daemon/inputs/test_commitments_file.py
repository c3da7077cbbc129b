"""The file of offers and commitments: what each covers, and errors with file and line."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.commitments_file import active_commitments, read_commitments
from policies.model import InstanceType

A100 = InstanceType(name="p4d.24xlarge", gpu_type="a100", gpus=8, usd_per_hour=24.0)
T4 = InstanceType(name="g4dn.12xlarge", gpu_type="t4", gpus=4, usd_per_hour=4.0)
OURS = """
[[commitments]]
name = "ours"
kind = "family"
family = "p4d"
discount = 0.25
usd_per_hour = 9.0
begins = 2026-03-01
ends = 2027-03-01
"""


def read(folder: Path, text: str) -> object:
    """Read a file with this text."""
    (folder / "c.toml").write_text(text)
    return read_commitments(folder / "c.toml", [A100, T4])


def test_each_kind_of_commitment_covers_its_types(tmp_path: Path) -> None:
    """A family covers its types, compute the named types, and a reservation whole instances of one type."""
    path = tmp_path / "c.toml"
    path.write_text(
        'as_of = 2026-11-01\nsource = "us"\n'
        '[[offers]]\nname = "f"\nkind = "family"\nfamily = "p4d"\ndiscount = 0.5\n'
        '[[offers]]\nname = "c"\nkind = "compute"\ndiscounts = {g4dn = 0.2, a100 = 0.1}\nterm_years = 3\n'
        '[[offers]]\nname = "r"\nkind = "reserved"\ninstance_type = "g4dn.12xlarge"\ndiscount = 0.25\n'
    )
    file = read_commitments(path, [A100, T4])
    found = [terms.on([A100, T4]) for terms in file.offers]

    assert [c.rates for c in found if c is not None] == [(1.5, None), (2.7, 0.8), (None, 0.75)]
    assert [c.step for c in found if c is not None] == [0.0, 0.0, 3.0]
    assert [terms.term_years for terms in file.offers] == [1, 3, 1]
    assert (file.as_of, file.source) == (date(2026, 11, 1), "us")


@pytest.mark.parametrize(
    ("day", "levels"),
    [("2026-02-28", ()), ("2026-03-01", (9.0,)), ("2027-02-28", (9.0,)), ("2027-03-01", ())],
)
def test_a_commitment_is_active_within_its_dates(tmp_path: Path, day: str, levels: tuple[float, ...]) -> None:
    """The last day is the day before `ends`."""
    (tmp_path / "c.toml").write_text(OURS)
    file = read_commitments(tmp_path / "c.toml", [A100])

    assert active_commitments(file, [A100], date.fromisoformat(day))[1] == levels


def test_a_commitment_that_covers_nothing_is_refused(tmp_path: Path) -> None:
    """Otherwise it would cost money and cover no machine."""
    (tmp_path / "c.toml").write_text(OURS)
    with pytest.raises(InputError, match=r"'ours' covers none of g4dn\.12xlarge"):
        active_commitments(read_commitments(tmp_path / "c.toml", [A100, T4]), [T4], date(2026, 5, 1))


@pytest.mark.parametrize(
    ("before", "after", "said", "line"),
    [
        ("2027-03-01", "2027-03-02", "longer than its term of 1 year", 9),
        ("discount = 0.25", "discount = -0.25", "must be at least 0", 6),
        ("discount = 0.25", "discount = 1.0", "less than 1", 6),
        ('"p4d"', '"p4x"', "unknown family 'p4x'", 5),
        ("2026-03-01", "2028-03-01", "before it begins", 9),
        ("begins = 2026-03-01", 'begins = "soon"', "is no day: 'soon'", 8),
        ("begins = 2026-03-01\n", "", "needs both begins and ends", 2),
        ("usd_per_hour = 9.0", "instances = 3", "needs usd_per_hour", 2),
        ('family = "p4d"\n', "", "family is missing: kind 'family' needs it", 2),
        ("discount = 0.25", "discounts = {p4d = 0.2}\ndiscount = 0.2", "does not go with kind 'family'", 6),
        ('kind = "family"', 'kind = "spot"', "family", 4),
        ("usd_per_hour", "usd_per_hours", "Did you mean 'usd_per_hour'", 7),
    ],
)
def test_an_invalid_commitment_is_refused_with_file_and_line(
    tmp_path: Path, before: str, after: str, said: str, line: int
) -> None:
    """The error names the wrong field."""
    assert before in OURS
    with pytest.raises(InputError) as refused:
        read(tmp_path, OURS.replace(before, after))

    assert said in str(refused.value)
    assert f"c.toml:{line}:" in str(refused.value)


def test_a_commitment_given_twice_for_the_same_time_is_refused(tmp_path: Path) -> None:
    """A renewal that begins on the day of the end is allowed."""
    with pytest.raises(InputError, match=r"c\.toml:12: commitment 'ours' is given twice for the same time"):
        read(tmp_path, OURS + OURS.replace("2027-03-01", "2026-12-01"))

    read(tmp_path, OURS + OURS.replace("2027-03-01", "2028-03-01").replace("2026-03-01", "2027-03-01"))


@pytest.mark.parametrize("missing", ["as_of", "source"])
def test_offers_need_a_date_and_a_source(tmp_path: Path, missing: str) -> None:
    """Rates change."""
    head = "".join(
        line for line in ("as_of = 2026-11-01\n", 'source = "us"\n') if not line.startswith(missing)
    )
    offer = '[[offers]]\nname = "f"\nkind = "family"\nfamily = "p4d"\ndiscount = 0.5\n'
    with pytest.raises(InputError, match=f"{missing} is missing"):
        read(tmp_path, head + offer)
