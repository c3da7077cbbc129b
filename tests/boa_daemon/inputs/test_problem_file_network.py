"""The network use of a class in a problem file."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import ProblemFile, load_problem
from policies.links.contention import Link
from policies.links.link_share import network_share
from policies.model import AllReduce

PROBLEM = """
gpu_types: {{t4: {{usd_per_gpu_hour: 1.0, gpus_per_instance: 4, link_gigabits_per_second: 25}}}}
classes:
  - name: vgg
    arrivals_per_hour: 1.0
    network: {network}
    phases: [{{size_gpu_hours: 1.0, speedup: {speedup}}}]
"""
AMDAHL = "{amdahl: {parallel_fraction: 0.9, max_gpus: 8}}"
NEED = "{message_bytes: 526.4e6, compute_seconds: 0.09}"


def read(folder: Path, network: str = NEED, speedup: str = AMDAHL) -> ProblemFile:
    """Load a problem with one class."""
    path = folder / "problem.yaml"
    path.write_text(PROBLEM.format(network=network, speedup=speedup), encoding="utf-8")
    return load_problem(path)


def test_a_formula_is_slowed_by_the_link_beyond_one_node(tmp_path: Path) -> None:
    """At 8 GPUs on 4-GPU nodes, Amdahl's speed is divided by 1 + c / t at 25 Gbit/s."""
    curve = read(tmp_path).problem.classes[0].phases[0].speedups["t4"]
    share = network_share(Link.of_gigabits(25.0), AllReduce(message_bytes=526.4e6, compute_seconds=0.09))

    assert curve.speed_at(4) == pytest.approx(1.0 / (0.1 + 0.9 / 4))
    assert curve.speed_at(8) == pytest.approx(1.0 / (0.1 + 0.9 / 8) / (1.0 + share))


def test_a_table_is_not_slowed_by_the_link(tmp_path: Path) -> None:
    """Measurements include their link."""
    file = read(tmp_path, speedup="{table: {1: 1.0, 8: 6.0}}")

    assert file.problem.classes[0].phases[0].speedups["t4"].speed_at(8) == 6.0
    assert file.problem.classes[0].network == AllReduce(message_bytes=526.4e6, compute_seconds=0.09)


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ("{message_byte: 1, compute_seconds: 0.1}", "Did you mean 'message_bytes'"),
        ("{message_bytes: -1, compute_seconds: 0.1}", "message_bytes"),
        ("{message_bytes: 1e6, compute_seconds: 0}", "compute_seconds"),
        ("{message_bytes: 1e6}", "compute_seconds"),
        ("{message_bytes: .nan, compute_seconds: 0.1}", "message_bytes"),
    ],
)
def test_an_invalid_network_is_refused_with_key_file_and_line(
    tmp_path: Path, network: str, says: str
) -> None:
    """`network` is in line 6."""
    with pytest.raises(InputError, match=says) as error:
        read(tmp_path, network=network)

    assert "problem.yaml:6" in str(error.value)
