"""The engines that the contract suite runs against, each as a world that makes engine objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

from boa_daemon.engines.local import LocalEngine
from boa_daemon.ports import Runner

World: TypeAlias = Callable[[Path], AbstractContextManager[Callable[[], Runner]]]


@contextmanager
def local_world(root: Path) -> Iterator[Callable[[], Runner]]:
    """Processes of this machine."""
    yield lambda: LocalEngine(root)


ENGINES: Mapping[str, World] = {"local": local_world}
