"""Speed-ups: one form, or one for each GPU type; and what is left of them within limits."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.errors import InputError, MissingPrice
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.speedup_file import limited, read_speedups
from policies.speedup import MAX_GPUS, Amdahl, PowerLaw, SpeedupCurve, Table, UniversalScalability


def read(raw: Any, *gpu_types: str) -> dict[str, SpeedupCurve]:
    """Return the curves of a speed-up."""
    document = Document(name="p.yaml", content={"speedup": raw}, language="json")
    return read_speedups(raw, gpu_types or ("a",), document=document, at=("speedup",))


@pytest.mark.parametrize(
    ("form", "curve"),
    [
        ({"table": {"2": 1.9, "1": 1}}, Table(gpus=(1, 2), speeds=(1.0, 1.9))),
        ({"table": {4: 3.0}}, Table(gpus=(4,), speeds=(3.0,))),
        (
            {"amdahl": {"parallel_fraction": 0.9}},
            Amdahl(parallel_fraction=0.9, speed=1.0, max_gpus=64, min_gpus=1),
        ),
        (
            {"power": {"exponent": 0.5, "speed": 2.0}},
            PowerLaw(exponent=0.5, speed=2.0, max_gpus=64, min_gpus=1),
        ),
        (
            {"usl": {"contention": 0.1, "crosstalk": 0.0, "max_gpus": 8}},
            UniversalScalability(contention=0.1, crosstalk=0.0, speed=1.0, max_gpus=8, min_gpus=1),
        ),
    ],
)
def test_each_form_is_a_curve(form: dict[str, Any], curve: SpeedupCurve) -> None:
    """For the only GPU type, or for the one that it names; JSON has only keys of text."""
    assert read(form) == {"a": curve}
    assert read({"b": form}, "a", "b") == {"b": curve}


@pytest.mark.parametrize(
    ("raw", "gpu_types", "said"),
    [
        (None, ("a",), "must be one of table, amdahl, power, usl"),
        ({}, ("a",), "must be one of table, amdahl, power, usl"),
        (
            {"1": 1.0, "2": 1.9},
            ("a",),
            r"lists widths without saying what they are.*\{table: \{1: 1\.0, 2: 1\.9\}\}",
        ),
        ({"1": 1.0}, ("a", "b"), r"Write \{a: \{table: \{1: 1\.0\}\}\}"),
        ({"a": {"1": 1.0}}, ("a", "b"), r"lists widths without saying.*Write \{table: \{1: 1\.0\}\}"),
        ({"table": {1: 1.0}}, ("a", "b"), "must name a GPU type: a, b"),
        ({"a": {"table": {1: 1.0}, "usl": {}}}, ("a",), "must be exactly one of .*; got table and usl"),
        ({"a": {"tabel": {1: 1.0}}}, ("a",), "unknown form 'tabel'.*Did you mean 'table'"),
        ({"table": {}}, ("a",), "must map widths to speeds"),
        ({"table": {"0": 1.0}}, ("a",), f"widths are whole GPUs, from 1 to {MAX_GPUS}"),
        ({"table": {"1.5": 1.0}}, ("a",), "widths are whole GPUs"),
        ({"table": {MAX_GPUS + 1: 1.0}}, ("a",), "widths are whole GPUs"),
        ({"table": {1: 0.0}}, ("a",), "the speed at 1 GPUs must be a number.*more than zero"),
        ({"table": {1: True}}, ("a",), "the speed at 1 GPUs must be a number"),
        ({"amdahl": {}}, ("a",), "parallel_fraction"),
        ({"power": {"exponent": 1.5}}, ("a",), "exponent"),
        ({"amdahl": {"parallel_fraction": 0.5, "min_gpus": 9, "max_gpus": 8}}, ("a",), "amdahl"),
    ],
)
def test_what_is_no_speed_up_is_refused(raw: Any, gpu_types: tuple[str, ...], said: str) -> None:
    """The error says what to write."""
    with pytest.raises(InputError, match=said):
        read(raw, *gpu_types)


def test_a_curve_needs_the_price_of_its_gpu_type() -> None:
    """A mistyped form gets the nearest one of both."""
    with pytest.raises(MissingPrice, match="GPU type 'b' has a speed-up but no price"):
        read({"b": {"table": {1: 1.0}}})
    with pytest.raises(MissingPrice, match="Did you mean 'amdahl'"):
        read({"amdhal": {"parallel_fraction": 0.9}})


CURVES: dict[str, SpeedupCurve] = {
    "table": Table(gpus=(1, 2, 3, 8), speeds=(1.0, 1.9, 2.7, 6.0)),
    "power": PowerLaw(exponent=0.5, speed=1.0, max_gpus=16, min_gpus=2),
}


@pytest.mark.parametrize(
    ("least", "most", "batch", "widths"),
    [
        (None, None, None, {"table": [1, 2, 3, 8], "power": list(range(2, 17))}),
        (2, 3, None, {"table": [2, 3], "power": [2, 3]}),
        (9, None, None, {"power": list(range(9, 17))}),
        (None, 1, None, {"table": [1]}),
        (17, None, None, {}),
        (3, 2, None, {}),
        (None, None, 12, {"table": [1, 2, 3], "power": [2, 3, 4, 6, 12]}),
        (4, None, 7, {"power": [7]}),
        (4, 6, 7, {}),
    ],
)
def test_limits_leave_the_widths_within_them_that_divide_the_batch(
    least: int | None, most: int | None, batch: int | None, widths: dict[str, list[int]]
) -> None:
    """A type that has none left is left out; speeds at the others stay what they were."""
    found = limited(CURVES, min_gpus=least, max_gpus=most, batch=batch)
    assert {name: curve.whole_widths().tolist() for name, curve in found.items()} == widths
    for name, curve in found.items():
        assert curve.speed_at(widths[name]) == pytest.approx(CURVES[name].speed_at(widths[name]))
