"""Shockwave's trace of 120 jobs on 32 GPUs: what policies reach here, and `zero-laxity` by its
simulator's own rules.

    python -m benchmarks.tacc32
    python -m benchmarks.tacc32 --fair-rules   # Shockwave against fair rules
    python -m benchmarks.tacc32 --estimated    # where beliefs of run times err by 30 %

First, optsched's simulator with rounds of 120 s. Finish-time fairness is the published simulator's:
JCT / (run time alone x jobs of the trace / GPUs), the same factor for gangs (the one of `optsched
simulate` asks less of gangs).

Then the rule of `zero-laxity` once more in a simulator of the published rules (e07dd20), which
differ from ours so: - a round lasts as long as the longest of its jobs, at most 120 s, and no
longer where all complete earlier; - a job runs whole steps; a batch size changes at the end of the
next round in which the job runs after the epoch that
  asks for it, and progress is then rounded up to whole epochs;
- 20 s are lost in a round in which a job runs that did not run in the round before, but not in the
  first round nor in rounds that are its last and shorter than 115 s;
- a job that has run 1.5 times as long as its run time alone is taken to be complete.
The run times that the rule sees are those of the epochs left, each at the batch size of the rules.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.command_line import parser_of, tell
from benchmarks.data import DATA
from optsched.driver.state import Ending
from optsched.estimates import Estimates
from optsched.estimates.noisy import Noisy
from optsched.model.instance import Instance
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched.study.intervals import mean_interval
from optsched.traces.readers import shockwave
from optsched.traces.readers.batch_sizes import batch_size, steps_of_epoch
from optsched.traces.readers.throughputs import find_table, read_table, steps_per_s
from optsched.traces.resample import resampled

TRACE = DATA / "shockwave_tacc32" / "120jobs_32gpus.trace"
GPUS, ROUND_S, START_S = 32, 120.0, 20.0
UNFAIR = 1.05
FAIR_RULES = ("gavel-max-min", "themis")
SEEDS = range(1, 11)
ESTIMATED: tuple[tuple[str, dict[str, str]], ...] = (
    ("zero-laxity", {"doubt": "1"}),
    ("zero-laxity", {}),
    ("zero-laxity", {"makespan": "1.2", "fairness": "none", "doubt": "3"}),
    ("srsf", {}),
    ("optsched", {}),
)
DRAWS = range(8, 40)
"""Settings were chosen by the first eight."""
SETTINGS: tuple[tuple[str, dict[str, str]], ...] = (
    ("zero-laxity", {}),
    ("zero-laxity", {"makespan": "1.01", "margin": "4m"}),
    ("zero-laxity", {"fairness": "1"}),
    ("zero-laxity", {"makespan": "1.05"}),
    ("zero-laxity", {"makespan": "1.1"}),
    ("zero-laxity", {"makespan": "none", "fairness": "none"}),
    ("optsched", {}),
    ("srsf", {}),
    ("srtf", {}),
    ("gavel-max-min", {"round": "120", "reset": "1000"}),
)

REPLAYED = ((1.02, 1.2, 120.0), (1.01, 1.2, 240.0), (1.02, 1.0, 120.0), (1.05, 1.2, 120.0))


def measures(
    jct_s: list[float], alone_s: list[float], makespan_s: float, gpus: int = GPUS
) -> dict[str, float]:
    """Makespan, mean JCT and the published finish-time fairness."""
    share = max(1.0, len(jct_s) / gpus)
    rho = [jct / (alone * share) for jct, alone in zip(jct_s, alone_s, strict=True)]
    return {
        "makespan_s": makespan_s,
        "jct_s": sum(jct_s) / len(jct_s),
        "worst_fairness": max(rho),
        "unfair": sum(one > UNFAIR for one in rho) / len(rho),
    }


def run(
    instance: Instance, name: str, options: dict[str, str], beliefs: Estimates | None = None
) -> dict[str, float]:
    """One policy in optsched's simulator."""
    simulation = Simulation(
        instance, policy(name, options=options), round_s=ROUND_S, estimates=beliefs
    )
    begin_s = time.process_time()
    simulation.run()
    cpu_s = time.process_time() - begin_s
    record = simulation.record()
    done = record.ending == Ending.COMPLETED
    ends_s = dict(zip(record.job[done].tolist(), record.end_s[done].tolist(), strict=True))
    jct_s = [ends_s[j] - job.submit_s for j, job in enumerate(instance.jobs)]
    alone_s = [job.work_s for job in instance.jobs]
    found = measures(jct_s, alone_s, max(ends_s.values()), instance.cluster.total_gpus)
    return {**found, "preemptions": int((record.ending == Ending.PREEMPTED).sum()), "cpu_s": cpu_s}


def against_fair_rules() -> Iterator[dict[str, object]]:
    """Yield by how much the makespan and worst fairness of Shockwave, to which batch sizes are
    known, differ from those of fair rules: on the whole trace, and on half as many jobs drawn from
    it on half the GPUs, over `SEEDS`."""
    half = shockwave.read(TRACE, cluster=f"v100={GPUS // 2}").instance
    cases = {
        "drawn": [resampled(half, seed, 60) for seed in SEEDS],
        "whole": [shockwave.read(TRACE).instance],
    }
    for case, instances in cases.items():
        own = [run(instance, "shockwave-style", {"predictor": "no"}) for instance in instances]
        for rival in FAIR_RULES:
            other = [run(instance, rival, {}) for instance in instances]
            line: dict[str, object] = {"case": case, "against": rival}
            for key in ("makespan_s", "worst_fairness"):
                pairs = zip(own, other, strict=True)
                change = mean_interval([a[key] / b[key] - 1 for a, b in pairs])
                line |= {key: round(change.mean, 4), f"{key}_half": round(change.half or 0.0, 4)}
                for who, found in (("own", own), ("other", other)):
                    line[f"{key}_{who}"] = round(sum(one[key] for one in found) / len(found), 3)
            yield line


def estimated() -> Iterator[dict[str, object]]:
    """Yield the makespan, mean JCT and worst fairness of policies whose beliefs of run times err,
    over `DRAWS` of these errors."""
    instance = shockwave.read(TRACE).instance
    for name, options in ESTIMATED:
        found = [run(instance, name, options, Noisy(0.3, seed)) for seed in DRAWS]
        makespan = mean_interval([each["makespan_s"] for each in found])
        yield {
            "policy": name,
            "options": " ".join(f"{key} {value}" for key, value in options.items()) or "-",
            "makespan_s": round(makespan.mean),
            "makespan_s_half": round(makespan.half or 0.0),
            "jct_s": round(sum(each["jct_s"] for each in found) / len(found)),
            "worst_fairness": round(sum(each["worst_fairness"] for each in found) / len(found), 3),
        }


# ------------------------------------------------------------------------------------- the
# published rules


@dataclass(slots=True)
class Theirs:
    """A job of the trace in the published simulator."""

    model: str
    first: int
    gpus: int
    rule: str
    submit_s: float
    steps: int
    rates: dict[int, float]
    alone_s: float = 0.0
    batch: int = 0
    total: int = 0
    done: int = 0
    wanted: int | None = None
    ran_s: float = 0.0
    end_s: float | None = None
    sums: list[float] = field(default_factory=lambda: [0.0])

    def wants(self, epoch: int) -> int:
        """The batch size of an epoch, as far as it was measured."""
        size, known = self.first, self.first
        if self.rule == "gns":
            while (
                size < batch_size(self.model, self.first, self.gpus, self.rule, epoch)
                and 2 * size in self.rates
            ):
                size = known = 2 * size
            return known
        asked = batch_size(self.model, self.first, self.gpus, self.rule, epoch)
        return asked if asked in self.rates else self.first

    def left_s(self) -> float:
        """Seconds alone for what is left, each epoch at its own batch size."""
        steps = steps_of_epoch(self.model, self.batch)
        return self._until_s(self.total / steps) - self._until_s(self.done / steps)

    def _until_s(self, epochs: float) -> float:
        """Seconds alone for so many epochs from the start."""
        while len(self.sums) < epochs + 2:
            size = self.wants(len(self.sums) - 1)
            self.sums.append(self.sums[-1] + steps_of_epoch(self.model, size) / self.rates[size])
        whole = math.floor(epochs)
        return self.sums[whole] + (epochs - whole) * (self.sums[whole + 1] - self.sums[whole])

    def rescale(self) -> None:
        """Take on the batch size that was asked for; epochs stay, those begun count as done."""
        if self.wanted is None:
            return
        old, new = steps_of_epoch(self.model, self.batch), steps_of_epoch(self.model, self.wanted)
        epochs = math.ceil(self.total / old)
        total = math.ceil(self.total * self.batch / self.wanted)
        self.total = total if math.ceil(total / new) == epochs else new * epochs
        self.done = math.ceil(self.done / old) * new
        self.batch, self.wanted = self.wanted, None

    def ask(self) -> None:
        """At the end of a round: the batch size of the epoch it is in, doubled at most once."""
        epoch = math.ceil(self.done / steps_of_epoch(self.model, self.batch))
        size = self.wants(epoch)
        if self.rule == "gns":
            size = (
                min(2 * self.batch, max(size, self.wants(epoch + 1)))
                if size >= self.batch
                else self.batch
            )
        self.wanted = size if size != self.batch else None


def their_jobs() -> list[Theirs]:
    """The trace with its table."""
    path = find_table(TRACE, None, shockwave.TABLE_NAME, "Shockwave")
    table = read_table(path, "Shockwave")
    imported = shockwave.read(TRACE).instance.job
    found = []
    for i, text in enumerate(TRACE.read_text().splitlines()):
        cells = text.split("\t")
        model, given = cells[0].split(" (batch size ")
        first, gpus = int(given.rstrip(")")), int(cells[6])
        sizes = [first << power for power in range(15)]
        rates = {
            size: steps_per_s(table, path, "v100", f"('{model} (batch size {size})', {gpus})")
            for size in sizes
        }
        rates = {size: rate for size, rate in rates.items() if rate > 0}
        job = Theirs(
            model,
            first,
            gpus,
            cells[7],
            float(cells[11]),
            int(cells[5]),
            rates,
            imported[f"job-{i}"].work_s,
        )
        job.batch, job.total = first, job.steps
        found.append(job)
    return found


def choose(
    jobs: list[Theirs],
    ran: list[Theirs],
    now_s: float,
    end_s: float,
    come: int,
    fairness: float,
    margin_s: float,
) -> list[Theirs]:
    """The rule of `zero-laxity`: who runs in this round."""
    keys = {}
    before = {id(job) for job in ran}
    for place, job in enumerate(jobs):
        left_s = job.left_s() + (0.0 if id(job) in before else START_S)
        due_s = min(end_s, job.submit_s + fairness * max(1.0, come / GPUS) * job.alone_s)
        laxity_s = due_s - now_s - left_s
        pause_s = START_S if id(job) in before else 0.0
        urgent = laxity_s <= margin_s
        keys[id(job)] = (
            not urgent,
            laxity_s - pause_s if urgent else job.gpus * max(0.0, left_s - pause_s),
            place,
        )
    chosen, free = [], GPUS
    for job in sorted(jobs, key=lambda one: keys[id(one)]):
        if job.gpus <= free:
            free -= job.gpus
            chosen.append(job)
    return chosen


def replay(makespan: float, fairness: float, margin_s: float) -> dict[str, float]:
    """`zero-laxity` by the published rules."""
    jobs = their_jobs()
    queue = list(jobs)
    active: list[Theirs] = []
    ran: list[Theirs] = []
    now_s, end_s, come, rounds, preemptions = 0.0, 0.0, 0, 0, 0
    while queue or active:
        if not active:
            now_s = max(now_s, queue[0].submit_s)
        new = [job for job in queue if job.submit_s <= now_s]
        queue = queue[len(new) :]
        active += new
        come += len(new)
        if new:
            left = [(job.left_s(), job.gpus) for job in active]
            least_s = max(
                max(s for s, _ in left) + START_S, sum(s * gpus for s, gpus in left) / GPUS
            )
            end_s = max(end_s, now_s + least_s)
        chosen = choose(active, ran, now_s, makespan * end_s, come, fairness, margin_s)
        preemptions += sum(job in active and job not in chosen for job in ran)
        ends_s = [now_s]
        for job in chosen:
            steps = min(int(job.rates[job.batch] * ROUND_S), job.total - job.done)
            spent_s = steps / job.rates[job.batch]
            ends_s.append(now_s + spent_s)
            if rounds and job not in ran and spent_s > ROUND_S - 5:
                steps = int(steps * (spent_s - START_S) / spent_s)
                job.ran_s -= START_S
            job.ran_s += spent_s
            job.done += steps
            if job.done >= job.total or job.ran_s > int(1.5 * job.alone_s):
                job.end_s = ends_s[-1]
            else:
                job.rescale()
        ran, rounds = chosen, rounds + 1
        now_s = max(ends_s)
        active = [job for job in active if job.end_s is None]
        for job in active:
            job.ask()
    jct_s = [(job.end_s or 0.0) - job.submit_s for job in jobs]
    found = measures(jct_s, [job.alone_s for job in jobs], max(job.end_s or 0.0 for job in jobs))
    return {**found, "preemptions": preemptions}


def main() -> None:
    """Print one line for each setting."""
    arguments = parser_of(__doc__, fair_rules=False, estimated=False).parse_args()
    if arguments.fair_rules or arguments.estimated:
        for line in against_fair_rules() if arguments.fair_rules else estimated():
            tell(line)
        return
    instance = shockwave.read(TRACE).instance
    for name, options in SETTINGS:
        said = " ".join(f"{key}={value}" for key, value in options.items())
        found = run(instance, name, options)
        tell({"policy": f"{name} {said}".strip(), "rules": "optsched", **found})
    for makespan, fairness, margin_s in REPLAYED:
        begin_s = time.process_time()
        found = replay(makespan, fairness, margin_s)
        tell(
            {
                "policy": f"zero-laxity makespan={makespan} fairness={fairness} "
                f"margin={margin_s:.0f}s",
                "rules": "published",
                **found,
                "cpu_s": time.process_time() - begin_s,
            }
        )


if __name__ == "__main__":
    main()
