"""What a site adds to Slurm for optsched to have nodes there."""

import json
from pathlib import Path

from .site import heartbeat_of

HOLDING = Path(__file__).parent.parent / "sbatch" / "job_submit.lua"
PARTITION = """\
# Add to slurm.conf, then: scontrol reconfigure
# Nobody else submits here: optsched decides what runs on which node, and Slurm only starts it. {why}
PartitionName={partition} Nodes={nodes} {users}MaxTime=INFINITE OverSubscribe=NO State=UP
# These nodes in no other partition that is open to users. Wanted besides, as most sites have it:
#   SelectType=select/cons_tres with CR_Core_Memory    cores, memory and GPUs are given out one by one
#   ProctrackType=proctrack/cgroup                     nothing of a job outlives it
#   in cgroup.conf ConstrainDevices=yes                a job sees its own GPUs only
# Not needed: RequeueExit, RequeueExitHold, JobRequeue (an attempt is a job of its own, never requeued) and preemption.
"""  # noqa: E501
RESERVATION = """\
#!/bin/sh
# Run once, as an administrator of Slurm. It keeps all other jobs off these nodes; `scontrol delete
# reservationname={reservation}` gives them back.
scontrol create reservation reservationname={reservation} users={user} nodes='{nodes}' \\
  starttime=now duration=UNLIMITED flags=ignore_jobs
"""
CLUSTER = """\
format = "optsched-cluster/1"
executor = "slurm"
state = {state}   # the journal: a disk of this host
shared = {shared}   # attempts: all nodes must see it under this name

[slurm]
{where}

# What Slurm does not know of its nodes:
# [[nodes]]
# name = {nodes}
# gpu_memory_gib = 80
# rack = "r0"
"""
SBATCH = """\
# Add to slurm.conf, with job_submit.lua beside it, then: scontrol reconfigure
# Jobs that users submit to the partition {partition} are held, and optsched releases them.
# Where there is such a line already, add lua to its list. Jobs of other partitions are let through
# unchanged, and no other setting of the cluster is touched.
JobSubmitPlugins=lua
# For MinJobAge (300 s) optsched may be down and still hear how a job ended; longer is better.
# Its nodes in no other partition that is open to users. Wanted besides: SelectType=select/cons_tres with
# CR_Core_Memory, ProctrackType=proctrack/cgroup, ConstrainDevices=yes in cgroup.conf.
"""  # noqa: E501


def setup(
    nodes: str,
    user: str,
    partition: str,
    reservation: str | None,
    shared: str,
    state: str = "state",
) -> dict[str, str]:
    """Return files by name: what goes into Slurm, for the `nodes` (a hostlist) to be those of
    `user`, and a cluster.toml."""
    kind, name = ("partition", partition) if reservation is None else ("reservation", reservation)
    where = f"{kind} = {json.dumps(name)}"
    cluster = _cluster(where, nodes, shared, state)
    if reservation is not None:
        text = RESERVATION.format(reservation=reservation, user=user, nodes=nodes)
        return {"reservation.sh": text, "cluster.toml": cluster}
    why = (
        "A job that a user\n# submits by himself takes nothing away from those that run, but "
        "makes others wait for it."
        if user == "root"
        else "AllowGroups\n# names a Unix group."
    )
    users = "" if user == "root" else f"AllowGroups={user} "
    text = PARTITION.format(partition=partition, nodes=nodes, users=users, why=why)
    return {"slurm.conf.part": text, "cluster.toml": cluster}


def setup_sbatch(
    nodes: str, partition: str, shared: str, state: str = "state", heartbeat: str | None = None
) -> dict[str, str]:
    """Return files by name: what goes into Slurm for jobs that users submit to `partition`, which
    has the `nodes`, to be held for a controller of root; and a cluster.toml."""
    where = f"sbatch = true\npartition = {json.dumps(partition)}"
    if heartbeat is not None:
        where += f"\nheartbeat = {json.dumps(heartbeat)}"
    lua = HOLDING.read_text()
    for name, text in (
        ("PARTITION", partition),
        ("REPORTS", f"{shared}/sbatch/reports"),
        ("HEARTBEAT", heartbeat or str(heartbeat_of(partition))),
    ):
        lua = lua.replace(f"@{name}@", json.dumps(text))
    return {
        "job_submit.lua": lua,
        "slurm.conf.part": SBATCH.format(partition=partition),
        "cluster.toml": _cluster(where, nodes, shared, state),
    }


def _cluster(where: str, nodes: str, shared: str, state: str) -> str:
    return CLUSTER.format(
        where=where, nodes=json.dumps(nodes), shared=json.dumps(shared), state=json.dumps(state)
    )
