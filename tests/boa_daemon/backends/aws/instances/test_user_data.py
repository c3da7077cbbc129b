"""`aws/instances/user_data.py`: the script of a node's first boot, which installs its lease."""

from __future__ import annotations

import re

from boa_daemon.backends.aws.instances.user_data import lease_script, user_data

SCRIPT = user_data(1_800_000_000.9)


def documents() -> dict[str, str]:
    """Return the files that the script writes, by path: quoted here-documents, which the shell leaves."""
    return {
        path: text
        for path, end, text in re.findall(r"cat > (\S+) <<'(\w+)'\n(.*?)(?<=\n)\2\n", SCRIPT, re.S)
        if end
    }


def test_the_lease_is_written_whole_and_ends_at_a_whole_second() -> None:
    """The shell must not expand its variables while it is written."""
    lease = documents()["/opt/boa/lease.sh"]
    assert lease == lease_script(1_800_000_000.9)
    assert re.search(r"\b1800000000\b(?!\.)", lease)
    assert not re.search(r"@[A-Z]+@", SCRIPT)


def test_the_lease_is_a_service_that_restarts_and_runs_at_once() -> None:
    """A node whose lease script was ended would else run, and be billed, for ever."""
    unit = documents()["/etc/systemd/system/boa-lease.service"]
    assert {"ExecStart=/opt/boa/lease.sh", "Restart=always", "WantedBy=multi-user.target"} <= {
        *unit.splitlines()
    }
    lines = SCRIPT.splitlines()
    assert lines[-2:] == ["systemctl daemon-reload", "systemctl enable --now boa-lease.service"]
    assert "chmod 755 /opt/boa/lease.sh /opt/boa/on-warning" in lines
    assert lines[0] == "#!/bin/bash"


def test_a_spot_warning_stops_all_units_of_jobs_without_waiting() -> None:
    """Each writes its checkpoint within two minutes; no daemon is needed."""
    assert "systemctl stop --no-block 'boa-*-g*-n*.service'" in documents()["/opt/boa/on-warning"]


def test_user_data_fits_into_what_ec2_takes() -> None:
    """16 KiB before encoding."""
    assert len(SCRIPT.encode()) < 16_384
