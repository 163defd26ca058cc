"""The best round of a tiny model: every combination of options on every real placement, each
checked by the verifier.

Nothing of the model's rows is used, only its options and what they are worth.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from optsched import Instance, Mode, Slot
from optsched.model.instance import Placement
from optsched.physics import cpus, span
from optsched.round.model import NO_OPTION, RoundModel
from optsched.round.plan import JobRound, decision
from optsched.round.verify import verify_round

WIDTH = {"node": 0, "rack": 1, "cluster": 2}


def splits(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to split `total` into `parts` positive numbers, in order."""
    for cuts in combinations(range(1, total), parts - 1):
        yield tuple(b - a for a, b in zip((0, *cuts), (*cuts, total), strict=True))


def placements(
    instance: Instance, mode: Mode, spread: str, nodes: Sequence[int]
) -> Iterator[Placement]:
    """Every placement of a mode on the given nodes that is no wider than `spread`."""
    names = [instance.cluster.nodes[n].name for n in nodes]
    if mode.gpus == 0:
        for name in names:
            yield (Slot(node=name, cpus=mode.cpus),)
        return
    for count in range(1, min(mode.gpus, len(names)) + 1):
        for chosen in combinations(names, count):
            for split in splits(mode.gpus, count):
                found = tuple(
                    Slot(node=name, gpus=gpus, cpus=cpus(mode, gpus))
                    for name, gpus in zip(chosen, split, strict=True)
                )
                if WIDTH[span(instance.cluster, found)] <= WIDTH[spread]:
                    yield found


Way = tuple[float, int, Mode | None, Placement]
"""Value, option, mode and placement."""


def combinations_of(model: RoundModel) -> int:
    """How many there are to try at most."""
    return math.prod(len(list(_ways(model, j))) for j in range(len(model.jobs)))


def best_round(model: RoundModel) -> tuple[float, tuple[JobRound, ...]]:
    """The largest value of any round that passes the verifier, and one that has it. Jobs that share
    GPUs already are not expected."""
    order = sorted(
        range(len(model.jobs)), key=lambda j: (not model.must[j], model.running[j] is None)
    )
    ways = {j: sorted(_ways(model, j), key=lambda way: -way[0]) for j in order}
    forced = [j for j in order if model.must[j]]
    chosen = {j: ways[j][0] for j in forced}
    free = order[len(forced) :]
    beyond = [0.0] * (len(free) + 1)
    for at in reversed(range(len(free))):
        beyond[at] = beyond[at + 1] + ways[free[at]][0][0]
    best = -1.0
    found: tuple[JobRound, ...] = ()

    def search(at: int, value: float) -> None:
        nonlocal best, found
        if at == len(free):
            if value > best:
                best, found = value, _rounds(model, chosen)
            return
        j = free[at]
        for way in ways[j]:
            if value + way[0] + beyond[at + 1] <= best:
                return
            host = int(model.options.host[way[1]]) if way[1] >= 0 else -1
            if host >= 0 and (
                chosen[host][1] != model.options.first[host]
                or any(
                    model.options.host[other[1]] == host
                    for other in chosen.values()
                    if other[1] >= 0
                )
            ):
                continue
            chosen[j] = way
            if way[1] < 0 or not verify_round(
                model.instance, _rounds(model, chosen), model.blocked
            ):
                search(at + 1, value + way[0])
            del chosen[j]

    search(0, sum(chosen[j][0] for j in forced))
    return best, found


def _ways(model: RoundModel, j: int) -> Iterator[Way]:
    instance = model.instance
    for o in range(int(model.options.first[j]), int(model.options.first[j + 1])):
        value, pattern = float(model.options.value[o]), int(model.options.pattern[o])
        hold = model.hold(o)
        if hold is not None:
            yield value, o, hold.mode, hold.placement
        else:
            taken = model.patterns.fresh[pattern]
            nodes = sorted(n for one in model.classes if one.bit & taken.classes for n in one.nodes)
            for place in (
                placements(instance, taken.option.mode, taken.option.spread, nodes)
                if nodes
                else [()]
            ):
                yield value, o, taken.option.mode, place
    if not model.must[j]:
        yield 0.0, NO_OPTION, None, ()


def _rounds(model: RoundModel, chosen: dict[int, Way]) -> tuple[JobRound, ...]:
    """The decisions; who shares GPUs names the other."""
    partner = {
        j: int(model.options.host[o])
        for j, (_, o, _, _) in chosen.items()
        if o >= 0 and model.options.host[o] >= 0
    }
    partner |= {host: guest for guest, host in partner.items()}
    found = []
    for j, (_, _, mode, place) in chosen.items():
        job = model.jobs[j]
        if mode is not None and j in partner:
            mode = replace(mode, share_with=model.jobs[partner[j]].id)
        found.append(
            JobRound(
                id=job.id,
                decision=decision(model.instance, job.id, mode, place),
                mode=mode,
                placement=place,
            )
        )
    return tuple(found)
