"""The reasons why a job runs, waits, moves or was preempted: the numbers behind its decision, and
one sentence."""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from ..driver.borrowing import borrowers, fewest_gpus, rank_of
from ..errors import InputError
from ..model import Job, Mode, Placement, Running
from ..noun import number_of
from ..physics import hold_to_save_s, lost_s, may_preempt, memory_gib, span, unsaved_s
from ..physics.catalogue import catalogue_of
from ..physics.modes import WIDEST_FIRST
from ..physics.unschedulable import why_never
from ..round.model import NO_OPTION, Floats, Kind, RoundModel
from ..round.plan import RoundSolution
from .facts import Explanation, OptionNumbers, RowCost, Swap, Victim
from .inactive import explain_inactive, with_sentence
from .room import Room

__all__ = [
    "Explainer",
    "Explanation",
    "OptionNumbers",
    "RowCost",
    "Swap",
    "Victim",
    "explain_inactive",
]

KINDS = {
    Kind.KEEP: "keep",
    Kind.START: "start",
    Kind.MOVE: "move",
    Kind.BESIDE: "share",
    Kind.ALONE: "stay alone",
}


class Explainer:
    """Explains the decisions of one round.

    `model` is the one that was decided, or the same built again: `round.build.build` of the same
    instance, objective, `round_s` and `refill`. `solution` may also hold the decisions of a plan,
    with prices of a round.
    """

    def __init__(self, model: RoundModel, solution: RoundSolution) -> None:
        """Raise InputError where `solution` is not a round of this model."""
        self._model = model
        self._prices = _prices_of(model, solution)
        self._pattern_prices = model.pattern_prices(self._prices)
        self._reduced = model.options.value - self._pattern_prices[model.options.pattern]
        self._index = {job.id: j for j, job in enumerate(model.jobs)}
        self._decided = {entry.id: entry for entry in solution.jobs}
        self._borrowers = borrowers(model.instance)
        self._lowest = min(
            (rank_of(tier.priority, borrows=tier.borrows) for tier in solution.tiers), default=None
        )
        missing = [job.id for job in model.jobs if job.id not in self._decided]
        if missing:
            raise InputError(
                f"job {missing[0]} has no decision in this round; it was made for another instance"
            )
        held = {
            j: (mode, self._decided[job].placement)
            for job, j in self._index.items()
            if (mode := self._decided[job].mode) is not None
        }
        self._chosen = np.array(
            [
                self._option_of(j, *held[j]) if j in held else NO_OPTION
                for j in range(len(model.jobs))
            ],
            dtype=np.int64,
        )
        self._room = Room(model, self._chosen, held)
        self._arrivals, self._departures = self._changes()

    def _rank(self, job: Job) -> int:
        return rank_of(job.priority, borrows=job.id in self._borrowers)

    def _changes(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return who comes to each node where those who leave were in the way, and who leaves each
        node."""
        model = self._model
        arrivals: dict[str, list[str]] = defaultdict(list)
        departures: dict[str, list[str]] = defaultdict(list)
        left: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for job in model.jobs:
            entry = self._decided[job.id]
            if entry.decision in ("start", "resume", "migrate", "resize"):
                for slot in entry.placement:
                    arrivals[slot.node].append(job.id)
            if entry.decision in ("preempt", "migrate", "resize"):
                running = model.instance.running_job[job.id]
                for slot in running.placement:
                    departures[slot.node].append(job.id)
                    for i, amount in enumerate(
                        (slot.gpus, slot.cpus, memory_gib(job, running.mode, slot.gpus))
                    ):
                        left[slot.node][i] += amount
        for node, amounts in left.items():
            free = self._room.free[model.instance.cluster.node_order[node]]
            if all(there >= amount for there, amount in zip(free, amounts, strict=True)):
                arrivals.pop(node, None)
        return arrivals, departures

    def jobs(self) -> list[Explanation]:
        """Return every job of the instance, in its order."""
        return [self.job(job.id) for job in self._model.instance.jobs]

    def job(self, job_id: str) -> Explanation:
        """Return one job. Raises InputError where the instance has none of this id."""
        instance, model = self._model.instance, self._model
        if job_id not in self._index:
            explanation = explain_inactive(instance, job_id)
            assert explanation is not None
            return explanation
        j = self._index[job_id]
        decided = self._decided[job_id]
        explanation = Explanation(
            id=job_id,
            state=decided.decision,
            chosen=self._numbers(int(self._chosen[j])) if self._chosen[j] >= 0 else None,
            nodes=tuple(slot.node for slot in decided.placement),
            priced=self._lowest is None or self._rank(instance.job[job_id]) <= self._lowest,
            borrows=job_id in self._borrowers,
        )
        ranked = model.options.ranked(j, self._reduced)
        if decided.decision == "wait":
            explanation = self._waiting(j, ranked, explanation)
        else:
            taken = explanation.nodes if decided.decision not in ("continue", "preempt") else ()
            explanation = replace(
                explanation,
                best=self._numbers(ranked[0]),
                takes_from=_others(job_id, taken, self._departures, self._arrivals),
            )
        if (running := model.running[j]) is not None:
            first, stays = int(model.options.first[j]), decided.decision == "continue"
            left = () if stays else tuple(slot.node for slot in running.placement)
            explanation = replace(
                explanation,
                keep=self._numbers(first),
                margin=float(self._reduced[first]),
                must_stay=self._must_stay(j, running) if stays and model.must[j] else None,
                leaver=self._victim(j, preempted=True),
                makes_way_for=_others(job_id, left, self._arrivals),
            )
            own = self._rank(instance.job[job_id])
            above = [
                name for name in explanation.makes_way_for if self._rank(instance.job[name]) > own
            ]
            explanation = replace(explanation, higher=len(above))
        return with_sentence(instance, explanation)

    def _waiting(self, j: int, ranked: list[int], explanation: Explanation) -> Explanation:
        """Return what keeps a waiting job from its best option on GPUs of its own."""
        model = self._model
        best = next(option for option in ranked if model.hold(option) is None)
        blocked, waits_for = self._waits_for(best)
        swap = self._swap(j, best)
        taken = swap.nodes if swap is not None and not swap.leavers else ()
        return replace(
            explanation,
            reason=self._lowered(model.jobs[j]) if explanation.borrows else None,
            best=self._numbers(best),
            higher=self._higher(j, best),
            blocked=blocked,
            waits_for=waits_for,
            swap=swap,
            takes_from=_others(explanation.id, taken, self._departures),
        )

    def _lowered(self, job: Job) -> str | None:
        """Return which quota that a window lowers now is held by others, and leaves too little for
        a waiting job, in one clause."""
        instance = self._model.instance
        table = catalogue_of(instance).capacity
        rows = set(table.quotas_of(job))
        for window in instance.cluster.windows:
            if not window.from_s <= instance.now_s < window.to_s:
                continue
            for tenant, most in window.quotas.items():
                if (row := table.quotas[tenant]) not in rows:
                    continue
                held = sum(
                    entry.mode.gpus
                    for entry in self._decided.values()
                    if entry.mode and row in table.quotas_of(instance.job[entry.id])
                )
                if held and held + fewest_gpus(job) > most:
                    own = f"tenant {tenant} may hold {most} GPUs while {window.name} lasts"
                    return f"{own} and holds {held}"
        return None

    def _higher(self, j: int, best: int) -> int:
        """Return how many jobs above it hold something where a waiting one could be."""
        model, own = self._model, self._rank(self._model.jobs[j])
        mask = model.fresh(best).classes
        return sum(
            self._rank(job) > own and bool(self._classes(self._decided[job.id].placement) & mask)
            for job in model.jobs
        )

    def _numbers(self, option: int) -> OptionNumbers:
        model = self._model
        p = int(model.options.pattern[option])
        price = float(self._pattern_prices[p])
        rows = []
        for r, amount in model.rows.takes(p):
            unit = float(self._prices[r])
            if unit * amount > 0:
                rows.append(
                    RowCost(
                        row=model.rows.limits[r].name,
                        amount=amount,
                        price=unit,
                        share=unit * amount / price,
                    )
                )
        kind = Kind(int(model.options.kind[option]))
        hold = model.hold(option)
        mask = model.fresh(option).classes if hold is None else self._classes(hold.placement)
        return OptionNumbers(
            kind=KINDS[kind],
            mode=model.mode(option),
            node_classes=tuple(
                dict.fromkeys(kind.name for kind in model.classes if kind.bit & mask)
            ),
            rate=float(model.options.rate[option]),
            finish_s=float(model.options.finish_s[option]),
            value=float(model.options.value[option]),
            price=price,
            reduced=float(model.options.value[option]) - price,
            rows=tuple(sorted(rows, key=lambda cost: (-cost.share, cost.row))),
        )

    def _classes(self, placement: Placement) -> int:
        """Return the mask of the node classes that a placement is on."""
        model = self._model
        numbers = {model.class_of[model.instance.cluster.node_order[s.node]] for s in placement}
        return sum(1 << number for number in numbers)

    def _waits_for(self, best: int) -> tuple[bool, tuple[str, ...]]:
        """Return whether a waiting job is blocked on real nodes although the prices would let
        it run, and what binds."""
        model = self._model
        p = int(model.options.pattern[best])
        numbers = self._numbers(best)
        if self._reduced[best] <= ROUNDING * max(abs(numbers.value), abs(numbers.price)):
            return False, tuple(cost.row for cost in numbers.rows)
        short = self._room.short(p)
        pattern = model.fresh(best)
        most, total = self._room.room(p, model.jobs[int(model.options.job[best])])
        if most >= max(pattern.gpus, 1):
            return True, short
        where = " or ".join(numbers.node_classes)
        if not pattern.gpus:
            return True, (*short, f"{pattern.cpus} cores on one node of {where}")
        together = {"node": " on one node", "rack": " in one rack", "cluster": ""}[
            "node" if pattern.together else pattern.option.spread
        ]
        return True, (
            *short,
            f"{number_of(pattern.gpus, 'GPU')}{together} of {where} with what goes with "
            f"{'them' if pattern.gpus > 1 else 'it'} (room for {most}, {total} free in all)",
        )

    def _swap(self, j: int, best: int) -> Swap | None:
        """Return who would have to leave for a waiting job: for its best option, or the next best
        for which that can be."""
        model = self._model
        for option in (best, *model.options.ranked(j, self._reduced)):
            if model.hold(option) is not None:
                continue
            leaving = self._room.cheapest(int(model.options.pattern[option]), model.jobs[j])
            if leaving is not None:
                return Swap(
                    nodes=tuple(model.instance.cluster.nodes[n].name for n in leaving.nodes),
                    leavers=tuple(
                        self._victim(k, preempted=model.running[k] is not None)
                        for k in leaving.jobs
                    ),
                    value_lost=leaving.lost,
                    value_gained=float(model.options.value[option]),
                )
        return None

    def _victim(self, j: int, preempted: bool) -> Victim:
        """Return what it costs that a job leaves: the value is that of what was decided, or of its
        keeping."""
        model = self._model
        job, entry = model.jobs[j], model.running[j]
        option = int(self._chosen[j]) if self._chosen[j] >= 0 else int(model.options.first[j])
        gpus = (
            entry.mode.gpus
            if entry is not None
            else int(model.patterns.gpus[model.options.pattern[option]])
        )
        profile = job.profile
        return Victim(
            id=job.id,
            preempted=preempted,
            gpus=gpus,
            value=float(model.options.value[option]),
            save_s=hold_to_save_s(job) if preempted else 0.0,
            startup_s=profile.startup_s if preempted else 0.0,
            restore_s=profile.restore_s if preempted else 0.0,
            lost_s=0.0 if entry is None else lost_s(job, unsaved_s(entry, model.instance.now_s)),
        )

    def _must_stay(self, j: int, entry: Running) -> str:
        """Return which rule of `round.build.build` keeps a running job."""
        model = self._model
        instance, job = model.instance, model.jobs[j]
        if not may_preempt(instance, entry):
            return _forbidden(job, entry)
        if entry.mode.share_with is not None:
            return f"it shares its GPUs with {entry.mode.share_with}"
        if model.options.finish_s[model.options.first[j]] <= hold_to_save_s(job):
            return "it completes before it could be saved"
        if why_never(catalogue_of(instance), job) is not None:
            return "it could not start again anywhere"
        return "it was preempted before and has not yet run long enough again"

    def _option_of(self, j: int, mode: Mode, placement: Placement) -> int:
        """Return the option that a decision means: of those that suit, the most valuable; -1 where
        the model has none."""
        model, entry = self._model, self._model.running[j]
        own, places = model.options.of(j), set(placement)
        alone = mode.unshared
        for option in own:
            hold = model.hold(option)
            if hold is None or hold.kind == Kind.KEEP or set(hold.placement) != places:
                continue
            partner = model.jobs[hold.partner].id if hold.kind == Kind.BESIDE else None
            if replace(hold.mode, share_with=partner) == mode:
                return option
        if entry is not None and set(entry.placement) == places and entry.mode.unshared == alone:
            return own.start
        mask, spread = self._classes(placement), span(model.instance.cluster, placement)

        def suits(option: int) -> bool:
            if model.hold(option) is not None:
                return False
            pattern = model.fresh(option)
            widest = "node" if pattern.together else pattern.option.spread
            return (
                pattern.option.mode in (mode, alone)
                and not mask & ~pattern.classes
                and WIDEST_FIRST.index(widest) <= WIDEST_FIRST.index(spread)
            )

        values = model.options.value
        return max(filter(suits, own), key=lambda option: float(values[option]), default=NO_OPTION)


ROUNDING = 1e-4
"""A reduced value this small relative to value and price is 0: prices are found numerically."""


def _prices_of(model: RoundModel, solution: RoundSolution) -> Floats:
    """Return the prices of the model's rows. Rows of one name (classes that differ in cores only)
    are told apart by order."""
    known: dict[str, list[float]] = defaultdict(list)
    for row in solution.prices:
        known[row.name].append(row.price)
    prices = np.zeros(len(model.rows.limits))
    for r, named in enumerate(model.rows.limits):
        if not known[named.name] and solution.tiers:
            continue  # prices are those of the lowest tier, of what is left to it
        if not known[named.name]:
            raise InputError(
                f"the round has no price of {named.name}; it was made for another instance"
            )
        prices[r] = known[named.name].pop(0)
    return prices


def _others(job_id: str, nodes: tuple[str, ...], *on: dict[str, list[str]]) -> tuple[str, ...]:
    """Return the other jobs that the first table has on those of `nodes` that all tables have."""
    there = (node for node in nodes if all(node in table for table in on))
    others = (other for node in there for other in on[0][node] if other != job_id)
    return tuple(dict.fromkeys(others))


def _forbidden(job: Job, entry: Running) -> str:
    if not job.preemptible:
        return "it is not preemptible"
    if job.max_preemptions is not None and entry.preemptions >= job.max_preemptions:
        return f"it was preempted {entry.preemptions} times, as often as it may be"
    return f"it may not be preempted in its first {job.min_run_s:.12g} s"
