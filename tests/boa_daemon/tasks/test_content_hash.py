"""Hashes of tasks: equal for equal values and code, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from some_tasks import Answer, a_square, in_vain

from boa_daemon.tasks import content_hash as module
from boa_daemon.tasks.content_hash import code_folders, code_hash, content_hash
from boa_daemon.testing import a_problem, a_trace


def test_a_content_hash_depends_on_content_alone() -> None:
    """Equal values have equal hashes in every process; different values and types have different hashes."""
    trace = a_trace(0.0, 600.0)
    assert content_hash(trace, {"a", "b", "c"}) == content_hash(a_trace(0.0, 600.0), {"c", "b", "a"})
    unlike = [1, 1.0, True, "1", None, (1,), ((1,),), (1, 1), {"1": 1}, {1: 1}, trace, a_trace(0.0, 601.0)]
    assert content_hash(a_problem()) == content_hash(a_problem())
    unlike += [a_problem(), a_problem(usd_per_gpu_hour=2.0)]
    unlike += [np.array([1]), np.array([1.0]), np.array([[1]]), a_square, in_vain, Answer((1.0,))]
    unlike += [("ab", "c"), ("a", "bc"), {"a": 1, "b": 2}, {"b": 2, "a": 1}, frozenset({1})]
    assert len({content_hash(value) for value in unlike}) == len(unlike)
    words = "from boa_daemon.tasks.content_hash import content_hash as h; print(h(frozenset('abc')))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", words],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(seen) == 1


def test_parts_are_told_apart() -> None:
    """The names of fields count, and what is nested where."""

    @dataclass
    class One:
        a: int = 1
        b: int = 2

    @dataclass
    class Two(One):
        pass

    unlike = [
        One(),
        Two(),
        One(a=2),
        One(b=1),
        One(a=2, b=1),
        [[1], 2],
        [1, [2]],
        [[1, 2]],
        [],
        [[]],
        b"1",
        "1",
    ]
    assert len({content_hash(value) for value in unlike}) == len(unlike)
    assert content_hash(1, 2) != content_hash(2, 1)
    assert content_hash(One()) == content_hash(One())


def test_a_trace_that_is_another_object_of_the_same_id_is_not_taken_for_it() -> None:
    """The first may be gone: its hash is kept with the object."""
    hashes = {content_hash(a_trace(0.0, 100.0 * number)) for number in range(1, 200)}
    assert len(hashes) == 199


def test_another_source_is_another_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a file counts as well; what is no source does not."""
    monkeypatch.setattr(module, "code_folders", lambda: (tmp_path,))
    found = []
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.py", ""), ("data.csv", "x")):
        (tmp_path / name).write_text(text)
        code_hash.cache_clear()
        found.append(code_hash())
    code_hash.cache_clear()
    assert len(set(found)) == 3
    assert found[2] == found[3]
    assert [folder.name for folder in code_folders()] == ["policies", "boa_daemon"]
