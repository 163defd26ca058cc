"""The jobs of an instance as buyers of GPU time: what is left of it when all but GPUs of each type,
releases and the speeds of gangs is relaxed.

Any plan that the verifier accepts tells for each job how many seconds it works in which way in each
interval of time, holding at least `Way.gpus` GPUs of the way's type for each of them, and never in
two ways at once:

- a gang on GPUs of several types, n_t of type t, with `mixing` "sum" works as if it spent the share
  n_t / n of each second in the way of type t: that is its rate exactly, and n GPUs for n_t / n of a
  second are n_t; one that is as fast as its slowest type does no more work, and holds no less, than
  in the way of whichever of its types is cheapest then;
- elastic gangs have one way for each type, as fast as their fastest size and as thrifty as their
thriftiest; - a pair holds its GPUs once, so a job that may share counts half on them (its partner
may, too, or it would not move); - what is lost to preemptions, failures and outages is work done
twice.
"""

from dataclasses import dataclass

import numpy as np

from ..model.instance import Instance
from .terms import look
from .ways import Ways, tabulate


@dataclass(frozen=True, slots=True, order=True)
class Way:
    """One way to work: `gpus` of type `gpu_type` held (-1 for none), at a speed relative to the
    job's fastest way."""

    gpu_type: int
    gpus: float
    speed: float


@dataclass(frozen=True, slots=True)
class Buyer:
    """A job as the bound sees it: it cannot work before `head_s` after now, and has `work_s`
    seconds to do at its fastest way; `alone_s` is the least time it holds anything."""

    weight: float
    head_s: float
    work_s: float
    ways: tuple[Way, ...]
    alone_s: float


@dataclass(frozen=True, slots=True)
class Market:
    """All jobs and the GPUs of each type; `offset` is what the weighted completion times count from
    before now."""

    buyers: tuple[Buyer, ...]
    gpu_types: tuple[str | None, ...]
    capacity: tuple[float, ...]
    offset: float


def market(instance: Instance) -> Market:
    """The jobs of a sound instance as buyers, in order. Raises InputError for a job that fits
    nowhere."""
    if not instance.jobs:
        return Market((), (), (), 0.0)
    ways = tabulate(instance, preemptive=True)
    outlook = look(instance, ways)
    ends = np.append(ways.first[1:], len(ways.job)).tolist()
    buyers, offset = [], 0.0
    for j, job in enumerate(instance.jobs):
        offset += job.weight * (instance.now_s - job.submit_s)
        delay_s, work_s, found = _ways(ways, int(ways.first[j]), ends[j])
        head_s = float(outlook.heads_s[j]) + delay_s
        buyers.append(Buyer(job.weight, head_s, work_s, found, float(outlook.seconds[j])))
    return Market(tuple(buyers), ways.shape.types, tuple(map(float, ways.shape.capacity)), offset)


def _ways(ways: Ways, first: int, end: int) -> tuple[float, float, tuple[Way, ...]]:
    """Seconds before a job can work, its seconds of work, and its undominated ways. With one way
    alone its set-up is work like any other; else it only delays the first piece, as nobody knows in
    which way, or size, it is paid."""
    rows = range(first, end)
    setup_s = min(float(ways.setup_s[a]) for a in rows)
    is_work = len(rows) == 1 and float(ways.area_gpus[first]) <= float(ways.gpus[first])
    run_s = [float(ways.run_s[a]) + (setup_s if is_work else 0.0) for a in rows]
    work_s = min(run_s)
    found = set()
    for a, own_s in zip(rows, run_s, strict=True):
        types = (
            np.flatnonzero(ways.mixed[a]).tolist() if a in ways.mixed else [int(ways.gpu_type[a])]
        )
        gpus = float(ways.area_gpus[a]) * (0.5 if ways.shares[a] else 1.0) if types[0] >= 0 else 0.0
        for gpu_type in (
            types
        ):  # where a gang stays on several types, as many GPUs of the cheapest cost no more
            found.add(Way(gpu_type if gpus else -1, gpus, work_s / own_s if own_s else 1.0))
    kept = tuple(
        sorted(
            one
            for one in found
            if not any(_dominates(other, one) for other in found if other != one)
        )
    )
    return 0.0 if is_work else setup_s, work_s, kept


def _dominates(a: Way, b: Way) -> bool:
    return (a.gpu_type == b.gpu_type or a.gpu_type < 0) and a.speed >= b.speed and a.gpus <= b.gpus
