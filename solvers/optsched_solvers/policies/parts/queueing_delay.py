"""Seconds for which jobs wait because their tenant's quota is used up, and those for which they
wait in spite of it."""

from collections import Counter, defaultdict

SIZES = ((1, "1"), (4, "2_4"), (8, "5_8"))
"""Gang size classes of the paper: at most so many GPUs, and their name."""
CLASSES = ("1", "2_4", "5_8", "over_8")

Group = tuple[str | None, int]
"""Tenant and GPUs: jobs that wait for the same reason."""


def size_class(gpus: int) -> str:
    """The name of a gang's class."""
    return next((name for most, name in SIZES if gpus <= most), "over_8")


class QueueingDelay:
    """Adds up the waiting of groups of jobs: O(groups) for each step in time, however many jobs
    wait.

    A waiting job is in fair-share delay while its GPUs and those its tenant holds exceed the
    tenant's quota, else in fragmentation delay (M. Jeon et al., USENIX ATC 2019, section 3.1).
    """

    def __init__(self, quotas: dict[str, int]) -> None:
        self._quotas = quotas
        self._waiting = Counter[Group]()
        self._last_s: float | None = None
        self._delay_s: defaultdict[tuple[str, str], float] = defaultdict(float)

    def advance(self, now_s: float, held: Counter[str | None]) -> None:
        """Until `now_s` tenants have held so many GPUs since the last step."""
        if self._last_s is not None and now_s > self._last_s:
            for (tenant, gpus), count in self._waiting.items():
                quota = None if tenant is None else self._quotas.get(tenant)
                over = quota is not None and held[tenant] + gpus > quota
                self._delay_s["fair_share" if over else "fragmentation", size_class(gpus)] += (
                    count * (now_s - self._last_s)
                )
        self._last_s = now_s

    def comes(self, group: Group) -> None:
        """One more job of the group waits."""
        self._waiting[group] += 1

    def goes(self, group: Group) -> None:
        """One job of the group waits no more."""
        self._waiting[group] -= 1
        if not self._waiting[group]:
            del self._waiting[group]

    def facts(self) -> dict[str, float]:
        """Both delays, in total and by gang size class."""
        found: dict[str, float] = {}
        for kind in ("fair_share", "fragmentation"):
            found[f"{kind}_delay_s"] = sum((self._delay_s[kind, name] for name in CLASSES), 0.0)
            for name in CLASSES:
                found[f"{kind}_delay_{name}_gpus_s"] = float(self._delay_s[kind, name])
        return found
