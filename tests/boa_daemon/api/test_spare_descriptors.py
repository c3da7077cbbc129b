"""`api/spare_descriptors.py`: descriptors in reserve, given back in need and taken again."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

import pytest

from boa_daemon.api import spare_descriptors
from boa_daemon.api.spare_descriptors import SPARE, SpareDescriptors, raise_limit


@pytest.fixture
def spare() -> Iterator[SpareDescriptors]:
    """Yield a reserve, and give it back."""
    made = SpareDescriptors()
    yield made
    made.give()


def open_files() -> set[str]:
    """Return the numbers of this process's open files, without that of the folder that lists them."""
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


def test_a_reserve_is_taken_and_given_back_whole() -> None:
    """Twice is once; no program that is started inherits them."""
    before = open_files()
    spare = SpareDescriptors()
    spare.take()
    taken = {int(name) for name in open_files() - before}
    assert len(taken) == SPARE
    assert not any(os.get_inheritable(number) for number in taken)
    spare.give()
    assert open_files() == before
    spare.give()
    spare.take()
    assert len(open_files() - before) == SPARE
    spare.give()


def test_without_descriptors_the_reserve_is_as_large_as_can_be(
    spare: SpareDescriptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is filled when there are some again."""
    spare.give()
    opened = 0
    real = os.open

    def few(*words: object, **more: object) -> int:
        nonlocal opened
        opened += 1
        if opened > 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*words, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as short:
        short.setattr(os, "open", few)
        spare.take()
    assert len(spare._held) == 3
    spare.take()
    assert len(spare._held) == SPARE


@pytest.mark.parametrize(("limits", "wanted"), [((256, 4096), [(4096, 4096)]), ((4096, 4096), [])])
def test_the_limit_is_raised_as_far_as_the_system_lets(
    limits: tuple[int, int], wanted: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it does not let, nothing fails."""
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, both: told.append(both))
    raise_limit()
    assert told == wanted

    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(spare_descriptors.resource, "setrlimit", refuse)
    raise_limit()
