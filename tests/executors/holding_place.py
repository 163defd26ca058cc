"""An executor for jobs that users submit themselves, on a real cluster that holds them."""

import time
from pathlib import Path

from optsched.executors.base import Arrival, AttemptKey, AttemptState, Observation, Order
from optsched.executors.sbatch import SbatchExecutor
from optsched.executors.slurm.client import SlurmClient
from optsched.executors.slurm.site import Site
from optsched.model.instance import Slot
from optsched.testing.executors import until
from tests.live.slurm_cluster import SlurmCluster, everybodys_python

NOBODY = 65534
UNTIL_GO = "until test -e go; do sleep 0.05; done"
WAITS = f"echo begin $SLURMD_NODENAME >> log; {UNTIL_GO}"
SAVES = "trap 'echo saved >> log; exit 85' TERM; echo begin $SLURMD_NODENAME >> log; while :; do sleep 0.05; done"  # noqa: E501
GPU = ("--gres=gpu:1", "--time=10", "--mem=100", "--output=/dev/null")


class HoldingPlace:
    """An executor on a cluster that holds jobs, and a folder in which they run."""

    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        self.folder, self.cluster = folder, cluster
        cluster.shared.mkdir(exist_ok=True)
        cluster.shared.chmod(0o755)
        self.executor = self.open()

    def open(self) -> SbatchExecutor:
        site = Site(
            min_run_s=0.0,
            max_preemptions=None,
            partition="optsched",
            poll_s=0.1,
            python=everybodys_python(),
            heartbeat=self.cluster.heartbeat,
        )
        client = SlurmClient(30.0, self.cluster.conf)
        return SbatchExecutor(self.cluster.shared, client, site, {})

    def reopen(self) -> None:
        """As after `kill -9` of the controller."""
        self.executor.close()
        self.executor = self.open()

    def submit(self, script: str, *words: str, uid: int = NOBODY) -> str:
        return self.cluster.sbatch(script, *GPU, *words, uid=uid, folder=self.folder)

    def arrival(self, job: str) -> Arrival:
        return until(lambda: next((one for one in self.arrivals() if one.name == job), None))  # type: ignore[no-any-return]

    def arrivals(self) -> tuple[Arrival, ...]:
        """As of now, not of the last poll."""
        time.sleep(0.05)
        self.executor.inventory()
        self.executor.observe()
        return self.executor.arrivals()

    def order(self, job: str, *nodes: str, number: int = 1, gpus: int = 1) -> Order:
        placement = tuple(Slot(node=node, gpus=gpus, cpus=1) for node in nodes)
        return Order(
            key=AttemptKey(f"j{job}", number),
            placement=placement,
            argv=("sbatch",),
            directory="/",
            origin=self.arrival(job).origin,
        )

    def start(self, job: str, *nodes: str, number: int = 1) -> AttemptKey:
        order = self.order(job, *(nodes or ("n1",)), number=number)
        self.executor.start(order)
        return order.key

    def see(self, key: AttemptKey) -> Observation:
        return next(seen for seen in self.executor.observe() if seen.key == key)

    def reach(self, key: AttemptKey, state: AttemptState) -> Observation:
        until(lambda: self.see(key).state in (state, AttemptState.ENDED))
        assert self.see(key).state is state, self.see(key)
        return self.see(key)

    def end(self, key: AttemptKey) -> tuple[int | None, str | None]:
        seen = self.reach(key, AttemptState.ENDED)
        return seen.exit_status, seen.reason

    def says(self, job: str, what: str = "%T %N") -> str:
        return self.cluster.slurm("squeue", "-h", "--states=all", "-j", job, "-o", what).strip()

    def log(self) -> list[str]:
        file = self.folder / "log"
        return file.read_text().splitlines() if file.exists() else []

    def clear(self) -> None:
        there = self.cluster.slurm("squeue", "-h", "-o", "%i").split()
        if there:
            self.cluster.slurm("scancel", "--full", "--signal=KILL", *there)
            self.cluster.slurm("scancel", *there)
        until(lambda: not self.cluster.slurm("squeue", "-h", "-o", "%i"))
        until(lambda: all(seen.state is AttemptState.ENDED for seen in self.executor.observe()))
        for seen in self.executor.observe():
            self.executor.forget(seen.key)
        self.executor.close()
        self.cluster.recount()
