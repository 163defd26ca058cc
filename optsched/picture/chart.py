"""What a picture of a plan shows, whatever draws it: bars on rows, the queue, and GPUs in use over
time."""

from dataclasses import dataclass
from typing import Literal

from ..model.instance import Instance
from ..model.job import Job
from ..model.plan import JobPlan, Plan
from ..objectives import LATE_TOLERANCE_S
from ..physics import TIME_TOLERANCE_S, hold_to_save_s, setup_s
from ..verify.fetches import Fetches, fetches
from .lanes import PAST, Row, assign_lanes

Kind = Literal["past", "work", "setup", "save"]
"""Before now, doing work, starting up or restoring, saving before it stops."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Series:
    """A step function over time: `values[i]` holds from `times_s[i]` to the next instant."""

    name: str
    times_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
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
        job, entry = instance.jobs[block.job], plans[block.job]
        height = block.rows / 2 if block.half is not None else float(block.rows)
        top = block.first_row + (height if block.half == 1 else 0.0)
        foot.setdefault((block.job, block.segment), top + height - min(0.25, height / 4))
        if block.segment == PAST:
            since_s = max(instance.running_job[job.id].started_s - now_s, -past_s)
            bars.append(Bar(block.job, PAST, "past", since_s, 0.0, top, height))
            continue
        for kind, from_s, to_s in _parts(instance, job, entry, block.segment, fetched):
            is_late = block.job in late and block.segment == len(entry.segments) - 1
            bars.append(
                Bar(
                    block.job,
                    block.segment,
                    kind,
                    from_s - now_s,
                    to_s - now_s,
                    top,
                    height,
                    is_late,
                )
            )
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


def _stops(entry: JobPlan, s: int) -> bool:
    """Return whether the job leaves its GPUs after segment `s` and comes back later."""
    if s + 1 == len(entry.segments):
        return False
    a, b = entry.segments[s], entry.segments[s + 1]
    return (
        b.start_s - a.end_s > TIME_TOLERANCE_S
        or a.placement != b.placement
        or a.mode.size != b.mode.size
    )


def _parts(
    instance: Instance, job: Job, entry: JobPlan, s: int, fetched: Fetches
) -> list[tuple[Kind, float, float]]:
    """Set-up, work and checkpoint of one segment, as the physics has them."""
    segment = entry.segments[s]
    running = instance.running_job.get(job.id)
    goes_on = s > 0 and not _stops(entry, s - 1)
    save_s = hold_to_save_s(job) if _stops(entry, s) and segment.stopped_by is None else 0.0
    if goes_on:
        setup = 0.0
    elif s == 0 and running is not None and entry.decision == "continue":
        setup = running.setup_s
    else:
        setup = setup_s(job, s > 0 or running is not None or job.id in instance.suspended_job)
        setup += fetched.get((job.id, segment.start_s), 0.0)
    work_from = min(segment.end_s, segment.start_s + setup)
    save_from = max(segment.start_s, segment.end_s - save_s)
    if work_from > save_from:  # saved at once: what was left of the set-up never happens
        work_from = save_from
    return [
        ("setup", segment.start_s, work_from),
        ("work", work_from, save_from),
        ("save", save_from, segment.end_s),
    ]


def _pauses(
    instance: Instance, plans: list[JobPlan], foot: dict[tuple[int, int], float]
) -> list[Pause]:
    found = []
    for i, entry in enumerate(plans):
        for s in range(len(entry.segments) - 1):
            if _stops(entry, s):
                a, b = entry.segments[s], entry.segments[s + 1]
                found.append(
                    Pause(
                        i,
                        a.end_s - instance.now_s,
                        foot[i, s],
                        b.start_s - instance.now_s,
                        foot[i, s + 1],
                    )
                )
        if (
            entry.id in instance.running_job
            and entry.decision != "continue"
            and not hold_to_save_s(instance.jobs[i])
        ):
            back = entry.segments[0]
            found.append(Pause(i, 0.0, foot[i, PAST], back.start_s - instance.now_s, foot[i, 0]))
    return found


BLOCKED = "waits for other jobs"


def _queue(instance: Instance, plans: list[JobPlan]) -> tuple[Series, ...]:
    """Waiting jobs by the size of their gang: submitted, and holding nothing; blocked ones by
    themselves."""
    at = {entry.id: entry for entry in plans}
    changes: dict[str, list[tuple[float, int]]] = {
        name: [] for name in ("no GPU", "1 GPU", "2-3 GPUs", "4-7 GPUs", "8 GPUs or more", BLOCKED)
    }
    for job, entry in zip(instance.jobs, plans, strict=True):
        ready_s = max([instance.release_s(job), *(at[before].completion_s for before in job.after)])
        _add(
            changes[BLOCKED],
            instance.release_s(job),
            min(ready_s, entry.segments[0].start_s),
            instance.now_s,
            1,
        )
        free_s = ready_s
        name = _size(entry.segments[-1].mode.gpus)
        for segment in entry.segments:
            _add(changes[name], free_s, segment.start_s, instance.now_s, 1)
            free_s = segment.end_s
    return _series(changes)


def _size(gpus: int) -> str:
    if gpus < 2:
        return "1 GPU" if gpus else "no GPU"
    return "2-3 GPUs" if gpus < 4 else "4-7 GPUs" if gpus < 8 else "8 GPUs or more"


def _use(instance: Instance, plans: list[JobPlan], fetched: Fetches) -> tuple[Series, ...]:
    """GPUs that work, and GPUs held while a job starts, restores or saves; a shared GPU counts
    once."""
    changes: dict[str, list[tuple[float, int]]] = {"at work": [], "start, restore, checkpoint": []}
    for job, entry in zip(instance.jobs, plans, strict=True):
        for s, segment in enumerate(entry.segments):
            partner = segment.mode.share_with
            if not segment.mode.gpus or (partner is not None and partner < job.id):
                continue
            for kind, from_s, to_s in _parts(instance, job, entry, s, fetched):
                name = "at work" if kind == "work" else "start, restore, checkpoint"
                _add(changes[name], from_s, to_s, instance.now_s, segment.mode.gpus)
    return _series(changes)


def _add(
    changes: list[tuple[float, int]], from_s: float, to_s: float, now_s: float, amount: int
) -> None:
    if to_s - from_s > TIME_TOLERANCE_S:
        changes.append((from_s - now_s, amount))
        changes.append((to_s - now_s, -amount))


def _series(changes: dict[str, list[tuple[float, int]]]) -> tuple[Series, ...]:
    """Step functions on common instants; those that are zero throughout are left out."""
    times = tuple(sorted({0.0, *(time for steps in changes.values() for time, _ in steps)}))
    found = []
    for name, steps in changes.items():
        if not steps:
            continue
        at: dict[float, int] = {}
        for time, amount in steps:
            at[time] = at.get(time, 0) + amount
        level, values = 0, []
        for time in times:
            level += at.get(time, 0)
            values.append(float(level))
        found.append(Series(name, times, tuple(values)))
    return tuple(found)
