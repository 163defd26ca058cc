"""Runs of a study on a Ray or Dask cluster that is already there.

Each run is a task of one core. joblib's Ray back end hands results over only when all are there,
and a study keeps each as soon as it is: so the clusters' own futures are used.
"""

from collections.abc import Generator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..frozen import record
from .address import code_version
from .clusters import Cluster
from .execute import Outcome, Task

QUEUED = 64
"""At least so many tasks are with the cluster at a time, so that one that grows sees what there is
to do."""
PER_CORE = 4
TRIES = 2
MOST_LOST = 20
"""So many runs lost one after another, and none done: then it is not the runs."""


@record
class Lost:
    """A run that the cluster lost each time it was tried: it says nothing of the run, and is tried
    anew by the next study."""

    reason: str


def run_on(
    cluster: Cluster, tasks: Sequence[Task], workers: int | None
) -> Generator[tuple[int, Outcome | Lost]]:
    """Yield outcomes by the position of their task, as they come, at most `workers` runs at a time,
    else as many as the cluster has cores. A run that is lost, as with its worker, is tried again.

    Raises InputError where a worker has no optsched or another one, where the cluster is gone or
    stays without workers, and where it loses one run after another; what was finished stays.
    """
    at_once = workers or max(QUEUED, PER_CORE * cluster.cores())
    shared: dict[str, Any] = {}
    waiting = enumerate(tasks)
    pending: dict[Any, tuple[int, int]] = {}
    lost_in_a_row = 0

    def submit(i: int, tries: int) -> None:
        path = tasks[i].instance
        if path not in shared:
            shared[path] = cluster.share(Path(path).read_bytes())
        errand = replace(tasks[i], version=code_version(tasks[i].command))
        pending[cluster.submit(asdict(errand), shared[path])] = i, tries

    try:
        while True:
            while len(pending) < at_once and (entry := next(waiting, None)) is not None:
                submit(entry[0], 1)
            if not pending:
                return
            done = cluster.next_done(list(pending))
            if done is None:
                continue
            i, tries = pending.pop(done)
            try:
                returned = cluster.result(done)
            except Exception as error:
                if tries < TRIES:
                    shared.pop(
                        tasks[i].instance, None
                    )  # the instance may have been lost with the worker
                    submit(i, tries + 1)
                    continue
                lost_in_a_row += 1
                if lost_in_a_row >= MOST_LOST:
                    raise InputError(
                        f"the cluster lost {MOST_LOST} runs one after another, the last one so: "
                        f"{_last_line(error)}; what is finished is kept, and the same command "
                        "goes on"
                    ) from error
                yield i, Lost(f"the cluster lost it {TRIES} times: {_last_line(error)}")
                continue
            lost_in_a_row = 0
            if "unfit" in returned:
                raise InputError(returned["unfit"])
            yield i, Outcome(**returned)
    finally:
        cluster.cancel(list(pending))


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
