"""Runs what a study has not run yet, several at a time, and keeps each result as soon as it is
there."""

import hashlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from ..duration import parse_duration
from ..errors import InputError
from .choice import chosen
from .clusters import Cluster, connected
from .design import Run, Study, runs
from .execute import Outcome, Task, run_task
from .optima import held_against
from .process import WarmProcesses
from .remote import Lost, run_on
from .results import Result, Results

MAKE_LIMIT_S = 3600.0


def run_study(
    study: Study,
    results: Results,
    *,
    workers: int | None = None,
    on: str | None = None,
    on_start: Callable[[int, int], None] | None = None,
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Return every run of the study with its result, in the order of the file. What was finished
    before is not run again.

    `workers` runs go at a time: one unless given, on the cluster `on` as many as it has cores.
    Instances are made here. `on_start` is told how many runs there are and how many are done;
    `on_result` is told each new result.
    """
    study = chosen(study)
    with connected(on) if on is not None else nullcontext() as cluster:
        return _run_study(study, results, workers, cluster, on_start, on_result)


def _run_study(
    study: Study,
    results: Results,
    workers: int | None,
    cluster: Cluster | None,
    on_start: Callable[[int, int], None] | None,
    on_result: Callable[[Result], None] | None,
) -> list[Result]:
    todo = runs(study)
    limits = (parse_duration(study.time_limit), study.memory_gib)
    hashes: dict[str, str] = {}
    broken: dict[str, str] = {}
    paths = {}
    for source, path, outcome in _make(todo, results, workers or 1, study.memory_gib):
        paths[source] = path
        if outcome is None or outcome.answer is not None:
            hashes[source] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            broken[source] = f"instance: {outcome.reason}"
    finished: dict[int, Result] = {}
    open_runs: list[tuple[int, str, Task]] = []
    for i, run in enumerate(todo):
        source = run.make or run.file or ""
        if source in broken:
            finished[i] = Result(run, None, broken[source])
            continue
        address = results.address(run, hashes[source], limits, study.plans)
        known = results.find(run, address)
        if known is not None:
            finished[i] = held_against(known)
            continue
        task = Task(
            command=run.command,
            instance=str(paths[source]),
            time_limit_s=limits[0],
            memory_gib=limits[1],
            plans=study.plans,
        )
        open_runs.append((i, address, task))
    if on_start is not None:
        on_start(len(todo), len(finished))
    tasks = [task for _, _, task in open_runs]
    with closing(
        _in_parallel(tasks, workers or 1) if cluster is None else run_on(cluster, tasks, workers)
    ) as outcomes:
        for k, ended in outcomes:
            i, address, _ = open_runs[k]
            if isinstance(ended, Lost):  # kept nowhere: the next study tries it again
                finished[i] = Result(todo[i], None, ended.reason)
            else:
                told = Result(run=todo[i], address=address, **ended.as_dict())
                results.keep(told, ended.kept)
                finished[i] = held_against(told)
            if on_result is not None:
                on_result(finished[i])
    return [finished[i] for i in range(len(todo))]


def _make(
    todo: list[Run], results: Results, workers: int, memory_gib: float
) -> Iterator[tuple[str, Path, Outcome | None]]:
    """Yield the instances of the runs, those made that are not there yet; None for one that was."""
    wanted: dict[str, Path] = {}
    for run in todo:
        if run.make is not None:
            path = results.instance_path(run.make)
            if path.exists():
                yield run.make, path, None
            else:
                wanted[run.make] = path
        else:
            file = Path(run.file or "")
            if not file.is_file():
                raise InputError(f"instance {run.instance}: {file} is not a file")
            yield run.file or "", file, None
    tasks = [
        Task(command=make, instance=str(path), time_limit_s=MAKE_LIMIT_S, memory_gib=memory_gib)
        for make, path in wanted.items()
    ]
    for k, outcome in _in_parallel(tasks, workers):
        yield tasks[k].command, Path(tasks[k].instance), outcome


def _in_parallel(tasks: list[Task], workers: int) -> Generator[tuple[int, Outcome]]:
    """Yield outcomes by the position of their task, as they come: each run is a process of its own,
    so threads suffice to wait for them."""
    from joblib import Parallel, delayed

    parallel: Any = Parallel(
        n_jobs=workers, backend="threading", return_as="generator_unordered", batch_size=1
    )
    with WarmProcesses() as processes:

        def run(k: int) -> tuple[int, Outcome]:
            with processes.lent() as warm:
                return k, run_task(tasks[k], warm)

        yield from parallel(delayed(run)(k) for k in range(len(tasks)))
