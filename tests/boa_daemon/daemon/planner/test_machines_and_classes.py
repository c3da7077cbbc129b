"""The machines that the settings name."""

from __future__ import annotations

import pytest

from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError


def test_an_instance_type_named_twice_is_refused() -> None:
    """The error names the instance type."""
    with pytest.raises(InputError, match=r"names g5\.xlarge twice"):
        Planner(Settings.model_validate({"cloud": {"instance_types": ["g5.xlarge", "g5.xlarge"]}}))
