"""Windows: listed for all, set and lifted by administrators."""

from itertools import count

from ...errors import InputError
from ...hostlist import expand_hostlist
from ...model import FOR_EVER_S, Window, not_lowered
from ..controller import Controller
from ..journal.events import WindowLifted, WindowSet
from .answers import Windows, WindowView
from .bodies import LiftBody, WindowBody
from .peer import Caller
from .refusal import HttpError
from .service import Service, between_turns
from .views import view


@between_turns
def windows(service: Service, controller: Controller, caller: Caller) -> Windows:
    """Return all windows that are not over; jobs that are still there are named to those who see
    them."""
    return _windows(controller, caller)


@between_turns
def lift_window(
    service: Service, controller: Controller, caller: Caller, body: LiftBody
) -> Windows:
    """Take a window back. Raises HttpError: 403 for who may not, 404 where there is none that was
    set."""
    _only_administrators(caller)
    if body.name not in controller.state.windows:
        stated = any(own.name == body.name for own in controller.settings.windows)
        why = f"there is no window {body.name!r}"
        if stated:
            why = f"window {body.name!r} is one of cluster.toml: change it there"
        elif any(own.name == body.name for own in controller.state.reserved):
            why = f"window {body.name!r} is a reservation of the cluster manager: change it there"
        raise HttpError(404, why)
    controller.record(WindowLifted(name=body.name, by=caller.name))
    return _windows(controller, caller)


def _only_administrators(caller: Caller) -> None:
    if not caller.all_jobs or caller.views_only:
        raise HttpError(403, "only administrators set windows")


@between_turns
def set_window(
    service: Service, controller: Controller, caller: Caller, body: WindowBody
) -> Windows:
    """Set a window. Raises HttpError: 403 for who may not, 409 for a name that is taken, 422 for
    what cannot be."""
    _only_administrators(caller)
    now_s = controller.clock.now_s()
    from_s = max(now_s, body.from_s if body.from_s is not None else now_s)
    to_s = FOR_EVER_S if body.to_s is None else body.to_s
    if not from_s < to_s:
        raise HttpError(422, "to_s: the window would be over before it begins")
    unknown = {*body.tenants} - {tenant.name for tenant in controller.tenants}
    if unknown:
        raise HttpError(422, f"tenants: there is no tenant {min(unknown)!r}")
    absent = {*body.resources} - {*controller.cluster.resources}
    if absent:
        raise HttpError(422, f"resources: the cluster has no {min(absent)!r}")
    for name, problem, remedy in not_lowered(body.quotas, controller.tenants):
        raise HttpError(422, f"quotas.{name}: {problem}; {remedy}")
    taken = {*controller.state.windows, *(own.name for own in controller.settings.windows)}
    taken |= {own.name for own in controller.state.reserved}
    name = body.name or next(own for i in count(1) if (own := f"{body.kind}-{i}") not in taken)
    if name in taken:
        raise HttpError(409, f"there is a window named {name!r}; choose another name")
    nodes = _chosen(controller, from_s, to_s, body.gpus) if body.gpus else _named(controller, body)
    window = view(Window, body, nodes=nodes, from_s=from_s, to_s=to_s, name=name)
    controller.record(WindowSet(window=window, by=caller.name))
    return _windows(controller, caller)


def _named(controller: Controller, body: WindowBody) -> tuple[str, ...]:
    known = {status.node.name for status in controller.statuses}
    try:
        names = dict.fromkeys(name for text in body.nodes for name in expand_hostlist(text))
    except (ValueError, InputError) as error:
        raise HttpError(422, f"nodes: {error}") from None
    for name in names:
        if name not in known:
            raise HttpError(422, f"nodes: there is no node {name!r}")
    if not (names or body.resources or body.quotas):
        raise HttpError(422, "nodes: name some, or say how many gpus")
    return tuple(names)


def _chosen(controller: Controller, from_s: float, to_s: float, gpus: int) -> tuple[str, ...]:
    """Return nodes with so many GPUs that no other window is about then: the largest first, for the
    rest the smallest that has enough. Raises HttpError 409 where there are too few."""
    known = controller.cluster.windows
    busy = {n for own in known if own.from_s < to_s and own.to_s > from_s for n in own.nodes}
    free = [
        status.node
        for status in controller.statuses
        if status.usable and status.node.gpus and status.node.name not in busy
    ]
    if sum(node.gpus for node in free) < gpus:
        there = sum(node.gpus for node in free)
        raise HttpError(409, f"gpus: {there} GPUs are in no other window then, not {gpus}")
    chosen: list[str] = []
    free.sort(key=lambda node: -node.gpus)
    while gpus > 0:
        last = [node for node in free if node.gpus >= gpus]
        node = last[-1] if last else free[0]
        free.remove(node)
        chosen.append(node.name)
        gpus -= node.gpus
    return tuple(chosen)


def _windows(controller: Controller, caller: Caller) -> Windows:
    now_s, state = controller.clock.now_s(), controller.state
    views = []
    for window in controller.cluster.windows:
        late = [
            attempt.key.job
            for attempt in state.live_attempts()
            if window.from_s <= now_s
            and any(slot.node in window.nodes for slot in attempt.placement)
            and (job := state.jobs[attempt.key.job].submission.job)
            and window.bars(job.tenant, job.user)
        ]
        views.append(
            view(
                WindowView,
                window,
                to_s=None if window.to_s >= FOR_EVER_S else window.to_s,
                resources=dict(window.resources),
                quotas=dict(window.quotas),
                jobs_there=len(late),
                jobs=tuple(name for name in late if caller.sees(state.jobs[name])),
            )
        )
    return Windows(windows=tuple(views))
