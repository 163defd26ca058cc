"""Who is entitled to what, who has used it, and what that makes of the weight of jobs."""

from collections.abc import Iterator, Sequence
from math import isfinite

from ..driver.fair_tree import Branch, rank, tree
from ..driver.shares import account_of, factors
from ..executors.base import NodeStatus
from ..frozen import frozen
from ..model import Shares, Tenant
from .core import ControllerCore
from .journal.state import State
from .present import may_start, shares_now


@frozen
class ShareView:
    """A tenant or, `is_user`, a user of one, at `level` of the tree (1: at the top).

    `share` is its part of the weights of its siblings, `entitled` that of the whole; `used_gpu_s`
    is decayed use, `effective` its part of that of its siblings. `level_fs` is share / effective,
    None where nothing was used. `fair_share` is what Slurm's `sshare` shows of a user, and `factor`
    multiplies the weight of his jobs, None where he has none that wait or run.
    """

    tenant: str | None
    user: str | None
    is_user: bool
    level: int
    weight: float
    share: float
    entitled: float
    used_gpu_s: float
    effective: float
    level_fs: float | None
    fair_share: float | None
    factor: float | None


@frozen
class SharesView:
    """The tree, each tenant before what is below it; `half_life_s` None: use is not counted, and
    weights stay as they are."""

    now_s: float
    half_life_s: float | None
    rows: tuple[ShareView, ...]


def shares_view(known: ControllerCore, user: str | None) -> SharesView:
    """Return the tree with all users, or only with this one."""
    now_s, settings = known.clock.now_s(), known.settings
    shares = shares_now(known.state, known.tenants, settings.half_life_s, now_s)
    if shares is None:
        return SharesView(now_s=now_s, half_life_s=None, rows=())
    rows = tuple(share_rows(known.state, known.tenants, known.statuses, shares, now_s))
    shown = tuple(row for row in rows if user is None or not row.is_user or row.user == user)
    return SharesView(now_s=now_s, half_life_s=shares.half_life_s, rows=shown)


def share_rows(
    state: State,
    tenants: tuple[Tenant, ...],
    statuses: Sequence[NodeStatus],
    shares: Shares,
    now_s: float,
) -> Iterator[ShareView]:
    """Yield the tree from the top."""
    names = {None, *(tenant.name for tenant in tenants)}
    accounts = {
        account_of(job.submission.job)
        for job in state.open.values()
        if job.submission.job.tenant in names
        and (job.live is not None or may_start(state, job, now_s))
    }
    gpus = sum(status.node.gpus for status in statuses)
    factor = factors(tenants, shares, gpus, accounts)
    root = tree(tenants, shares.used, accounts)
    rank(root)

    def below(branch: Branch, level: int, entitled: float) -> Iterator[ShareView]:
        for child in branch.children:
            part = entitled * child.share
            yield ShareView(
                tenant=child.tenant,
                user=child.user,
                is_user=child.is_user,
                level=level,
                weight=child.weight,
                share=child.share,
                entitled=part,
                used_gpu_s=child.gpu_s,
                effective=child.effective,
                level_fs=child.level_fs if isfinite(child.level_fs) else None,
                fair_share=child.fair_share,
                factor=factor.get((child.tenant, child.user)) if child.is_user else None,
            )
            yield from below(child, level + 1, part)

    yield from below(root, 1, 1.0)
