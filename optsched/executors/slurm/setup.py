"""What a site adds to Slurm for optsched to have nodes there."""

import json

PARTITION = """\
# Add to slurm.conf, then: scontrol reconfigure
# Nobody else submits here: optsched decides what runs on which node, and Slurm only starts it. {why}
PartitionName={partition} Nodes={nodes} {users}MaxTime=INFINITE OverSubscribe=NO State=UP
# These nodes in no other partition that is open to users. Wanted besides, as most sites have it:
#   SelectType=select/cons_tres with CR_Core_Memory    cores, memory and GPUs are given out one by one
#   ProctrackType=proctrack/cgroup                     nothing of a job outlives it
#   in cgroup.conf ConstrainDevices=yes                a job sees its own GPUs only
# Not needed: RequeueExit, RequeueExitHold, JobRequeue (an attempt is a job of its own, never requeued) and preemption.
"""
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
state = {state}   # all nodes must see it under this name

[slurm]
{where}

# What Slurm does not know of its nodes:
# [[nodes]]
# name = {nodes}
# gpu_memory_gib = 80
# rack = "r0"
"""


def setup(nodes: str, user: str, partition: str, reservation: str | None, state: str) -> dict[str, str]:
    """Files by name: what goes into Slurm, for the `nodes` (a hostlist) to be those of `user`, and a cluster.toml."""
    kind, name = ("partition", partition) if reservation is None else ("reservation", reservation)
    where = f"{kind} = {json.dumps(name)}"
    cluster = CLUSTER.format(where=where, nodes=json.dumps(nodes), state=json.dumps(state))
    if reservation is not None:
        text = RESERVATION.format(reservation=reservation, user=user, nodes=nodes)
        return {"reservation.sh": text, "cluster.toml": cluster}
    why = (
        "A job that a user\n# submits by himself takes nothing away from those that run, but makes others wait for it."
        if user == "root" else "AllowGroups\n# names a Unix group."
    )
    users = "" if user == "root" else f"AllowGroups={user} "
    text = PARTITION.format(partition=partition, nodes=nodes, users=users, why=why)
    return {"slurm.conf.part": text, "cluster.toml": cluster}
