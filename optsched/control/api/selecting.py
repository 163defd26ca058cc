"""Jobs picked out of all there are: by whose they are, how they are and what they are called; in an
order, page by page."""

import base64
import heapq
import json
import re
from collections.abc import Callable, Iterator
from fnmatch import translate

from ...model import gang
from ..controller import Controller
from ..expected import expected
from ..explain.blocked import Obstacles
from ..journal.state import FINISHED, OPEN, LiveJob, State
from .answers import JobPage
from .bodies import JobsQuery, Selection
from .peer import Caller
from .refusal import HttpError
from .views import job_view, ran_s, remaining_s, started_s, waited_s

Key = tuple[bool, str | float | None, str]
ORDERS: dict[str, Callable[[Controller, LiveJob, float], str | float | None]] = {
    "submitted": lambda controller, job, now_s: job.submit_s,
    "started": lambda controller, job, now_s: started_s(job),
    "finished": lambda controller, job, now_s: job.finished_s,
    "name": lambda controller, job, now_s: job.id,
    "user": lambda controller, job, now_s: job.submission.job.user,
    "tenant": lambda controller, job, now_s: job.submission.job.tenant,
    "status": lambda controller, job, now_s: job.status,
    "gpus": lambda controller, job, now_s: (
        job.live.mode.gpus if job.live else gang(job.submission.job)
    ),
    "waited": lambda controller, job, now_s: waited_s(job, now_s),
    "ran": lambda controller, job, now_s: ran_s(job, now_s),
    "left": remaining_s,
    "starts": lambda controller, job, now_s: expected(controller.forecast, job, now_s).start_p50_s,
    "ends": lambda controller, job, now_s: expected(controller.forecast, job, now_s).end_p50_s,
    "weight": lambda controller, job, now_s: job.submission.job.weight,
    "priority": lambda controller, job, now_s: job.submission.job.priority,
}


def matching(
    state: State, caller: Caller, chosen: Selection, *, everybody: bool, usual: frozenset[str]
) -> Iterator[LiveJob]:
    """Yield the jobs that are chosen, of the `usual` statuses where none is named: the caller's
    own, those of `everybody`, or where an administrator names a user or a tenant, theirs. Raises
    HttpError 403."""
    if (everybody or chosen.user not in (None, caller.name)) and not caller.all_jobs:
        raise HttpError(
            403, "only administrators see jobs of other users; leave `all` and `user` out"
        )
    named = chosen.user is not None or chosen.tenant is not None
    everybody = everybody or (named and caller.all_jobs)
    statuses = usual if chosen.state is None else frozenset(chosen.state.split(","))
    called = re.compile(translate("*" if chosen.name is None else chosen.name)).match
    for job in (state.open if statuses <= OPEN else state.jobs).values():
        noun = job.submission.job
        if (
            (everybody or caller.owns(job))
            and chosen.user in (None, noun.user)
            and chosen.tenant in (None, noun.tenant)
            and chosen.array in (None, job.submission.array)
            and job.status in statuses
            and called(job.id)
        ):
            yield job


def page_of(controller: Controller, caller: Caller, query: JobsQuery) -> JobPage:
    """Return the jobs of one page. All pages are in the order of the first one's instant, so that
    no job is left out or seen twice because times go on."""
    usual = frozenset(FINISHED) if query.finished else OPEN
    jobs = [*matching(controller.state, caller, query, everybody=query.all, usual=usual)]
    sort = query.sort or ("-finished" if query.finished else "submitted")
    descending, order = sort.startswith("-"), ORDERS[sort.removeprefix("-")]
    now_s = controller.clock.now_s()
    last, at_s = _read(query.page) if query.page else (None, now_s)

    def key(job: LiveJob) -> Key:
        value = order(controller, job, at_s)
        return (value is None) != descending, value, job.id  # those without come last

    keys = {key(job): job for job in jobs}
    try:
        rest = [*keys] if last is None else [own for own in keys if (own < last) == descending]
        rest = [own for own in rest if own != last]
    except TypeError:
        raise HttpError(422, "page: is not what an answer gave as `next` in this order") from None
    shown = (heapq.nlargest if descending else heapq.nsmallest)(query.limit, rest)
    obstacles = Obstacles(controller)
    return JobPage(
        jobs=tuple(job_view(controller, keys[own], now_s, obstacles) for own in shown),
        total=len(jobs),
        next=_written(shown[-1], at_s) if len(rest) > len(shown) else None,
    )


def _written(key: Key, at_s: float) -> str:
    return base64.urlsafe_b64encode(json.dumps([key, at_s]).encode()).decode().rstrip("=")


def _read(page: str) -> tuple[Key, float]:
    """Return the last key of the page before, and the instant of the first page. Raises HttpError
    422."""
    try:
        (last, value, name), at_s = json.loads(base64.urlsafe_b64decode(page + "=" * 3))
        sound = isinstance(last, bool) and isinstance(name, str) and isinstance(at_s, float)
        if sound and isinstance(value, str | int | float | None):
            return (last, value, name), at_s
    except (ValueError, TypeError, RecursionError):
        pass
    raise HttpError(422, "page: is not what an answer gave as `next`")
