"""What solvers call optimal, and what they prove, against an exhaustive search that shares nothing
with the package."""

import ast
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import optsched as opt
from optsched.engine import solve
from tests.oracles import exhaustive

GOALS = ("wct", "makespan", "tardiness", "deadline", "flow2")
TICK_GAP = 1e-5
"""Squares are straight between ticks: where no tick is where a job ends, this is left to prove."""
LOCALITY = ({}, {"rack": 0.5}, {"rack": 0.8, "cluster": 0.5}, {"cluster": 0.5})


def test_it_imports_nothing_of_the_package() -> None:
    tree = ast.parse(Path(exhaustive.__file__).read_text(encoding="utf-8"))
    roots = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not roots & {"optsched", "optsched_solvers", "tests"}


def random_file(rng: random.Random) -> dict[str, Any]:
    """Return a random instance as it is in a file; each job fits somewhere."""
    nodes = [
        {"name": f"n{i}", "gpu_type": rng.choice("ab"), "gpus": rng.randint(1, 3)}
        | rng.choice(({}, {"rack": "r"}))
        for i in range(rng.randint(1, 3))
    ]
    free = {node["name"]: node["gpus"] for node in nodes}
    jobs, running = [], []
    for k in range(rng.randint(2, 4)):
        node = rng.choice(nodes)
        gpu_type = node["gpu_type"]
        gpus = rng.randint(1, sum(n["gpus"] for n in nodes if n["gpu_type"] == gpu_type))
        duration_s = float(rng.randint(1, 9))
        rate = rng.choice(({}, {gpu_type: 1.0}, {"a": 1.0, "b": 0.5}, {"a": 0.5, "b": 2.0}))
        job = {
            "id": f"j{k}",
            "submit_s": rng.choice((0.0, 0.0, 0.0, 2.0, 5.0)),
            "weight": rng.choice((1.0, 1.0, 2.0, 3.0)),
            "gpus": gpus,
            "duration_s": duration_s,
            "profile": {
                "rate": rate,
                "locality": rng.choice(LOCALITY),
                "startup_s": rng.choice((0.0, 1.0)),
                "restore_s": rng.choice((0.0, 1.0)),
                "checkpoint_s": rng.choice((0.0, 1.0, 2.0)),
            },
        }
        if rng.random() < 0.5:
            job["deadline_s"] = float(rng.randint(3, 15))
        if gpus <= free[node["name"]] and rng.random() < 0.5:
            free[node["name"]] -= gpus
            job["submit_s"] = -2.0
            running.append(
                {
                    "job": job["id"],
                    "mode": {"gpu_type": gpu_type, "gpus": gpus},
                    "placement": [{"node": node["name"], "gpus": gpus}],
                    "started_s": -2.0,
                    "remaining_s": duration_s * rng.choice((0.5, 1.0)),
                }
            )
        elif jobs and rng.random() < 0.2:
            job["after"] = [rng.choice(jobs)["id"]]
        jobs.append(job)
    return {"format": "optsched/1", "cluster": {"nodes": nodes}, "jobs": jobs, "running": running}


def with_windows(rng: random.Random, data: dict[str, Any]) -> dict[str, Any]:
    """Add one to three windows, some for the user of some jobs, some of less of a resource that
    some jobs hold; some jobs cannot be preempted."""
    nodes = [node["name"] for node in data["cluster"]["nodes"]]
    data["cluster"]["resources"] = {"licence": 2.0}
    windows = data["cluster"]["windows"] = []
    for _ in range(rng.randint(1, 3)):
        from_s = rng.choice((-2.0, 0.0, 1.0, 3.0, 4.5, 8.0))
        window = {
            "nodes": rng.sample(nodes, rng.randint(0, len(nodes))),
            "from_s": from_s,
            "to_s": from_s + rng.choice((1.0, 2.5, 6.0)),
            "users": rng.choice(([], [], ["keeper"])),
            "resources": {"licence": rng.choice((0.0, 1.0))} if rng.random() < 0.4 else {},
        }
        windows += [window] if window["nodes"] or window["resources"] else []
    free, runs = 2.0, {entry["job"]: entry for entry in data["running"]}
    for job in data["jobs"]:
        if rng.random() < 0.3:
            job["user"] = "keeper"
        if rng.random() < 0.3:
            job["preemptible"] = False
        if rng.random() < 0.4 and (free or job["id"] not in runs):
            job["resources"] = {"licence": 1.0}
            if job["id"] in runs:
                runs[job["id"]]["mode"]["resources"] = {"licence": 1.0}
                free -= 1
    return data


def with_memory(rng: random.Random, data: dict[str, Any]) -> dict[str, Any]:
    """Give nodes cores and memory, and jobs that may take less of both; each still fits with the
    least, where it fits without."""
    for node in data["cluster"]["nodes"]:
        node |= {"cpus": 2 * node["gpus"], "memory_gib": rng.choice((4.0, 8.0)) * node["gpus"]}
        node["gpu_memory_gib"] = rng.choice((16.0, 32.0))
    runs = {entry["job"]: entry for entry in data["running"]}
    for job in data["jobs"]:
        job["profile"] |= {
            "cpus_per_gpu": rng.choice(({}, {"1": 0.5, "2": 1.0, "4": 1.5})),
            "memory_gib_per_gpu": rng.choice((6.0, 8.0, 12.0)),
            "memory_rates": rng.choice(({"4": 0.75}, {"2.5": 0.25, "4": 0.5}, {"4": 1.25})),
            "gpu_memory_gib": rng.choice((10.0, 24.0)),
        }
        if job["profile"]["gpu_memory_gib"] > 16:
            job["profile"]["gpu_memory_rates"] = rng.choice(({"12": 0.5, "16": 0.8}, {"9.5": 0.7}))
        if job["id"] in runs:
            mode = runs[job["id"]]["mode"]
            mode |= {
                "memory_gib_per_gpu": 4,
                "cpus_per_gpu": len(job["profile"]["cpus_per_gpu"]) // 3,
            }
            if job["profile"]["gpu_memory_gib"] > 16:
                mode["gpu_memory_gib"] = float(min(job["profile"]["gpu_memory_rates"]))
            for slot in runs[job["id"]]["placement"]:
                slot["cpus"] = slot["gpus"] * mode["cpus_per_gpu"]
    return data


def with_quotas(rng: random.Random, data: dict[str, Any]) -> dict[str, Any]:
    """Add a tenant with two parts, of which one has a part of its own; what each holds now and any
    of its jobs fits every quota over it."""
    parents = {"all": None, "left": "all", "right": "all", "inner": "left"}
    runs = {entry["job"] for entry in data["running"]}
    for job in data["jobs"]:
        job["tenant"] = rng.choice(["all", "left", "right", "inner", "inner"])
    tenants = data["tenants"] = []
    for name, parent in parents.items():
        within = {name} | {below for below, above in parents.items() if above == name}
        within |= {below for below, above in parents.items() if above in within}
        own = [job for job in data["jobs"] if job["tenant"] in within]
        held = sum(job["gpus"] for job in own if job["id"] in runs)
        least = max([held, *(job["gpus"] for job in own)], default=1)
        quota = {"gpu_quota": least + rng.choice((0, 0, 1))} if rng.random() < 0.8 else {}
        tenants.append({"name": name} | quota | ({} if parent is None else {"parent": parent}))
    for window in data["cluster"].get("windows", ()):
        window["quotas"] = {
            own["name"]: rng.randint(0, own["gpu_quota"])
            for own in tenants
            if "gpu_quota" in own and rng.random() < 0.5
        }
    return data


def is_proved(
    seed: int,
    solver: str,
    folder: Path,
    windows: bool = False,
    change: Callable[[random.Random, dict[str, Any]], dict[str, Any]] | None = None,
) -> bool | None:
    """Return whether a solver proves its plan, None where it cannot plan the random instance; check
    whatever it says of it."""
    rng = random.Random(seed)
    path = folder / f"{seed}.json"
    data = with_windows(rng, random_file(rng)) if windows else random_file(rng)
    if change is not None:
        data = change(rng, data)
    path.write_text(json.dumps(data), encoding="utf-8")
    goal, said = rng.choice(GOALS), path.read_text(encoding="utf-8")
    least = exhaustive.least(path, goal)
    slack = 1e-6 * (1 + abs(least))
    solution = solve(opt.read_instance(path), goal, solver=solver, time_limit_s=8, isolate=False)
    for bound in opt.bound(opt.read_instance(path), objective=goal):
        assert bound.value <= least + slack, (bound, said)
    if windows and "not all of them can save in time" in (solution.fallback or ""):
        return None
    assert solution.value is not None and solution.bound is not None, said
    assert solution.bound - slack <= least <= solution.value + slack, said
    assert solution.status != "optimal" or solution.value <= least + slack, said
    is_near = goal == "flow2" and solution.gap is not None and solution.gap < TICK_GAP
    return is_near or solution.status == "optimal"


@pytest.mark.parametrize("solver", ["cpsat", "milp"])
def test_a_hundred_instances(solver: str, tmp_path: Path) -> None:
    seeds = range(80) if solver == "cpsat" else range(80, 100)
    assert sum(is_proved(seed, solver, tmp_path) for seed in seeds) >= len(seeds) - 2


def test_sixty_instances_with_windows(tmp_path: Path) -> None:
    proved = [is_proved(seed, "cpsat", tmp_path, windows=True) for seed in range(60)]
    assert proved.count(False) <= 2 and proved.count(None) <= 6


def test_instances_with_memory(tmp_path: Path) -> None:
    assert sum(is_proved(seed, "cpsat", tmp_path, change=with_memory) for seed in range(20)) >= 18


def test_instances_with_quotas_within_quotas(tmp_path: Path) -> None:
    assert sum(is_proved(seed, "cpsat", tmp_path, change=with_quotas) for seed in range(14)) >= 13
    for seed in range(20, 24):
        is_proved(seed, "milp", tmp_path, change=with_quotas)
    proved = [
        is_proved(seed, "cpsat", tmp_path, windows=True, change=with_quotas)
        for seed in range(50, 65)
    ]
    assert proved.count(True) >= 14


@pytest.mark.slow
def test_a_thousand_instances_with_quotas_within_quotas(tmp_path: Path) -> None:
    seeds = range(1000, 2000)
    proved = [is_proved(seed, "cpsat", tmp_path, change=with_quotas) for seed in seeds]
    assert sum(proved) >= 950
    for seed in range(2000, 2060):
        is_proved(seed, "milp", tmp_path, change=with_quotas)
    for seed in range(3000, 3500):
        is_proved(seed, "cpsat", tmp_path, windows=True, change=with_quotas)


@pytest.mark.slow
def test_a_thousand_instances_with_memory(tmp_path: Path) -> None:
    seeds = range(1000, 2000)
    proved = [is_proved(seed, "cpsat", tmp_path, change=with_memory) for seed in seeds]
    assert sum(proved) >= 950
    for seed in range(2000, 2060):
        is_proved(seed, "milp", tmp_path, change=with_memory)


HEAVY = 1e5
"""More than all jobs of weight 1 to 3 can cost, for each quarter of a second."""


def least_by_priority(data: dict[str, Any], folder: Path) -> tuple[float, float]:
    """Return the least `wct` of the jobs of priority 1, and then of all, by weights alone."""

    def weighted(high: float, low: float) -> float:
        path = folder / f"{high}-{low}.json"
        jobs = [
            {**job, "weight": job["weight"] * (high if job["priority"] else low)}
            for job in data["jobs"]
        ]
        for job in jobs:
            del job["priority"]  # the oracle knows none
        path.write_text(json.dumps(data | {"jobs": jobs}), encoding="utf-8")
        return exhaustive.least(path, "wct")

    first = weighted(1.0, 0.0)
    return first, weighted(HEAVY, 1.0) - (HEAVY - 1.0) * first


@pytest.mark.parametrize("solver", ["cpsat", "milp"])
def test_priorities_are_strict(solver: str, tmp_path: Path) -> None:
    proved = 0
    for seed in range(24) if solver == "cpsat" else range(24, 30):
        rng = random.Random(seed)
        data, path = random_file(rng), tmp_path / "instance.json"
        for k, job in enumerate(data["jobs"]):
            job["priority"] = k % 2
        path.write_text(json.dumps(data), encoding="utf-8")
        solution = solve(opt.read_instance(path), solver=solver, time_limit_s=8, isolate=False)
        assert [level.name for level in solution.levels] == ["wct@1", "wct"]
        for level, best in zip(solution.levels, least_by_priority(data, tmp_path), strict=True):
            assert level.value is not None and level.bound is not None
            slack = 1e-3 + 1e-6 * best
            assert level.bound <= best + slack, data
            if solution.status == "optimal":
                assert level.value == pytest.approx(best, abs=slack), data
        proved += solution.status == "optimal"
    assert proved >= (22 if solver == "cpsat" else 5)


@pytest.mark.slow
def test_a_thousand_instances_with_windows(tmp_path: Path) -> None:
    proved = [is_proved(seed, "cpsat", tmp_path, windows=True) for seed in range(1000, 2000)]
    assert proved.count(False) <= 20 and proved.count(None) <= 100


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["cpsat", "milp"])
def test_a_thousand_instances(solver: str, tmp_path: Path) -> None:
    seeds = range(1000, 2000)
    assert sum(is_proved(seed, solver, tmp_path) for seed in seeds) >= 960
