"""Recognition of commands whose script saves and reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.inputs.elasticity import elastic_script


@pytest.mark.parametrize(
    ("run", "text", "is_found"),
    [
        ("torchrun train.py --steps 5", "from boa_daemon import job\n", True),
        ("python -m pkg.train", "import boa_daemon.job\n", True),
        ("bash train.py", "cp x $BOA_CHECKPOINT_DIR/", True),
        ("torchrun train.py", "import torch  # not boa_daemon\n", False),
        ("python 'train.py", "from boa_daemon import job\n", False),
        ("echo hello", "from boa_daemon import job\n", False),
        ("python -m " + "x" * 5000, "from boa_daemon import job\n", False),
    ],
)
def test_a_script_is_elastic_if_its_text_uses_boa(
    tmp_path: Path, run: str, text: str, is_found: bool
) -> None:
    """A file that the command names must import the helper or use `BOA_CHECKPOINT_DIR`."""
    for name in ("train.py", "pkg/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert (elastic_script(run, tmp_path) is not None) == is_found
