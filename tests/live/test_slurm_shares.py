"""The numbers of the fair-share tree are those of Slurm, for the same use of real jobs."""

import pwd
from dataclasses import dataclass

import pytest

from optsched import Tenant
from optsched.driver.fair_tree import Branch, rank, tree
from optsched.model.shares import Use

from .slurm_cluster import SlurmCluster, missing_accounting, slurm_cluster, wait_until

COLUMNS = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare,LevelFS"
ACCOUNTS = (  # name, above, shares
    ("vision", "root", 3),
    ("detect", "vision", 2),
    ("track", "vision", 1),
    ("language", "root", 2),
    ("speech", "root", 2),
    ("idle", "root", 4),
)
USERS = (("daemon", "detect"), ("bin", "detect"), ("sys", "track"), ("daemon", "language"))
USERS += (("games", "language"), ("games", "speech"), ("man", "speech"), ("man", "idle"))
JOBS = (  # user, account, GPUs, seconds; some users never run
    ("daemon", "detect", 2, 3),
    ("bin", "detect", 1, 2),
    ("daemon", "language", 4, 2),
    ("games", "language", 1, 5),
    ("games", "speech", 2, 2),
)


@dataclass(frozen=True)
class Row:
    """A line of `sshare`, and how far down it stands."""

    level: int
    account: str
    user: str
    raw_shares: float
    norm_shares: float
    raw_usage: float
    effective: float
    fair_share: float | None
    level_fs: float


def sshare(cluster: SlurmCluster) -> list[Row]:
    """All lines but that of the root account."""
    rows = []
    for line in cluster.slurm("sshare", "-a", "-l", "-n", "-P", "-o", COLUMNS).splitlines():
        account, user, *numbers = line.split("|")
        shares, norm, usage, effective, fair_share, level_fs = numbers
        if not user and account.strip() == "root":
            continue
        rows.append(
            Row(
                len(account) - len(account.lstrip()),
                account.strip(),
                user,
                float(shares),
                float(norm),
                float(usage),
                float(effective),
                float(fair_share) if fair_share else None,
                float(level_fs or "nan"),
            )
        )
    return rows


def as_tree(rows: list[Row]) -> dict[tuple[str | None, str | None], Branch]:
    """The same tree and use, with our numbers."""
    above: list[Row] = []
    tenants, used, accounts = [], [], []
    for row in rows:
        while above and above[-1].level >= row.level:
            above.pop()
        if row.user:
            account = (None if row.account == "root" else row.account, row.user)
            accounts.append(account)
            used.append(Use(tenant=account[0], user=row.user, gpu_s=row.raw_usage))
        else:
            parent = above[-1].account if above else None
            tenants.append(Tenant(name=row.account, weight=row.raw_shares, parent=parent))
            above.append(row)
    root = tree(tenants, used, accounts)
    rank(root)
    named: dict[tuple[str | None, str | None], Branch] = {}

    def walk(branch: Branch) -> None:
        for child in branch.children:
            named[child.tenant, child.user] = child
            walk(child)

    walk(root)
    return named


def differences(rows: list[Row]) -> list[str]:
    """Where ours are not theirs to within a millionth, as far as sshare prints."""
    ours, wrong = as_tree(rows), []
    for row in rows:
        if row.account == "root":
            branch = ours[None, row.user]
            pairs = [(branch.fair_share, row.fair_share)]
        else:
            branch = ours[row.account, row.user or None]
            pairs = [
                (branch.share, row.norm_shares),
                (branch.effective, row.effective),
                (branch.level_fs, row.level_fs),
                (branch.fair_share, row.fair_share),
            ]
        for mine, theirs in pairs:
            if mine is None or theirs is None:
                close = mine is theirs
            else:
                close = mine == theirs or abs(mine - theirs) <= 1e-6 * max(1.0, abs(theirs))
            if not close:
                wrong.append(f"{row.account}/{row.user}: {mine} and not {theirs}")
    return wrong


@pytest.mark.slow  # Slurm counts use once a minute
def test_numbers_are_those_of_sshare() -> None:
    reason = missing_accounting()
    if reason is not None:
        pytest.skip(reason)
    with slurm_cluster(nodes=4, gpus=4, accounting=True, fair_tree=True) as cluster:
        for name, above, shares in ACCOUNTS:
            given = (f"parent={above}", f"fairshare={shares}")
            cluster.slurm("sacctmgr", "-i", "add", "account", name, *given)
        for user, account in USERS:
            cluster.slurm("sacctmgr", "-i", "add", "user", user, f"account={account}")
        wait_until(lambda: len(sshare(cluster)) >= len(ACCOUNTS) + len(USERS))
        for user, account, gpus, seconds in JOBS:
            cluster.sbatch(
                f"sleep {seconds}",
                f"--account={account}",
                f"--gres=gpu:{gpus}",
                "--mem=1M",
                "--output=/dev/null",
                uid=pwd.getpwnam(user).pw_uid,
            )
        wait_until(lambda: not cluster.slurm("squeue", "-h", "-o", "%i"))

        def counted() -> bool:
            rows = sshare(cluster)
            users = {(row.user, row.account): row.raw_usage for row in rows if row.user}
            ran = all(users[user, account] > 1e6 for user, account, _, _ in JOBS)
            return ran and not differences(rows)

        try:
            wait_until(counted, 200.0)
        except TimeoutError:
            rows = sshare(cluster)
            raise AssertionError([*differences(rows), *map(str, rows)]) from None
