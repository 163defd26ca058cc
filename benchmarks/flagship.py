"""The policy `optsched` against queue rules on the same workloads: mean and p99 completion time,
cost of deciding.

    python benchmarks/flagship.py --workload gavel-osdi --estimates oracle
    python benchmarks/flagship.py --set tuning --jobs 300 --results /tmp/tuning.json
    python benchmarks/flagship.py --set test --estimates oracle,history

`tuning` workloads are generated; constants of the policy were chosen on these alone. `test`
workloads are public traces under OPTSCHED_DATA (default ../shared/data), their arrivals compressed
or stretched to offer `load` times the work that the cluster can do meanwhile (a GPU type counted at
the mean rate of the jobs, 0 for those it cannot run). Every run is a process of its own, every plan
is verified, and results are kept in a JSON file, so that a study can be made in parts: what is
there already is not run again. Times are CPU seconds of one core. Weights are 1, deadlines none,
attempts that fail and lost nodes left out.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from optsched.driver.state import Ending
from optsched.estimates.parse import parse as parse_estimates
from optsched.model.instance import Instance
from optsched.model.job import Elastic, Job
from optsched.objectives import parse
from optsched.physics.catalogue import Catalogue
from optsched.physics.unschedulable import why_never
from optsched.plugins import registry
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched.traces.generate.synth import generate
from optsched.traces.profiles.attach import attach
from optsched.verify import verify

DATA = Path(
    os.environ.get("OPTSCHED_DATA", Path(__file__).parent.parent.parent / "shared" / "data")
)
RULES = ("fifo", "backfill", "srtf", "srsf", "las")
POLICIES = (*RULES, "optsched")
LOAD = 0.9
"""Offered by every test workload."""
SEED = 1
"""Of the rule that attaches measured profiles."""


@dataclass(frozen=True)
class Workload:
    """How a workload is made, from a number of jobs, and the load it is brought to (None: as it
    is)."""

    kind: str
    make: Callable[[int | None], Instance]
    load: float | None = None


def _synthetic(gpus: int, seed: int, like: Any, load: float, gpu_types: int = 3) -> Workload:
    return Workload(
        "tuning",
        lambda jobs: generate(
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
    def make(jobs: int | None) -> Instance:
        from optsched.traces.generate.like import generate as generate_like

        return generate_like(
            kind, jobs=jobs or 500, gpus=gpus, seed=seed, load=load, failures=False
        )

    return Workload("tuning", make)


def _trace(name: str, path: str, most: int, every: int = 1, **options: Any) -> Workload:
    """The first `most` jobs of a trace; `every` keeps each so-many-th node where it is of a far
    larger cluster."""

    def make(jobs: int | None) -> Instance:
        found = registry.importer(name).read(DATA / path, jobs=jobs or most, **options).instance
        if every > 1:
            cluster = replace(found.cluster, nodes=found.cluster.nodes[::every])
            able = (
                job
                for job in found.jobs
                if why_never(Catalogue.of(cluster, found.tenants), job) is None
            )
            found = replace(found, cluster=cluster, jobs=tuple(able))
        costs = any(job.profile.checkpoint_s or job.profile.restore_s for job in found.jobs)
        return found if costs else attach(found, SEED)

    return Workload("test", make, LOAD)


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


def instance_of(name: str, jobs: int | None, *, sharing: bool = True) -> Instance:
    """The workload with its load, weights of 1, and nothing that fails; without `sharing` no
    profile allows it."""
    workload = WORKLOADS[name]
    made = workload.make(jobs)
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
    name: str, policy_name: str, jobs: int | None, estimates: str, *, sharing: bool
) -> dict[str, Any]:
    """One simulation."""
    instance = instance_of(name, jobs, sharing=sharing)
    chosen = policy(policy_name, objective=parse("wct"))
    began_s = time.process_time()
    simulation = Simulation(instance, chosen, estimates=parse_estimates(estimates))
    simulation.run()
    cpu_s = time.process_time() - began_s
    record = simulation.record()
    done = record.ending == Ending.COMPLETED
    jct_s = np.zeros(len(instance.jobs))
    jct_s[record.job[done]] = record.end_s[done]
    jct_s -= [job.submit_s for job in instance.jobs]
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
        "max_s": float(jct_s.max()),
        "preemptions": int((record.ending == Ending.PREEMPTED).sum()),
        "decisions": len(record.decision_s),
        "cpu_s": cpu_s,
        "faults": [str(one) for one in faults[:3]],
    }
    rounds = getattr(chosen, "rounds", None)
    if rounds:
        gaps = np.array([one.gap for one in rounds])
        found |= {
            "rounds": len(gaps),
            "gap_median": float(np.median(gaps)),
            "gap_p99": float(np.percentile(gaps, 99)),
            "open": float((gaps > 0.01).mean()),
            "active_mean": float(np.mean([one.jobs for one in rounds])),
        }
    return found


def compared(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Compare `optsched` with each rule and the best of them on one workload, from the runs by
    policy; `change` is relative to the best mean."""
    best = min(RULES, key=lambda rule: runs[rule]["mean_s"])
    own = runs["optsched"]
    return {
        "estimates": own["estimates"],
        "workload": own["workload"],
        "jobs": own["jobs"],
        "gpus": own["gpus"],
        **{f"{rule}_h": round(runs[rule]["mean_s"] / 3600, 2) for rule in POLICIES},
        "best": best,
        "change": round(own["mean_s"] / runs[best]["mean_s"] - 1, 4),
        "best_p99_h": round(runs[best]["p99_s"] / 3600, 1),
        "p99_h": round(own["p99_s"] / 3600, 1),
        "preemptions": own["preemptions"],
        "rounds": own["rounds"],
        "gap_median": round(own["gap_median"], 6),
        "gap_p99": round(own["gap_p99"], 6),
        "cpu_s": round(own["cpu_s"]),
    }


def main() -> None:
    """Run what is missing, one process each, then print a line of JSON for each workload."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="only these")
    parser.add_argument(
        "--set", dest="kind", choices=("tuning", "test"), help="all workloads of one kind"
    )
    parser.add_argument(
        "--policy", action="append", help=f"only these (default: {', '.join(POLICIES)})"
    )
    parser.add_argument("--jobs", type=int, help="only the first so many jobs")
    parser.add_argument("--estimates", default="oracle", help="several: oracle,history")
    parser.add_argument(
        "--no-sharing", dest="sharing", action="store_false", help="no two jobs on the same GPUs"
    )
    parser.add_argument("--results", type=Path, default=Path("flagship.json"))
    parser.add_argument("--again", action="store_true", help="run even what is there")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.workload or [name for name, one in WORKLOADS.items() if one.kind == given.kind]
    policies = given.policy or list(POLICIES)
    if given.one:
        print(
            json.dumps(
                run(names[0], policies[0], given.jobs, given.estimates, sharing=given.sharing)
            )
        )
        return
    known: dict[str, dict[str, Any]] = (
        json.loads(given.results.read_text()) if given.results.exists() else {}
    )

    def setting_of(estimates: str) -> str:
        return f"{estimates}/{given.jobs or 'all'}{'' if given.sharing else '/alone'}"

    for estimates, name in itertools.product(given.estimates.split(","), names):
        for rule in policies:
            key = f"{name}/{rule}/{setting_of(estimates)}"
            if key in known and not given.again:
                continue
            command = [
                sys.executable,
                __file__,
                "--one",
                "--workload",
                name,
                "--policy",
                rule,
                "--estimates",
                estimates,
                *(["--jobs", str(given.jobs)] if given.jobs else []),
                *([] if given.sharing else ["--no-sharing"]),
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{key}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
                continue
            known[key] = json.loads(done.stdout.strip().splitlines()[-1])
            given.results.write_text(json.dumps(known, indent=1))
            one = known[key]
            print(
                f"{key}: mean {one['mean_s'] / 3600:.3f} h, p99 {one['p99_s'] / 3600:.2f} h, "
                f"{one['preemptions']} preemptions, {one['cpu_s']:.1f} s {one['faults'] or ''}",
                file=sys.stderr,
            )
    for name, estimates in itertools.product(names, given.estimates.split(",")):
        runs = {
            run["policy"]: run
            for key, run in known.items()
            if key.startswith(f"{name}/") and key.endswith(f"/{setting_of(estimates)}")
        }
        if set(POLICIES) <= set(runs):
            print(json.dumps(compared(runs)), flush=True)


if __name__ == "__main__":
    main()
