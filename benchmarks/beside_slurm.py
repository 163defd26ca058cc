"""The same jobs on the same real Slurm cluster, scheduled by Slurm as competent sites set it up,
and by optsched.

    python -m benchmarks.beside_slurm [--jobs 60] [--nodes 4] [--seeds 5] [--first-seed 0] [--load
    1.5] [--speedup 120]
                                     [--only NAME ...] [-o FOLDER]

As root, with Slurm's packages and its accounting (docs/slurm.md). For each seed all schedulers run
side by side, each on a Slurm of its own with `--nodes` slurmd of 8 pretended GPUs on this host, so
that other work disturbs all alike. Jobs sleep where they would train, so time runs `--speedup`
times as fast as in the workload (gangs and run times of `optsched generate`; arrivals at `--load`
times what the GPUs can do). A minute of training is half a second then. Half of the jobs save when
they get SIGTERM and go on from there; the others cannot, and everybody is told which. Every
scheduler knows of a job its GPUs, its weight, whether it saves, and its time limit: its duration
times a factor between 1 and 2.5, in full minutes, as users state them.

- `slurm, priority`: one partition, backfill over the whole queue every second, priority = weight /
  (GPUs x time limit), as a site's job_submit.lua sets it (weighted shortest processing time);
  nothing is preempted.
- `slurm, QOS`: the same priorities; jobs of a greater weight preempt those of a smaller one that
  save (preempt/qos, REQUEUE), once these have run for PreemptExemptTime, 20 s.
- `optsched, no preemption`, `optsched`, `optsched, sbatch`: the objective `wct`; the last takes
  jobs from `sbatch`. Nobody is preempted before it has run for 20 s here either.

Prints one line of JSON for each run; FOLDER keeps a log of each job, and at the end has results.md
and waiting.svg.
"""

import argparse
import json
import math
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.command_line import parser_of, tell
from optsched import Job, Profile
from optsched.control.controller import Controller
from optsched.control.journal.events import Submitted
from optsched.control.opening import opened
from optsched.control.settings import read_settings
from optsched.control.submission import Submission
from optsched.study.intervals import mean_interval
from optsched.traces.generate.synth import generate
from tests.live.slurm_cluster import SlurmCluster, missing_accounting

SAVE_S, RESTORE_S = 1.0, 1.0
CANNOT_SAVE_S = -1.0
LONGEST_S = 150.0
EXEMPT_S = 20
WEIGHTS = (1, 2, 4)
BACKFILL = (
    ("SchedulerType=sched/builtin", "SchedulerType=sched/backfill"),
    (
        "default_queue_depth=2000",
        "default_queue_depth=2000,bf_interval=1,bf_resolution=1,bf_continue,bf_max_job_test=2000",
    ),
    ("KillWait=5", "KillWait=20"),
)
TOML = """
format = "optsched-cluster/1"
executor = "slurm"
state = "state"
shared = "{shared}"
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
    saves: bool
    duration_s: float
    limit_s: float

    @property
    def priority(self) -> int:
        """Weighted shortest processing time, by GPU, as a number of Slurm's."""
        return max(1, round(1e8 * self.weight / (self.gpus * self.limit_s)))

    def command(self, folder: Path) -> list[str]:
        """What it runs."""
        script = Path(__file__).with_name("sleeping_job.py")
        save_s = SAVE_S if self.saves else CANNOT_SAVE_S
        words = (script, folder, self.name, self.duration_s, save_s, RESTORE_S)
        return [sys.executable, "-S", *map(str, words)]

    def sbatch(self, gpus_per_node: int, folder: Path) -> list[str]:
        """Words of sbatch, but for how it is scheduled."""
        nodes = max(1, self.gpus // gpus_per_node)
        return [
            "--requeue",
            f"--nodes={nodes}",
            f"--job-name={self.name}",
            "--mem=1G",
            f"--gres=gpu:h100:{self.gpus // nodes}",
            f"--time={round(self.limit_s / 60)}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={self.gpus // nodes}",
            f"--output={folder}/{self.name}.out",
            "--open-mode=append",
            f"--wrap=exec {' '.join(self.command(folder))}",
        ]


def workload(jobs: int, gpus: int, seed: int, speedup: float, load: float) -> list[Work]:
    """Jobs in the order of their arrival."""
    made = generate(jobs=jobs, gpus=gpus, seed=seed, arrivals="poisson", gpu_types=1)
    draw = random.Random(seed)
    found: list[Work] = []
    for job in sorted(made.jobs, key=lambda job: job.submit_s):
        assert isinstance(job.gpus, int)
        duration_s = round(min(LONGEST_S, job.work_s / speedup), 1)
        limit_s = 60.0 * math.ceil(duration_s * draw.uniform(1.0, 2.5) / 60.0)
        saves = draw.random() < 0.5
        found.append(
            Work(job.id, job.submit_s, job.gpus, int(job.weight), saves, duration_s, limit_s)
        )
    last_s = sum(work.gpus * work.duration_s for work in found) / (gpus * load)
    return [replace(work, submit_s=work.submit_s / found[-1].submit_s * last_s) for work in found]


def paced(works: Sequence[Work], submit: Callable[[Work], object]) -> dict[str, float]:
    """Submit each when it is due; when each was, in Unix time."""
    began_s, submitted = time.time(), {}
    for work in works:
        time.sleep(max(0.0, began_s + work.submit_s - time.time()))
        submitted[work.name] = time.time()
        submit(work)
    return submitted


class SlurmAlone(SlurmCluster):
    """Slurm schedules by itself: backfill, and one priority a job."""

    preempts = False

    def __init__(self, folder: Path, nodes: int) -> None:
        super().__init__(folder, nodes, 8, accounting=True)

    def prepare(self) -> None:
        """As for any, with backfill and, where it preempts, by QOS."""
        super().prepare()
        text = self.conf.read_text()
        preempt = (
            "PreemptType=preempt/none",
            f"PreemptType=preempt/qos\nPreemptMode=REQUEUE\nPreemptExemptTime=00:00:{EXEMPT_S:02d}",
        )
        for old, new in (*BACKFILL, *([preempt] if self.preempts else [])):
            assert old in text, old
            text = text.replace(old, new)
        self.conf.write_text(text)

    def begin(self) -> None:
        """A QOS for each weight; only what saves may be preempted, by all greater weights."""
        if not self.preempts:
            return
        tell = ("sacctmgr", "-i")
        for weight in WEIGHTS:
            for name in (f"saves{weight}", f"keeps{weight}"):
                self.slurm(*tell, "add", "qos", name)
        for weight in WEIGHTS[1:]:
            lower = ",".join(f"saves{one}" for one in WEIGHTS if one < weight)
            for name in (f"saves{weight}", f"keeps{weight}"):
                self.slurm(*tell, "modify", "qos", name, "set", f"Preempt={lower}")
        names = ",".join(f"{kind}{weight}" for weight in WEIGHTS for kind in ("saves", "keeps"))
        self.slurm(*tell, "modify", "user", "root", "set", f"qos+={names}")

    def run(self, works: Sequence[Work], folder: Path) -> dict[str, float]:
        """Submit each when it is due, and wait for all."""

        def submit(work: Work) -> None:
            qos = f"{'saves' if work.saves else 'keeps'}{work.weight}"
            how = [f"--priority={work.priority}", *([f"--qos={qos}"] if self.preempts else [])]
            self.slurm("sbatch", "--partition=optsched", *how, *work.sbatch(self.gpus, folder))

        submitted = paced(works, submit)
        while ended(works, folder) < len(works):
            time.sleep(0.5)
        return submitted


class SlurmQos(SlurmAlone):
    """The same, with preemption."""

    preempts = True


class Optsched(SlurmCluster):
    """optsched decides; `preempts` says whether what saves may be stopped."""

    preempts = True

    def __init__(self, folder: Path, nodes: int, holds: bool = False) -> None:
        super().__init__(folder, nodes, 8, holds)

    def begin(self) -> None:
        """Nothing more is needed."""

    def toml(self) -> str:
        """Its cluster.toml."""
        return TOML.format(conf=self.conf, shared=self.shared)

    def run(self, works: Sequence[Work], folder: Path) -> dict[str, float]:
        """Run a controller until all jobs have ended."""
        (folder / "cluster.toml").write_text(self.toml())
        arrived: list[Work] = []
        lock = threading.Lock()

        def submit(work: Work) -> None:
            with lock:
                arrived.append(work)

        with (
            opened(read_settings(folder / "cluster.toml")) as controller,
            ThreadPoolExecutor(1) as users,
        ):
            submitted = users.submit(paced, works, lambda work: self.submit(work, folder, submit))
            due_s = 0.0
            while (
                not submitted.done()
                or arrived
                or controller.state.open
                or ended(works, folder) < len(works)
            ):
                with lock:
                    new, arrived[:] = arrived[:], []
                for work in new:
                    self.record(controller, work, folder)
                    due_s = 0.0
                if time.monotonic() >= due_s:
                    due_s = time.monotonic() + min(0.5, controller.step())
                controller.executor.changes(0.2)
            return submitted.result()

    def submit(self, work: Work, folder: Path, to_controller: Callable[[Work], None]) -> None:
        """As `optsched submit` does."""
        to_controller(work)

    def record(self, controller: Controller, work: Work, folder: Path) -> None:
        """Take a job in."""
        nodes = max(1, work.gpus // self.gpus)
        profile = Profile(startup_s=1.0, memory_gib_per_gpu=1.0)
        if work.saves:
            profile = replace(profile, checkpoint_s=SAVE_S, restore_s=RESTORE_S)
        job = Job(
            id=work.name,
            gpus=work.gpus,
            duration_s=work.limit_s,
            weight=work.weight,
            profile=profile,
            command=work.name,
            submit_s=time.time(),
            preemptible=self.preempts and work.saves,
            min_run_s=EXEMPT_S,
            min_nodes=nodes,
            max_nodes=nodes,
        )
        controller.record(
            Submitted(
                submission=Submission(
                    job=job,
                    argv=tuple(work.command(folder)),
                    directory=str(folder),
                    grace_s=20.0,
                    estimate="time limit",
                )
            )
        )


class OptschedWithoutPreemption(Optsched):
    """The same, and nothing is stopped."""

    preempts = False


class OptschedSbatch(Optsched):
    """optsched runs what root submits by sbatch, saying by its comment what it weighs and whether
    it saves."""

    def __init__(self, folder: Path, nodes: int) -> None:
        super().__init__(folder, nodes, holds=True)

    def toml(self) -> str:
        """Its cluster.toml."""
        more = f'sbatch = true\nheartbeat = "{self.heartbeat}"\nmin_run = "{EXEMPT_S}s"\n'
        return super().toml() + more

    def submit(self, work: Work, folder: Path, to_controller: Callable[[Work], None]) -> None:
        """As users do."""
        saves = f" save={SAVE_S:g}s restore={RESTORE_S:g}s" if work.saves else ""
        comment = f"--comment=optsched: weight={work.weight} start=1s grace=20s{saves}"
        self.slurm("sbatch", "--partition=optsched", comment, *work.sbatch(self.gpus, folder))


SCHEDULERS: dict[str, Callable[[Path, int], SlurmAlone | Optsched]] = {
    "slurm, priority": SlurmAlone,
    "slurm, QOS": SlurmQos,
    "optsched, no preemption": OptschedWithoutPreemption,
    "optsched": Optsched,
    "optsched, sbatch": OptschedSbatch,
}


def ended(works: Sequence[Work], folder: Path) -> int:
    """How many have trained to the end."""
    logs = [folder / f"{work.name}.log" for work in works]
    return sum('"ended"' in log.read_text() for log in logs if log.exists())


def measure(
    works: Sequence[Work], submitted: dict[str, float], folder: Path
) -> tuple[dict[str, float], list[float]]:
    """What the jobs' own logs say, and for how long each job was there without training, in
    seconds."""
    jct_s, weights, lost_gpu_s, preemptions, last_s = [], [], 0.0, 0, 0.0
    for work in works:
        lines = [
            json.loads(line) for line in (folder / f"{work.name}.log").read_text().splitlines()
        ]
        assert lines[-1]["what"] == "ended" and lines[-1]["done_s"] >= work.duration_s, (
            work,
            lines,
        )
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
    waits_s = [jct - work.duration_s for jct, work in zip(jct_s, works, strict=True)]
    trained_gpu_s = sum(work.gpus * work.duration_s for work in works)
    return {
        "mean JCT, s": float(np.mean(jct_s)),
        "of it not training, s": float(np.mean(waits_s)),
        "mean JCT by weight, s": float(np.average(jct_s, weights=weights)),
        "p99 JCT, s": float(np.percentile(jct_s, 99)),
        "longest without training, s": max(waits_s),
        "last job done after, s": last_s - min(submitted.values()),
        "preemptions": float(preemptions),
        "GPU time held and not trained in, %": 100.0 * lost_gpu_s / trained_gpu_s,
    }, waits_s


def run(
    name: str, works: Sequence[Work], nodes: int, folder: Path
) -> tuple[dict[str, float], list[float]]:
    """One scheduler over one workload, on a cluster of its own."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="beside-slurm-", ignore_cleanup_errors=True) as place:
        cluster = SCHEDULERS[name](Path(place), nodes)
        try:
            cluster.prepare()
            cluster.start_controller()
            for number in range(1, nodes + 1):
                cluster.start_node(number)
            cluster.until_idle()
            cluster.begin()
            submitted = cluster.run(works, folder)
        finally:
            cluster.down()
    return measure(works, submitted, folder)


def interval(values: Sequence[float]) -> str:
    """A mean with its 95 % interval over seeds."""
    found = mean_interval(values)
    return f"{found.mean:.1f}" + (f" ± {found.half:.1f}" if found.half is not None else "")


def table(told: dict[str, list[dict[str, float]]]) -> str:
    """Means over seeds by measure and scheduler, and each scheduler's mean JCT less that of the
    first, seed by seed."""
    names = list(told)
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for what in told[names[0]][0]:
        cells = [interval([one[what] for one in told[name]]) for name in names]
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    for what in ("mean JCT, s", "mean JCT by weight, s", "p99 JCT, s"):
        first = [one[what] for one in told[names[0]]]
        cells = [
            ""
            if name == names[0]
            else interval(
                [
                    100.0 * (one[what] / base - 1.0)
                    for one, base in zip(told[name], first, strict=True)
                ]
            )
            for name in names
        ]
        lines.append(
            f"| {what.removesuffix(', s')} against the first, % | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines) + "\n"


def draw(waits: dict[str, list[float]], file: Path) -> None:
    """Share of jobs by how long they waited, for each scheduler."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    colours = ("#e59866", "#c0392b", "#85c1e9", "#1f5fa8", "#17202a")
    for (name, waited_s), colour in zip(waits.items(), colours, strict=False):
        shares = np.arange(1, len(waited_s) + 1) / len(waited_s) * 100
        axes.step(
            np.maximum(0.5, np.sort(waited_s)), shares, where="post", color=colour, lw=2, label=name
        )
    axes.set_xscale("log")
    axes.set_xlabel("seconds in which a job was there and did not train")
    axes.set_ylabel("jobs, %")
    axes.set_ylim(0, 101)
    axes.grid(color="0.92")
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(file, metadata={"Date": None})


def slurm_parser(
    description: str | None, schedulers: Collection[str], **defaults: float
) -> argparse.ArgumentParser:
    """Return a parser of what every comparison on real Slurms takes, and of `defaults`."""
    parser = parser_of(description, nodes=4, seeds=5, first_seed=0, **defaults)
    parser.add_argument("--only", nargs="+", choices=list(schedulers), metavar="NAME")
    parser.add_argument("-o", "--output", type=Path)
    return parser


def main() -> None:
    """Run every workload under every scheduler."""
    parser = slurm_parser(__doc__, SCHEDULERS, jobs=60, speedup=120.0, load=1.5)
    arguments = parser.parse_args()
    reason = missing_accounting()
    if reason is not None:
        sys.exit(reason)
    output = (arguments.output or Path(tempfile.mkdtemp(prefix="beside-slurm-"))).absolute()
    names = arguments.only or list(SCHEDULERS)
    told: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    waits: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        works = workload(
            arguments.jobs, arguments.nodes * 8, seed, arguments.speedup, arguments.load
        )
        tell(
            {
                "seed": seed,
                "jobs": len(works),
                "save": sum(work.saves for work in works),
                "mean s": float(np.mean([work.duration_s for work in works])),
                "last arrival s": works[-1].submit_s,
            }
        )
        with ProcessPoolExecutor(len(names)) as pool:  # each has ports of its own
            runs = {
                name: pool.submit(
                    run, name, works, arguments.nodes, output / f"{name}-{seed}".replace(", ", "-")
                )
                for name in names
            }
        for name, done in runs.items():
            one, waited = done.result()
            told[name].append(one)
            waits[name] += waited
            rounded = {what: round(value, 1) for what, value in one.items()}
            tell({"scheduler": name, "seed": seed, **rounded})
    (output / "results.md").write_text(table(told))
    draw(waits, output / "waiting.svg")
    print((output / "results.md").read_text())


if __name__ == "__main__":
    main()
