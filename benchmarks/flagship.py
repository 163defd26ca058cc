"""The policy `optsched` against other policies on the same workloads: completion times, makespan,
slowdown, cost of deciding.

    python -m benchmarks.flagship --workload gavel-single --estimates oracle
    python -m benchmarks.flagship --set tuning --jobs 300 --results /tmp/tuning.json
    python -m benchmarks.flagship --set test --physics own,drawn --estimates oracle,history

`tuning` workloads are generated; constants of the policy were chosen on these alone. `test`
workloads are public traces under OPTSCHED_DATA (default ../shared/data), their arrivals compressed
or stretched to offer `load` times the work that the cluster can do meanwhile (a GPU type counted at
the mean rate of the jobs, 0 for those it cannot run). `--physics own` is what the trace says of its
jobs and nothing else; `drawn` gives them measured profiles (rates by GPU type and cores, sharing,
locality, costs of saving and restoring), a line for the mean over the first `--seeds` seeds of that
draw. Traces that say what saving costs (Gavel's) draw nothing. One run swings with who is let
through first: `--windows 5` takes as many jobs in a row from five places of the trace, each brought
to the same load, and a line is their mean. The places are apart where the trace is five times as
long, else windows of `LEAST_WINDOW` jobs overlap.

Every run is a process of its own, every plan is verified, and results are kept in a JSON file, so
that a study can be made in parts: what this code has run is not run again. Times are CPU seconds of
one core. Weights are 1, priorities equal, deadlines none, attempts that fail and lost nodes left
out. A slowdown is the time to completion over the run time alone, of which 10 s count at least.
`srsf-migrating` is `srsf` that moves a running job to free GPUs on which it is done earlier.
"""

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import parser_of, tell
from benchmarks.data import DATA
from optsched.driver.state import Ending
from optsched.driver.world import World
from optsched.estimates.parse import parse as parse_estimates
from optsched.model.instance import Instance
from optsched.model.job import Elastic, Job
from optsched.objectives import parse
from optsched.physics import TIME_TOLERANCE_S, setup_s
from optsched.physics.catalogue import Catalogue
from optsched.physics.unschedulable import why_never
from optsched.plugins import registry
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched.study.address import code_version, digest
from optsched.study.intervals import mean_interval
from optsched.traces.generate.synth import generate
from optsched.traces.profiles.attach import attach
from optsched.verify import verify
from optsched_solvers.policies.srsf import Srsf

OWN = "optsched"
RULES = ("fifo", "backfill", "srtf", "srsf", "las")
MIGRATING = "srsf-migrating"
RIVALS = (*RULES, "sjf", MIGRATING, "xion", "a-srpt", "hadar", "sia", "pollux", "compass")
POLICIES = (*RIVALS, OWN)
LOAD = 0.9
"""Offered by every test workload."""
COSTED = ("gavel",)
"""Formats whose jobs come with what they cost; nothing is drawn for them."""
RELATIVE = ("mean_s", "p99_s", "makespan_s", "slowdown")
"""What is compared by its ratio."""
LEAST_WINDOW = 100
"""Fewer jobs make no window, unless the trace has no more."""
SHORTEST_S = 10.0
"""What counts at least as the run time of which a slowdown is a multiple."""


class MigratingSrsf(Srsf):
    """Shortest remaining service first, moving running jobs to GPUs that have come free."""

    name = MIGRATING

    def decide(self, world: World) -> None:
        """Serve who waits; then move the first job that is done earlier elsewhere, with what that
        costs."""
        super().decide(world)
        for job_id in sorted(world.running, key=lambda job_id: (self.rank(world, job_id), job_id)):
            fit = world.fit(job_id) if world.may_preempt(job_id) else None
            if fit is None:
                continue
            job = world.job(job_id)
            done_s = world.now_s + job.profile.checkpoint_s + setup_s(job, True)
            done_s += world.remaining_work_s(job_id) / fit[0].rate
            if done_s < world.expected_release_s(job_id) - TIME_TOLERANCE_S:
                world.preempt(job_id)
                return


def policy_of(name: str) -> Any:
    """Return a fresh policy, the benchmark's own included."""
    return MigratingSrsf() if name == MIGRATING else policy(name, objective=parse("wct"))


@dataclass(frozen=True)
class Workload:
    """How a workload is made, from a number of jobs, and the load it is brought to (None: as it
    is)."""

    kind: str
    make: Callable[[int | None, int | None], Instance]
    """From the number of jobs and the seed of drawn profiles, None for the trace's own physics."""
    load: float | None = None
    drawn: bool = False
    """Whether there are profiles to give its jobs."""
    by_seed: bool = True
    """Whether these depend on the seed: not where each job names its model."""
    most: int = 0
    """How many jobs of a trace are taken; 0: generated, without windows."""


def _synthetic(gpus: int, seed: int, like: Any, load: float, gpu_types: int = 3) -> Workload:
    return Workload(
        "tuning",
        lambda jobs, _: generate(
            jobs=jobs or 500,
            gpus=gpus,
            seed=seed,
            like=like,
            arrivals="poisson",
            load=load,
            gpu_types=gpu_types,
        ),
    )


def _fitted(kind: str, gpus: int, seed: int, load: float) -> Workload:
    def make(jobs: int | None, _: int | None) -> Instance:
        from optsched.traces.generate.like import generate as generate_like

        return generate_like(
            kind, jobs=jobs or 500, gpus=gpus, seed=seed, load=load, failures=False
        )

    return Workload("tuning", make)


def _trace(name: str, path: str, most: int, every: int = 1, **options: Any) -> Workload:
    """The first `most` jobs of a trace, and no more in a window; `every` keeps each so-many-th node
    where it is of a far larger cluster."""

    def make(jobs: int | None, seed: int | None) -> Instance:
        found = registry.importer(name).read(DATA / path, jobs=jobs or most, **options).instance
        if every > 1:
            cluster = replace(found.cluster, nodes=found.cluster.nodes[::every])
            able = (
                job
                for job in found.jobs
                if why_never(Catalogue.of(cluster, found.tenants), job) is None
            )
            found = replace(found, cluster=cluster, jobs=tuple(able))
        return found if seed is None or name in COSTED else attach(found, seed)

    return Workload("test", make, LOAD, name not in COSTED, name != "muri", most)


WORKLOADS: dict[str, Workload] = {
    **{
        f"mixed-{seed}-{load:g}": _synthetic(128, seed, "mixed", load)
        for seed in (1, 2)
        for load in (0.7, 0.9, 1.1)
    },
    **{
        f"llm-{seed}-{load:g}": _synthetic(256, seed, "llm", load)
        for seed in (3, 4)
        for load in (0.7, 0.9, 1.1)
    },
    "mixed-one-type": _synthetic(128, 5, "mixed", 0.9, 1),
    **{
        f"like-{kind}-{load:g}": _fitted(kind, 256, 7, load)
        for kind in ("philly", "helios", "acme", "openb")
        for load in (0.7, 0.9)
    },
    "gavel-single": _trace("gavel", "gavel/generated/gavel_osdi_1000_lam720.trace.gz", 1000),
    "gavel-multi": _trace("gavel", "gavel/generated/gavel_1000_lam1200_m.trace.gz", 1000),
    **{
        f"gavel-msr-{vc}": _trace("gavel", f"gavel/traces_msr/{vc}.trace.gz", 1000)
        for vc in ("0e4a51", "6214e9")
    },
    **{
        f"philly-{vc}": _trace(
            "philly", "philly/philly.csv.gz", 3000, cluster="v100=64,p100=32", tenant=vc
        )
        for vc in ("6214e9", "11cb48", "b436b2")
    },
    "openb": _trace("openb", "alibaba_openb/openb_pod_list_gpushare100.csv.gz", 4000, every=32),
    "lublin": _trace("swf", "swf/lublin_256.swf.gz", 1500, cluster="v100=256"),
    "muri": _trace("muri", "muri/trace1.csv", 1000),
    "shockwave": _trace("shockwave", "shockwave_tacc32/120jobs_32gpus.trace", 120),
}


Window = tuple[int, int]
"""Which window, from 0, of how many."""


def in_window(workload: Workload, jobs: int | None, seed: int | None, window: Window) -> Instance:
    """Return as many consecutive jobs of the trace as are asked for, or an equal part if it has
    fewer, beginning at one of places that are equally far apart."""
    whole = workload.make(sys.maxsize, seed)
    names = [job.id for job in sorted(whole.jobs, key=lambda job: job.submit_s)]
    which, count = window
    size = min(jobs or workload.most, max(len(names) // count, min(len(names), LEAST_WINDOW)))
    first = which * (len(names) - size) // max(1, count - 1)
    return whole.only({*names[first : first + size]})


def instance_of(
    name: str,
    jobs: int | None,
    seed: int | None = None,
    window: Window | None = None,
    *,
    sharing: bool = True,
) -> Instance:
    """The workload, or a window of its trace, with its load, weights of 1, equal priorities, and
    nothing that fails; without `sharing` no profile allows it."""
    workload = WORKLOADS[name]
    made = workload.make(jobs, seed) if window is None else in_window(workload, jobs, seed, window)
    scale = 1.0 if workload.load is None else offered_load(made) / workload.load
    start_s = min(job.submit_s for job in made.jobs)
    alone = {id(job.profile): replace(job.profile, sharing=None) for job in made.jobs}
    return replace(
        made,
        failures=(),
        outages=(),
        now_s=0.0,
        jobs=tuple(
            replace(
                job,
                weight=1.0,
                priority=0,
                deadline_s=None,
                submit_s=float(round(scale * (job.submit_s - start_s), 3)),
                profile=job.profile if sharing else alone[id(job.profile)],
            )
            for job in made.jobs
        ),
    )


def offered_load(instance: Instance) -> float:
    """Work asked for over what the cluster can do until the last job is submitted."""

    def gang(job: Job) -> int:
        return job.gpus.max if isinstance(job.gpus, Elastic) else job.gpus

    def rate(job: Job, gpu_type: str | None, gpu_memory_gib: float | None) -> float:
        profile = job.profile
        fits = gpu_memory_gib is None or profile.gpu_memory_gib <= gpu_memory_gib
        return (profile.rate.get(gpu_type or "", 0.0) if profile.rate else 1.0) if fits else 0.0

    asked = sum(gang(job) * job.work_s for job in instance.jobs)
    each: dict[tuple[str | None, float | None], int] = {}
    for node in instance.cluster.nodes:
        each[node.gpu_type, node.gpu_memory_gib] = (
            each.get((node.gpu_type, node.gpu_memory_gib), 0) + node.gpus
        )
    able = sum(
        gpus
        * sum(gang(job) * job.work_s * rate(job, *kind) for job in instance.jobs)
        / max(asked, 1e-9)
        for kind, gpus in each.items()
    )
    times = [job.submit_s for job in instance.jobs]
    return float(asked / (able * max(max(times) - min(times), 1.0)))


def run(
    name: str,
    policy_name: str,
    jobs: int | None,
    estimates: str,
    seed: int | None = None,
    window: Window | None = None,
    *,
    sharing: bool,
) -> dict[str, Any]:
    """One simulation."""
    instance = instance_of(name, jobs, seed, window, sharing=sharing)
    chosen = policy_of(policy_name)
    began_s = time.process_time()
    simulation = Simulation(instance, chosen, estimates=parse_estimates(estimates))
    simulation.run()
    cpu_s = time.process_time() - began_s
    record = simulation.record()
    done = record.ending == Ending.COMPLETED
    jct_s = np.zeros(len(instance.jobs))
    jct_s[record.job[done]] = record.end_s[done]
    makespan_s = float(jct_s.max()) - min(job.submit_s for job in instance.jobs)
    jct_s -= [job.submit_s for job in instance.jobs]
    alone_s = np.maximum(SHORTEST_S, [job.work_s for job in instance.jobs])
    faults = (
        verify(instance, record.plan(), parse("wct")).violations
        if len(instance.jobs) <= 20_000
        else ()
    )
    found = {
        "workload": name,
        "policy": policy_name,
        "estimates": estimates,
        "sharing": sharing,
        "jobs": len(instance.jobs),
        "gpus": instance.cluster.total_gpus,
        "mean_s": float(jct_s.mean()),
        "p99_s": float(np.percentile(jct_s, 99)),
        "makespan_s": makespan_s,
        "slowdown": float(np.maximum(1.0, jct_s / alone_s).max()),
        "preemptions": int((record.ending == Ending.PREEMPTED).sum()),
        "decisions": len(record.decision_s),
        "cpu_s": cpu_s,
        "faults": [str(fault) for fault in faults[:3]],
    }
    rounds = getattr(chosen, "rounds", None)
    if rounds:
        gaps = np.array([round_.gap for round_ in rounds if round_.gap is not None])
        found |= {
            "rounds": len(gaps),
            "gap_median": float(np.median(gaps)),
            "gap_p99": float(np.percentile(gaps, 99)),
            "open": float((gaps > 0.01).mean()),
            "active_mean": float(np.mean([round_.jobs for round_ in rounds])),
        }
    return found


def compared(runs: dict[str, list[dict[str, Any]]], setting: "Setting") -> dict[str, Any]:
    """Compare `optsched` with each rival and the best of them on one workload, from the runs of
    each policy over the draws, of which each counts alike however long its jobs wait: times and
    slowdowns are geometric means. `change` is relative to the best, `half` is half of its 95 %
    interval, None for a single run."""

    def mean(name: str, key: str) -> float:
        average = statistics.geometric_mean if key in RELATIVE else statistics.fmean
        return average([run[key] for run in runs[name]])

    def against(name: str, key: str) -> tuple[float, float | None]:
        ratios = zip(runs[OWN], runs[name], strict=True)
        found = mean_interval([math.log(own[key] / its[key]) for own, its in ratios])
        change = math.exp(found.mean)
        return round(change - 1, 4), found.half and round(change * found.half, 4)

    best = min((name for name in runs if name != OWN), key=lambda name: mean(name, "mean_s"))
    rule = min((name for name in RULES if name in runs), key=lambda name: mean(name, "mean_s"))
    both = {"": OWN, "best_": best}
    change, half = against(best, "mean_s")
    p99_change, p99_half = against(best, "p99_s")
    return {
        "estimates": setting.estimates,
        "physics": setting.physics,
        "workload": setting.workload,
        "seeds": len(setting.seeds),
        "windows": setting.windows,
        "jobs": runs[OWN][0]["jobs"],
        "gpus": runs[OWN][0]["gpus"],
        **{f"{name}_h": round(mean(name, "mean_s") / 3600, 2) for name in runs},
        "best": best,
        "best_h": round(mean(best, "mean_s") / 3600, 2),
        "change": change,
        "half": half,
        "best_rule": rule,
        "change_to_rule": against(rule, "mean_s")[0],
        "p99_change": p99_change,
        "p99_half": p99_half,
        **{f"{key}p99_h": round(mean(name, "p99_s") / 3600, 1) for key, name in both.items()},
        **{
            f"{key}makespan_h": round(mean(name, "makespan_s") / 3600, 1)
            for key, name in both.items()
        },
        **{f"{key}slowdown": round(mean(name, "slowdown")) for key, name in both.items()},
        **{key: round(mean(OWN, key)) for key in ("preemptions", "rounds", "cpu_s")},
        "gap_median": round(mean(OWN, "gap_median"), 6),
        "gap_p99": round(mean(OWN, "gap_p99"), 6),
    }


Draw = tuple[int | None, Window | None]
"""The seed of drawn profiles and the window of the trace; None: its own physics, its beginning."""


@dataclass(frozen=True)
class Setting:
    """One line of output."""

    workload: str
    physics: str
    estimates: str
    jobs: int | None
    sharing: bool
    most_seeds: int
    windows: int

    @property
    def seeds(self) -> list[int | None]:
        """Return the seeds of its runs: none with the trace's own physics."""
        if self.physics != "drawn":
            return [None]
        return [*range(1, self.most_seeds + 1 if WORKLOADS[self.workload].by_seed else 2)]

    @property
    def draws(self) -> list[Draw]:
        """Return what its runs differ in: each seed on each window."""
        count = self.windows if WORKLOADS[self.workload].most else 1
        windows = [(i, count) for i in range(count)] if count > 1 else [None]
        return [*itertools.product(self.seeds, windows)]

    def key(self, policy_name: str, draw: Draw) -> str:
        """Return the name under which a run is kept."""
        seed, window = draw
        size = f"{self.jobs or 'all'}{'' if self.sharing else '/alone'}"
        physics = self.physics if seed is None else f"{self.physics}-{seed}"
        part = "" if window is None else f"/{window[0] + 1}of{window[1]}"
        return f"{self.workload}/{policy_name}/{physics}/{self.estimates}/{size}{part}"

    def command(self, policy_name: str, draw: Draw) -> list[str]:
        """Return the command of a run."""
        seed, window = draw
        command = [
            sys.executable,
            "-m",
            "benchmarks.flagship",
            "--run",
            "--workload",
            self.workload,
        ]
        command += ["--policy", policy_name, "--estimates", self.estimates]
        command += ["--jobs", str(self.jobs)] if self.jobs else []
        command += [] if self.sharing else ["--no-sharing"]
        command += [] if seed is None else ["--seed", str(seed)]
        return command + ([] if window is None else ["--window", *map(str, window)])


class Runs:
    """Outcomes of runs by key, kept in a JSON file with the version of the code that made them;
    those of another are forgotten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.code = digest(code_version(), Path(__file__).read_text())
        kept = json.loads(path.read_text()) if path.exists() else {}
        self.known: dict[str, dict[str, Any]] = (
            kept["runs"] if kept.get("code") == self.code else {}
        )
        self.lock = threading.Lock()

    def make(self, setting: Setting, policy_name: str, draw: Draw, limit_s: float) -> None:
        """Run one simulation in a process of its own; a failure, or `limit_s` of CPU, is kept as
        the reason."""
        key = setting.key(policy_name, draw)
        command = ["bash", "-c", f'ulimit -t {limit_s:.0f}; exec "$@"', "run"]
        command += setting.command(policy_name, draw)
        done = subprocess.run(command, capture_output=True, text=True)
        said = (done.stderr.strip().splitlines() or [f"more than {limit_s:.0f} s of CPU"])[-1]
        outcome = {"failed": said} if done.returncode else json.loads(done.stdout.splitlines()[-1])
        with self.lock:
            self.known[key] = outcome
            self.path.write_text(json.dumps({"code": self.code, "runs": self.known}, indent=1))
        print(key, said_of(outcome), file=sys.stderr, flush=True)

    def of(self, setting: Setting, policies: list[str]) -> dict[str, list[Any]]:
        """Return the runs of each policy that has one for every draw."""
        runs = {
            name: [self.known.get(setting.key(name, draw), {}) for draw in setting.draws]
            for name in policies
        }
        return {name: own for name, own in runs.items() if all("mean_s" in run for run in own)}


def said_of(outcome: dict[str, Any]) -> str:
    """Return a run in a line."""
    if "failed" in outcome:
        return f"does not run: {outcome['failed']}"
    return (
        f"mean {outcome['mean_s'] / 3600:.3f} h, p99 {outcome['p99_s'] / 3600:.2f} h, "
        f"{outcome['preemptions']} preemptions, {outcome['cpu_s']:.1f} s {outcome['faults'] or ''}"
    )


def main() -> None:
    """Run what is missing, then print a line of JSON for each workload, physics and estimates."""
    parser = parser_of(
        __doc__,
        jobs=[],
        estimates="oracle",
        physics="own",
        seeds=5,
        windows=1,
        limit=600.0,
        processes=1,
        results=Path("build/flagship.json"),
        run=False,
        seed=int,
    )
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="only these")
    parser.add_argument(
        "--set", dest="kind", choices=("tuning", "test"), help="all workloads of one kind"
    )
    parser.add_argument(
        "--policy", action="append", help=f"only these (default: {', '.join(POLICIES)})"
    )
    parser.add_argument(
        "--no-sharing", dest="sharing", action="store_false", help="no two jobs on the same GPUs"
    )
    parser.add_argument("--again", action="append", default=[], help="run this policy even so")
    parser.add_argument("--window", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    counts: list[int | None] = given.jobs or [None]
    names = given.workload or [name for name, own in WORKLOADS.items() if own.kind == given.kind]
    policies = given.policy or list(POLICIES)
    if OWN in policies and len(policies) > 1 and not {*RULES}.intersection(policies):
        parser.error(f"{OWN} is compared with queue rules too: add one of {', '.join(RULES)}")
    if given.run:
        made = run(
            names[0],
            policies[0],
            counts[0],
            given.estimates,
            given.seed,
            given.window,
            sharing=given.sharing,
        )
        tell(made)
        return
    settings = [
        Setting(name, physics, estimates, jobs, given.sharing, given.seeds, given.windows)
        for name, physics, estimates, jobs in itertools.product(
            names, given.physics.split(","), given.estimates.split(","), counts
        )
        if physics == "own" or WORKLOADS[name].drawn
    ]
    runs = Runs(given.results)
    missing = [
        (setting, name, draw, given.limit)
        for setting in settings
        for name in policies
        for draw in setting.draws
        if name in given.again or setting.key(name, draw) not in runs.known
    ]
    with ThreadPoolExecutor(given.processes) as pool:
        list(pool.map(lambda missed: runs.make(*missed), missing))
    for setting in settings:
        own = runs.of(setting, policies)
        if OWN in own and len(own) > 1:
            tell(compared(own, setting))


if __name__ == "__main__":
    main()
