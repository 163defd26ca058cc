"""What a picture of a plan shows, whatever draws it: bars on rows, the queue, and GPUs in use over
time."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Literal

from ..frozen import record
from ..model import Instance, Job, JobPlan, Plan
from ..objectives import LATE_TOLERANCE_S
from ..physics import TIME_TOLERANCE_S, hold_to_save_s, is_one_stay, setup_s
from ..verify.fetches import Fetches, fetches
from .lanes import PAST, Row, assign_lanes
from .palette import QUEUE, USE

*SIZES, BLOCKED = QUEUE
"""Names of the sizes of gangs that are told apart, and of jobs that wait for others."""
SMALLEST = (0, 1, 2, 4, 8)
"""The smallest gang of each size."""

Kind = Literal["past", "work", "setup", "save"]
"""Before now, doing work, starting up or restoring, saving before it stops."""


@record
class Bar:
    """A rectangle: rows [top, top + height) counted from the top, times in seconds from now; `late`
    in the last segment of a job that misses its deadline."""

    job: int
    segment: int
    kind: Kind
    start_s: float
    end_s: float
    top: float
    height: float
    late: bool = False


@record
class Pause:
    """A preemption: the job leaves at `stop_s` from row `stop_row` and is back at `back_s` on
    `back_row`.

    Rows are near the foot of the job's bars, where no name is written.
    """

    job: int
    stop_s: float
    stop_row: float
    back_s: float
    back_row: float


@record
class Series:
    """A step function over time: `values[i]` holds from `times_s[i]` to the next instant."""

    name: str
    times_s: tuple[float, ...]
    values: tuple[float, ...]


@record
class Chart:
    """Everything to draw. Times are seconds from now; `start_s` (negative) has room for what ran
    before."""

    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]
    pauses: tuple[Pause, ...]
    late: frozenset[int]
    start_s: float
    end_s: float
    queue: tuple[Series, ...]
    use: tuple[Series, ...]
    total_gpus: int


def chart(instance: Instance, plan: Plan) -> Chart:
    """Lay out a verified plan."""
    entries = {entry.id: entry for entry in plan.jobs}
    plans = [entries[job.id] for job in instance.jobs]
    fetched = fetches(instance, plan)
    now_s = instance.now_s
    end_s = max((entry.completion_s - now_s for entry in plans), default=1.0)
    past_s = 0.05 * end_s if instance.running else 0.0
    lanes = assign_lanes(instance, plan)
    late = frozenset(
        i
        for i, job in enumerate(instance.jobs)
        if job.deadline_s is not None and plans[i].completion_s > job.deadline_s + LATE_TOLERANCE_S
    )
    bars: list[Bar] = []
    foot: dict[tuple[int, int], float] = {}
    for block in lanes.blocks:
        i, s = block.job, block.segment
        job, entry = instance.jobs[i], plans[i]
        height = block.rows / 2 if block.half is not None else float(block.rows)
        top = block.first_row + (height if block.half == 1 else 0.0)
        foot.setdefault((i, s), top + height - min(0.25, height / 4))
        if s == PAST:
            since_s = max(instance.running_job[job.id].started_s - now_s, -past_s)
            bars.append(Bar(i, PAST, "past", since_s, 0.0, top, height))
            continue
        is_late = i in late and s == len(entry.segments) - 1
        bars += [
            Bar(i, s, kind, from_s - now_s, to_s - now_s, top, height, is_late)
            for kind, from_s, to_s in _parts(instance, job, entry, s, fetched)
        ]
    return Chart(
        rows=lanes.rows,
        bars=tuple(bar for bar in bars if bar.end_s > bar.start_s),
        pauses=tuple(_pauses(instance, plans, foot)),
        late=late,
        start_s=-past_s,
        end_s=end_s,
        queue=_queue(instance, plans),
        use=_use(instance, plans, fetched),
        total_gpus=instance.cluster.total_gpus,
    )


def leaves(job: Job, entry: JobPlan, s: int) -> bool:
    """Return whether the job leaves its GPUs after segment `s` and comes back later."""
    if not 0 <= s < len(entry.segments) - 1:
        return False
    a, b = entry.segments[s : s + 2]
    if b.start_s - a.end_s > TIME_TOLERANCE_S:
        return True
    return not is_one_stay(job, a.mode, a.placement, b.mode, b.placement)


def _parts(
    instance: Instance, job: Job, entry: JobPlan, s: int, fetched: Fetches
) -> list[tuple[Kind, float, float]]:
    """Return set-up, work and checkpoint of one segment, as the physics has them."""
    segment = entry.segments[s]
    running = instance.running_job.get(job.id)
    save_s = hold_to_save_s(job) if leaves(job, entry, s) and segment.stopped_by is None else 0.0
    if s > 0 and not leaves(job, entry, s - 1):
        setup = 0.0
    elif s == 0 and running is not None and entry.decision == "continue":
        setup = running.setup_s
    else:
        setup = setup_s(job, s > 0 or running is not None or job.id in instance.suspended_job)
        setup += fetched.get((job.id, segment.start_s), 0.0)
    save_from = max(segment.start_s, segment.end_s - save_s)
    # Where it saves at once, what was left of the set-up never happens.
    work_from = min(segment.end_s, segment.start_s + setup, save_from)
    return [
        ("setup", segment.start_s, work_from),
        ("work", work_from, save_from),
        ("save", save_from, segment.end_s),
    ]


def _pauses(
    instance: Instance, plans: list[JobPlan], foot: dict[tuple[int, int], float]
) -> Iterator[Pause]:
    """Yield the preemptions of a plan; `foot` is the row at the foot of each segment of a job."""
    now_s = instance.now_s
    for i, entry in enumerate(plans):
        for s, (a, b) in enumerate(pairwise(entry.segments)):
            if leaves(instance.jobs[i], entry, s):
                yield Pause(i, a.end_s - now_s, foot[i, s], b.start_s - now_s, foot[i, s + 1])
        if is_preempted_now(instance, entry) and not hold_to_save_s(instance.jobs[i]):
            yield Pause(i, 0.0, foot[i, PAST], entry.segments[0].start_s - now_s, foot[i, 0])


def is_preempted_now(instance: Instance, entry: JobPlan) -> bool:
    """Return whether a running job gives up its GPUs now."""
    return entry.id in instance.running_job and entry.decision != "continue"


def _queue(instance: Instance, plans: list[JobPlan]) -> tuple[Series, ...]:
    """Return waiting jobs by the size of their gang: submitted, and holding nothing; blocked ones
    by themselves."""
    at = {entry.id: entry for entry in plans}
    changes = _Changes(instance.now_s, (*SIZES, BLOCKED))
    for job, entry in zip(instance.jobs, plans, strict=True):
        release_s = instance.release_s(job)
        free_s = max([release_s, *(at[before].completion_s for before in job.after)])
        changes.add(BLOCKED, release_s, min(free_s, entry.segments[0].start_s))
        size = SIZES[bisect_right(SMALLEST, entry.segments[-1].mode.gpus) - 1]
        for segment in entry.segments:
            changes.add(size, free_s, segment.start_s)
            free_s = segment.end_s
    return changes.series()


def _use(instance: Instance, plans: list[JobPlan], fetched: Fetches) -> tuple[Series, ...]:
    """Return GPUs that work, and GPUs held while a job starts, restores or saves; a shared GPU
    counts once."""
    changes = _Changes(instance.now_s, USE)
    working, overhead = USE
    for job, entry in zip(instance.jobs, plans, strict=True):
        for s, segment in enumerate(entry.segments):
            partner = segment.mode.share_with
            if segment.mode.gpus and (partner is None or partner >= job.id):
                for kind, from_s, to_s in _parts(instance, job, entry, s, fetched):
                    name = working if kind == "work" else overhead
                    changes.add(name, from_s, to_s, segment.mode.gpus)
    return changes.series()


class _Changes:
    """Step functions by name, from the intervals that add to them."""

    def __init__(self, now_s: float, names: Iterable[str]) -> None:
        self._now_s = now_s
        self._changes: dict[str, Counter[float]] = {name: Counter() for name in names}

    def add(self, name: str, from_s: float, to_s: float, amount: int = 1) -> None:
        """Add an amount between two instants, unless they are the same."""
        if to_s - from_s > TIME_TOLERANCE_S:
            self._changes[name][from_s - self._now_s] += amount
            self._changes[name][to_s - self._now_s] -= amount

    def series(self) -> tuple[Series, ...]:
        """Return the functions on common instants; those that are zero throughout are left out."""
        times = tuple(sorted({0.0}.union(*self._changes.values())))
        return tuple(
            Series(name, times, tuple(map(float, accumulate(steps[time] for time in times))))
            for name, steps in self._changes.items()
            if steps
        )
