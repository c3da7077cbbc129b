"""What was saved is loaded again before it counts as a checkpoint."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from boa_daemon.job.read_back import CannotBeLoaded, read_back, read_back_folder

pytestmark = pytest.mark.frameworks


class Broken:
    """Pickles, and does not come back."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return int, ("x",)


def test_formats_that_are_not_known_pass(tmp_path: Path) -> None:
    """Text, arrays, empty files, JSON."""
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_text(json.dumps({"a": 1}))
    np.savez(tmp_path / "c.npz", x=np.arange(3))

    assert read_back_folder(tmp_path) == ""


def test_what_loads_by_default_has_no_warning(tmp_path: Path) -> None:
    """Tensors and plain values."""
    torch.save({"a": torch.ones(2), "b": [1, "x"]}, tmp_path / "a.pt")
    (tmp_path / "b.pkl").write_bytes(pickle.dumps([1, 2]))

    assert read_back_folder(tmp_path) == ""


@pytest.mark.parametrize("way", ["torch", "pickle"])
def test_what_cannot_be_loaded_is_refused_by_name(way: str, tmp_path: Path) -> None:
    """The file in the folder is named."""
    file = tmp_path / "state.bin"
    if way == "torch":
        torch.save(Broken(), file)
    else:
        file.write_bytes(pickle.dumps(Broken()))
    with pytest.raises(CannotBeLoaded, match=r"state\.bin: ValueError: invalid literal"):
        read_back_folder(tmp_path)
    with pytest.raises(CannotBeLoaded):
        read_back(file)


def test_a_truncated_pickle_is_refused(tmp_path: Path) -> None:
    """Half a file is no checkpoint."""
    file = tmp_path / "half"
    file.write_bytes(pickle.dumps(list(range(1000)))[:100])
    with pytest.raises(CannotBeLoaded):
        read_back(file)


def test_several_archives_in_one_file_pass(tmp_path: Path) -> None:
    """As `torch.distributed.checkpoint` writes them; they are no file for `torch.load`."""
    file = tmp_path / "__0_0.distcp"
    for number in range(2):
        torch.save(torch.ones(number + 1), tmp_path / "part")
        with file.open("ab") as whole:
            whole.write((tmp_path / "part").read_bytes())

    assert read_back(file) == ""
