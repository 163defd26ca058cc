"""Another workload of the same kind as a trace, by the bootstrap."""

import random
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import accumulate, pairwise

from ..errors import InputError
from ..model import Failure, Instance


def resampled(instance: Instance, seed: int, jobs: int | None = None) -> Instance:
    """Return so many jobs (as many as there are unless given), drawn with replacement, at intervals
    drawn with replacement from those between arrivals. A job that is drawn again has a number
    behind its id. Deadlines stay as far from the arrival as they are. Raises InputError where jobs
    wait for others."""
    if any(job.after for job in instance.jobs):
        raise InputError("--resample: jobs of this trace wait for others; leave it out")
    if not instance.jobs:
        return instance
    by_time = sorted(instance.jobs, key=lambda job: (job.submit_s, job.id))
    draw = random.Random(f"{seed} resample")
    intervals_s = [b.submit_s - a.submit_s for a, b in pairwise(by_time)]
    count = len(by_time) if jobs is None else jobs
    drawn_s = draw.choices(intervals_s or [0.0], k=count - 1)
    failing = defaultdict[str, list[Failure]](list)
    for failure in instance.failures:
        failing[failure.job].append(failure)
    made, failures, times = [], list[Failure](), Counter[str]()
    for submit_s in accumulate(drawn_s, initial=by_time[0].submit_s):
        job = draw.choice(by_time)
        times[job.id] += 1
        name = job.id if times[job.id] == 1 else f"{job.id}~{times[job.id]}"
        deadline_s = job.deadline_s
        if deadline_s is not None:
            deadline_s = round(deadline_s - job.submit_s + submit_s, 3)
        made.append(replace(job, id=name, submit_s=round(submit_s, 3), deadline_s=deadline_s))
        failures += [replace(failure, job=name) for failure in failing[job.id]]
    return replace(
        instance,
        name=f"{instance.name}-resampled-{seed}",
        jobs=tuple(made),
        failures=tuple(failures),
    )
