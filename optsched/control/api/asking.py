"""Why, and what if: answered on the request's own thread from a copy of the present, so that the
loop goes on."""

from dataclasses import replace
from typing import Any

from ...errors import InputError
from ...model import Job, Profile
from ..beside import NoForecastError
from ..explain.explaining import Explained, explain_job
from ..what_if.future import outlook
from ..what_if.process import foretell
from ..what_if.simulated import HYPOTHETICAL, Change
from ..what_if.snapshot import Snapshot, snapshot
from ..what_if.words import Foretold
from .bodies import Hypothetical, WhatIfBody
from .peer import Caller, visible
from .refusal import HttpError, unsound
from .service import Service
from .views import view


def explained(service: Service, caller: Caller, name: str) -> Explained:
    """Return why a job is where it is. Jobs that the caller does not see are counted, not named."""
    now = service.ask(snapshot)
    visible(now.state, caller, name)
    explanation = explain_job(now, name, names=caller.all_jobs)
    return replace(explanation, facts=_finite(explanation.facts))


def foretold(service: Service, caller: Caller, body: WhatIfBody) -> Foretold:
    """Return what would become of the present jobs. Raises HttpError: 404 for jobs that the caller
    does not see, 422 for what makes no sense here, 503 where too many ask at once."""
    now = service.ask(snapshot)
    for name in (body.job, body.without):
        if name is not None:
            visible(now.state, caller, name)
    mine = (name for name, job in now.state.open.items() if caller.owns(job))
    submit = None if body.submit is None else _job(body.submit, caller, now)
    try:
        return foretell(
            outlook(now),
            view(Change, body, submit=submit),
            objective=now.objective,
            policy=now.policy,
            time_limit_s=body.time_limit_s,
            shown=None if caller.all_jobs else frozenset(mine),
        )
    except InputError as error:
        raise unsound(error) from None
    except NoForecastError as error:
        raise HttpError(503, str(error)) from None


def _job(asked: Hypothetical, caller: Caller, now: Snapshot) -> Job:
    if asked.gpus and asked.cpus is not None:
        raise HttpError(422, "submit.cpus is for a job without GPUs; leave one of the two out")
    rates = {} if asked.gpu_types is None else dict.fromkeys(asked.gpu_types, 1.0)
    on_one = any(status.node.gpus >= asked.gpus for status in now.statuses)
    return Job(
        id=HYPOTHETICAL,
        max_nodes=1 if asked.gpus and on_one else None,
        user=caller.name,
        gpus=asked.gpus,
        cpus=0 if asked.gpus else asked.cpus or 1,
        duration_s=asked.duration_s,
        weight=asked.weight,
        profile=Profile(rate=rates),
    )


def _finite(value: Any) -> Any:
    """Return a value without infinity, which JSON has not."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
