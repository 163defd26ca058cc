"""The best round of a tiny model: every combination of options on every real placement, each checked by the verifier.

Nothing of the model's rows is used, only its options and what they are worth.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from optsched import Instance, Mode, Slot
from optsched.instance import Placement
from optsched.physics import cpus, span
from optsched.round.model import Kind, RoundModel
from optsched.round.plan import JobRound, decision
from optsched.round.verify import verify_round

WIDTH = {"node": 0, "rack": 1, "cluster": 2}


def splits(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to split `total` into `parts` positive numbers, in order."""
    for cuts in combinations(range(1, total), parts - 1):
        yield tuple(b - a for a, b in zip((0, *cuts), (*cuts, total), strict=True))


def placements(instance: Instance, mode: Mode, spread: str, nodes: Sequence[int]) -> Iterator[Placement]:
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
                    Slot(node=name, gpus=gpus, cpus=cpus(mode, gpus)) for name, gpus in zip(chosen, split, strict=True)
                )
                if WIDTH[span(instance.cluster, found)] <= WIDTH[spread]:
                    yield found


def best_round(model: RoundModel) -> tuple[float, tuple[JobRound, ...]]:
    """The largest value of any round that passes the verifier, and one that has it."""
    instance = model.instance
    ways: list[list[tuple[float, JobRound]]] = []
    kept: tuple[JobRound, ...] = ()
    least = 0.0
    for j, job in enumerate(model.jobs):
        entry = model.running[j]
        own = []
        for o in range(int(model.first[j]), int(model.first[j + 1])):
            value = float(model.value[o])
            if model.kind[o] == Kind.KEEP:
                assert entry is not None
                own.append((value, JobRound(
                    id=job.id, decision="continue", mode=entry.mode, placement=entry.placement
                )))
                continue
            pattern = model.patterns[int(model.pattern[o])]
            mode = pattern.option.mode
            nodes = [n for one in model.classes if one.bit & pattern.classes for n in one.nodes]
            places = placements(instance, mode, pattern.option.spread, sorted(nodes)) if pattern.classes else [()]
            own.extend(
                (value, JobRound(id=job.id, decision=decision(instance, job.id, mode, place), mode=mode,
                                 placement=place))
                for place in places
            )
        if model.must[j]:
            (value, way), = own
            kept, least = (*kept, way), least + value
            continue
        own.append((0.0, JobRound(id=job.id, decision="wait" if entry is None else "preempt")))
        ways.append(sorted(own, key=lambda way: -way[0]))
    beyond = [0.0] * (len(ways) + 1)
    for at in reversed(range(len(ways))):
        beyond[at] = beyond[at + 1] + ways[at][0][0]
    best = -1.0
    found: tuple[JobRound, ...] = ()

    def search(at: int, value: float, rounds: tuple[JobRound, ...]) -> None:
        nonlocal best, found
        if at == len(ways):
            if value > best:
                best, found = value, rounds
            return
        for worth, way in ways[at]:
            if value + worth + beyond[at + 1] <= best:
                return
            if way.mode is None or not verify_round(instance, (*rounds, way), model.blocked):
                search(at + 1, value + worth, (*rounds, way))

    search(0, least, kept)
    return best, found
