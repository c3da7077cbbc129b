"""`job/jax.py`: the devices of one node as a mesh, and a tree that is saved and restored by Orbax."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.job import jax as module
from boa_daemon.job.jax import OrbaxState, mesh


class Checkpointer:
    """Orbax's checkpointer, which writes beside the program until it is waited for."""

    files: dict[str, Any] = {}  # noqa: RUF012 - shared, as a disk is
    late: dict[str, Any] = {}  # noqa: RUF012

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *_: object) -> None:
        self.late.clear()

    def save(self, path: Path, tree: Any) -> None:
        """Begin to write."""
        assert path.is_absolute()
        self.late[str(path)] = tree

    def wait_until_finished(self) -> None:
        """Finish writing."""
        self.files.update(self.late)

    def restore(self, path: Path, like: Any) -> Any:
        """Return what was written, in the form of another tree."""
        return (self.files[str(path)], like)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Put stand-ins in place of JAX and Orbax; return what they were told."""
    told: list[Any] = []
    jax = SimpleNamespace(
        config=SimpleNamespace(update=lambda name, value: told.append((name, value))),
        devices=lambda: told.append("devices") or ["gpu0", "gpu1", "gpu2"],
        make_mesh=lambda shape, names: (shape, names),
        tree=SimpleNamespace(map=lambda function, tree: function(tree)),
    )
    shape = SimpleNamespace(to_shape_dtype_struct=lambda tree: f"like {tree}")
    orbax = SimpleNamespace(StandardCheckpointer=Checkpointer, utils=shape)
    monkeypatch.setattr(module, "import_module", {"jax": jax, "orbax.checkpoint": orbax}.__getitem__)
    Checkpointer.files.clear()
    return told


def test_a_mesh_has_all_devices_of_the_node_on_one_axis(
    libraries: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of CPU devices is set before JAX looks for any."""
    monkeypatch.setenv("BOA_GPUS_PER_NODE", "3")
    monkeypatch.setenv("BOA_NODES", "1")
    assert mesh("batch") == ((3,), ("batch",))
    assert libraries == [("jax_num_cpu_devices", 3), "devices"]
    monkeypatch.setenv("BOA_NODES", "2")
    with pytest.raises(RuntimeError, match="set max_gpus to the GPUs of one"):
        mesh()


def test_a_tree_is_complete_when_it_was_saved_and_restored_like_the_present_one(
    libraries: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the sharding of the tree in training, whatever the checkpoint had; from any folder."""
    monkeypatch.chdir(tmp_path)
    old = OrbaxState("old")
    assert old.hooks["folder"] is True
    old.hooks["save"](Path("kept"))
    assert Checkpointer.files == {str(tmp_path / "kept" / "tree"): "old"}
    new = OrbaxState("new")
    new.hooks["load"](Path("kept"))
    assert new.tree == ("old", "like new")
