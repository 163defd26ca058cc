"""A copy of what a controller knows at one instant, for questions that are answered beside it."""

from collections.abc import Mapping
from copy import copy
from dataclasses import field

from ...driver import Reservation, Reservations
from ...executors.base import AttemptKey, NodeStatus, Progress
from ...frozen import frozen
from ...model import Cluster, Instance, Placement, Shares, Tenant
from ...round.plan import RoundSolution
from ..controller import Controller
from ..expected import LiveForecast
from ..journal.state import State
from ..limits import turns
from ..present import shares_now
from ..round_driver import NamedPolicy


@frozen
class Snapshot:
    """The state at `now_s` (Unix time), what is seen of nodes and attempts, and the last round with
    its instance.

    `cluster` has what all nodes share. The last round could not give away what is `blocked`, and
    was decided without the jobs of `left_out` (those over their budget among them) and, because
    of limits, of `withheld`, each with the reason; `turns` are the jobs after which some come
    because of limits. `objective` and `preempt_unsaved` are those of the rounds, which `policy`
    decides. `said` is what the cluster manager says of attempts that it does not start yet,
    `short_of_disk` why nothing at all is started, None where jobs are. `forecast` is the last
    one, `kept` the place that is kept for a job.
    """

    state: State
    cluster: Cluster
    tenants: tuple[Tenant, ...]
    statuses: tuple[NodeStatus, ...]
    progress: Mapping[AttemptKey, Progress]
    said: Mapping[AttemptKey, str] = field(default_factory=dict)
    now_s: float
    objective: str
    policy: NamedPolicy
    preempt_unsaved: bool
    shares: Shares | None = None
    instance: Instance | None = None
    solution: RoundSolution | None = None
    blocked: tuple[Placement, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    withheld: Mapping[str, str] = field(default_factory=dict)
    turns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    short_of_disk: str | None = None
    forecast: LiveForecast | None = None
    kept: Reservation | None = None


def snapshot(controller: Controller) -> Snapshot:
    """Return what the controller knows now; nothing in it changes when the controller goes on.
    O(jobs) and quick: for `Loop.ask`."""
    seen, now_s = controller.observed.items(), controller.clock.now_s()
    half_life_s = controller.settings.half_life_s
    driver = controller.driver(now_s)
    reservations = getattr(driver.policy, "reservations", None)
    return Snapshot(
        state=_copied(controller.state),
        cluster=controller.cluster,
        tenants=controller.tenants,
        statuses=controller.statuses,
        progress={key: own.progress for key, own in seen if own.progress is not None},
        said={key: own.reason for key, own in seen if own.reason is not None},
        now_s=now_s,
        objective=controller.settings.objective,
        policy=driver.named,
        kept=reservations.current if isinstance(reservations, Reservations) else None,
        preempt_unsaved=controller.settings.preempt_unsaved,
        shares=shares_now(controller.state, controller.tenants, half_life_s, now_s),
        instance=controller.last_instance,
        solution=controller.last_round,
        blocked=controller.blocked,
        left_out={
            **{name: controller.withheld[name] for name in controller.over_budget},
            **controller.left_out,
        },
        withheld=dict(controller.withheld),
        turns=turns(controller.settings, controller.state, now_s, controller.able(now_s)),
        short_of_disk=controller.short_of_disk,
        forecast=controller.forecast,
    )


def _copied(state: State) -> State:
    """Return a copy. Jobs that have finished and attempts that have ended do not change any more,
    and are shared."""
    copied = copy(state)
    for name in ("jobs", "open", "claims", "nodes", "barred"):
        setattr(copied, name, dict(getattr(state, name)))
    for name, job in state.open.items():
        mine = copy(job)
        mine.attempts = [own if own.ended else copy(own) for own in job.attempts]
        copied.jobs[name] = copied.open[name] = mine
    return copied
