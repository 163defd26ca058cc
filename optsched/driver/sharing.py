"""Starting a job on the very GPUs that a running one holds: where, and when that is not allowed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model import Placement, Slot
from ..physics import (
    TIME_TOLERANCE_S,
    beyond_gpu_memory,
    gpu_memory_gib,
    placed_rate,
    sharing_rate,
    with_cores,
)
from ..physics.modes import Option
from ..physics.windows import leaves_saved
from .layout import Need
from .placement import Room
from .state import JobState

if TYPE_CHECKING:
    from .view import ClusterView


def sharing_placement(option: Option, partner: Placement) -> Placement:
    """Return the GPUs of the partner, with the job's own cores beside them."""
    return tuple(
        Slot(node=slot.node, gpus=slot.gpus, cpus=slot.gpus * option.mode.cpus_per_gpu)
        for slot in partner
    )


def why_not_share(
    view: "ClusterView",
    state: JobState,
    option: Option,
    partner: JobState,
    *,
    heedless: bool = False,
) -> str | None:
    """Return why a waiting job may not start now under `option` beside a running one, in one
    clause, or None; `heedless` of the memory of the GPUs."""
    job, other, run, mode = state.job, partner.job, partner.run, option.mode
    assert run is not None
    if run.partner is not None or run.overlaps:
        return f"{other.id} shares its GPUs already"
    if not mode.gpus or mode.gpus != run.mode.gpus:
        return f"it would take {mode.gpus} GPUs, {other.id} holds {run.mode.gpus}"
    if mode.clock_mhz != run.mode.clock_mhz:
        return f"{other.id} has set another clock"
    if (
        sharing_rate(job.profile, other.profile) <= 0
        or sharing_rate(other.profile, job.profile) <= 0
    ):
        return "it is not known how fast the two would run"
    need, layout = view.need(job.id, option), view.free.layout
    able = view.free.able(need)
    if not all(able >> layout.order[slot.node] & 1 for slot in run.placement):
        return f"the GPUs of {other.id} do not serve its mode"
    if (
        not heedless
        and (node := beyond_gpu_memory(view.cluster, job, mode, other, run.mode, run.placement))
        is not None
    ):
        both_gib = gpu_memory_gib(job, mode) + gpu_memory_gib(other, run.mode)
        gib = view.cluster.node[node].gpu_memory_gib or 0.0
        return f"both need {both_gib:g} GiB of each GPU, those of {node} have {gib:g}"
    if view.cluster.windows and _meets_window(view, state, need.stay_s, partner):
        return "one of both would meet a window there before it is done"
    placement = sharing_placement(option, run.placement)
    if placed_rate(view.instance, job, replace(mode, share_with=other.id), placement) <= 0:
        return "it would make no progress there"
    if not run.row_s > view.now_s and view.seems_to_stay(state, mode, placement):
        return "it has only just left these GPUs"
    return None if _is_free(view.free, need, placement) else "not enough room beside it"


def why_not_overlap(
    view: "ClusterView",
    state: JobState,
    option: Option,
    node: str,
    partners: Mapping[JobState, int],
) -> str | None:
    """Return why a waiting job may not start now under `option` on one node, on so many GPUs of
    each of some running jobs and else on free ones, in one clause, or None."""
    job, mode = state.job, option.mode
    placement = with_cores((Slot(node=node, gpus=mode.gpus),), mode)
    alone = mode.gpus - sum(partners.values())
    if view.cluster.windows or job.profile.fetch_s:
        return "gangs overlap only where there are no windows and no models to fetch"
    for partner, gpus in partners.items():
        other, run = partner.job, partner.run
        assert run is not None
        if run.partner is not None or run.stops_s is not None or run.row_s > view.now_s:
            return f"{other.id} shares all of its GPUs, saves, or has only just started"
        if not 0 < gpus <= run.own_gpus().get(node, 0):
            return f"{other.id} does not have {gpus} GPUs of {node} to itself"
        if mode.clock_mhz != run.mode.clock_mhz:
            return f"{other.id} has set another clock"
        rates = sharing_rate(job.profile, other.profile), sharing_rate(other.profile, job.profile)
        if min(rates) <= 0:
            return "it is not known how fast the two would run"
        if beyond_gpu_memory(view.cluster, job, mode, other, run.mode, placement) is not None:
            return f"the GPUs of {node} do not have the memory of both"
    if not partners or not 0 <= alone <= view.free.gpus_on(node):
        return f"{node} does not have {alone} free GPUs"
    need, layout = view.need(job.id, option), view.free.layout
    if not view.free.able(need) >> layout.order[node] & 1:
        return f"the GPUs of {node} do not serve its mode"
    if view.seems_to_stay(state, mode, placement):
        return "it has only just left these GPUs"
    return None if _is_free(view.free, need, placement) else "not enough room beside it"


def _meets_window(view: "ClusterView", state: JobState, stay_s: float, partner: JobState) -> bool:
    """Return whether a job that must be able to stay so long, or the partner by which it would be
    slowed down, would be caught unsaved by a window."""
    assert partner.run is not None
    job, other, placement = state.job, partner.job, partner.run.placement
    left_s = view.expected_release_s(other.id) - view.now_s
    lasts_s = left_s / sharing_rate(other.profile, job.profile)
    is_caught = (
        not leaves_saved(other, partner.preemptions)
        and view.now_s + lasts_s > view.window_s(other.id, placement) + TIME_TOLERANCE_S
    )
    stays_s = stay_s / sharing_rate(job.profile, other.profile)
    return is_caught or view.now_s + stays_s > view.window_s(job.id, placement) + TIME_TOLERANCE_S


def _is_free(room: Room, need: Need, placement: Placement) -> bool:
    """Return whether all that `need` takes but the GPUs is free."""
    without_gpus = tuple(Slot(node=slot.node, cpus=slot.cpus) for slot in placement)
    if not room.holds(need, without_gpus):
        return False
    return not need.memory_gib_per_gpu or all(
        room.holds(
            replace(need, gpus=0, memory_gib=need.memory_gib_per_gpu * slot.gpus),
            (Slot(node=slot.node),),
        )
        for slot in placement
    )
