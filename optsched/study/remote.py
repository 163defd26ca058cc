"""Runs of a study on a Ray or Dask cluster that is already there.

Each run is a task of one core. joblib's Ray back end hands results over only when all are there, and a study keeps each
as soon as it is: so the clusters' own futures are used.
"""

from collections.abc import Generator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import InputError
from .address import code_version
from .clusters import Cluster
from .execute import Outcome
from .worker import Errand

QUEUED = 64
"""At least so many tasks are with the cluster at a time, so that one that grows sees what there is to do."""
PER_CORE = 4


def run_on(
    cluster: Cluster, tasks: Sequence[tuple[int, str, Path, tuple[float, float]]], workers: int | None, *, plans: bool
) -> Generator[tuple[int, Outcome]]:
    """Outcomes as they come, at most `workers` runs at a time, else as many as the cluster has cores.

    Raises InputError where a worker has no optsched or another one, or is lost with its run; what was finished stays.
    """
    at_once = workers or max(QUEUED, PER_CORE * cluster.cores())
    shared: dict[Path, Any] = {}
    waiting = iter(tasks)
    pending: dict[Any, int] = {}
    try:
        while True:
            while len(pending) < at_once and (task := next(waiting, None)) is not None:
                i, command, path, (time_limit_s, memory_gib) = task
                if path not in shared:
                    shared[path] = cluster.share(path.read_bytes())
                errand = Errand(
                    command=command, instance=str(path), time_limit_s=time_limit_s, memory_gib=memory_gib, plans=plans,
                    version=code_version(),
                )
                pending[cluster.submit(asdict(errand), shared[path])] = i
            if not pending:
                return
            done = cluster.next_done(list(pending))
            i = pending.pop(done)
            try:
                found = cluster.result(done)
            except Exception as error:
                raise InputError(f"the cluster lost a run: {_last_line(error)}; what is finished is kept, and the same "
                                 "command goes on") from error
            if "unfit" in found:
                raise InputError(found["unfit"])
            yield i, Outcome(**found)
    finally:
        cluster.cancel(list(pending))


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
