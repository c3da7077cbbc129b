"""The distributions of this tree: what each needs, and which files it has."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

TREE = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """Return the module, which stands in no package."""
    spec = util.spec_from_file_location("boa_build_hooks", TREE / "packaging" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("group", ["client", "daemon"])
def test_a_build_for_others_needs_the_helper_of_its_own_version(
    hooks: ModuleType, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    """Of a checkout the one beside it; besides that the same, without repeats and in order."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    for_others = hooks.requirements(group, "1.2.3")
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    here = hooks.requirements(group, "1.2.3")
    assert "boa-job==1.2.3" in for_others
    assert f"boa-job @ {(TREE / 'packaging' / 'job').as_uri()}" in here
    assert [line for line in for_others if not line.startswith("boa-job")] == [
        line for line in here if not line.startswith("boa-job")
    ]
    assert for_others == sorted(for_others)
    metadata: dict[str, Any] = {"version": "1.2.3"}
    hooks.Requirements.update(SimpleNamespace(config={"group": group}), metadata)
    assert metadata["dependencies"] == here


def test_a_group_has_what_the_groups_in_it_have(
    hooks: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At any depth."""
    (tmp_path / "pyproject.toml").write_text(
        '[dependency-groups]\na = ["x>=1"]\nb = [{include-group = "a"}, "y"]\n'
        'c = [{include-group = "b"}, "z"]\n'
    )
    monkeypatch.setattr(hooks, "TREE", tmp_path)
    (tmp_path / "PKG-INFO").write_text("")
    assert hooks.requirements("c", "1") == ["boa-job==1", "x>=1", "y", "z"]


def test_files_are_those_of_the_folders_less_what_is_left_out(
    hooks: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compiled files are in no distribution."""
    for name in ("p/a.py", "p/sub/b.py", "p/out/c.py", "p/__pycache__/a.pyc", "q/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(hooks, "TREE", tmp_path)
    data: dict[str, Any] = {"force_include": {}}
    hooks.Files.initialize(SimpleNamespace(config={"folders": ["p"], "except": ["p/out"]}), "", data)
    assert list(data["force_include"].values()) == ["p/a.py", "p/sub/b.py"]
