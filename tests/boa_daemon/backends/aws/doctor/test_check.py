"""`aws/doctor/check.py`: the result of a check is a value."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from boa_daemon.backends.aws.doctor.check import DoctorCheck


def test_a_result_needs_no_advice_and_cannot_be_changed() -> None:
    """What is well has nothing to do."""
    check = DoctorCheck(name="rights", status="ok", said="all 20 statements")
    assert check.fix == ""
    with pytest.raises(FrozenInstanceError):
        check.status = "failed"  # type: ignore[misc]
