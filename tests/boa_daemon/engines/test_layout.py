"""`engines/layout.py`: each job has a folder of its own, whatever its id."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis.strategies import lists, text

from boa_daemon.engines.layout import Layout

LAYOUT = Layout(root=Path("/srv/boa"))


@given(lists(text(min_size=1), min_size=2, max_size=2, unique=True))
def test_two_jobs_never_share_a_folder_and_none_leaves_the_root(ids: list[str]) -> None:
    """Also with slashes and dots in their ids; no id is the folder of code or data."""
    folders = [LAYOUT.job(job) for job in ids]
    assert folders[0] != folders[1]
    assert all(folder.parent == LAYOUT.root for folder in folders)
    assert not {LAYOUT.code, LAYOUT.data} & {*folders}
    # systemd takes these in a path of a unit.
    assert all(re.fullmatch(r"[A-Za-z0-9_~=-]+", folder.name) for folder in folders)


def test_a_name_with_special_characters_is_escaped_by_its_bytes() -> None:
    """An ordinary id stands for itself."""
    assert [LAYOUT.job(job).name for job in ("train-7", "a.b/c", "..", "=code", "ä")] == [
        "train-7",
        "a=2Eb=2Fc",
        "=2E=2E",
        "=3Dcode",
        "=C3=A4",
    ]


def test_checkpoints_and_code_outlive_generations_which_have_folders_of_their_own() -> None:
    """A unit is in its generation, a generation in its job."""
    job = LAYOUT.job("a")
    assert (LAYOUT.checkpoints("a"), LAYOUT.work("a")) == (job / "checkpoint", job / "work")
    assert (LAYOUT.artifacts("a"), LAYOUT.home("a")) == (job / "artifacts", job / "home")
    assert (LAYOUT.generation("a", 12), LAYOUT.unit("a", 12, 3)) == (job / "g12", job / "g12" / "n3")
    assert (LAYOUT.code, LAYOUT.data) == (LAYOUT.root / "=code", LAYOUT.root / "=data")
