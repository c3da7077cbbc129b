"""A plan names the widths that it uses at the edge of the measured range or beyond it."""

from __future__ import annotations

from pathlib import Path

from boa_daemon.inputs.problem_file import ProblemFile, load_problem
from boa_daemon.planning.measured_range import range_edges

CLASSES = """
gpu_types: {a100: {instance_type: p4d.24xlarge}, a10g: {instance_type: g5.xlarge}}
classes:
- name: told
  arrivals_per_hour: 1
  phases:
  - {steps: 100, step_seconds: {a100: {2: 0.4, 4: 0.2, 8: 0.12}, a10g: {1: 3}}, extrapolate_to: 16}
- name: formula
  arrivals_per_hour: 1
  phases: [{size_gpu_hours: 1, speedup: {a100: {amdahl: {parallel_fraction: 0.9, max_gpus: 8}}}}]
"""


def a_file(folder: Path) -> ProblemFile:
    """Return a class that was measured at three widths, and one with a formula."""
    (folder / "classes.yaml").write_text(CLASSES)
    return load_problem(folder / "classes.yaml")


def test_each_kind_of_edge_is_named(tmp_path: Path) -> None:
    """The kinds are extrapolated, narrowest, only and widest; a formula ends at its widest width."""
    used = [("told", "a100", 16), ("told", "a100", 2), ("told", "a10g", 1), ("formula", "a100", 8)]
    found = {
        (one.class_name, one.gpu_type, one.gpus): one.kind for one in range_edges(a_file(tmp_path), used * 2)
    }

    assert found == {
        ("told", "a100", 16): "extrapolated",
        ("told", "a100", 2): "narrowest",
        ("told", "a10g", 1): "only",
        ("formula", "a100", 8): "widest",
    }


def test_widths_within_the_measured_range_are_not_named(tmp_path: Path) -> None:
    """One GPU as the narrowest width and spot machines are not named either."""
    used = [("told", "a100", 4), ("told", "a100", 8), ("formula", "a100", 1), ("told", "a100@spot", 2)]

    assert range_edges(a_file(tmp_path), used) == ()


def test_the_sentence_about_extrapolation_says_to_measure(tmp_path: Path) -> None:
    """The document has the same sentence."""
    (one,) = range_edges(a_file(tmp_path), [("told", "a100", 16)])

    assert one.sentence.endswith("which is extrapolated: measure it before you rely on it.")
    assert one.to_document()["message"] == one.sentence
