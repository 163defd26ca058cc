"""Short notation for small instances: a cluster, and jobs that wait, run or are suspended."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from optsched.files import dump_instance
from optsched.model.cluster import Cluster, Node, Tenant
from optsched.model.instance import Instance, Running, Slot, Suspended
from optsched.model.job import Elastic, Job, Mode
from optsched.model.profile import Profile

COST = Profile(checkpoint_s=20, startup_s=10, restore_s=30)
"""Saving takes 20 s, a start 10 s, a restore 30 s on top: the swap rule's threshold is 2 x 20 + 10
+ 40 = 90 s."""

Entry = tuple[Job, Running | Suspended | None]


def gpus(
    *counts: int,
    types: Sequence[str | None] = (),
    racks: Sequence[str | None] = (),
    cpus: int | None = None,
) -> Cluster:
    """One node `n0`, `n1`, ... for each number of GPUs."""
    return Cluster(
        nodes=tuple(
            Node(
                name=f"n{k}",
                gpus=count,
                gpu_type=types[k] if types else None,
                rack=racks[k] if racks else None,
                cpus=cpus,
            )
            for k, count in enumerate(counts)
        )
    )


def job(
    name: str,
    work: int,
    count: int | Elastic = 1,
    *,
    left: int | None = None,
    on: dict[str, int] | None = None,
    suspended: int | None = None,
    beside: str | None = None,
    level: int = 0,
    started: int = -500,
    setup: int = 0,
    last_checkpoint: int | None = None,
    preemptions: int = 0,
    submit: int = 0,
    profile: Profile = COST,
    **fields: Any,
) -> Entry:
    """A job of `work` seconds on `count` GPUs.

    With `left` it runs now, on `on` (all of it on n0 by default) with `level` cores per GPU,
    `beside` another job on the same GPUs; with `suspended` it has so much left and waits; else it
    waits from `submit` on.
    """
    if left is not None or suspended is not None:
        submit = -1000
    own = Job(id=name, submit_s=submit, duration_s=work, gpus=count, profile=profile, **fields)
    if suspended is not None:
        return own, Suspended(job=name, remaining_s=suspended)
    if left is None:
        return own, None
    if on is None:
        assert isinstance(count, int)
        on = {"n0": count}
    return own, Running(
        job=name,
        started_s=started,
        remaining_s=left,
        setup_s=setup,
        last_checkpoint_s=last_checkpoint,
        preemptions=preemptions,
        mode=Mode(
            gpus=sum(on.values()), cpus_per_gpu=level, share_with=beside, resources=own.resources
        ),
        placement=tuple(Slot(node=node, gpus=held, cpus=held * level) for node, held in on.items()),
    )


def instance(cluster: Cluster, *entries: Entry, tenants: tuple[Tenant, ...] = ()) -> Instance:
    """Jobs on a cluster, as they are at 0 s; a running job's mode names the GPU type of its
    node."""
    running = []
    for _, held in entries:
        if isinstance(held, Running):
            mode = held.mode
            typed = Mode(
                gpu_type=cluster.node[held.placement[0].node].gpu_type,
                gpus=mode.gpus,
                cpus_per_gpu=mode.cpus_per_gpu,
                share_with=mode.share_with,
                resources=mode.resources,
            )
            running.append(
                Running(
                    job=held.job,
                    mode=typed,
                    placement=held.placement,
                    started_s=held.started_s,
                    remaining_s=held.remaining_s,
                    setup_s=held.setup_s,
                    last_checkpoint_s=held.last_checkpoint_s,
                    preemptions=held.preemptions,
                )
            )
    return Instance(
        cluster=cluster,
        tenants=tenants,
        jobs=tuple(own for own, _ in entries),
        running=tuple(running),
        suspended=tuple(held for _, held in entries if isinstance(held, Suspended)),
    )


def write(folder: Path, made: Iterable[tuple[str, Instance]]) -> None:
    """Write a set's instances by name, or with `--check` on the command line compare the files."""
    parser = argparse.ArgumentParser(description="Write the instances of this folder.")
    parser.add_argument("--check", action="store_true", help="compare with the files there are")
    check = parser.parse_args().check
    names = set()
    for name, drawn in made:
        path, text = folder / f"{name}.json", dump_instance(drawn)
        names.add(path.name)
        if not check:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path.name} differs from what generate.py makes")
    stale = {path.name for path in folder.glob("*.json")} - names - {"optima.json"}
    if stale:
        sys.exit(f"not made by generate.py: {', '.join(sorted(stale))}")
    print(f"{len(names)} instances {'agree' if check else 'written'}")
