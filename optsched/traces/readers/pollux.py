"""Workloads of Pollux's simulator with its measurements of six applications on T4 GPUs (OSDI'21).

A workload is a table `name,time,application,num_replicas,batch_size`; the measurements lie in one
folder for each application (see `Application`). A job trains all the epochs that were measured,
with its batch size on any number of GPUs, and the gradient noise of each epoch says how much of the
way a step of that batch goes.

- `duration_s` is the run time on `num_replicas` GPUs packed onto the fewest nodes. - Elastic jobs
run on 1 to batch size / smallest measured batch of a GPU; `gpus` is the rate on each count, packed,
  relative to that on `num_replicas`. `ncf` has one GPU, as in Pollux's simulator. Rigid ones run on
  `num_replicas`.
- `locality` is, for gangs that would fit on one node, the mean over their measured shapes on
  several nodes of the rate relative to packed, one number for all counts and never above 1:
  planners rely on a wider spread not being faster. Larger gangs run at the packed rate in any
  shape.
- With `fixed_batch` false each job may use any measured batch size instead of its own, and takes in
  each epoch the one of the best goodput: throughput times what an example is worth at that batch. A
  job has here one rate at a count, whatever it has done: its work divided by the time that all its
  epochs take there, the harmonic mean over its progress.
- Every start pays 30 s (Pollux's delay when it starts, moves or resizes a job); saving costs
  nothing.

Source: A. Qiao et al., Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning,
OSDI'21.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Annotated

from ...errors import InputError
from ...model import Cluster, Elastic, Job, Locality, Profile
from ...plugins.options import Flag
from ..clusters import cluster_of
from ..imported import ClusterText, Format, GpuCount, Imported, Track
from ..tables.table import Row, Table
from ..usable import imported
from .pollux_application import Application, Shape

GPU_TYPE = "t4"
DEFAULT_CLUSTER = "t4=64"
MOST_GPUS_PER_NODE = 4
RESTART_S = 30.0
ONE_GPU = ("ncf",)
COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
TABLES = ("placements.csv", "scalability.csv")


def read(
    source: str | Path,
    *,
    jobs: int | None = None,
    track: Track = iter,
    applications: Annotated[
        Path | None,
        "The folder of measurements, one folder an application (default: that of SOURCE or the "
        "one above).",
    ] = None,
    cluster: ClusterText = DEFAULT_CLUSTER,
    gpus_per_node: GpuCount = MOST_GPUS_PER_NODE,
    elastic: Annotated[
        bool, Flag("--rigid"), "Gangs of the GPUs asked for instead of elastic jobs."
    ] = True,
    fixed_batch: Annotated[
        bool,
        Flag("--adaptive"),
        "Batch sizes go with the GPUs and the gradient noise, for the best goodput.",
    ] = True,
) -> Imported:
    """Read a workload; `jobs` keeps the first so many, by arrival, of those that can run.

    `applications` is the folder with a folder for each application, by default that of the workload
    or the one above. Jobs of an application, a batch size or a batch of a GPU that was not measured
    are dropped and counted. Raises InputError with the line of the first fault.
    """
    path = Path(source)
    nodes = cluster_of(cluster, gpus_per_node)
    if gpus_per_node > MOST_GPUS_PER_NODE or [*nodes.gpu_types] != [GPU_TYPE]:
        raise InputError(
            f"--cluster {cluster} with {gpus_per_node} GPUs a node: the applications were "
            "measured on "
            f"{GPU_TYPE} GPUs, at most {MOST_GPUS_PER_NODE} a node; expected one as "
            f"{DEFAULT_CLUSTER}"
        )
    table = Table(path, COLUMNS)
    folder = _folder(path, applications)
    names: set[str] = set()

    @cache
    def measured(application: str) -> Application | None:
        is_measured = application and (folder / application / TABLES[0]).is_file()
        return Application(folder / application) if is_measured else None

    @cache
    def profile(
        application: Application, batch: int | None, gpus: int
    ) -> tuple[Profile, float, int]:
        return _profile(application, batch, gpus, nodes, gpus_per_node, elastic)

    def entry(row: Row) -> Job | str:
        name, application = row["name"], row["application"]
        gpus, batch = row.whole("num_replicas", least=1), row.whole("batch_size", least=1)
        submit_s = row.number("time", least=0)
        if not name or name in names:
            row.refuse("a name that no other job has", "name")
        names.add(name)
        known = measured(application)
        if known is None:
            return f"there are no measurements of application {application}"
        if not known.smallest_batch <= batch <= known.largest_batch:
            return f"{application} was not measured with a batch of {batch}"
        if gpus > known.most_gpus(batch):
            return f"{application} was not measured with a batch of {batch} on {gpus} GPUs"
        own, duration_s, most = profile(known, batch if fixed_batch else None, gpus)
        return Job(
            id=name,
            submit_s=submit_s,
            command=application,
            duration_s=duration_s,
            profile=own,
            gpus=Elastic(min=1, max=most) if elastic and most > 1 else gpus,
        )

    # on the workload's clock, to which rounds belong
    return imported(path, nodes, map(entry, table.rows(track)), jobs, own_clock=True)


def _folder(workload: Path, given: str | Path | None) -> Path:
    for folder in (workload.parent, workload.parent / "..") if given is None else (Path(given),):
        if any(folder.glob(f"*/{TABLES[0]}")):
            return folder
    where = f"{workload}: beside it and in the folder above" if given is None else f"{given}:"
    raise InputError(
        f"{where} there is no folder of an application with {' and '.join(TABLES)}; "
        "name the one that holds them with --applications PATH"
    )


def _profile(
    application: Application,
    batch: int | None,
    gpus: int,
    cluster: Cluster,
    per_node: int,
    elastic: bool,
) -> tuple[Profile, float, int]:
    """Return the profile of a job of this batch size (None: of the best one), its run time on
    `gpus` GPUs, packed, and the most GPUs on which it can run."""
    run_s = application.adaptive_run_s if batch is None else partial(application.run_s, batch)
    duration_s = run_s(packed(gpus, per_node))
    most_gpus = application.most_gpus(application.largest_batch if batch is None else batch)
    most = 1 if application.name in ONE_GPU else min(most_gpus, cluster.total_gpus)
    counts = range(1, most + 1) if elastic else range(gpus, gpus + 1)
    spread = _spread_rate(run_s, counts, per_node)
    rates = {}
    for count in counts:
        speedup = duration_s / run_s(packed(count, per_node))
        rates[count] = round(
            speedup if count <= per_node else speedup / spread, 6
        )  # these always pay for the spread
    profile = Profile(
        name=application.name,
        gpus=rates if elastic and most > 1 else {},
        locality=Locality(rack=spread, cluster=spread) if spread < 1 else None,
        startup_s=RESTART_S,
    )
    return profile, round(duration_s, 3), most


def packed(gpus: int, per_node: int) -> Shape:
    """Return the shape of a gang on the fewest nodes."""
    full, rest = divmod(gpus, per_node)
    return (per_node,) * full + ((rest,) if rest else ())


def _spread_rate(run_s: Callable[[Shape], float], counts: range, per_node: int) -> float:
    """Return the rate of gangs that fit on one node when they are spread over several, relative to
    packed."""
    means = []
    for count in (count for count in counts if 1 < count <= per_node):
        alone_s = run_s((count,))
        ratios = [alone_s / run_s(shape) for shape in _shapes(count, count - 1)]
        means.append(sum(ratios) / len(ratios))
    return round(min(1.0, sum(means) / len(means)), 6) if means else 1.0


def _shapes(gpus: int, largest: int) -> Iterator[Shape]:
    """Yield every way to spread a gang with at most `largest` GPUs on a node, the fullest nodes
    first."""
    if gpus == 0:
        yield ()
    for first in range(min(gpus, largest), 0, -1):
        for others in _shapes(gpus - first, first):
            yield (first, *others)


FORMAT = Format(
    title="Pollux workloads with its measurements of six applications (.csv)",
    read=read,
    profiled=True,
)
