"""Write the instances of this folder: always the same bytes.

    python instances/preempt-or-continue/generate.py [--check]

`--check` compares what is there instead of writing it. `families()` lists them with the idea of
each; those of the family `mix` and the last of `share` are drawn by seed, see `draw.py`.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from draw import PAIRED_SEEDS, SEEDS, TYPED_SEEDS, mixed, mixed_pairs, mixed_types  # noqa: E402
from notation import COST, Entry, gpus, instance, job, write  # noqa: E402

from optsched.model.cluster import Cluster, Tenant  # noqa: E402
from optsched.model.instance import Instance  # noqa: E402
from optsched.model.job import Elastic  # noqa: E402
from optsched.model.profile import Locality, Profile, Sharing  # noqa: E402

Found = tuple[str, str, Instance]
"""Name, idea, instance."""

FREE = Profile()
PLAIN = COST


def families() -> Iterator[Found]:
    """Every instance, family by family."""
    for family in (
        pair,
        weight,
        gang,
        queue,
        gpu_type,
        elastic,
        cores,
        locality,
        periodic,
        rule,
        suspended,
        arrival,
        share,
        sweep,
        mix,
    ):
        for k, (idea, found) in enumerate(family(), 1):
            name = f"{family.__name__.replace('_', '-')}-{k:02}"
            yield name, idea, replace(found, name=name)


def _pair(
    left: int, wait: int, *, weights: tuple[int, int] = (1, 1), profile: Profile = COST, **more: Any
) -> Instance:
    """One GPU, held by `r` with `left` seconds to go; `w` of `wait` seconds waits for it."""
    return instance(
        gpus(1),
        job("r", 2000, left=left, weight=weights[0], profile=profile, **more),
        job("w", wait, weight=weights[1], profile=profile),
    )


Family = Iterator[tuple[str, Instance]]


def pair() -> Family:
    yield "one second below the swap rule's 90: continue", _pair(289, 200)
    yield "at the swap rule's 90: both decisions are optimal", _pair(290, 200)
    yield "one second above the swap rule's 90: preempt", _pair(291, 200)
    yield "no overheads: one second decides, as SRPT says", _pair(201, 200, profile=FREE)
    w = job("w", 500, suspended=200)
    yield (
        "the waiter was suspended and pays its restore: 120 is the threshold, reached",
        instance(gpus(1), job("r", 2000, left=320), w),
    )
    yield "the same, one second above", instance(gpus(1), job("r", 2000, left=321), w)
    yield (
        "the victim has 8 s of its start-up left, which it pays again: 282 + 8 - 200 = 90",
        _pair(282, 200, setup=8),
    )
    yield (
        "a gang of 4 against a gang of 4: one second above 90, whatever the size",
        instance(gpus(4), job("r", 2000, 4, left=291), job("w", 200, 4)),
    )


def weight() -> Family:
    # preempt exactly when w_w (rem_r - k) > w_r (k + load_w + p_w + load_r), here with k = 20 and
    # loads 10 and 40
    yield "weights 3 to 1: 3 (70 - 20) = 150 < 151, continue", _pair(70, 81, weights=(1, 3))
    yield "weights 3 to 1: 3 (70 - 20) = 150 on both sides, a tie", _pair(70, 80, weights=(1, 3))
    yield (
        "weights 3 to 1: 150 > 149, preempt although the victim is nearly done",
        _pair(70, 79, weights=(1, 3)),
    )
    yield "the victim weighs 4: short work waits for long work", _pair(600, 100, weights=(4, 1))
    yield "the victim weighs 4 and is so long that it yields", _pair(1000, 100, weights=(4, 1))
    yield (
        "two heavy waiters together outweigh the victim, neither does alone",
        instance(
            gpus(1), job("r", 2000, left=115), job("u", 140, weight=2), job("v", 150, weight=2)
        ),
    )


def gang() -> Family:
    yield (
        "a gang of 2 needs both single victims",
        instance(gpus(2), job("a", 2000, left=400), job("b", 2000, left=900), job("w", 100, 2)),
    )
    yield (
        "the same, with so little to gain that it waits for both",
        instance(gpus(2), job("a", 2000, left=300), job("b", 2000, left=280), job("w", 100, 2)),
    )
    yield (
        "two GPUs of three: the two longest victims need not be the best ones",
        instance(
            gpus(3),
            job("a", 2000, left=500),
            job("b", 2000, left=450, weight=2),
            job("c", 2000, left=430),
            job("w", 60, 2),
        ),
    )
    yield (
        "a gang of 4 by one victim of 4 or two victims of 2",
        instance(
            gpus(8),
            job("a", 3000, 4, left=700),
            job("b", 3000, 2, left=800),
            job("c", 3000, 2, left=650),
            job("w", 200, 4),
        ),
    )
    yield (
        "a victim of 8 for a waiter of 1: seven GPUs idle unless others fill them",
        instance(gpus(8), job("a", 3000, 8, left=500), job("w", 100)),
    )
    yield (
        "the same with seven more waiters",
        instance(
            gpus(8), job("a", 3000, 8, left=500), *(job(f"w{k}", 100 + 7 * k) for k in range(8))
        ),
    )
    yield (
        "one node must be emptied: two victims on one node or one victim on the other",
        instance(
            gpus(4, 4),
            job("a", 3000, 2, left=900, on={"n0": 2}),
            job("b", 3000, 2, left=1000, on={"n0": 2}),
            job("c", 3000, 4, left=800, on={"n1": 4}),
            job("w", 150, 4, profile=replace(COST, locality=Locality(node=1.0, cluster=0.25))),
        ),
    )
    yield (
        "packing: a victim moves so that a gang fits on one node",
        instance(
            gpus(4, 4),
            job("a", 3000, 2, left=900, on={"n0": 2}),
            job("b", 3000, 2, left=1000, on={"n1": 2}),
            job("w", 600, 4, profile=replace(COST, locality=Locality(node=1.0, cluster=0.25))),
        ),
    )


def queue() -> Family:
    yield (
        "three waiters, one victim: each alone is too long, together they are not",
        instance(gpus(1), job("r", 2000, left=340), job("u", 260), job("v", 265), job("x", 270)),
    )
    yield (
        "two waiters: the victim goes between them",
        instance(gpus(1), job("r", 2000, left=400), job("u", 50), job("v", 900)),
    )
    yield (
        "the same with two: each alone falls short, 220 s gained pay for 210 s lost",
        instance(gpus(1), job("r", 2000, left=130), job("u", 60), job("v", 70)),
    )
    yield (
        "five short waiters behind two long victims: one victim is enough",
        instance(
            gpus(2),
            job("a", 3000, left=900),
            job("b", 3000, left=700),
            *(job(f"w{k}", 60 + 10 * k) for k in range(5)),
        ),
    )
    for checkpoint in (200, 450):
        yield (
            f"the same with checkpoints of {checkpoint} s",
            instance(
                gpus(2),
                *(
                    replace_profile(entry, checkpoint_s=checkpoint)
                    for entry in (
                        job("a", 3000, left=900),
                        job("b", 3000, left=700),
                        *(job(f"w{k}", 60 + 10 * k) for k in range(5)),
                    )
                ),
            ),
        )
    yield (
        "a free GPU is there: the short waiter takes it, who takes the victim's?",
        instance(gpus(2), job("r", 2000, left=500), job("u", 100), job("v", 300), job("x", 320)),
    )
    yield (
        "a long checkpoint of the shortest victim, a cheap one of a longer",
        instance(
            gpus(2),
            job("a", 3000, left=800, profile=replace(COST, checkpoint_s=150)),
            job("b", 3000, left=600),
            job("u", 100),
            job("v", 250),
        ),
    )


def replace_profile(entry: Entry, **fields: Any) -> Entry:
    own, held = entry
    return replace(own, profile=replace(own.profile, **fields)), held


def gpu_type() -> Family:
    nodes = gpus(1, 1, types=("fast", "slow"))

    def rated(slow: float) -> Profile:
        return replace(COST, rate={"fast": 1.0, "slow": slow})

    yield (
        "the slow GPU is free: the waiter takes it, the victim stays",
        instance(
            nodes, job("r", 2000, left=600, profile=rated(0.5)), job("w", 200, profile=rated(0.5))
        ),
    )
    yield (
        "the waiter runs on the fast type only: the victim migrates",
        instance(
            nodes,
            job("r", 2000, left=600, profile=rated(0.8)),
            job("w", 400, profile=replace(COST, rate={"fast": 1.0})),
        ),
    )
    yield (
        "the waiter loses much on the slow type, the victim little: the victim moves there",
        instance(
            nodes, job("r", 2000, left=240, profile=rated(0.8)), job("w", 200, profile=rated(0.5))
        ),
    )
    yield (
        "the same, the victim too short to pay for the move",
        instance(
            nodes, job("r", 2000, left=100, profile=rated(0.8)), job("w", 200, profile=rated(0.5))
        ),
    )
    yield (
        "the fast GPU has come free: its claimants are a waiter and a job that runs on the slow "
        "one",
        instance(
            nodes,
            job("r", 3000, left=300, on={"n1": 1}, profile=rated(0.5)),
            job("w", 400, profile=rated(0.5)),
        ),
    )
    yield (
        "the same, the waiter as fast on the slow type: they trade",
        instance(
            nodes,
            job("r", 3000, left=300, on={"n1": 1}, profile=rated(0.5)),
            job("w", 400, profile=rated(1.0)),
        ),
    )
    yield (
        "two types, two victims, two waiters with opposite tastes",
        instance(
            gpus(1, 1, types=("fast", "slow")),
            job("a", 3000, left=900, profile=rated(0.5)),
            job("b", 3000, left=400, on={"n1": 1}, profile=rated(0.8)),
            job("u", 150, profile=rated(0.25)),
            job("v", 200, profile=rated(1.0)),
        ),
    )


def elastic() -> Family:
    table = replace(COST, gpus={1: 0.5, 2: 1.0, 4: 1.6})
    for wait, left, what in (
        (1500, 1600, "a long gang of 2 waits: an elastic victim shrinks from 4 to 2 GPUs"),
        (500, 1600, "the gang is shorter: the victim makes way altogether"),
        (500, 320, "the victim has so little left that to shrink and to continue are equally good"),
        (500, 300, "with less left it continues"),
    ):
        yield (
            what,
            instance(
                gpus(4),
                job("r", 4000, Elastic(min=1, max=4), left=left, on={"n0": 4}, profile=table),
                job("w", wait, 2),
            ),
        )
    yield (
        "an elastic victim on 1 GPU of 4 grows: resize or continue",
        instance(
            gpus(4),
            job("r", 4000, Elastic(min=1, max=4), left=400, on={"n0": 1}, profile=table),
            job("w", 300, 1),
        ),
    )
    yield (
        "the waiter is elastic too: it starts on what is free or waits for more",
        instance(
            gpus(4),
            job("r", 4000, 3, left=240),
            job("w", 400, Elastic(min=1, max=4), profile=table),
        ),
    )


def cores() -> Family:
    hungry = replace(COST, cpus_per_gpu={2: 0.5, 4: 0.8, 8: 1.0})
    modest = replace(COST, cpus_per_gpu={1: 0.8, 2: 1.0})
    yield (
        "cores run short: the waiter starts on 2 of them, at half its rate",
        instance(
            gpus(2, cpus=10),
            job("r", 2000, left=300, level=8, profile=hungry),
            job("w", 100, profile=hungry),
        ),
    )
    yield (
        "the victim gives up cores (resize) so that the waiter can start at all",
        instance(
            gpus(2, cpus=8),
            job("r", 3000, left=800, level=8, profile=hungry),
            job("w", 200, profile=modest),
        ),
    )
    yield (
        "the same, nearly done: it keeps them",
        instance(
            gpus(2, cpus=8),
            job("r", 3000, left=90, level=8, profile=hungry),
            job("w", 200, profile=modest),
        ),
    )
    yield (
        "a third job starts on the cores that two others leave, or one of them is resized",
        instance(
            gpus(3, cpus=12),
            job("a", 3000, left=900, level=4, profile=hungry),
            job("b", 3000, left=700, level=4, profile=hungry),
            job("w", 250, profile=hungry),
        ),
    )


def locality() -> Family:
    tight = replace(COST, locality=Locality(node=1.0, rack=0.8, cluster=0.5))
    racks = gpus(2, 2, 2, racks=("r0", "r0", "r1"))
    yield (
        "a job spread over two racks could move into one: it has enough left",
        instance(racks, job("a", 3000, 4, left=600, on={"n0": 2, "n2": 2}, profile=tight)),
    )
    yield (
        "the same with 80 s of work left: a tie",
        instance(racks, job("a", 3000, 4, left=80, on={"n0": 2, "n2": 2}, profile=tight)),
    )
    yield (
        "the same with 76 s left: stay",
        instance(racks, job("a", 3000, 4, left=76, on={"n0": 2, "n2": 2}, profile=tight)),
    )
    yield (
        "a small job in the way of a gang's rack is moved",
        instance(racks, job("a", 3000, left=800, on={"n1": 1}), job("w", 800, 4, profile=tight)),
    )
    yield (
        "a gang can start at once across racks, or in one rack once a victim has moved",
        instance(racks, job("a", 3000, 2, left=300, on={"n1": 2}), job("w", 400, 4, profile=tight)),
    )


def periodic() -> Family:
    def saved(every: int) -> Profile:
        return replace(COST, checkpoint_s=0, checkpoint_every_s=every)

    def one(last: int, left: int, every: int = 600) -> Instance:
        r = job("r", 3000, left=left, started=-900, last_checkpoint=last, profile=saved(every))
        return instance(gpus(1), r, job("w", 100))

    yield "saved just now, nothing is lost: 151 - 100 = 51 > 50, preempt", one(0, 151)
    yield "saved 30 s ago: the victim loses 30 s, 151 is not enough, continue", one(-30, 151)
    yield "saved 30 s ago: 180 - 100 = 80 = 50 + 30, a tie", one(-30, 180)
    yield "saved 500 s ago: even a long victim continues", one(-500, 600)
    yield (
        "one second before the next checkpoint nearly the whole period would be lost",
        one(-599, 690),
    )
    yield "one second later nothing is", one(-600, 690)
    yield (
        "two victims of equal length, one saved long ago",
        instance(
            gpus(2),
            job("a", 3000, left=700, last_checkpoint=-400, profile=saved(600)),
            job("b", 3000, left=690, last_checkpoint=-20, profile=saved(600)),
            job("w", 150),
            job("x", 300),
        ),
    )


def rule() -> Family:
    yield (
        "the obvious victim is not preemptible",
        instance(
            gpus(2),
            job("a", 3000, left=1500, preemptible=False),
            job("b", 3000, left=500),
            job("w", 100),
        ),
    )
    yield (
        "the obvious victim has not had its minimum run",
        instance(
            gpus(2),
            job("a", 3000, left=1500, min_run_s=600),
            job("b", 3000, left=500),
            job("w", 100),
            job("x", 120),
        ),
    )
    yield (
        "the obvious victim has used up its preemptions",
        instance(
            gpus(2),
            job("a", 3000, left=1500, max_preemptions=2, preemptions=2),
            job("b", 3000, left=400),
            job("w", 100),
        ),
    )
    small = (Tenant(name="t", gpu_quota=2),)
    yield (
        "the waiter's tenant is at its quota: only its own jobs can make room",
        instance(
            gpus(4),
            job("a", 3000, 2, left=900, tenant="t"),
            job("b", 3000, left=1500),
            job("w", 100, tenant="t"),
            tenants=small,
        ),
    )
    yield (
        "a preempted job of the quota's tenant keeps others of it out when it returns",
        instance(
            gpus(3),
            job("a", 3000, 2, left=600, tenant="t"),
            job("b", 3000, left=800),
            job("u", 120, 2),
            job("w", 200, tenant="t"),
            tenants=small,
        ),
    )
    licence = Cluster(nodes=gpus(3).nodes, resources={"licence": 2})
    yield (
        "GPUs are free, a licence is not: its holder is the victim",
        instance(
            licence,
            job("a", 3000, left=900, resources={"licence": 2}),
            job("b", 3000, left=1500),
            job("w", 150, resources={"licence": 1}),
        ),
    )


def suspended() -> Family:
    yield (
        "two suspended jobs come back after a victim, or before it",
        instance(
            gpus(1),
            job("r", 3000, left=500),
            job("u", 800, suspended=120),
            job("v", 900, suspended=200),
        ),
    )
    yield (
        "a suspended gang of 2 against two victims with cheap and dear checkpoints",
        instance(
            gpus(2),
            job("a", 3000, left=600),
            job("b", 3000, left=500, profile=replace(COST, checkpoint_s=120)),
            job("u", 2000, 2, suspended=150),
        ),
    )
    yield (
        "fresh waiter or suspended one first: the restore decides",
        instance(gpus(1), job("r", 3000, left=900), job("u", 190), job("v", 900, suspended=170)),
    )


def arrival() -> Family:
    yield (
        "a short job arrives soon: nobody is preempted for it later in this plan class, so now "
        "or not",
        instance(gpus(1), job("r", 3000, left=700), job("u", 250), job("v", 40, submit=60)),
    )
    yield (
        "a gang arrives: GPUs are kept free for it, or a short job goes first",
        instance(gpus(2), job("r", 3000, left=300), job("u", 220), job("w", 150, 2, submit=100)),
    )
    yield (
        "the victim's GPU idles until the next job comes: too early to preempt",
        instance(gpus(1), job("r", 3000, left=500), job("w", 100, submit=400)),
    )


def share() -> Family:
    half = replace(COST, sharing=Sharing(duty=1.0))  # two of them share a GPU at half rate each
    mild = replace(COST, sharing=Sharing(duty=0.625))  # at 0.8
    light = replace(COST, sharing=Sharing(duty=0.5))  # at full rate

    def couple(left: tuple[int, int], profile: Profile, *others: Entry, **more: Any) -> Instance:
        a = job("a", 3000, left=left[0], beside="b", profile=profile, **more)
        b = job("b", 3000, left=left[1], beside="a", profile=profile)
        return instance(gpus(1), a, b, *others)

    yield (
        "half rate each, a short one and a long one: to preempt the long one pays",
        couple((100, 900), half),
    )
    yield "half rate each, equal lengths: either of them is preempted", couple((300, 300), half)
    for left, what in ((50, "both continue"), (60, "a tie"), (70, "the long one is preempted")):
        yield f"half rate each, {left} s against 280 s: {what}", couple((left, 280), half)
    yield "at 0.8 each: both continue", couple((100, 900), mild)
    yield (
        "no loss by sharing: both would have to go for the waiter, and would not share again",
        couple((800, 600), light, job("w", 100)),
    )
    yield (
        "the same, the waiter so heavy that both go",
        couple((800, 600), light, job("w", 100, weight=3)),
    )
    yield "the same, the pair nearly done", couple((130, 90), light, job("w", 100, weight=3))
    yield "a heavy job beside a light one", couple((400, 300), half, job("w", 60), weight=5)
    yield (
        "a waiter, a free GPU: the longer of the pair moves there, or the waiter takes it",
        instance(
            gpus(1, 1),
            job("a", 3000, left=500, beside="b", profile=half),
            job("b", 3000, left=400, beside="a", profile=half),
            job("w", 300),
        ),
    )
    yield (
        "a pair of gangs of 2 and a gang of 2 that waits",
        instance(
            gpus(2),
            job("a", 3000, 2, left=700, beside="b", profile=mild),
            job("b", 3000, 2, left=260, beside="a", profile=mild),
            job("w", 90, 2),
            job("x", 80),
        ),
    )
    yield (
        "two pairs, two waiters: one pair is emptied, the other kept",
        instance(
            gpus(1, 1),
            job("a", 3000, left=700, beside="b", profile=mild),
            job("b", 3000, left=650, beside="a", profile=mild),
            job("c", 3000, left=900, on={"n1": 1}, beside="d", profile=half),
            job("d", 3000, left=200, on={"n1": 1}, beside="c", profile=half),
            job("w", 100),
            job("x", 140),
        ),
    )
    yield (
        "one of the pair is not preemptible, so the waiter cannot profit from the other",
        couple((900, 500), light, job("w", 100), preemptible=False),
    )
    yield (
        "the pair's quota counts each of them",
        instance(
            gpus(1, 1),
            job("a", 3000, left=600, beside="b", profile=mild, tenant="t"),
            job("b", 3000, left=500, beside="a", profile=mild, tenant="t"),
            job("w", 80, tenant="t"),
            tenants=(Tenant(name="t", gpu_quota=2),),
        ),
    )
    for seed in PAIRED_SEEDS:
        yield f"drawn, seed {seed}", mixed_pairs(seed)


def sweep() -> Family:
    for checkpoint in (0, 10, 20, 40, 80, 160, 320):
        cost = replace(COST, checkpoint_s=checkpoint)
        yield (
            f"four GPUs, three victims, three waiters; saving takes {checkpoint} s",
            instance(
                gpus(4),
                job("a", 4000, 2, left=700, profile=cost),
                job("b", 4000, left=380, profile=cost),
                job("c", 4000, left=330, profile=cost),
                job("u", 200, profile=cost),
                job("v", 250, 2, profile=cost),
                job("x", 260, profile=cost),
            ),
        )
    for restore in (0, 60, 240):
        cost = replace(COST, restore_s=restore)
        yield (
            f"two nodes, four victims, a gang and two more wait; a restore takes {restore} s",
            instance(
                gpus(2, 2),
                job("a", 4000, left=500, profile=cost),
                job("b", 4000, left=600, profile=cost),
                job("c", 4000, left=550, on={"n1": 1}, profile=cost),
                job("d", 4000, left=800, on={"n1": 1}, profile=cost),
                job("u", 120, 2, profile=cost),
                job("v", 100, profile=cost),
                job("x", 210, profile=cost),
            ),
        )


def mix() -> Family:
    for jobs, seed in SEEDS:
        yield f"drawn, {jobs} jobs, seed {seed}", mixed(jobs, seed)
    for jobs, seed in TYPED_SEEDS:
        yield f"drawn, {jobs} jobs, two GPU types and cores, seed {seed}", mixed_types(jobs, seed)


def main() -> None:
    """Write the files or compare them."""
    write(HERE, ((name, made) for name, _, made in families()))


if __name__ == "__main__":
    main()
