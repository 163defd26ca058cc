"""What is left of the stays of running jobs on their GPUs: alone, or of two on the same GPUs."""

from dataclasses import replace

from optsched.model.instance import Instance, Running
from optsched.model.job import Mode
from optsched.model.plan import Segment
from optsched.physics import hold_to_save_s, placed_rate, run_s

EPSILON_S = 1e-9


def own_stay(instance: Instance, entry: Running, stopped: frozenset[str]) -> list[Segment]:
    """What is left of the stay of a running job with GPUs of its own: to its end, or while it
    saves."""
    job = instance.job[entry.job]
    if entry.job in stopped:
        length_s = hold_to_save_s(job)
    else:
        speed = placed_rate(instance, job, entry.mode, entry.placement)
        length_s = entry.setup_s + run_s(job, entry.mode, entry.remaining_s, speed)
    if not length_s:
        return []
    return [
        Segment(
            start_s=instance.now_s,
            end_s=instance.now_s + length_s,
            mode=entry.mode,
            placement=entry.placement,
        )
    ]


def shared_stays(
    instance: Instance, a: Running, b: Running, stopped: frozenset[str]
) -> dict[str, list[Segment]]:
    """The stays of two jobs on the same GPUs, followed from one departure to the next.

    While both are there each runs at its rate beside the other; who is left goes on at its rate
    alone.
    """
    found: dict[str, list[Segment]] = {a.job: [], b.job: []}
    setup = {entry.job: entry.setup_s for entry in (a, b)}
    work = {entry.job: entry.remaining_s for entry in (a, b)}
    saving = {entry.job: hold_to_save_s(instance.job[entry.job]) for entry in (a, b)}
    present, now_s = [a, b], instance.now_s
    while present:
        left: dict[str, float] = {}
        rates: dict[str, float] = {}
        modes: dict[str, Mode] = {}
        for entry in present:
            modes[entry.job] = (
                entry.mode if len(present) == 2 else replace(entry.mode, share_with=None)
            )
            rates[entry.job] = placed_rate(
                instance, instance.job[entry.job], modes[entry.job], entry.placement
            )
            goes_on_s = setup[entry.job] + work[entry.job] / rates[entry.job]
            left[entry.job] = saving[entry.job] if entry.job in stopped else goes_on_s
        step_s = min(left.values())
        for entry in present:
            if step_s > EPSILON_S:
                found[entry.job].append(
                    Segment(
                        start_s=now_s,
                        end_s=now_s + step_s,
                        mode=modes[entry.job],
                        placement=entry.placement,
                    )
                )
            saving[entry.job] -= step_s
            worked_s = max(0.0, step_s - setup[entry.job])
            setup[entry.job] = max(0.0, setup[entry.job] - step_s)
            work[entry.job] -= worked_s * rates[entry.job]
        present = [entry for entry in present if left[entry.job] > step_s + EPSILON_S]
        now_s += step_s
    return found
