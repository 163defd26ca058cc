"""Slurm's Fair Tree: who has used least of what is his, level by level.

R. Cox and L. Morrison, Fair Tree, https://slurm.schedmd.com/fair_tree.html. `sshare` prints the
same numbers for the same use.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..model import Account, Tenant, Use


@dataclass(slots=True, eq=False)
class Branch:
    """A tenant or, of a tenant, a user. `gpu_s` is the use of all below, `share` its part of the
    weights of its siblings, `effective` its part of their use, `level_fs` the ratio of both; only
    users have a `fair_share`, between 0 and 1."""

    tenant: str | None = None
    user: str | None = None
    weight: float = 1.0
    gpu_s: float = 0.0
    is_user: bool = False
    children: list["Branch"] = field(default_factory=list)
    share: float = 1.0
    effective: float = 1.0
    level_fs: float = 1.0
    fair_share: float | None = None

    def leaves(self) -> Iterator["Branch"]:
        """Yield the users below, in order."""
        if self.is_user:
            yield self
        for child in self.children:
            yield from child.leaves()


def tree(
    tenants: Sequence[Tenant], used: Iterable[Use], accounts: Iterable[Account] = ()
) -> Branch:
    """Return the root of the tree of `tenants` with all users that have used something, and those
    of `accounts`. Those without a tenant are of one more tenant, of weight 1."""
    gpu_s: dict[Account, float] = dict.fromkeys(accounts, 0.0)
    for use in used:
        account = use.tenant, use.user
        gpu_s[account] = gpu_s.get(account, 0.0) + use.gpu_s
    root = Branch()
    branches: dict[str | None, Branch] = {
        tenant.name: Branch(tenant.name, weight=tenant.weight) for tenant in tenants
    }
    above: dict[str | None, str | None] = {tenant.name: tenant.parent for tenant in tenants}
    for name, branch in branches.items():
        parent = above[name]
        (root if parent is None else branches[parent]).children.append(branch)
    for (name, user), amount in sorted(gpu_s.items(), key=lambda own: tuple(map(str, own[0]))):
        if name not in branches:
            branches[name] = Branch()
            root.children.append(branches[name])
        branches[name].children.append(Branch(name, user, gpu_s=amount, is_user=True))
    _sum(root)
    return root


def _sum(branch: Branch) -> float:
    if not branch.is_user:
        branch.gpu_s = math.fsum(map(_sum, branch.children))
    return branch.gpu_s


def rank(root: Branch) -> None:
    """Set the shares, the level fair-share and the fair-share factor of all below `root`.

    At each level the child of the highest level fair-share comes first, users before tenants of the
    same, with all below it. The factor of a user is his rank from the last over the number of
    users; equal ones share theirs. Of tenants that are equal the second begins with the rank at
    which the first ended, as in Slurm's code (its text would merge their users).
    """
    users = [*root.leaves()]
    ranked = last = len(users)

    def visit(branch: Branch, tied: bool) -> None:
        nonlocal ranked, last
        weights = math.fsum(child.weight for child in branch.children)
        for child in branch.children:
            child.share = child.weight / weights if weights else 0.0
            child.effective = child.gpu_s / branch.gpu_s if branch.gpu_s else 0.0
            child.level_fs = _ratio(child.share, child.effective)
        before: float | None = None
        for child in sorted(branch.children, key=lambda own: (-own.level_fs, not own.is_user)):
            tied = before == child.level_fs or (tied and before is None)
            before = child.level_fs
            if not child.is_user:
                visit(child, tied)
                continue
            if not tied:
                ranked = last
            child.fair_share = ranked / len(users)
            last -= 1

    visit(root, False)


def _ratio(share: float, effective: float) -> float:
    if share == 0:
        return 0.0
    return share / effective if effective > 0 else math.inf
