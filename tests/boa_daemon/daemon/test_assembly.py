"""Where the parts meet: what the settings name is opened, or refused with the names that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.assembly import open_world
from boa_daemon.daemon.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            {"cloud": {"provider": "locla"}},
            r"\[cloud\] provider: 'locla' is not known\. Did you mean",
        ),
        ({"engine": {"name": "slurm"}}, r"\[engine\] name: 'slurm' is not known\. Known: local, ray, ssm"),
        ({"engine": {"name": "ray"}}, "shared_dir, a folder that all nodes share"),
        ({"engine": {"name": "ssm"}}, "does not go with the provider 'simulated'"),
    ],
)
def test_a_name_that_nobody_knows_is_refused(
    words: dict[str, dict[str, str]], said: str, tmp_path: Path
) -> None:
    """The sentence names the key, and what may stand there."""
    with pytest.raises(InputError, match=said):
        open_world(Settings.model_validate(words), tmp_path, ManualClock(0.0))
