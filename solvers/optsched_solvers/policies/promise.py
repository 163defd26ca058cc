"""A place and a time promised to one waiting job, so that others cannot keep taking what it waits for."""

from dataclasses import dataclass

from optsched.instance import Placement
from optsched.modes import Option
from optsched.simulate.outlook import Outlook
from optsched.simulate.world import World


@dataclass(frozen=True, slots=True)
class Promise:
    """`job` starts by `option` on `placement` at `at_s`, when those who run there have ended. `for_good`: it then
    keeps its place until it is done."""

    job: str
    option: Option
    placement: Placement
    at_s: float
    for_good: bool


def earliest(world: World, job_id: str, *, for_good: bool) -> Promise | None:
    """The earliest place of a waiting job if running jobs are left alone: they are released in the order of their
    expected end until it fits. None where it never does, beside jobs that do not end."""
    outlook = Outlook(world)
    ends = sorted((world.expected_release_s(one), one) for one in (*world.running, *world.saving))
    found = world.fit(job_id, outlook.room)
    at_s = world.now_s
    for i, (end_s, one) in enumerate(ends):
        if found is not None:
            break
        outlook.release(one, finished=one in world.running)
        if i + 1 < len(ends) and ends[i + 1][0] == end_s:
            continue
        found, at_s = world.fit(job_id, outlook.room), end_s
    return None if found is None else Promise(job_id, found[0], found[1], at_s, for_good)
