"""Disks of a fake node: stand-ins for the commands that list disks, format them and mount them.

A folder in the node's home stands for the device, and a link for a mount. `$HOME/disks.log` records each
command on a line; `$HOME/mounts` lists the mounts.
"""

from __future__ import annotations

from collections.abc import Mapping

STORE = "instance-store"
"""Folder in a node's home where its own disks are mounted."""

_LSBLK = """#!/bin/bash
# The root volume, and as many disks of the instance; once there is a file system, with its label.
label=null; kind=null
if [ -e "$HOME/formatted" ]; then label='"boa-scratch"'; kind='"ext4"'; fi
printf '{"blockdevices": [{"name": "/dev/nvme0n1", "type": "disk", "model": "Amazon Elastic Block Store",'
printf ' "size": 214748364800, "label": null, "fstype": null, "mountpoint": null, "children": [{"name":'
printf ' "/dev/nvme0n1p1", "type": "part", "model": null, "size": 214747299328, "label": "root",'
printf ' "fstype": "ext4", "mountpoint": "/"}]}'
for ((i = 1; i <= ${BOA_FAKE_DISKS:-0}; i++)); do
    printf ', {"name": "/dev/nvme%dn1", "type": "disk", "model": "Amazon EC2 NVMe Instance Storage",' "$i"
    printf ' "size": 900000000000, "label": %s, "fstype": %s, "mountpoint": null}' "$label" "$kind"
done
echo ']}'
"""
_FINDMNT = """#!/bin/bash
target="${!#}"
grep -qxF "$target" "$HOME/mounts" 2> /dev/null && echo "$target"
"""
_MOUNT = """#!/bin/bash
echo "mount $*" >> "$HOME/disks.log"
if [ -e "$HOME/no-mount" ]; then echo "mount: permission denied" >&2; exit 32; fi
target="${!#}"
if [ "$1" = --bind ]; then rmdir "$target" && ln -s "$2" "$target"; fi
echo "$target" >> "$HOME/mounts"
"""
_NOTED = """#!/bin/bash
echo "@NAME@ $*" >> "$HOME/disks.log"
if [ -e "$HOME/no-@NAME@" ]; then echo "@NAME@: device or resource busy" >&2; exit 1; fi
@THEN@
"""


def stand_ins() -> Mapping[str, str]:
    """Return the stand-ins, as scripts by the name of their command."""
    made = _NOTED.replace("@NAME@", "mkfs.ext4").replace("@THEN@", 'touch "$HOME/formatted"')
    return {
        "lsblk": _LSBLK,
        "findmnt": _FINDMNT,
        "mount": _MOUNT,
        "mkfs.ext4": made,
        "mdadm": _NOTED.replace("@NAME@", "mdadm").replace("@THEN@", "true"),
    }
