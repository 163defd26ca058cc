"""Slurm's held jobs as arrivals."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from ...model import Node
from ..base import Arrival, Request, in_one_line
from ..slurm.client import NOT_UNDERSTOOD
from ..slurm.rules import NONE, Rules
from .jobs_json import HeldJob
from .request import UnplannableError, request_of

STATES = {
    "CANCELLED": "it was cancelled in Slurm",
    "TIMEOUT": "its time limit in Slurm was reached",
    "NODE_FAIL": "a node failed, and Slurm does not requeue it",
}
REQUEUE_DELAY_S = 125.0
"""Slurm's own wait before a requeued job (`cred_expire` and a bit), which a release here cuts
short."""
LEFT = "it is left to Slurm"
ELSEWHERE = "it was started in Slurm by somebody else"


class Arriving:
    """Reads what each job asks for when it is ready, and again where Slurm says something new of
    it; `over_s` is when each was last seen to have ended (Unix time), for as long as Slurm knows
    it."""

    def __init__(
        self,
        rules: Rules = NONE,
        declines: Callable[[HeldJob], str | None] = lambda _: None,
        partition: str | None = None,
    ) -> None:
        """Take `declines`, which tells why Slurm would not start a job now; jobs of another
        partition are not planned."""
        self._rules, self._declines, self._partition = rules, declines, partition
        self._read: dict[str, tuple[HeldJob, Request | str]] = {}
        self.over_s: dict[str, float] = {}

    def arrivals(
        self, jobs: Collection[HeldJob], live: Collection[str | None], nodes: Sequence[Node]
    ) -> Iterator[Arrival]:
        """Yield one for each job; `live` are the origins of those of which an attempt goes on."""
        now_s = time.time()
        open_tasks = _open_tasks(jobs)
        present = {job.origin for job in jobs}
        self._read = {origin: read for origin, read in self._read.items() if origin in present}
        self.over_s = {origin: at_s for origin, at_s in self.over_s.items() if origin in present}
        self.over_s.update((job.origin, now_s) for job in jobs if job.over)
        left: set[str] = set()
        for job in jobs:
            if job.left:
                if isinstance(self._known(job), Request):  # it was an arrival
                    yield Arrival(origin=job.origin, name=job.target, gone=LEFT)
            elif job.whole not in left:
                arrival = self._arrival(job, job.origin in open_tasks, live, nodes, now_s)
                if arrival.unplanned is not None:
                    left.add(job.whole)  # tasks of an array that have not been touched are alike
                yield arrival

    def saves(self, job: HeldJob) -> bool:
        """Return whether a job may be asked to save, and says that it does."""
        known = self._known(job)
        return isinstance(known, Request) and bool(known.saves) and known.job.preemptible

    def _known(self, job: HeldJob) -> Request | str | None:
        return self._read.get(job.origin, (None, None))[1]

    def _arrival(
        self,
        job: HeldJob,
        is_open: bool,
        live: Collection[str | None],
        nodes: Sequence[Node],
        now_s: float,
    ) -> Arrival:
        eligible = job.eligible_s <= now_s + (REQUEUE_DELAY_S if job.restarts else 0.0)
        may = job.task is None or not job.limit or is_open
        ready = job.waits and not job.depends and eligible and may
        read = self._request(job, nodes) if ready else self._known(job)
        gone = _gone(job, live)
        if isinstance(read, str):
            return Arrival(
                origin=job.origin, name=job.whole, ready=ready, unplanned=read, gone=gone
            )
        return Arrival(
            origin=job.origin,
            name=job.target,
            request=read,
            ready=ready,
            held=job.held,
            cancelled=job.over and "CANCELLED" in job.states,
            gone=gone,
            barred=self._barred(job) if job.waits and job.origin not in live else None,
        )

    def _barred(self, job: HeldJob) -> str | None:
        if job.depends:
            return "it comes after other jobs in Slurm"
        return self._declines(job)

    def _request(self, job: HeldJob, nodes: Sequence[Node]) -> Request | str:
        known = self._read.get(job.origin)
        if known is None or (known[0] is not job and known[0].entry != job.entry):
            known = (job, self._read_anew(job, nodes))
        self._read[job.origin] = (job, known[1])
        return known[1]

    def _read_anew(self, job: HeldJob, nodes: Sequence[Node]) -> Request | str:
        partition = str(job.entry.get("partition") or self._partition)
        if self._partition is not None and self._partition not in partition.split(","):
            return f"it is in the partition {partition}"
        try:
            return request_of(job, nodes, self._rules)
        except UnplannableError as error:
            return str(error)
        except NOT_UNDERSTOOD as error:  # others' jobs are read all the same
            return f"what Slurm says of it is not understood: {in_one_line(repr(error))}"


def _gone(job: HeldJob, live: Collection[str | None]) -> str | None:
    if job.over:
        state = min(job.states & {*STATES}, default="")
        return STATES.get(state, "it has ended in Slurm")
    return ELSEWHERE if job.runs and job.origin not in live else None


def _open_tasks(jobs: Iterable[HeldJob]) -> set[str]:
    """Return tasks that may run now of arrays of which only so many at once are to
    (`--array=0-9%2`)."""
    arrays: defaultdict[str, list[HeldJob]] = defaultdict(list)
    for job in jobs:
        if job.limit and job.task is not None and not job.over:
            arrays[job.token].append(job)
    open_now: set[str] = set()
    for tasks in arrays.values():
        begun = [job for job in tasks if job.key is not None]
        fresh = sorted((job for job in tasks if job.key is None), key=lambda job: job.task or 0)
        room = max(0, tasks[0].limit - len(begun))
        open_now |= {job.origin for job in (*begun, *fresh[:room])}
    return open_now
