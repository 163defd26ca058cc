"""The jobs of an instance as buyers of what they hold: what is left of it when all but the GPUs of
each type, the quotas of tenants, releases and the speeds of gangs is relaxed.

Any plan that the verifier accepts tells for each job how many seconds it works in which of its
alternatives in each interval of time, holding at least what the alternative `uses` for each of
them, and never in two at once:

- a gang on GPUs of several types, n_t of type t, with `mixing` "sum" works as if it spent the share
  n_t / n of each second in the alternative of type t: that is its rate exactly, and n GPUs for
  n_t / n of a second are n_t; one that is as fast as its slowest type does no more work, and holds
  no less, than in that of whichever of its types is cheapest then;
- an elastic gang has an alternative for each useful size; the others are mixes of these, as rates
  are linear between measured counts;
- a pair holds its GPUs once, so a job that may share has two: all of its GPUs at its own rate, or
  half of them at the highest that it could have beside another (its partner pays the other half);
- what is lost to preemptions, failures and outages is work done twice. For schedules in which the
  attempts of an instance fail (`replay`), what these do in vain is work of the job.
"""

from dataclasses import dataclass

import numpy as np

from ..frozen import record
from ..model import Instance
from .mode_table import ModeTable, tabulate
from .relaxed_modes import NO_GPU
from .terms import look


@dataclass(frozen=True, slots=True, order=True)
class Alternative:
    """One way to work: `uses` are the amounts held of rows of the market, at a speed relative to
    the job's fastest alternative."""

    uses: tuple[tuple[int, float], ...]
    speed: float

    def dominates(self, other: "Alternative") -> bool:
        """Return whether it is as good as another and holds no more of anything."""
        held = dict(other.uses)
        return self.speed >= other.speed and all(
            amount <= held.get(row, 0.0) for row, amount in self.uses
        )


@record
class Buyer:
    """A job as the bound sees it: it cannot work before `head_s` after now, and has `work_s`
    seconds to do in its fastest alternative; `alone_s` is the least time it holds anything."""

    weight: float
    head_s: float
    work_s: float
    alternatives: tuple[Alternative, ...]
    alone_s: float


@record
class Market:
    """All jobs, and how much there is of each row: the GPUs of each type first, then the quotas of
    `tenants` (None: all together) that are not 0; `offset` is what the weighted completion times
    count from before now."""

    buyers: tuple[Buyer, ...]
    capacity: tuple[float, ...]
    types: int
    tenants: tuple[str | None, ...]
    offset: float


def market(instance: Instance, replay: bool = False) -> Market:
    """Return the jobs of a sound instance as buyers, in order. Raises InputError for a job that
    fits nowhere."""
    if not instance.jobs:
        return Market((), (), 0, (), 0.0)
    modes = tabulate(instance, preemptive=True, replay=replay)
    outlook = look(instance, modes)
    types = len(modes.empty.types)
    quotas = {name: most for name, most in instance.quotas.limits.items() if most}
    row = {tenant: types + k for k, tenant in enumerate(quotas)}
    ends = np.append(modes.first[1:], len(modes.job)).tolist()
    buyers, offset = [], 0.0
    for j, job in enumerate(instance.jobs):
        offset += job.weight * (instance.now_s - job.submit_s)
        over = instance.quotas.over.get(job.tenant or "", ())
        limits = [row[name] for name in over if name in row]
        delay_s, work_s, own = _alternatives(modes, range(int(modes.first[j]), ends[j]), limits)
        head_s, alone_s = float(outlook.heads_s[j]) + delay_s, float(outlook.seconds[j])
        buyers.append(Buyer(job.weight, head_s, work_s, own, alone_s))
    capacity = (*map(float, modes.empty.capacity), *map(float, quotas.values()))
    return Market(tuple(buyers), capacity, types, tuple(quotas), offset)


def _alternatives(
    modes: ModeTable, own: range, limits: list[int]
) -> tuple[float, float, tuple[Alternative, ...]]:
    """Return the seconds before a job can work, its seconds of work, and its undominated
    alternatives; its GPUs count in the rows `limits` even where they are shared.

    With one alternative alone, of no more GPUs than any mode, its set-up is work like any other;
    else it only delays the first piece, as nobody knows in which mode, or size, it is paid.
    """
    setup_s, gpus = min(float(modes.setup_s[a]) for a in own), modes.gpus
    ways: dict[int, list[tuple[float, tuple[tuple[int, float], ...]]]] = {}
    for a in own:
        held, beside = float(gpus.working[a]), float(modes.beside[a])
        alone_s = float(modes.run_s[a]) * max(1.0, beside)
        types = [int(modes.gpu_type[a])]
        if a in modes.mixed:  # as many GPUs of the cheapest of its types cost no more
            types = np.flatnonzero(modes.mixed[a]).tolist()
        quotas = tuple((limit, held) for limit in limits if held)
        ways[a] = []
        for t in types:
            on_type = t != NO_GPU and held
            ways[a].append((alone_s, (((t, held), *quotas) if on_type else quotas)))
            if beside:
                half = ((t, held / 2), *quotas) if on_type else quotas
                ways[a].append((alone_s / beside, half))
    work_s = min(length_s for lengths in ways.values() for length_s, _ in lengths)
    every = {a: {Alternative(uses, work_s / length_s) for length_s, uses in ways[a]} for a in own}
    stays = every[own[-1]] if modes.stay[own[0]] >= 0 else set()
    useful = _undominated(set().union(*every.values()))
    if len(useful | stays) == 1 and not modes.shares[own].any():
        held = max(float(gpus.working[a]) for a in own if useful & every[a])
        if held <= min(float(gpus.starting[a]) for a in own):
            return 0.0, work_s + setup_s, tuple(useful)
    return setup_s, work_s, tuple(sorted(useful))


def _undominated(every: set[Alternative]) -> set[Alternative]:
    return {a for a in every if not any(other.dominates(a) for other in every if other != a)}
