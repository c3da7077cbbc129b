"""Copies of the files that say what costs, used where such a file says something else now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boa_daemon.daemon.settings.cost_copies import (
    CostFiles,
    forget_copies,
    in_place_of,
    read_copies,
    write_copies,
)


def files(**texts: str) -> CostFiles:
    """Return the contents of files by absolute path."""
    return CostFiles(texts={f"/etc/{name}.toml": text.encode() for name, text in texts.items()})


def test_copies_are_read_back_and_are_private(tmp_path: Path) -> None:
    """Two files of one name and other texts have copies of their own."""
    both = CostFiles(texts={"/a/prices.toml": b"one", "/b/prices.toml": b"two"})
    names = write_copies(tmp_path, both)
    assert read_copies(tmp_path, names) == both.texts
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def test_a_new_text_leaves_the_old_copy_until_it_is_forgotten(tmp_path: Path) -> None:
    """A process that dies in between finds one of the two whole."""
    old = write_copies(tmp_path, files(prices="old"))
    new = write_copies(tmp_path, files(prices="new"))
    assert read_copies(tmp_path, old) == {"/etc/prices.toml": b"old"}
    forget_copies(tmp_path, new)
    assert read_copies(tmp_path, old) == {}
    assert read_copies(tmp_path, new) == {"/etc/prices.toml": b"new"}


def test_no_files_make_no_folder(tmp_path: Path) -> None:
    """Forgetting nothing is no error either."""
    assert write_copies(tmp_path, CostFiles()) == {}
    forget_copies(tmp_path, {})
    assert list(tmp_path.iterdir()) == []


def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    """The names come from a file that somebody may have changed."""
    (tmp_path / "secret").write_text("x")
    assert read_copies(tmp_path, {"/etc/prices.toml": "../secret"}) == {}


def test_settings_name_the_copy_of_a_file_that_says_something_else_now(tmp_path: Path) -> None:
    """Each table that names files of costs is looked at; an unchanged file is named itself."""
    names = ("prices", "commitments", "blocks", "classes", "west")
    paths = {name: tmp_path / f"{name}.toml" for name in names}
    there = CostFiles(texts={str(path): name.encode() for name, path in paths.items()})
    copies = write_copies(tmp_path, there)
    for name, path in paths.items():
        path.write_text(name)
    given: dict[str, dict[str, Any]] = {
        "cloud": {
            **{name: str(paths[name]) for name in names[:3]},
            "by_region": {"us-west-2": {"prices": str(paths["west"])}},
        },
        "workload": {"classes": str(paths["classes"])},
    }
    assert in_place_of(given, tmp_path, there) == given
    for path in paths.values():
        path.write_text("cheaper")
    paths["blocks"].unlink()
    found = in_place_of(given, tmp_path, there)
    used = [
        *(found["cloud"][name] for name in names[:3]),
        found["workload"]["classes"],
        found["cloud"]["by_region"]["us-west-2"]["prices"],
    ]
    assert [Path(path).name for path in used] == [copies[str(paths[name])] for name in names]
    assert [Path(path).read_text() for path in used] == list(names)
    assert given["cloud"]["prices"] == str(paths["prices"])


def test_a_file_that_was_not_known_stays_as_it_is_named(tmp_path: Path) -> None:
    """So does one whose copy is lost: no file is better than a wrong one."""
    given = {"cloud": {"prices": str(tmp_path / "p.toml")}}
    lost = CostFiles(texts={str(tmp_path / "p.toml"): b"lost"})
    assert in_place_of(given, tmp_path, CostFiles()) == given
    assert in_place_of(given, tmp_path, lost) == given
