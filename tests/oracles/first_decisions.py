"""All optimal first decisions of a small instance under `wct`, by the exhaustive search of
`brute_force`.

For each set of running jobs that may be preempted together, all plans that preempt just these are
searched: every list of the other jobs, in every mode on every placement. So the result has the best
value of each set, and with all weights positive every optimal plan has been looked at, hence every
optimal decision vector: an optimal plan starts no job later than it could, and those are the plans
searched.

Beyond `brute_force` a branch is cut when the bound of one fast machine says that it cannot reach
the best plan of its set. The GPUs still held are known; what is left works in fluid portions on
those that come free, in the order weight over GPU-seconds. That order minimises the weighted sum of
mean busy times, and a job in one piece ends half its run time after its own (Goemans, IPCO 1996).
"""

import math
from dataclasses import dataclass, field

from optsched.model.instance import Instance
from optsched.model.plan import Decision, JobPlan, Plan, Segment
from optsched.objectives import parse
from optsched.physics import TIME_TOLERANCE_S
from optsched.verify import decision_now

from .brute_force import Held, Search, Task, begin, capacities, preemptions, starts

SAME = 1e-9
"""Relative difference below which two values are equal."""

Vector = tuple[Decision, ...]
"""One decision for each job, in the order of the instance's jobs."""


@dataclass
class Outcome:
    """The best plan that preempts one set of jobs: its value, the decisions of all such plans, and
    one of them."""

    value: float = math.inf
    decisions: list[Vector] = field(default_factory=list)
    plan: Plan | None = None


@dataclass
class Answer:
    """What exhaustive search found: for each set of preempted jobs its best plans; the optimum over
    all sets."""

    by_preempted: dict[frozenset[str], Outcome]

    @property
    def value(self) -> float:
        return min(outcome.value for outcome in self.by_preempted.values())

    @property
    def best(self) -> list[Outcome]:
        """The sets that reach the optimum."""
        return [
            outcome for outcome in self.by_preempted.values() if _equal(outcome.value, self.value)
        ]

    @property
    def decisions(self) -> list[Vector]:
        """Every optimal decision vector."""
        return sorted({vector for outcome in self.best for vector in outcome.decisions})

    @property
    def second(self) -> float | None:
        """The best value of a set that no optimal plan preempts; None where there is none."""
        others = [
            outcome.value
            for outcome in self.by_preempted.values()
            if not _equal(outcome.value, self.value)
        ]
        return min((value for value in others if math.isfinite(value)), default=None)


def first_decisions(instance: Instance) -> Answer:
    """Search `instance` exhaustively under `wct`; its weights must be positive."""
    assert all(job.weight > 0 for job in instance.jobs)
    found = {}
    for stopped in preemptions(instance):
        search = Search(instance, parse("wct"), capacities(instance), {})
        begun = begin(search, stopped)
        if begun is not None:
            branch = _Branch(search, begun[0])
            branch.extend(begun[0], begun[1], instance.now_s, -1)
            found[stopped] = branch.outcome
    return Answer(found)


def _equal(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=SAME)


class _Branch:
    def __init__(self, search: Search, tasks: list[Task]) -> None:
        self.search, self.instance, self.outcome = search, search.instance, Outcome()
        self.gpus = float(search.instance.cluster.total_gpus)
        self.shortest = {
            t.job.id: min((c.length_s for c in t.choices), default=math.inf) for t in tasks
        }
        self.area = {
            t.job.id: min((c.length_s * c.mode.gpus for c in t.choices), default=0.0) for t in tasks
        }
        tasks.sort(key=lambda t: self.area[t.job.id] / t.job.weight)

    def extend(self, open_: list[Task], held: list[Held], from_s: float, last: int) -> None:
        """Plan the open tasks in every order and way, the next start not before `from_s`."""
        best = self.outcome.value
        bound = self._done() + max(
            self._alone(open_, from_s), self._fast_machine(open_, held, from_s)
        )
        if bound > best * (1 + SAME) or (
            bound >= best * (1 - SAME) and self._is_known(open_, from_s)
        ):
            return
        if not open_:
            self._keep(bound)
            return
        for task, choice, start_s, position in starts(self.search, open_, held, from_s, last):
            segment = Segment(
                start_s=start_s,
                end_s=start_s + choice.length_s,
                mode=choice.mode,
                placement=choice.placement,
            )
            self.search.segments[task.job.id] = [*task.before, segment]
            rest = [other for other in open_ if other is not task]
            self.extend(rest, [*held, (segment.end_s, choice.holds)], start_s, position)
            del self.search.segments[task.job.id]

    def _done(self) -> float:
        jobs = self.instance.job
        return math.fsum(
            jobs[name].weight * (segments[-1].end_s - jobs[name].submit_s)
            for name, segments in self.search.segments.items()
        )

    def _alone(self, open_: list[Task], from_s: float) -> float:
        return math.fsum(
            t.job.weight * (max(from_s, t.release_s) + self.shortest[t.job.id] - t.job.submit_s)
            for t in open_
        )

    def _fast_machine(self, open_: list[Task], held: list[Held], from_s: float) -> float:
        ends = sorted(
            (end_s, sum(amount for what, amount in things.items() if what[0] == "gpus"))
            for end_s, things in held
            if end_s > from_s
        )
        speed = self.gpus - sum(gpus for _, gpus in ends)
        at_s, k, total = from_s, 0, 0.0
        for task in open_:
            name, weight = task.job.id, task.job.weight
            left = area = self.area[name]
            busy = 0.0
            while left > 1e-9:
                until_s = ends[k][0] if k < len(ends) else math.inf
                done = min(left, speed * (until_s - at_s)) if speed > 1e-9 else 0.0
                if done < left:
                    busy += done * (at_s + until_s) / 2
                    at_s, speed, k = until_s, speed + ends[k][1], k + 1
                else:
                    ends_s = at_s + done / speed
                    busy += done * (at_s + ends_s) / 2
                    at_s = ends_s
                left -= done
            mean_s = busy / area if area > 1e-9 else from_s
            total += weight * (mean_s + self.shortest[name] / 2 - task.job.submit_s)
        return total

    def _is_known(self, open_: list[Task], from_s: float) -> bool:
        """Whether the decisions of all plans of this branch are settled, and known to be those of a
        best plan."""
        for task in open_:
            is_later = (
                from_s if task.job.id in self.instance.running_job else max(from_s, task.release_s)
            )
            soonest = (
                task.release_s if task.job.id in self.instance.running_job else self.instance.now_s
            )
            if is_later <= soonest + TIME_TOLERANCE_S:
                return False
        vector: list[Decision] = []
        waiting = {task.job.id for task in open_}
        for job in self.instance.jobs:
            if job.id in waiting:
                vector.append("preempt" if job.id in self.instance.running_job else "wait")
            else:
                vector.append(decision_now(self.instance, job, tuple(self.search.segments[job.id])))
        return tuple(vector) in self.outcome.decisions

    def _keep(self, value: float) -> None:
        entries = []
        for job in self.instance.jobs:
            segments = tuple(self.search.segments[job.id])
            entries.append(
                JobPlan(
                    id=job.id,
                    decision=decision_now(self.instance, job, segments),
                    segments=segments,
                )
            )
        vector = tuple(entry.decision for entry in entries)
        if not _equal(value, self.outcome.value):
            self.outcome.decisions = []
        if value < self.outcome.value:
            self.outcome.value, self.outcome.plan = value, Plan(jobs=tuple(entries))
        if vector not in self.outcome.decisions:
            self.outcome.decisions.append(vector)
