"""Write the instances of this folder: always the same bytes.

    python instances/preempt-or-continue-large/generate.py [--check]

`--check` compares what is there instead of writing it. All are drawn by seed from Python's Mersenne
twister by `random()` alone, so that every version draws the same. All times are multiples of 30 s,
which is what lets a time-indexed program prove them.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "preempt-or-continue"))

from draw import Draw  # noqa: E402
from notation import Entry, gpus, instance, job, write  # noqa: E402

from optsched.model.cluster import Cluster  # noqa: E402
from optsched.model.instance import Instance  # noqa: E402
from optsched.model.profile import Profile  # noqa: E402

SIZES = (15, 16, 18, 20, 25, 30, 40, 50)
"""Jobs of the instances of a family; where a gang is bound to a node the first `FEW` of them twice,
since each node is a place of its own to the program that proves them."""
FEW = 4
STEP_S = 30


@dataclass(frozen=True)
class Family:
    """How the instances of a family are drawn: `nodes` by the number of jobs, `types` of the nodes
    in turn, the `gangs` and `weights` drawn from; `periodic` and `bound` say of the jobs that they
    save periodically and run on one node."""

    idea: str
    nodes: Callable[[int], tuple[int, ...]]
    gangs: tuple[int, ...] = (1, 1, 1, 2, 2, 4, 8)
    weights: tuple[int, ...] = (1,)
    types: tuple[str, ...] = ()
    periodic: bool = False
    bound: bool = False


def _eights(jobs: int) -> tuple[int, ...]:
    return (8,) * round(jobs / 6)


FAMILIES = {
    "pool": Family("gangs spread over all nodes", _eights),
    "weight": Family("the same with weights of 1 to 6", _eights, weights=(1, 1, 2, 3, 6)),
    "type": Family("two GPU types", _eights, gangs=(1, 1, 2, 2, 4), types=("fast", "slow")),
    "periodic": Family("periodic checkpoints", _eights, periodic=True),
    "node": Family("each gang on one node", _eights, gangs=(1, 1, 2, 2, 4, 4, 8), bound=True),
    "all": Family(
        "all of it, each gang on one node",
        _eights,
        gangs=(1, 1, 2, 2, 4),
        weights=(1, 1, 2, 3),
        types=("fast", "slow"),
        periodic=True,
        bound=True,
    ),
}


def families() -> Iterator[tuple[str, str, Instance]]:
    """Every instance with its name and its idea, family by family."""
    for number, (name, family) in enumerate(FAMILIES.items(), 1):
        for k, jobs in enumerate(2 * SIZES[:FEW] if family.bound else SIZES, 1):
            drawn = draw(family, jobs, Draw(1_000_000 * number + 1_000 * k + jobs))
            yield f"{name}-{k:02}", family.idea, replace(drawn, name=f"{name}-{k:02}")


def draw(family: Family, jobs: int, draw: Draw) -> Instance:
    """One instance: jobs run while they fit, the next ones wait, one waiter in six suspended.

    Running jobs have 180 to 1,800 s left, waiting ones 120 to 1,500 s, of which short ones are
    likelier; saving takes 30 to 180 s, a start 30 or 60 s, a restore 30 to 150 s.
    """
    sizes = family.nodes(jobs)
    cluster = gpus(
        *sizes,
        types=[family.types[k % len(family.types)] for k in range(len(sizes))]
        if family.types
        else (),
    )
    free = list(sizes)
    entries: list[Entry] = []
    running = True
    for k in range(jobs):
        count, weight = draw.one_of(family.gangs), draw.one_of(family.weights)
        profile = _profile(family, draw)
        more = {"max_nodes": 1} if family.bound and count > 1 else {}
        on = _place(cluster, free, count, bool(family.types or family.bound)) if running else {}
        running = bool(on)
        if on:
            left = draw.steps(180, 1800, 2 * STEP_S)
            since = 60 * draw.one_of(range(1, 10))
            entries.append(
                job(
                    f"r{k}",
                    4800,
                    count,
                    left=left,
                    on=on,
                    weight=weight,
                    profile=profile,
                    last_checkpoint=-since if family.periodic else None,
                    started=-900,
                    **more,
                )
            )
            continue
        work = draw.steps(120, draw.one_of((600, 1500)), 2 * STEP_S)
        suspended = draw.steps(120, work, 2 * STEP_S) if draw.one_of(range(6)) == 0 else None
        entries.append(
            job(f"w{k}", work, count, suspended=suspended, weight=weight, profile=profile, **more)
        )
    return instance(cluster, *entries)


def _profile(family: Family, draw: Draw) -> Profile:
    rate = {"fast": 1.0, "slow": draw.one_of((0.5, 0.5, 1.0))} if family.types else {}
    costs = {"startup_s": draw.steps(30, 60, STEP_S), "restore_s": draw.steps(30, 150, STEP_S)}
    if family.periodic:
        return Profile(rate=rate, checkpoint_every_s=draw.one_of((300, 600, 900)), **costs)
    return Profile(rate=rate, checkpoint_s=draw.steps(30, 180, STEP_S), **costs)


def _place(cluster: Cluster, free: list[int], count: int, one_node: bool) -> dict[str, int]:
    """Take a gang's GPUs of the first nodes that have them; nothing where it does not fit."""
    if one_node:
        able = [k for k, left in enumerate(free) if left >= count][:1]
    else:
        able = [k for k, left in enumerate(free) if left] if sum(free) >= count else []
    on = {}
    for k in able:
        if taken := min(free[k], count):
            on[cluster.nodes[k].name], free[k], count = taken, free[k] - taken, count - taken
    return on


if __name__ == "__main__":
    write(HERE, ((name, drawn) for name, _, drawn in families()))
