"""What a user submits: a job, and the command that does its work."""

from dataclasses import field
from typing import Literal

from ..frozen import frozen
from ..model import Job


@frozen
class Submission:
    """A job with what is needed to run it.

    `job` has the demands and the profile; its `duration_s` is the reference work as far as it is
    known, stated by the user or estimated as `estimate` says (None: stated). `stated_s` is what the
    user says it takes, `limit_s` when the cluster manager ends it; None where that is not said, and
    in journals of earlier versions. `argv` runs in `directory` with `environment` added to the
    executor's. `user_id` is whose process it is, None for the controller's own user. `grace_s` is
    how long it may take to save, `retries` how often it is started again after failing.
    `total_steps` are the steps of the whole job, where it was told. `request_id` is what the user
    called the request, so that the same one again is no second job. `image` is the container image
    that it runs in, None for that of the site. `origin` is set of a job that was given to the
    cluster manager itself (`Arrival`). `preempt_unsaved` says whether it may be stopped for others
    while nobody knows that it saves, where its manager decides that. `notify` are the events of
    which its user is told ("start", "end", "fail"), by e-mail to `notify_to` where that is given.
    Tasks of one `array` have each an `index`; at most `at_once` of them run at the same time (None:
    any number).

    Besides those that its job comes after, it waits for all of `after_any` to end in any way and
    for all of `after_not_ok` to fail or be cancelled, and until `begin_s`; where it can never start
    any more it is cancelled, or held, as `if_never` says. A job of ours is stopped once it has run
    for `limit_s` in all its attempts; before that it gets a signal, as `warning` says (`USR1@60`).
    """

    job: Job
    argv: tuple[str, ...]
    directory: str
    environment: dict[str, str] = field(default_factory=dict)
    user_id: int | None = None
    grace_s: float = 60.0
    retries: int = 0
    total_steps: int | None = None
    estimate: str | None = None
    stated_s: float | None = None
    limit_s: float | None = None
    hold: bool = False
    request_id: str | None = None
    image: str | None = None
    origin: str | None = None
    preempt_unsaved: bool | None = None
    array: str | None = None
    index: int | None = None
    at_once: int | None = None
    notify: tuple[str, ...] = ()
    notify_to: str | None = None
    after_any: tuple[str, ...] = ()
    after_not_ok: tuple[str, ...] = ()
    begin_s: float | None = None
    if_never: Literal["cancel", "hold"] = "cancel"
    warning: str | None = None

    @property
    def predecessors(self) -> tuple[str, ...]:
        """Return all jobs for which it waits."""
        return (*self.job.after, *self.after_any, *self.after_not_ok)

    @property
    def own_limit_s(self) -> float | None:
        """Return when we stop it; None where nobody does, or its manager."""
        return self.limit_s if self.origin is None else None
