"""The least value of a tiny instance file by trying everything, apart from the package: it reads
the JSON itself and imports nothing of what it checks.

It knows nodes with GPUs of a type in racks and with memory, gangs with rates by type, locality,
cores, host memory and GPU memory, releases, weights, deadlines, precedence, start-up, restore and
checkpoints on demand, resources, windows, quotas within quotas, and jobs that run at time 0; no
other field may be in the file. Every running job continues or is preempted at 0, every other one
starts on every set of GPUs of one type with any cores and any memory that its tables list, and the
jobs are listed by start in every order; each starts at the first instant, not before the one listed
before it, at which its GPUs, cores, memory and resources are free, all quotas over it hold and no
window that bars it comes on its nodes before its end.
Costs grow with completion times, so one of these plans is best: a job that could start earlier
beside those listed before it could so beside all.

A running job that cannot be preempted stays in a window, and so does any until it has saved, if it
begins at once.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

FIELDS = {
    "file": {"format", "name", "cluster", "tenants", "jobs", "running"},
    "tenant": {"name", "gpu_quota", "parent"},
    "cluster": {"nodes", "resources", "windows"},
    "window": {"nodes", "from_s", "to_s", "users", "resources", "quotas"},
    "node": {"name", "gpu_type", "gpus", "rack", "cpus", "memory_gib", "gpu_memory_gib"},
    "job": {
        *("id", "submit_s", "weight", "deadline_s", "after", "gpus", "duration_s", "profile"),
        *("user", "tenant", "preemptible", "resources"),
    },
    "profile": {
        *("rate", "locality", "startup_s", "restore_s", "checkpoint_s", "cpus_per_gpu"),
        *("memory_gib_per_gpu", "memory_rates", "gpu_memory_gib", "gpu_memory_rates"),
    },
    "running": {"job", "mode", "placement", "started_s", "remaining_s"},
}

Gpus = dict[str, int]
"""GPUs on each node."""


QUOTA = "quota"
Amounts = dict[str | tuple[str, str], float]
"""Of resources by name, of cores and memory by what and node, and of GPUs by quota."""

Held = tuple[float, Gpus, Amounts]
"""Until when something is held: GPUs, and amounts."""


@dataclass
class Task:
    """A job that is yet to start: from when on, and its lengths by what it takes."""

    job: dict[str, Any]
    ready_s: float
    ways: list[tuple[Gpus, Amounts, float]]


@dataclass
class Search:
    """What is held from when until when, when jobs end, and the least value so far."""

    goal: str
    nodes: dict[str, dict[str, Any]]
    jobs: dict[str, dict[str, Any]]
    cluster: dict[str, Any]
    quotas: dict[str, float]
    held: list[Held] = field(default_factory=list)
    ends_s: dict[str, float] = field(default_factory=dict)
    least: float = math.inf

    def value(self) -> float:
        """Return the value of the jobs that have an end: what others add is not negative."""
        late_s = {
            name: end_s - self.jobs[name].get("deadline_s", math.inf)
            for name, end_s in self.ends_s.items()
        }
        weight = {name: self.jobs[name].get("weight", 1.0) for name in self.ends_s}
        match self.goal:
            case "wct" | "flow2":
                power = 2 if self.goal == "flow2" else 1
                return math.fsum(
                    weight[name] * (end_s - self.jobs[name].get("submit_s", 0.0)) ** power
                    for name, end_s in self.ends_s.items()
                )
            case "makespan":
                return max(self.ends_s.values(), default=0.0)
            case "tardiness":
                return math.fsum(weight[name] * max(0.0, late_s[name]) for name in late_s)
            case "deadline":
                return math.fsum(weight[name] for name in late_s if late_s[name] > 1e-6)
        raise ValueError(self.goal)

    @property
    def windows(self) -> list[dict[str, Any]]:
        return [w for w in self.cluster.get("windows", []) if w["to_s"] > 0]

    def bars(self, window: dict[str, Any], job: dict[str, Any], gpus: Gpus) -> bool:
        """Return whether the job may not be on one of these nodes in a window."""
        is_for = job.get("user") in window.get("users", ()) and "user" in job
        return not is_for and bool(set(gpus) & set(window.get("nodes", ())))

    def there_is(self, name: str | tuple[str, str], at_s: float) -> float:
        if isinstance(name, tuple) and name[0] != QUOTA:
            most: float = self.nodes[name[1]].get(name[0], math.inf)
            return most
        kind, of = ("quotas", name[1]) if isinstance(name, tuple) else ("resources", name)
        return min(
            [self.quotas[of] if kind == "quotas" else self.cluster.get("resources", {})[of]]
            + [
                window[kind][of]
                for window in self.windows
                if window["from_s"] <= at_s < window["to_s"] and of in window.get(kind, {})
            ]
        )

    def fits(
        self, job: dict[str, Any], gpus: Gpus, takes: Amounts, at_s: float, length_s: float
    ) -> bool:
        end_s = at_s + length_s
        if any(
            self.bars(window, job, gpus) and window["from_s"] < end_s and at_s < window["to_s"]
            for window in self.windows
        ):
            return False
        begins = [at_s, *(w["from_s"] for w in self.windows if at_s < w["from_s"] < end_s)]
        return all(
            count + sum(held.get(node, 0) for until_s, held, _ in self.held if until_s > at_s)
            <= self.nodes[node]["gpus"]
            for node, count in gpus.items()
        ) and all(
            amount + sum(own.get(name, 0) for until_s, _, own in self.held if until_s > t)
            <= self.there_is(name, t) + 1e-9
            for name, amount in takes.items()
            for t in begins
        )

    def may_stay(self, job: dict[str, Any], gpus: Gpus, end_s: float) -> bool:
        """Return whether a running job may go on until `end_s`."""
        saved_s = job.get("profile", {}).get("checkpoint_s", 0.0)
        return not job.get("preemptible", True) or not any(
            self.bars(window, job, gpus)
            and min(end_s, window["to_s"]) > max(window["from_s"], saved_s)
            for window in self.windows
        )

    def is_overdrawn(self, caught_s: dict[int, float]) -> bool:
        """Return whether running jobs hold more than a window leaves, and one of them had to have
        saved: `caught_s` says until when each entry of `held` need not have."""
        return any(
            sum(own.get(name, 0) for until_s, _, own in self.held if until_s > t)
            > self.there_is(name, t)
            and any(
                own.get(name) and until_s > t and until_s > caught_s[i]
                for i, (until_s, _, own) in enumerate(self.held)
            )
            for name in [*self.cluster.get("resources", {}), *((QUOTA, own) for own in self.quotas)]
            for t in [0.0, *(w["from_s"] for w in self.windows if w["from_s"] > 0)]
        )

    def list_next(self, tasks: list[Task], from_s: float) -> None:
        """Try every job of `tasks` as the next to start, from `from_s` on."""
        if self.value() >= self.least:
            return
        if not tasks:
            self.least = self.value()
            return
        for task in tasks:
            before = task.job.get("after", ())
            if any(name not in self.ends_s for name in before):
                continue
            ready_s = max([from_s, task.ready_s, *(self.ends_s[name] for name in before)])
            others = [other for other in tasks if other is not task]
            for gpus, takes, length_s in task.ways:
                changes = [*(e for e, _, _ in self.held), *(w["to_s"] for w in self.windows)]
                instants = [ready_s, *sorted(at_s for at_s in changes if at_s > ready_s)]
                start_s = next(t for t in instants if self.fits(task.job, gpus, takes, t, length_s))
                self.held.append((start_s + length_s, gpus, takes))
                self.ends_s[task.job["id"]] = start_s + length_s
                self.list_next(others, start_s)
                del self.ends_s[task.job["id"]]
                self.held.pop()


def least(path: Path, goal: str) -> float:
    """Return the least value of `goal` over the plan class, infinite where there is no plan."""
    data = json.loads(path.read_text(encoding="utf-8"))
    _know(data)
    nodes = {node["name"]: node for node in data["cluster"]["nodes"]}
    tenants = {tenant["name"]: tenant for tenant in data.get("tenants", [])}
    quotas = {name: own["gpu_quota"] for name, own in tenants.items() if "gpu_quota" in own}
    jobs = {job["id"]: job for job in data["jobs"]}
    for job in jobs.values():
        job[QUOTA] = [name for name in _upwards(tenants, job.get("tenant")) if name in quotas]
    running = data.get("running", [])
    best = math.inf
    for leaves in product((False, True), repeat=len(running)):
        search = Search(goal, nodes, jobs, data["cluster"], quotas, least=best)
        tasks = [
            Task(job, job.get("submit_s", 0.0), list(_ways(nodes, job)))
            for job in data["jobs"]
            if not any(entry["job"] == job["id"] for entry in running)
        ]
        caught_s: dict[int, float] = {}
        is_plan = True
        for entry, is_preempted in zip(running, leaves, strict=True):
            job, gpus = jobs[entry["job"]], {p["node"]: p["gpus"] for p in entry["placement"]}
            profile, left_s = job.get("profile", {}), entry["remaining_s"]
            saved_s = profile.get("checkpoint_s", 0.0)
            mode = entry["mode"]
            rate = _rate(nodes, profile, gpus) * _by_choice(profile, mode)
            end_s = saved_s if is_preempted else left_s / rate
            stays = not job.get("preemptible", True)
            caught_s[len(search.held)] = math.inf if stays else saved_s
            search.held.append((end_s, gpus, _takes(job, mode, gpus)))
            if is_preempted:
                is_plan = is_plan and not stays
                set_up_s = profile.get("restore_s", 0.0)
                tasks.append(Task(job, saved_s, list(_ways(nodes, job, left_s, set_up_s))))
            else:
                is_plan = is_plan and search.may_stay(job, gpus, end_s)
                search.ends_s[job["id"]] = end_s
        if not is_plan or search.is_overdrawn(caught_s):
            continue
        search.list_next(tasks, 0.0)
        best = search.least
    return best


def _upwards(tenants: dict[str, dict[str, Any]], name: str | None) -> Iterator[str]:
    """Yield a tenant and those that it is part of."""
    while name is not None:
        yield name
        name = tenants[name].get("parent")


def _ways(
    nodes: dict[str, dict[str, Any]],
    job: dict[str, Any],
    left_s: float | None = None,
    set_up_s: float = 0.0,
) -> Iterator[tuple[Gpus, Amounts, float]]:
    profile, work_s = job.get("profile", {}), job["duration_s"] if left_s is None else left_s
    for gpu_type in sorted({node["gpu_type"] for node in nodes.values()}):
        names = [name for name, node in nodes.items() if node["gpu_type"] == gpu_type]
        for counts in product(*(range(nodes[name]["gpus"] + 1) for name in names)):
            gpus = {name: n for name, n in zip(names, counts, strict=True) if n}
            rate = _rate(nodes, profile, gpus) if gpus else 0.0
            if sum(counts) != job.get("gpus", 1) or rate <= 0:
                continue
            for mode in _modes(profile):
                takes, faster = _takes(job, mode, gpus), _by_choice(profile, mode)
                of_each = mode.get("gpu_memory_gib", profile.get("gpu_memory_gib", 0.0))
                if faster > 0 and all(
                    of_each <= nodes[name].get("gpu_memory_gib", math.inf)
                    and takes["cpus", name] <= nodes[name].get("cpus", math.inf)
                    and takes["memory_gib", name] <= nodes[name].get("memory_gib", math.inf)
                    for name in gpus
                ):
                    length_s = work_s / (rate * faster)
                    yield gpus, takes, profile.get("startup_s", 0.0) + set_up_s + length_s


def _modes(profile: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield cores and memory for each GPU with which a job may start."""
    for cores, gib, gpu_gib in product(
        profile.get("cpus_per_gpu") or [0],
        [None, *profile.get("memory_rates", ())],
        [None, *profile.get("gpu_memory_rates", ())],
    ):
        mode = {"cpus_per_gpu": int(cores)}
        yield (
            mode
            | ({} if gib is None else {"memory_gib_per_gpu": float(gib)})
            | ({} if gpu_gib is None else {"gpu_memory_gib": float(gpu_gib)})
        )


def _takes(job: dict[str, Any], mode: dict[str, Any], gpus: Gpus) -> Amounts:
    asked = job.get("profile", {}).get("memory_gib_per_gpu", 0.0)
    takes: Amounts = dict(job.get("resources", {}))
    for name, count in gpus.items():
        takes["cpus", name] = mode.get("cpus_per_gpu", 0) * count
        takes["memory_gib", name] = mode.get("memory_gib_per_gpu", asked) * count
    takes |= {(QUOTA, name): sum(gpus.values()) for name in job[QUOTA]}
    return takes


def _by_choice(profile: dict[str, Any], mode: dict[str, Any]) -> float:
    """Return the rate by cores and host memory, of which the scarcer counts, and by GPU memory."""

    def at(table: str, amount: float | None) -> float:
        known = {float(key): float(rate) for key, rate in profile.get(table, {}).items()}
        return math.inf if amount is None or not known else known[amount]

    by_cores = min(at("cpus_per_gpu", mode.get("cpus_per_gpu")), 1e9)
    by_cores = 1.0 if not profile.get("cpus_per_gpu") else by_cores
    by_host = min(by_cores, at("memory_rates", mode.get("memory_gib_per_gpu")))
    return by_host * min(1.0, at("gpu_memory_rates", mode.get("gpu_memory_gib")))


def _rate(nodes: dict[str, dict[str, Any]], profile: dict[str, Any], gpus: Gpus) -> float:
    rates = profile.get("rate", {})
    types = {nodes[name]["gpu_type"] for name in gpus}
    racks = {nodes[name].get("rack") for name in gpus}
    by_type = min(rates.get(gpu_type, 0.0) if rates else 1.0 for gpu_type in types)
    levels = ["node", "rack", "cluster"]
    reached = 0 if len(gpus) == 1 else 1 if len(racks) == 1 and None not in racks else 2
    table = profile.get("locality", {})
    return by_type * next((table[k] for k in levels[reached::-1] if k in table), 1.0)


def _know(data: dict[str, Any]) -> None:
    """Check that the file has no field that is not looked at."""
    profiles = [job["profile"] for job in data["jobs"] if "profile" in job]
    for kind, objects in (
        ("file", [data]),
        ("cluster", [data["cluster"]]),
        ("window", data["cluster"].get("windows", [])),
        ("node", data["cluster"]["nodes"]),
        ("tenant", data.get("tenants", [])),
        ("job", data["jobs"]),
        ("profile", profiles),
        ("running", data.get("running", [])),
    ):
        for entry in objects:
            if unknown := set(entry) - FIELDS[kind]:
                raise ValueError(f"the oracle does not know {sorted(unknown)} of a {kind}")
