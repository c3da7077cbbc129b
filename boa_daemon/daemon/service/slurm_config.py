"""The lines of slurm.conf that make BOA the source of a partition's nodes, and the script of a node."""

from __future__ import annotations

from shlex import quote

from boa_daemon.daemon.planner.machines_and_classes import machines_of, site_catalog
from boa_daemon.daemon.planner.slurm_classes import check_partitions
from boa_daemon.daemon.service.slurm_nodes import DEFAULT_RUN
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.inputs.catalog import Catalog

RESUME, SUSPEND, PROLOG, NODE = "boa-resume", "boa-suspend", "boa-prolog", "boa-node"
"""Names of the three programs that Slurm calls, and of the boot script of a node."""
START_SECONDS = 600
"""ResumeTimeout: seconds from Slurm's request until the node's slurmd has joined."""
IDLE_SECONDS = 300
"""SuspendTime: seconds that a node may be idle before Slurm gives it back."""
PROLOG_SCRIPT = """\
#!/bin/bash
# Ends when the nodes of a job have joined: then Slurm starts it, and else it would look every ten seconds.
case "$SLURM_JOB_PARTITION" in {partitions}) ;; *) exit 0 ;; esac
{conf}for ((second = 0; second < {seconds}; second++)); do
  # The nodes that it has now: a job may give some back while others are powered up.
  found=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format='%T %N') || {{ sleep 1; continue; }}
  read -r state list <<< "$found"
  [ "$state" = CONFIGURING ] || exit 0
  nodes=$(sinfo --noheader --Node --nodes="$list" --format=%T) || nodes='#'
  case "$nodes" in *['~#%!*']*) sleep 1 ;; *) exit 0 ;; esac
done
exit 0
"""
"""PrologSlurmctld: a job waits for nothing else there, and one that is requeued meanwhile not at all."""
SHARE_OF_MEMORY = 0.95
"""Part of a machine's memory that Slurm may hand out; the rest is the system's."""


def conf_lines(settings: Settings, *, folder: str) -> list[str]:
    """Return the lines for slurm.conf; `folder` has the programs. Partitions have `max_instances` nodes.

    Raises:
        InputError: when the settings name no partition, or a machine that is not rented.
    """
    check_partitions(settings)
    catalog = site_catalog(settings)
    machines_of(settings, catalog)
    most = settings.budget.max_instances or 64
    found = [
        "# Nodes that BOA provides when jobs need them. Slurm's user must be in [api] admins of boa.toml.",
        f"ResumeProgram={folder}/{RESUME}",
        f"SuspendProgram={folder}/{SUSPEND}",
        "# Jobs start as soon as their nodes have joined. If you have a PrologSlurmctld, call this from it.",
        f"PrologSlurmctld={folder}/{PROLOG}",
        f"ResumeTimeout={START_SECONDS}",
        "SuspendTimeout=120",
        "SlurmctldParameters=power_save_interval=1,power_save_min_interval=0",
        "ResumeRate=0",
        "SuspendRate=0",
        "TreeWidth=65533",
        "PrivateData=cloud",
        "ReturnToService=2",
        "# This is for all nodes: name the partitions of your own nodes in SuspendExcParts.",
        f"SuspendTime={IDLE_SECONDS}",
        "GresTypes=gpu",
    ]
    for name, said in settings.slurm.partitions.items():
        found += _partition_lines(name, said.instance_type, catalog, most)
    return found


def programs(settings: Settings, *, boa: str, config: str = "") -> dict[str, str]:
    """Return the scripts by their names: Slurm names a program by its path alone, without arguments."""
    given = f" --config {quote(config)}" if config else ""
    calls = {RESUME: "resume", SUSPEND: "suspend"}
    found = {
        name: f'#!/bin/bash\nexec {quote(boa)} slurm {what}{given} "$1"\n' for name, what in calls.items()
    }
    conf = settings.slurm.conf
    prolog = PROLOG_SCRIPT.format(
        partitions="|".join(quote(name) for name in settings.slurm.partitions),
        conf=f"export SLURM_CONF={quote(conf)}\n" if conf else "",
        seconds=START_SECONDS,
    )
    return {**found, PROLOG: prolog, NODE: f"#!/bin/bash\n{settings.slurm.run or DEFAULT_RUN}"}


def _partition_lines(name: str, machine: str, catalog: Catalog, most: int) -> list[str]:
    """Return the nodes and the partition of one entry of the settings."""
    entry = catalog.entry(machine)
    size = [f"CPUs={entry.vcpus}"] if entry.vcpus else []
    size += [f"RealMemory={int(entry.memory_mib * SHARE_OF_MEMORY)}"] if entry.memory_mib else []
    gres = [f"Gres=gpu:{entry.gpu_type}:{entry.gpus}"]
    nodes = f"{name}[1-{most}]"
    return [
        " ".join([f"NodeName={nodes}", "State=CLOUD", *size, *gres]),
        f"PartitionName={name} Nodes={nodes} MaxTime=INFINITE State=UP",
    ]
