"""Xonar with more than two jobs on a GPU: what sets of three and four are worth.

    python -m benchmarks.corun_sets [--seeds 1,2,3]

In the simulator two jobs at most share GPUs. Here the jobs of Xonar's study are played without it:
whoever is next in Xonar's order (least GPU execution time, aged) starts on free GPUs, and those who
still wait join jobs of as many GPUs, up to `most` on each GPU, where the memory of the GPUs holds
all. They join in one of five ways: `fill` is the rule of the study, the busiest job that leaves
the GPU-active shares of a set at most 1; `sets` chooses for all sets together those of least
interference, that is the largest sum of rates, to the optimum (CP-SAT), with the same limit on
shares; `any` is `sets` without that limit, for all jobs whose pairs have known rates; with `each`
one job after the other, in order, joins where it adds most to that sum; `parts` is `each` where
gangs need not overlap wholly, so that a job may take any GPUs of one node, free ones among them.

The rate of a job beside one other is that of the study, measured or by active shares. No
measurement of three different jobs on a GPU is known to us (those of three and more are of equal
ones). Assumed is with `law` "sum" that each partner delays a job as much as it does alone, and that
active shares beyond 1 are shared in time: 1 / max(1 + sum (1/pair - 1), sum of shares); with
"worst", the most that could be hoped for, that only the worst partner delays. `gib` is the memory
of each GPU; the study has 16. `jct_h` and `p99_h` are means over seeds, `jct` and `p99` the changes
with half their 95 % intervals: of larger sets against pairs formed in the same way, of `parts`
against `each`, of other pairs against the study's own. `three` is how many of the jobs ever were in
a set of three or more.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, combinations_with_replacement
from typing import Literal, NamedTuple

import numpy as np

from benchmarks.command_line import parser_of, tell
from optsched import generate
from optsched.model.instance import Instance, Placement, Slot
from optsched.model.job import Job, Mode, gang
from optsched.physics import MEMORY_TOLERANCE, placed_rate, sharing_rate
from optsched.simulate.metrics.summary import spread
from optsched.study.intervals import mean_interval
from optsched_solvers.policies.parts.configuration_choice import Configuration, choose
from optsched_solvers.policies.xonar import FULL

WORKLOAD = {
    "cluster": "p100=16",
    "gpus_per_node": 4,
    "families": "resnet18,resnet50,transformer,lstm,cyclegan,a3c,bert,deepspeech2,yolov3,"
    "roberta-base,vit-base,shufflenet,vgg16,gpt2,mobilenet,alexnet,gnmt",
    "jobs": 150,
}
"""That of instances/studies/systems/xonar-style.toml."""
Way = Literal["fill", "sets", "any", "each", "parts"]
Law = Literal["sum", "worst"]


class Rule(NamedTuple):
    """How jobs join: in which way, how many at most on a GPU, of so much memory, under which
    law."""

    way: Way
    most: int
    gib: float
    law: Law = "sum"


STUDY = Rule("fill", 2, 16.0)
RULES = (
    STUDY,
    Rule("fill", 3, 16.0),
    Rule("sets", 2, 16.0),
    Rule("any", 2, 16.0),
    Rule("any", 3, 16.0),
    Rule("each", 2, 16.0),
    Rule("parts", 2, 16.0),
    Rule("fill", 2, 32.0),
    Rule("fill", 3, 32.0),
    Rule("sets", 2, 32.0),
    Rule("sets", 3, 32.0),
    Rule("sets", 4, 32.0),
    Rule("any", 2, 32.0),
    Rule("any", 3, 32.0),
    Rule("any", 4, 32.0),
    Rule("each", 2, 32.0),
    Rule("parts", 2, 32.0),
    Rule("sets", 4, 32.0, "worst"),
    Rule("any", 4, 32.0, "worst"),
)
DONE_S = 1e-6
Gpu = tuple[str, int]
"""One GPU of a node."""
Names = tuple[str, ...]
"""The families of jobs on one GPU, sorted."""


class Sets:
    """What sets of families may be on a GPU together, and at what rates relative to alone."""

    def __init__(self, instance: Instance, rule: Rule) -> None:
        self._rule = rule
        self._of = {family(job): job.profile for job in instance.jobs}
        self._known: dict[tuple[str, Names], float] = {}

    def duty(self, name: str) -> float | None:
        """Return the share of a step in which the GPU is active; None where that is unknown."""
        sharing = self._of[name].sharing
        return None if sharing is None else sharing.duty

    def rate(self, name: str, others: Names) -> float:
        """Return the rate of a job beside others; 0 where that is not known."""
        if (name, others) not in self._known:
            self._known[name, others] = self._rate(name, others)
        return self._known[name, others]

    def _rate(self, name: str, others: Names) -> float:
        pairs = [sharing_rate(self._of[name], self._of[other]) for other in others]
        if len(pairs) < 2 or min(pairs) <= 0.0 or self._rule.law == "worst":
            return min(pairs, default=1.0)
        duties = [self.duty(each) or 0.0 for each in (name, *others)]
        return 1.0 / max(1.0 + sum(1.0 / pair - 1.0 for pair in pairs), sum(duties))

    def total(self, names: Names) -> float:
        """Return the sum of the rates of a set."""
        return sum(self.rate(name, others_of(names, i)) for i, name in enumerate(names))

    def may(self, names: Names) -> bool:
        """Return whether the rule allows a set."""
        rule = self._rule
        if len(names) > rule.most:
            return False
        gib = sum(self._of[name].gpu_memory_gib for name in names)
        if gib > rule.gib * (1 + MEMORY_TOLERANCE):
            return False
        if rule.way in ("fill", "sets"):
            duties = [self.duty(name) for name in names]
            if sum(math.inf if share is None else share for share in duties) > FULL:
                return False
        return all(self.rate(name, others_of(names, i)) > 0.0 for i, name in enumerate(names))


def family(job: Job) -> str:
    """Return the name of a job's family."""
    return job.profile.name or ""


def with_one(names: Names, name: str) -> Names:
    """Return a set with one more."""
    return tuple(sorted((*names, name)))


def others_of(names: Names, i: int) -> Names:
    """Return a set without one of it."""
    return names[:i] + names[i + 1 :]


@dataclass(eq=False)
class Run:
    """A job that runs: its GPUs, its rate there alone, what is left of its set-up and its work."""

    job: Job
    gpus: tuple[Gpu, ...]
    own: float
    setup_s: float
    left_s: float

    @property
    def name(self) -> str:
        return family(self.job)


class Play:
    """The jobs of an instance from event to event under a rule."""

    def __init__(self, instance: Instance, rule: Rule) -> None:
        self.instance, self.rule = instance, rule
        self.sets = Sets(instance, rule)
        nodes = instance.cluster.nodes
        self.on: dict[Gpu, list[Run]] = {(n.name, k): [] for n in nodes for k in range(n.gpus)}
        self.runs: list[Run] = []
        self.waiting: list[Job] = []
        self.end_s: dict[str, float] = {}
        self.in_three: set[str] = set()

    def run(self) -> dict[str, float]:
        """Return when each job is complete."""
        to_come = sorted(self.instance.jobs, key=lambda job: job.submit_s)[::-1]
        now_s = 0.0
        while to_come or self.runs or self.waiting:
            ends_s = [(now_s + run.setup_s + run.left_s / self.rate(run), run) for run in self.runs]
            arrives_s = to_come[-1].submit_s if to_come else math.inf
            next_s = min([arrives_s, *(end_s for end_s, _ in ends_s)])
            assert next_s < math.inf, "jobs wait for ever"
            for run in self.runs:
                worked_s = max(0.0, next_s - now_s - run.setup_s)
                run.setup_s = max(0.0, run.setup_s - (next_s - now_s))
                run.left_s -= worked_s * self.rate(run)
            now_s = next_s
            for end_s, run in ends_s:
                if end_s <= now_s + DONE_S:
                    self._end(run, now_s)
            while to_come and to_come[-1].submit_s <= now_s + DONE_S:
                self.waiting.append(to_come.pop())
            self.waiting.sort(key=self._rank)
            self._decide()
        return self.end_s

    def rate(self, run: Run) -> float:
        """Return the rate of a job now: that of the GPU on which it is slowest."""
        return run.own * min(self._share(run, gpu) for gpu in run.gpus)

    def _share(self, run: Run, gpu: Gpu) -> float:
        return self.sets.rate(run.name, self._names(gpu, without=run))

    def _names(self, gpu: Gpu, without: Run | None = None) -> Names:
        return tuple(sorted(run.name for run in self.on[gpu] if run is not without))

    def _rank(self, job: Job) -> tuple[float, float, str]:
        active = self.sets.duty(family(job))
        node = self.instance.cluster.nodes[0].name
        alone_s = job.profile.startup_s + job.work_s / self._own(job, {node: gang(job)})
        age_s = job.submit_s
        return alone_s * (1.0 if active is None else active) + age_s, job.submit_s, job.id

    def _own(self, job: Job, gpus_on: dict[str, int]) -> float:
        placement: Placement = tuple(Slot(node=node, gpus=n) for node, n in gpus_on.items())
        return placed_rate(self.instance, job, Mode(gpus=gang(job)), placement)

    def _end(self, run: Run, now_s: float) -> None:
        self.end_s[run.job.id] = now_s
        self.runs.remove(run)
        for gpu in run.gpus:
            self.on[gpu].remove(run)

    def _begin(self, job: Job, gpus: Sequence[Gpu]) -> None:
        own = self._own(job, dict(Counter(node for node, _ in gpus)))
        run = Run(job, tuple(sorted(gpus)), own, job.profile.startup_s, job.work_s)
        self.waiting.remove(job)
        self.runs.append(run)
        for gpu in gpus:
            self.on[gpu].append(run)
            if len(self.on[gpu]) > 2:
                self.in_three.update(other.job.id for other in self.on[gpu])

    def _decide(self) -> None:
        for job in list(self.waiting):
            if gpus := self._free(gang(job)):
                self._begin(job, gpus)
        if self.rule.way in ("each", "parts"):
            for job in list(self.waiting):
                if best := self._best(job):
                    self._begin(job, best)
            return
        for size in sorted({gang(job) for job in self.waiting}):
            if self.rule.way == "fill":
                self._fill(size)
            else:
                self._choose(size)

    def _free(self, size: int) -> list[Gpu]:
        """Return free GPUs: of the node with the fewest that are enough, else of the fewest nodes;
        none where there are too few."""
        free: dict[str, list[Gpu]] = {}
        for gpu, runs in self.on.items():
            if not runs:
                free.setdefault(gpu[0], []).append(gpu)
        enough = [gpus for gpus in free.values() if len(gpus) >= size]
        if enough:
            return min(enough, key=len)[:size]
        spread = [gpu for gpus in sorted(free.values(), key=len, reverse=True) for gpu in gpus]
        return spread[:size] if len(spread) >= size else []

    def _groups(self, size: int) -> list[tuple[Gpu, ...]]:
        """Return the GPUs of the running jobs with so many, the first started first."""
        return list(dict.fromkeys(run.gpus for run in self.runs if len(run.gpus) == size))

    def _fill(self, size: int) -> None:
        for gpus in self._groups(size):
            while (job := self._fullest(size, self._names(gpus[0]))) is not None:
                self._begin(job, gpus)

    def _fullest(self, size: int, names: Names) -> Job | None:
        """Return the waiting job that keeps the GPU active for the largest share of a step beside
        others; None where none may join."""
        able = [
            job
            for job in self.waiting
            if gang(job) == size and self.sets.may(with_one(names, family(job)))
        ]
        return max(able, key=lambda job: self.sets.duty(family(job)) or 0.0, default=None)

    def _choose(self, size: int) -> None:
        """Start the waiting jobs by which the sets, together, gain most."""
        queues: dict[str, list[Job]] = {}
        for job in self.waiting:
            if gang(job) == size:
                queues.setdefault(family(job), []).append(job)
        families = list(queues)
        groups = self._groups(size)
        ways = [self._ways(self._names(gpus[0]), families) for gpus in groups]
        costs = [[Configuration(-gain, use) for gain, use in of_one] for of_one in ways]
        if not costs:
            return
        found = choose(costs, [len(queues[name]) for name in families])
        assert found.proven
        for gpus, of_one, i in zip(groups, ways, found.chosen, strict=True):
            for row, count in of_one[i][1]:
                for _ in range(count):
                    self._begin(queues[families[row]].pop(0), gpus)

    def _ways(
        self, names: Names, families: Sequence[str]
    ) -> list[tuple[float, tuple[tuple[int, int], ...]]]:
        """Return what a set could be joined by: what the sum of rates gains, and how many of each
        family; first of all nothing."""
        ways: list[tuple[float, tuple[tuple[int, int], ...]]] = [(0.0, ())]
        before = self.sets.total(names)
        for count in range(1, self.rule.most - len(names) + 1):
            for rows in combinations_with_replacement(range(len(families)), count):
                joined = tuple(sorted((*names, *(families[row] for row in rows))))
                if self.sets.may(joined) and (gain := self.sets.total(joined) - before) > 0.0:
                    ways.append((gain, tuple(Counter(rows).items())))
        return ways

    def _best(self, job: Job) -> tuple[Gpu, ...] | None:
        """Return the GPUs on which a job adds most to the sum of rates; None where it would add
        nothing."""
        gains = ((self._gain(family(job), gpus), gpus) for gpus in self._places(job))
        gain, best = max(gains, key=lambda found: found[0], default=(0.0, ()))
        return best if gain > 0.0 else None

    def _places(self, job: Job) -> Iterator[tuple[Gpu, ...]]:
        """Return the GPUs of running jobs that a job may join, or any of one node where gangs may
        overlap in part."""
        may = {gpu: self.sets.may(with_one(self._names(gpu), family(job))) for gpu in self.on}
        if self.rule.way == "each":
            groups = self._groups(gang(job))
            yield from (gpus for gpus in groups if all(may[gpu] for gpu in gpus))
            return
        for node in self.instance.cluster.nodes:
            able = [gpu for gpu in self.on if gpu[0] == node.name and may[gpu]]
            yield from combinations(able, gang(job))

    def _gain(self, name: str, gpus: tuple[Gpu, ...]) -> float:
        """Return what the sum of rates gains if a job of a family comes to some GPUs."""
        gain = min(self.sets.rate(name, self._names(gpu)) for gpu in gpus)
        for run in {id(run): run for gpu in gpus for run in self.on[gpu]}.values():
            shares = {gpu: self._share(run, gpu) for gpu in run.gpus}
            before = min(shares.values())
            for gpu in shares.keys() & set(gpus):
                names = with_one(self._names(gpu, without=run), name)
                shares[gpu] = self.sets.rate(run.name, names)
            gain += min(shares.values()) - before
        return gain


class Result(NamedTuple):
    """What came of a rule on one workload."""

    jct_h: float
    p99_h: float
    in_three: int


@cache
def result(rule: Rule, seed: int) -> Result:
    """Play the study's workload of a seed."""
    instance = generate("even", seed=seed, **WORKLOAD)  # type: ignore[arg-type]
    play = Play(instance, rule)
    ends_s = play.run()
    jct_h = spread(np.array([(ends_s[job.id] - job.submit_s) / 3600 for job in instance.jobs]))
    return Result(jct_h["mean"] or 0.0, jct_h["p99"] or 0.0, len(play.in_three))


def compared(rule: Rule) -> Rule:
    """Return the pairs with which a rule is compared."""
    if rule.way == "parts":
        return rule._replace(way="each")
    return rule._replace(way="fill") if rule.most == 2 else rule._replace(most=2, law="sum")


def lines(seeds: Sequence[int]) -> Iterator[dict[str, object]]:
    """Return what came of each rule over all seeds."""
    for rule in RULES:
        own = [result(rule, seed) for seed in seeds]
        pairs = compared(rule)
        base = [result(pairs, seed) for seed in seeds]
        line: dict[str, object] = {**rule._asdict(), "against": f"{pairs.way} {pairs.most}"}
        for key, column in (("jct", "jct_h"), ("p99", "p99_h")):
            values = [getattr(one, column) for one in own]
            others = [getattr(one, column) for one in base]
            change = mean_interval([a / b - 1 for a, b in zip(values, others, strict=True)])
            line[column] = round(math.fsum(values) / len(seeds), 3)
            line[key] = round(change.mean, 4)
            line[f"{key}_half"] = round(change.half or 0.0, 4)
        jobs = len(seeds) * int(WORKLOAD["jobs"])  # type: ignore[call-overload]
        yield {**line, "three": round(sum(one.in_three for one in own) / jobs, 4)}


def main() -> None:
    """Print a line of JSON for each rule."""
    for line in lines(parser_of(__doc__, seeds=list(range(1, 31))).parse_args().seeds):
        tell(line)


if __name__ == "__main__":
    main()
