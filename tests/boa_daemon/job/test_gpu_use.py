"""How much GPUs work: a stand-in for the driver's library, and machines without one."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.job import gpu_use as module
from boa_daemon.job.gpu_use import gpu_use


class Driver:
    """Two GPUs: number 0 works 80 % of the time, number 1 works 20 %; UUIDs are GPU-0 and GPU-1."""

    def __init__(self, *, fails: str = "") -> None:
        self.fails = fails

    def nvmlInit_v2(self) -> int:  # noqa: N802 - the driver's names
        return int(self.fails == "init")

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802 - the driver's names
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: Any, device: Any) -> int:  # noqa: N802 - the driver's names
        device._obj.value = 100 + number.value
        return int(number.value > 1)

    def nvmlDeviceGetHandleByUUID(self, name: bytes, device: Any) -> int:  # noqa: N802 - the driver's names
        device._obj.value = 100 + int(name[-1:])
        return 0

    def nvmlDeviceGetUtilizationRates(self, device: Any, use: Any) -> int:  # noqa: N802 - the driver's names
        use._obj.gpu = {100: 80, 101: 20}[device.value]
        return int(self.fails == "rates")


@pytest.fixture(autouse=True)
def _nothing_loaded() -> Iterator[None]:
    module._library.clear()
    yield
    module._library.clear()


@pytest.mark.parametrize(
    ("visible", "use"),
    [
        (None, 0.5),
        ("0", 0.8),
        ("1", 0.2),
        ("0,1", 0.5),
        (" 1 , 0 ", 0.5),
        ("GPU-1", 0.2),
        ("", None),
        ("7", None),
        ("0,7", 0.8),
    ],
)
def test_the_mean_is_over_the_gpus_that_the_process_sees(
    visible: str | None, use: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number, by UUID, all of them where nothing is said; unknown ones are left out."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Driver())
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpu_use(environment) == (None if use is None else pytest.approx(use))


@pytest.mark.parametrize("fails", ["init", "rates", "load", "symbol"])
def test_a_driver_that_fails_says_nothing_and_is_not_loaded_again(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No library, an old one without the symbols, one that refuses: nothing is known, at no cost later."""
    loads = []

    def load(_name: str) -> Any:
        loads.append(1)
        if fails == "load":
            raise OSError("libnvidia-ml.so.1: cannot open shared object file")
        return object() if fails == "symbol" else Driver(fails=fails)

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert [gpu_use({}), gpu_use({})] == [None, None]
    assert len(loads) == 1


def test_a_report_has_the_use_of_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is asked once in some seconds, however often steps are reported."""
    from boa_daemon.job.run import Run

    asked: list[int] = []
    monkeypatch.setattr("boa_daemon.job.run.gpu_use", lambda _e: asked.append(1) or 0.75)
    progress = tmp_path / "progress.json"
    run = Run({"BOA_PROGRESS_FILE": str(progress), "BOA_CHECKPOINT_DIR": str(tmp_path / "c")})
    for step in range(1, 50):
        run.report(step, 1, 0.5, None)
    assert json.loads(progress.read_text())["gpu_use"] == 0.75
    assert len(asked) == 1
