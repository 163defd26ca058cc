"""The same jobs on the same real Slurm cluster: Slurm's own backfill with preemption, and optsched.

    python -m benchmarks.beside_slurm [--jobs 200] [--nodes 8] [--seed 0] [--speedup 60] [--load 1.5]
                                     [--only slurm|optsched] [-o FOLDER]

As root, with Slurm's packages (docs/slurm.md): 8 slurmd of 8 pretended GPUs each on this host. Jobs sleep where they
would train, so time runs `--speedup` times as fast as in the workload (gangs and run times of `optsched generate`, none
longer than 10 min; arrivals at `--load` times what the GPUs can do). They save when they get SIGTERM and go on from
there. Both schedulers know of a job its GPUs, its weight, and its time limit: its duration times a factor between 1 and
2.5, in full minutes, as users state them.

Slurm has a partition for each weight; the higher tier preempts the lower (preempt/partition_prio, REQUEUE), and within
a tier it is first come, first served with backfill, every second. optsched has the objective `wct`.

Prints one line of JSON for each; FOLDER keeps a log of each job, and the picture waiting.svg.
"""

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from optsched import Job, Profile
from optsched.control.events import Submitted
from optsched.control.opening import opened
from optsched.control.settings import read_settings
from optsched.control.submission import Submission
from optsched.traces.synth import generate
from tests.live.slurm_cluster import SlurmCluster, missing

SAVE_S, RESTORE_S = 1.0, 1.0
LONGEST_S = 600.0
WEIGHTS = (1, 2, 4)
BACKFILL = (
    ("SchedulerType=sched/builtin", "SchedulerType=sched/backfill"),
    (
        "default_queue_depth=2000",
        "default_queue_depth=2000,bf_interval=1,bf_resolution=1,bf_continue,bf_max_job_test=2000",
    ),
    ("PreemptType=preempt/none", "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE"),
    ("KillWait=5", "KillWait=20"),
)
TOML = """
format = "optsched-cluster/1"
executor = "slurm"
every = "5s"
length = "20s"
[slurm]
conf = "{conf}"
partition = "optsched"
poll = "0.5s"
"""


@dataclass(frozen=True, slots=True)
class Work:
    """A job: `limit_s` is what its user says, `duration_s` the truth."""

    name: str
    submit_s: float
    gpus: int
    weight: int
    duration_s: float
    limit_s: float

    def command(self, folder: Path) -> list[str]:
        """What it runs."""
        script = Path(__file__).with_name("sleeping_job.py")
        words = (script, folder, self.name, self.duration_s, SAVE_S, RESTORE_S)
        return [sys.executable, "-S", *map(str, words)]


def workload(jobs: int, gpus: int, seed: int, speedup: float, load: float) -> list[Work]:
    """Jobs in the order of their arrival."""
    made = generate(jobs=jobs, gpus=gpus, seed=seed, arrivals="poisson", gpu_types=1)
    draw = random.Random(seed)
    found: list[Work] = []
    for job in sorted(made.jobs, key=lambda job: job.submit_s):
        assert isinstance(job.gpus, int)
        duration_s = round(min(LONGEST_S, job.work_s / speedup), 1)
        limit_s = 60.0 * math.ceil(duration_s * draw.uniform(1.0, 2.5) / 60.0)
        found.append(Work(job.id, job.submit_s, job.gpus, int(job.weight), duration_s, limit_s))
    last_s = sum(work.gpus * work.duration_s for work in found) / (gpus * load)
    return [replace(work, submit_s=work.submit_s / found[-1].submit_s * last_s) for work in found]


class BackfillCluster(SlurmCluster):
    """One that schedules by itself where it is asked to."""

    def prepare(self) -> None:
        """As for any, with backfill, preemption and a partition for each weight."""
        super().prepare()
        text = self.conf.read_text()
        for old, new in BACKFILL:
            assert old in text, old
            text = text.replace(old, new)
        for weight in WEIGHTS:
            mode = "REQUEUE" if weight < max(WEIGHTS) else "OFF"
            text += f"PartitionName=w{weight} Nodes=ALL PriorityTier={weight} PreemptMode={mode} State=UP\n"
        self.conf.write_text(text.replace("PartitionName=optsched ", "PartitionName=optsched PreemptMode=OFF "))


def by_slurm(cluster: SlurmCluster, works: Sequence[Work], folder: Path) -> dict[str, float]:
    """Submit each when it is due, and wait for all; when each was submitted, in Unix time."""
    began_s, submitted = time.time(), {}
    for work in works:
        time.sleep(max(0.0, began_s + work.submit_s - time.time()))
        nodes = max(1, work.gpus // cluster.gpus)
        submitted[work.name] = time.time()
        cluster.slurm(
            "sbatch", f"--partition=w{work.weight}", "--requeue", f"--nodes={nodes}", f"--job-name={work.name}",
            f"--gres=gpu:h100:{work.gpus // nodes}", f"--time={round(work.limit_s / 60)}", "--mem=1G",
            "--ntasks-per-node=1", f"--cpus-per-task={work.gpus // nodes}", f"--output={folder}/{work.name}.out",
            "--open-mode=append", f"--wrap=exec {' '.join(work.command(folder))}",
        )
    while ended(works, folder) < len(works):
        time.sleep(0.5)
    return submitted


def by_optsched(cluster: SlurmCluster, works: Sequence[Work], folder: Path) -> dict[str, float]:
    """The same through a controller with a state folder of its own."""
    (folder / "cluster.toml").write_text(TOML.format(conf=cluster.conf))
    submitted: dict[str, float] = {}
    waiting = list(works)
    with opened(read_settings(folder / "cluster.toml")) as controller:
        began_s = time.time()
        due_s = 0.0
        while waiting or controller.state.open:
            while waiting and began_s + waiting[0].submit_s <= time.time():
                work = waiting.pop(0)
                submitted[work.name] = time.time()
                profile = Profile(checkpoint_s=SAVE_S, restore_s=RESTORE_S, startup_s=1.0, memory_gib_per_gpu=1.0)
                job = Job(
                    id=work.name, gpus=work.gpus, duration_s=work.limit_s, weight=work.weight, profile=profile,
                    command=work.name, submit_s=time.time(),
                )
                controller.record(Submitted(submission=Submission(
                    job=job, argv=tuple(work.command(folder)), directory=str(folder), grace_s=20.0,
                    estimate="time limit",
                )))
                due_s = 0.0
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + min(0.5, controller.step())
            controller.executor.changes(0.2)
    return submitted


def ended(works: Sequence[Work], folder: Path) -> int:
    """How many have trained to the end."""
    logs = [folder / f"{work.name}.log" for work in works]
    return sum('"ended"' in log.read_text() for log in logs if log.exists())


def measure(works: Sequence[Work], submitted: dict[str, float], folder: Path) -> tuple[dict[str, float], list[float]]:
    """What the jobs' own logs say, and for how long each job was there without training, in seconds."""
    jct_s, weights, lost_gpu_s, preemptions, last_s = [], [], 0.0, 0, 0.0
    for work in works:
        lines = [json.loads(line) for line in (folder / f"{work.name}.log").read_text().splitlines()]
        assert lines[-1]["what"] == "ended" and lines[-1]["done_s"] >= work.duration_s, (work, lines)
        held_s, began_s = 0.0, None
        for line in lines:
            if line["what"] == "began":
                began_s = line["at_s"]
            elif began_s is not None:
                held_s, began_s = held_s + line["at_s"] - began_s, None
        preemptions += sum(line["what"] == "began" for line in lines) - 1
        lost_gpu_s += work.gpus * (held_s - work.duration_s)
        jct_s.append(lines[-1]["at_s"] - submitted[work.name])
        weights.append(work.weight)
        last_s = max(last_s, lines[-1]["at_s"])
    told = {
        "mean JCT, s": round(float(np.mean(jct_s)), 1),
        "mean JCT by weight, s": round(float(np.average(jct_s, weights=weights)), 1),
        "p99 JCT, s": round(float(np.percentile(jct_s, 99)), 1),
        "mean JCT without waiting, s": round(float(np.mean([work.duration_s for work in works])), 1),
        "preemptions": preemptions,
        "lost GPU-seconds": round(lost_gpu_s),
        "makespan, s": round(last_s - min(submitted.values()), 1),
    }
    waits_s = [jct - work.duration_s for jct, work in zip(jct_s, works, strict=True)]
    return {**told, "longest waiting, s": round(max(waits_s), 1)}, waits_s


def draw(waits: dict[str, list[float]], file: Path) -> None:
    """Share of jobs by how long they waited, for each scheduler."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for (name, waited_s), colour in zip(waits.items(), ("#c0392b", "#1f5fa8"), strict=False):
        shares = np.arange(1, len(waited_s) + 1) / len(waited_s) * 100
        axes.step(np.maximum(0.5, np.sort(waited_s)), shares, where="post", color=colour, lw=2, label=name)
    axes.set_xscale("log")
    axes.set_xlabel("seconds in which a job was there and did not train")
    axes.set_ylabel("jobs, %")
    axes.set_ylim(0, 101)
    axes.grid(color="0.92")
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Run the workload under one, then under the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--speedup", type=float, default=60.0)
    parser.add_argument("--load", type=float, default=1.5)
    parser.add_argument("--only", choices=("slurm", "optsched"))
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    reason = missing()
    if reason is not None:
        sys.exit(reason)
    output = arguments.output or Path(tempfile.mkdtemp(prefix="beside-slurm-"))
    works = workload(arguments.jobs, arguments.nodes * 8, arguments.seed, arguments.speedup, arguments.load)
    print(json.dumps({
        "jobs": len(works), "GPUs": arguments.nodes * 8,
        "GPU-seconds": round(sum(one.gpus * one.duration_s for one in works)),
        "last arrival, s": round(works[-1].submit_s), "longest, s": max(one.duration_s for one in works),
    }), flush=True)
    waits = {}
    for name, run in (("slurm", by_slurm), ("optsched", by_optsched)):
        if arguments.only not in (None, name):
            continue
        folder = (output / name).absolute()
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="beside-slurm-", ignore_cleanup_errors=True) as place:
            cluster = BackfillCluster(Path(place), arguments.nodes, 8)
            try:
                cluster.prepare()
                cluster.start_controller()
                for number in range(1, arguments.nodes + 1):
                    cluster.start_node(number)
                cluster.until_idle()
                submitted = run(cluster, works, folder)
            finally:
                cluster.down()
        told, waits[name] = measure(works, submitted, folder)
        print(json.dumps({"scheduler": name, **told}), flush=True)
    draw(waits, output / "waiting.svg")


if __name__ == "__main__":
    main()
