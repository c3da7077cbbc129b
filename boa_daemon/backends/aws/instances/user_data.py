"""User data that a node runs at its first boot: the lease as a service, and the handler of spot warnings.

Everybody who may describe the instance can read its user data, so it holds no secret.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

_BOOT = """#!/bin/bash
mkdir -p /opt/boa
cat > /opt/boa/lease.sh <<'BOA_LEASE_SCRIPT'
@SCRIPT@BOA_LEASE_SCRIPT
cat > /opt/boa/on-warning <<'BOA_ON_WARNING_SCRIPT'
#!/bin/bash
# Spot warning: each unit of a job writes its checkpoint and ends, without waiting for the daemon.
systemctl stop --no-block 'boa-*-g*-n*.service'
BOA_ON_WARNING_SCRIPT
chmod 755 /opt/boa/lease.sh /opt/boa/on-warning
cat > /etc/systemd/system/boa-lease.service <<'BOA_LEASE_UNIT'
[Unit]
Description=BOA lease: power off when the daemon is gone
[Service]
ExecStart=/opt/boa/lease.sh
Restart=always
RestartSec=5
[Install]
WantedBy=multi-user.target
BOA_LEASE_UNIT
systemctl daemon-reload
systemctl enable --now boa-lease.service
"""


@cache
def _script() -> str:
    return (resources.files("boa_daemon.backends.aws") / "node" / "lease.sh").read_text(encoding="utf-8")


def lease_script(lease_ends_at: float) -> str:
    """Return the script that watches the lease; until the tag was read, the lease ends at this instant."""
    return _script().replace("@LEASE@", str(int(lease_ends_at)))


def user_data(lease_ends_at: float) -> str:
    """Return the user data of a node, which installs the script as a service that restarts."""
    return _BOOT.replace("@SCRIPT@", lease_script(lease_ends_at))
