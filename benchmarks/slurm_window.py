"""How much of a real Slurm cluster is idle before a reservation of all its nodes, under Slurm's
backfill and under optsched, and whom the reservation catches unsaved.

    python -m benchmarks.slurm_window [--seeds 5] [--first-seed 0] [--nodes 4] [--window 600]
                                      [--only NAME ...] [-o FOLDER]

As root, with Slurm's packages (docs/slurm.md). For each seed all schedulers run side by side, each
on a Slurm of its own with `--nodes` slurmd of 8 pretended GPUs on this host. `scontrol create
reservation ... flags=maint` reserves all nodes `--window` seconds after the first job is submitted;
then they are set down, as by somebody who takes them away. The jobs, four times as much as fits
before it, are all submitted at the beginning: they sleep for a tenth of that time up to all of it
(log-uniform) on 1 to 8 GPUs, and half of them save within a second when they get SIGTERM. Every
scheduler knows of a job its GPUs, its time limit (its duration times a factor between 1 and 2.5, in
full minutes), and whether it saves.

- `slurm`: backfill over the whole queue every second, first come first served.
- `optsched`: jobs of `optsched submit`; `optsched, sbatch`: jobs of `sbatch`.

Prints one line of JSON for each run: `idle_gpu_s` are GPU-seconds in which no job held a GPU before
the reservation, `idle` their share, and `unsaved` are jobs that held one when it began. The last
line is the sum.
"""

import json
import math
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from benchmarks.command_line import tell
from optsched.control.opening import opened
from optsched.control.settings import read_settings
from tests.live.slurm_cluster import SlurmCluster, missing

from .beside_slurm import Optsched, OptschedSbatch, SlurmAlone, Work, paced, slurm_parser

GANGS = (1, 1, 2, 2, 4, 8)
SHORTEST = 0.1
"""The shortest job, as a share of the time until the reservation."""
LOAD = 4.0
AFTER_S = 3.0
"""So long after the reservation has begun logs are read."""


class Backfill(SlurmAlone):
    """Slurm schedules by itself, first come first served."""

    def __init__(self, folder: Path, nodes: int) -> None:
        super().__init__(folder, nodes)
        self.accounting = False

    def work(self, works: Sequence[Work], folder: Path, until_s: float) -> None:
        """Submit all, and wait."""
        for work in works:
            self.slurm("sbatch", "--partition=optsched", *work.sbatch(self.gpus, folder))
        time.sleep(max(0.0, until_s - time.time()))


def decide(cluster: Optsched, works: Sequence[Work], folder: Path, until_s: float) -> None:
    """Submit all to a controller, and have it turn."""
    (folder / "cluster.toml").write_text(cluster.toml())
    arrived: list[Work] = []
    with (
        opened(read_settings(folder / "cluster.toml")) as controller,
        ThreadPoolExecutor(1) as users,
    ):
        users.submit(paced, works, lambda work: cluster.submit(work, folder, arrived.append))
        due_s = 0.0
        while time.time() < until_s:
            while arrived:
                cluster.record(controller, arrived.pop(0), folder)
                due_s = 0.0
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + min(0.5, controller.step())
            controller.executor.changes(0.2)


SCHEDULERS = {"slurm": Backfill, "optsched": Optsched, "optsched, sbatch": OptschedSbatch}


def workload(gpus: int, window_s: float, seed: int) -> list[Work]:
    """Return jobs that all come at once."""
    draw, left_gpu_s = random.Random(seed), LOAD * gpus * window_s
    works: list[Work] = []
    while left_gpu_s > 0:
        duration_s = round(window_s * SHORTEST ** draw.random(), 1)
        limit_s = 60.0 * math.ceil(duration_s * draw.uniform(1.0, 2.5) / 60.0)
        saves = len(works) % 2 == 0
        work = Work(f"job-{len(works)}", 0.0, draw.choice(GANGS), 1, saves, duration_s, limit_s)
        works.append(work)
        left_gpu_s -= work.gpus * duration_s
    return works


def measure(
    works: Sequence[Work], folder: Path, gpus: int, from_s: float, to_s: float
) -> dict[str, float]:
    """Return what the jobs' own logs say of the time before the reservation."""
    held_gpu_s, trained_gpu_s, unsaved = 0.0, 0.0, 0
    for work in works:
        log = folder / f"{work.name}.log"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        began_s, done_s = None, 0.0
        for line in lines:
            if line["what"] == "began":
                began_s = line["at_s"]
            elif began_s is not None and line["at_s"] <= to_s:
                held_gpu_s += work.gpus * (line["at_s"] - began_s)
                began_s, done_s = None, line["done_s"] if line["what"] != "killed" else 0.0
        if began_s is not None and began_s < to_s:
            held_gpu_s += work.gpus * (to_s - began_s)
            unsaved += 1
        trained_gpu_s += work.gpus * done_s
    there_gpu_s = gpus * (to_s - from_s)
    return {
        "idle_gpu_s": round(there_gpu_s - held_gpu_s),
        "idle": round(1 - held_gpu_s / there_gpu_s, 4),
        "kept": round(trained_gpu_s / there_gpu_s, 4),
        "unsaved": unsaved,
    }


def run(
    name: str, works: Sequence[Work], nodes: int, window_s: float, folder: Path
) -> dict[str, float]:
    """Run one scheduler until the reservation, on a cluster of its own."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="slurm-window-", ignore_cleanup_errors=True) as place:
        cluster: SlurmCluster = SCHEDULERS[name](Path(place), nodes)
        try:
            cluster.prepare()
            cluster.start_controller()
            for number in range(1, nodes + 1):
                cluster.start_node(number)
            cluster.until_idle()
            from_s = time.time()
            to_s = math.ceil(from_s + window_s)
            start = time.strftime("starttime=%Y-%m-%dT%H:%M:%S", time.localtime(to_s))
            words = ("reservationname=maintenance", "users=root", "nodes=ALL", start)
            cluster.slurm("scontrol", "create", "reservation", *words, "duration=60", "flags=maint")
            down = ("nodename=ALL", "state=down", "reason=maintenance")
            maintain = threading.Timer(
                to_s - time.time(), cluster.slurm, ("scontrol", "update", *down)
            )
            maintain.start()
            if isinstance(cluster, Backfill):
                cluster.work(works, folder, to_s + AFTER_S)
            else:
                assert isinstance(cluster, Optsched)
                decide(cluster, works, folder, to_s + AFTER_S)
            maintain.join()
            return measure(works, folder, nodes * cluster.gpus, from_s, to_s)
        finally:
            cluster.down()


def main() -> None:
    """Run every workload under every scheduler."""
    arguments = slurm_parser(__doc__, SCHEDULERS, window=600.0).parse_args()
    reason = missing()
    if reason is not None:
        sys.exit(reason)
    output = (arguments.output or Path(tempfile.mkdtemp(prefix="slurm-window-"))).absolute()
    names = arguments.only or list(SCHEDULERS)
    idle_gpu_s, unsaved = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        works = workload(arguments.nodes * 8, arguments.window, seed)
        with ProcessPoolExecutor(len(names)) as pool:  # each has ports of its own
            runs = {
                name: pool.submit(
                    run,
                    name,
                    works,
                    arguments.nodes,
                    arguments.window,
                    output / f"{name}-{seed}".replace(", ", "-"),
                )
                for name in names
            }
        for name, done in runs.items():
            told = done.result()
            idle_gpu_s[name] += told["idle_gpu_s"]
            unsaved[name] += told["unsaved"]
            tell({"scheduler": name, "seed": seed, "jobs": len(works), **told})
    tell({"seeds": arguments.seeds, "idle_gpu_s": idle_gpu_s, "unsaved": unsaved})


if __name__ == "__main__":
    main()
