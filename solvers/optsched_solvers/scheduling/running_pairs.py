"""Running jobs that share their GPUs in pairs: when each leaves them, and at what rate it works
until then.

While both hold the GPUs, each works at its rate beside the other, also while the other saves or
starts up. From when one leaves, because it is done or saved, the other works at its rate alone.
"""

from collections.abc import Iterator

from optsched.frozen import record
from optsched.model import Instance, Running, Segment
from optsched.physics import TIME_TOLERANCE_S, hold_to_save_s, placed_rate, run_s

from .lengths import continue_s


@record
class Stay:
    """The rest of one job's stay on shared GPUs: `seconds` from `now_s` on, of them `beside_s`
    with its partner."""

    seconds: float
    beside_s: float


def pairs(instance: Instance) -> list[tuple[Running, Running]]:
    """Return running jobs that share their GPUs, each pair once, in the order of
    `instance.running`."""
    entries = instance.running_job
    couples: dict[frozenset[str], tuple[Running, Running]] = {}
    for entry in instance.running:
        if entry.mode.share_with is not None:
            couples.setdefault(
                frozenset((entry.job, entry.mode.share_with)),
                (entry, entries[entry.mode.share_with]),
            )
    return list(couples.values())


def stay(
    instance: Instance, entry: Running, kept: bool, partner: Running, partner_kept: bool
) -> Stay:
    """Return how long `entry` stays if it is kept to its end (else preempted now), given what
    happens to its partner."""
    own_s, other_s = _beside(instance, entry, kept), _beside(instance, partner, partner_kept)
    if not kept or own_s <= other_s + TIME_TOLERANCE_S / 10:
        return Stay(own_s, min(own_s, other_s))
    job = instance.job[entry.job]
    beside = placed_rate(instance, job, entry.mode, entry.placement)
    alone = placed_rate(instance, job, entry.mode.unshared, entry.placement)
    left_s = entry.remaining_s - max(0.0, other_s - entry.setup_s) * beside
    return Stay(max(other_s, entry.setup_s) + run_s(job, entry.mode, left_s, alone), other_s)


def _beside(instance: Instance, entry: Running, kept: bool) -> float:
    """Return the seconds until a job leaves if its partner stays beside it."""
    job = instance.job[entry.job]
    return continue_s(instance, job) if kept else hold_to_save_s(job)


def segments(instance: Instance, entry: Running, left: Stay) -> Iterator[Segment]:
    """Yield the stay as segments: beside the partner, then alone."""
    now_s, ends_s = instance.now_s, instance.now_s + left.seconds
    parts_s = now_s + left.beside_s
    if ends_s - parts_s <= TIME_TOLERANCE_S:
        parts_s = ends_s
    if parts_s > now_s:
        yield Segment(start_s=now_s, end_s=parts_s, mode=entry.mode, placement=entry.placement)
    if ends_s > parts_s:
        alone = entry.mode.unshared
        yield Segment(start_s=parts_s, end_s=ends_s, mode=alone, placement=entry.placement)
