"""The lines for slurm.conf and the programs that Slurm calls."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.daemon.service.slurm_config import conf_lines, programs
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError


def settings(*, budget: dict[str, Any] | None = None, **slurm: Any) -> Settings:
    """Return settings with two partitions, the second with a space in its name's place for a pattern."""
    partitions = {
        "small": {"instance_type": "g5.xlarge"},
        "large": {"instance_type": "p4d.24xlarge"},
    }
    cloud = {"provider": "aws", "instance_types": ["g5.xlarge", "p4d.24xlarge"]}
    given = {"cloud": cloud, "slurm": {"partitions": partitions, **slurm}, "budget": budget or {}}
    return Settings.model_validate(given)


def test_each_partition_has_as_many_nodes_as_the_budget_allows() -> None:
    """Cores and GPUs are the machine's; a part of its memory is left to the system."""
    lines = conf_lines(settings(budget={"max_instances": 5}), folder="/opt/boa")
    large = next(line for line in lines if line.startswith("NodeName=large"))
    assert large.split() == [
        "NodeName=large[1-5]",
        "State=CLOUD",
        "CPUs=96",
        f"RealMemory={int(1152 * 1024 * 0.95)}",
        "Gres=gpu:a100:8",
    ]
    assert "PartitionName=small Nodes=small[1-5] MaxTime=INFINITE State=UP" in lines
    assert "ResumeProgram=/opt/boa/boa-resume" in lines
    assert "SuspendProgram=/opt/boa/boa-suspend" in lines
    assert "PrologSlurmctld=/opt/boa/boa-prolog" in lines


def test_without_a_cap_on_nodes_a_partition_has_64() -> None:
    """Slurm must know every name in advance."""
    assert any(
        "small[1-64]" in line
        for line in conf_lines(settings(budget={"max_instances": None}), folder="/opt/boa")
    )


def test_a_machine_that_is_not_known_is_refused() -> None:
    """So are settings without partitions."""
    with pytest.raises(InputError, match="no partition"):
        conf_lines(Settings(), folder="/opt/boa")
    with pytest.raises(InputError, match=r"g5\.huge"):
        conf_lines(settings(partitions={"x": {"instance_type": "g5.huge"}}), folder="/opt/boa")


def test_the_programs_call_boa_with_the_list_of_nodes() -> None:
    """Paths with spaces stay one word, and each program has a shell's first line."""
    found = programs(settings(conf="/etc/my slurm.conf"), boa="/opt/my boa/boa", config="/etc/a b.toml")
    assert list(found) == ["boa-resume", "boa-suspend", "boa-prolog", "boa-node"]
    assert all(text.startswith("#!/bin/bash\n") for text in found.values())
    assert found["boa-resume"].endswith(
        "exec '/opt/my boa/boa' slurm resume --config '/etc/a b.toml' \"$1\"\n"
    )
    assert "slurm suspend" in found["boa-suspend"]
    prolog = found["boa-prolog"]
    assert 'case "$SLURM_JOB_PARTITION" in small|large) ;; *) exit 0 ;; esac\n' in prolog
    assert (
        "export SLURM_CONF='/etc/my slurm.conf'\nfor ((second = 0; second < 600; second++)); do\n" in prolog
    )
    assert "exec slurmd" in found["boa-node"] or "slurmd -D" in found["boa-node"]


def test_what_is_not_set_is_not_said() -> None:
    """No file of settings, none of Slurm; a command of the site's own runs in place of slurmd."""
    found = programs(settings(run="my-slurmd\n"), boa="boa")
    assert found["boa-suspend"] == '#!/bin/bash\nexec boa slurm suspend "$1"\n'
    assert "SLURM_CONF" not in found["boa-prolog"]
    assert found["boa-node"] == "#!/bin/bash\nmy-slurmd\n"
