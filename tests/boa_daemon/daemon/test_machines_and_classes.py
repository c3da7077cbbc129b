"""What settings and files state: machines, and the classes that can run on them."""

from __future__ import annotations

import pytest

from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.planner import Planner
from boa_daemon.errors import InputError


def test_a_machine_that_is_named_twice_is_refused() -> None:
    """The sentence names it."""
    with pytest.raises(InputError, match=r"names g5\.xlarge twice"):
        Planner(Settings.model_validate({"cloud": {"instance_types": ["g5.xlarge", "g5.xlarge"]}}))
