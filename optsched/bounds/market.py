"""The jobs of an instance as buyers of GPU time: what is left of it when all but GPUs of each type,
releases and the speeds of gangs is relaxed.

Any plan that the verifier accepts tells for each job how many seconds it works in which of its
alternatives in each interval of time, holding at least `Alternative.gpus` GPUs of its type for each
of them, and never in two at once:

- a gang on GPUs of several types, n_t of type t, with `mixing` "sum" works as if it spent the share
  n_t / n of each second in the alternative of type t: that is its rate exactly, and n GPUs for
  n_t / n of a second are n_t; one that is as fast as its slowest type does no more work, and holds
  no less, than in that of whichever of its types is cheapest then;
- elastic gangs have one alternative for each type, as fast as their fastest size and as thrifty as
  their thriftiest;
- a pair holds its GPUs once, so a job that may share counts half on them (its partner may, too, or
  it would not move);
- what is lost to preemptions, failures and outages is work done twice.
"""

from dataclasses import dataclass

import numpy as np

from ..model.instance import Instance
from .mode_table import ModeTable, tabulate
from .relaxed_modes import NO_GPU
from .terms import look


@dataclass(frozen=True, slots=True, order=True)
class Alternative:
    """One way to work: `gpus` of type `gpu_type` held (-1 for none), at a speed relative to the
    job's fastest alternative."""

    gpu_type: int
    gpus: float
    speed: float

    def dominates(self, other: "Alternative") -> bool:
        """Return whether it is as good as another and holds no dearer GPUs."""
        return (
            self.gpu_type in (other.gpu_type, NO_GPU)
            and self.speed >= other.speed
            and self.gpus <= other.gpus
        )


@dataclass(frozen=True, slots=True)
class Buyer:
    """A job as the bound sees it: it cannot work before `head_s` after now, and has `work_s`
    seconds to do in its fastest alternative; `alone_s` is the least time it holds anything."""

    weight: float
    head_s: float
    work_s: float
    alternatives: tuple[Alternative, ...]
    alone_s: float


@dataclass(frozen=True, slots=True)
class Market:
    """All jobs and the GPUs of each type; `offset` is what the weighted completion times count from
    before now."""

    buyers: tuple[Buyer, ...]
    capacity: tuple[float, ...]
    offset: float


def market(instance: Instance) -> Market:
    """Return the jobs of a sound instance as buyers, in order. Raises InputError for a job that
    fits nowhere."""
    if not instance.jobs:
        return Market((), (), 0.0)
    modes = tabulate(instance, preemptive=True)
    outlook = look(instance, modes)
    ends = np.append(modes.first[1:], len(modes.job)).tolist()
    buyers, offset = [], 0.0
    for j, job in enumerate(instance.jobs):
        offset += job.weight * (instance.now_s - job.submit_s)
        delay_s, work_s, own = _alternatives(modes, range(int(modes.first[j]), ends[j]))
        head_s = float(outlook.heads_s[j]) + delay_s
        buyers.append(Buyer(job.weight, head_s, work_s, own, float(outlook.seconds[j])))
    return Market(tuple(buyers), tuple(map(float, modes.empty.capacity)), offset)


def _alternatives(modes: ModeTable, own: range) -> tuple[float, float, tuple[Alternative, ...]]:
    """Return the seconds before a job can work, its seconds of work, and its undominated
    alternatives. With one mode alone its set-up is work like any other; else it only delays the
    first piece, as nobody knows in which mode, or size, it is paid."""
    setup_s = min(float(modes.setup_s[a]) for a in own)
    gpus = modes.gpus
    is_work = len(own) == 1 and float(gpus.working[own[0]]) <= float(gpus.starting[own[0]])
    run_s = [float(modes.run_s[a]) + (setup_s if is_work else 0.0) for a in own]
    work_s = min(run_s)
    every = set()
    for a, own_s in zip(own, run_s, strict=True):
        speed = work_s / own_s if own_s else 1.0
        held = float(gpus.working[a]) * (0.5 if modes.shares[a] else 1.0)
        types = [int(modes.gpu_type[a])]
        if a in modes.mixed:  # as many GPUs of the cheapest of its types cost no more
            types = np.flatnonzero(modes.mixed[a]).tolist()
        for gpu_type in types:
            every.add(Alternative(gpu_type, held, speed))
    useful = (a for a in every if not any(other.dominates(a) for other in every if other != a))
    return 0.0 if is_work else setup_s, work_s, tuple(sorted(useful))
