"""A copy of what a controller knows at one instant, for questions that are answered beside it."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field

from ...driver.blocked import Amounts, amounts, beneath, blocked_places
from ...executors.base import AttemptKey, NodeStatus, Progress
from ...model.cluster import Cluster, Tenant
from ...model.instance import Instance, Placement, Slot
from ...round.plan import RoundSolution
from ..controller import Controller
from ..journal.state import State
from ..out_of_order import idle_out
from ..policy_driver import NamedPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state at `now_s` (Unix time), what is seen of nodes and attempts, and the last round with
    its instance.

    `cluster` has what all nodes share. The last round could not give away what is `blocked`, and
    was decided without the jobs of `left_out`, each with the reason. `objective`, `round_s` and
    `preempt_unsaved` are those of the rounds, `policy` decides in their place. `said` is what the
    cluster manager says of attempts that it does not start yet, `short_of_disk` why
    nothing at all is started, None where jobs are.
    """

    state: State
    cluster: Cluster
    tenants: tuple[Tenant, ...]
    statuses: tuple[NodeStatus, ...]
    progress: Mapping[AttemptKey, Progress]
    said: Mapping[AttemptKey, str] = field(default_factory=dict)
    now_s: float
    objective: str
    round_s: float
    policy: NamedPolicy | None
    preempt_unsaved: bool
    instance: Instance | None = None
    solution: RoundSolution | None = None
    blocked: tuple[Placement, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    short_of_disk: str | None = None


def snapshot(controller: Controller) -> Snapshot:
    """What the controller knows now; nothing in it changes when the controller goes on. O(jobs) and
    quick: for `Loop.ask`."""
    return Snapshot(
        state=_copied(controller.state),
        cluster=controller.cluster,
        tenants=controller.tenants,
        statuses=controller.statuses,
        progress={
            key: seen.progress
            for key, seen in controller.observed.items()
            if seen.progress is not None
        },
        said={
            key: seen.reason for key, seen in controller.observed.items() if seen.reason is not None
        },
        now_s=controller.clock.now_s(),
        objective=controller.settings.objective,
        round_s=float(controller.settings.length),
        policy=None if controller.policy is None else controller.policy.named,
        preempt_unsaved=controller.settings.preempt_unsaved,
        instance=controller.last_instance,
        solution=controller.last_round,
        blocked=controller.blocked,
        left_out=dict(controller.left_out),
        short_of_disk=controller.short_of_disk,
    )


def _copied(state: State) -> State:
    """Jobs that have finished and attempts that have ended do not change any more, and are
    shared."""
    found = State()
    found.jobs = dict(state.jobs)
    for name, job in state.open.items():
        mine = copy(job)
        mine.attempts = [copy(one) if one.ended is None else one for one in job.attempts]
        found.jobs[name] = found.open[name] = mine
    found.claims, found.stay, found.round = dict(state.claims), state.stay, state.round
    found.nodes, found.now_s, found.barred = dict(state.nodes), state.now_s, dict(state.barred)
    return found


def blocked_at(state: State, instance: Instance, solution: RoundSolution) -> tuple[Placement, ...]:
    """What was not there to be given away when a round was decided (see `present`), told from a
    state after it: exact for the state right after it, and but for claims and nodes that came or
    went since for later ones."""
    at_s = instance.now_s
    order = instance.cluster.node_order
    given = {
        entry.id
        for entry in solution.jobs
        if entry.mode is not None and entry.decision != "continue"
    }
    taken: Amounts = {}
    claimed: Amounts = {}
    for job in state.jobs.values():
        for attempt in reversed(job.attempts):
            if attempt.ended_s is not None and attempt.ended_s <= at_s:
                break
            if attempt.intended_s < at_s and job.id not in instance.running_job:
                amounts([attempt.placement], taken)
            elif (
                attempt.intended_s >= at_s
                and job.id not in given
                and job.id not in instance.running_job
            ):
                amounts([attempt.placement], claimed)  # a claim of an earlier round
    amounts((one.placement for one in state.claims.values() if one.job not in given), claimed)
    taken = beneath(taken, claimed)
    kept = amounts(entry.placement for entry in instance.running)
    for node in instance.cluster.nodes:
        if node.name in state.nodes and not state.nodes[node.name].usable:
            gpus, cpus = kept.get(node.name, [0, 0])
            taken[node.name] = [node.gpus - gpus, max(0, (node.cpus or 0) - cpus)]
        elif node.name in state.nodes:
            free = node.gpus - kept.get(node.name, [0, 0])[0] - taken.get(node.name, [0, 0])[0]
            out = idle_out(state, node.name, free)
            amounts([(Slot(node=node.name, gpus=out),)] if out else [], taken)
    return blocked_places(taken, order)
