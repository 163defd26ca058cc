"""Certificates of prices of gangs: those that the search makes pass, none proves more than the best
plan of the class has, and false ones are refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from optsched.cli import main
from optsched.engine import solve
from optsched.errors import InputError
from optsched.files import dump_instance
from optsched.files.certificate import Certificate, dump_certificate, load_certificate
from optsched.model.cluster import Cluster, Node, Window
from optsched.model.instance import Instance, Running, Slot
from optsched.model.job import Job, Mode
from optsched.model.profile import Profile
from optsched.objectives import parse
from optsched.plugins.solver import Report, Request
from optsched.verify_bound import recomputed
from optsched_solvers.scheduling.gangs import GangBound
from optsched_solvers.scheduling.lagrange import PriceBound, grid
from optsched_solvers.scheduling.problem import Problem
from optsched_solvers.scheduling.schedule_generation import generate
from tests.oracles import brute_force, tiny

RANDOM = settings(max_examples=40)
WCT = parse("wct")


def made(instance: Instance, steps: int, seed: int | None = None) -> Certificate | None:
    """The certificate of prices after some steps, with a seed each of them changed a little; None
    where there is no plan, nobody takes GPUs, or pairs share them."""
    problem = Problem(instance, WCT)
    if problem.partner or not instance.cluster.total_gpus:
        return None
    schedule = generate(problem, [a.shortest_s for a in problem.activities])
    if schedule is None:
        return None
    by_gpu = PriceBound(problem, grid(problem, schedule, 12))
    gangs = GangBound(problem, by_gpu.grid_s)
    done = iter(k / steps for k in range(steps + 1))
    ascent = gangs.ascend_from(by_gpu.start_prices(schedule), lambda: next(done))
    _, prices = max(ascent, key=itemgetter(0))
    if seed is not None:
        prices = prices * np.random.default_rng(seed).uniform(0.9, 1.1, prices.shape)
    return gangs.certificate(prices)


@RANDOM
@given(tiny.instances(most_jobs=3, most_nodes=2), st.integers(0, 99))
def test_what_is_made_passes_and_proves_no_more_than_the_best_plan_has(
    instance: Instance, seed: int
) -> None:
    best, certificate = brute_force.optimum(instance, WCT), made(instance, 20, seed)
    assume(best is not None and certificate is not None)
    assert best is not None and certificate is not None
    value, wrong = recomputed(instance, load_certificate(dump_certificate(certificate)))
    assert not wrong and value is not None
    assert value == pytest.approx(certificate.value, rel=1e-6, abs=1e-6)
    assert value <= best[0][0] + 1e-6 * max(1.0, abs(best[0][0]))
    event(f"tight: {value >= best[0][0] * 0.99}")


def busy() -> Instance:
    """Gangs on two types, one that runs on both, one that would lose work, and a window."""
    jobs = {"all": (4, 20.0), "half": (2, 15.0), "long": (1, 60.0), "both": (2, 9.0)}
    profile = Profile(
        rate={"a": 1.0, "b": 0.5}, startup_s=1.0, restore_s=2.0, checkpoint_every_s=4.0
    )
    return Instance(
        now_s=10.0,
        cluster=Cluster(
            nodes=(Node(name="a", gpu_type="a", gpus=4), Node(name="b", gpu_type="b", gpus=3)),
            windows=(Window(nodes=("b",), from_s=30.0, to_s=50.0),),
        ),
        jobs=tuple(
            Job(id=name, gpus=gpus, duration_s=length_s, weight=1.0 + gpus, profile=profile)
            for name, (gpus, length_s) in jobs.items()
        ),
        running=(
            Running(
                job="long",
                mode=Mode(gpu_type="a", gpus=1),
                placement=(Slot(node="a", gpus=1),),
                started_s=3.0,
                remaining_s=53.0,
            ),
            Running(
                job="both",
                mode=Mode(gpus=2),
                placement=(Slot(node="a", gpus=1), Slot(node="b", gpus=1)),
                started_s=10.0,
                remaining_s=9.0,
            ),
        ),
    )


@pytest.mark.parametrize("every_s", [4.0, None])
def test_saving_lost_work_windows_and_gangs_on_several_types_count(every_s: float | None) -> None:
    """At prices that are nowhere 0 the two halves of the proof say the same."""
    jobs = tuple(
        replace(job, profile=replace(job.profile, checkpoint_every_s=every_s, checkpoint_s=3.0))
        for job in busy().jobs
    )
    instance = replace(busy(), jobs=jobs)
    gangs = GangBound(Problem(instance, WCT), np.array([0.0, 2.0, 7.0, 20.0, 33.0, 40.0, 60.0]))
    certificate = gangs.certificate(np.random.default_rng(0).uniform(0, 12, (len(gangs.gangs), 6)))
    assert certificate is not None
    value, wrong = recomputed(instance, certificate)
    assert not wrong and value == pytest.approx(certificate.value, rel=1e-8)


def test_what_a_unix_clock_rounds_is_taken_off() -> None:
    """An instant of now is known to a quarter of a microsecond only."""
    shift_s = 1.7e9 + 0.1
    jobs = tuple(
        replace(job, submit_s=shift_s + job.submit_s, duration_s=(job.duration_s or 0) / 30)
        for job in busy().jobs
        if job.id in ("all", "half")
    )
    cluster = replace(busy().cluster, windows=())
    instance = replace(busy(), now_s=shift_s, cluster=cluster, jobs=jobs, running=())
    gangs = GangBound(Problem(instance, WCT), np.array([0.0, 0.7, 1.7, 2.9]))
    for seed in range(40):
        prices = np.random.default_rng(seed).uniform(0, 12, (len(gangs.gangs), 3))
        certificate = gangs.certificate(prices)
        assert certificate is not None
        assert not recomputed(instance, certificate)[1]


def more(row: dict[str, Any], factor: float) -> None:
    row["per_s"] = [factor * own for own in row["per_s"]]


FALSE = {
    "a larger value": lambda file: file.update(value=file["value"] * (1 + 1e-6)),
    "no prices of a job": lambda file: file.update(gangs=file["gangs"][1:]),
    "prices too high": lambda file: [more(row, 2.0) for row in file["gangs"]],
    "prices too low": lambda file: [more(row, 0.5) for row in file["gangs"]],
    "gangs smaller than they are": lambda file: [row.update(gpus=1) for row in file["gangs"]],
    "a shorter grid": lambda file: file.update(grid_s=[t / 2 for t in file["grid_s"]]),
    "another instance": lambda file: file["instance"].update(hash="0" * 64),
    "another type": lambda file: file["gangs"][0].update(gpu_type="c"),
    "another job": lambda file: file["gangs"][0].update(job="nobody"),
    "a row twice": lambda file: file["gangs"].append(file["gangs"][0]),
    "a row too short": lambda file: file["gangs"][0]["per_s"].pop(),
    "a negative price": lambda file: more(file["gangs"][0], -1.0),
    "prices of GPUs beside": lambda file: file.update(
        prices=[{"gpu_type": own, "per_gpu_s": [0] * (len(file["grid_s"]) - 1)} for own in "ab"]
    ),
    "another objective": lambda file: file.update(objective="makespan"),
    "attempts that fail": lambda file: file.update(replay=True),
    "beyond what floats hold": lambda file: [more(row, 1e308) for row in file["gangs"]],
}


@pytest.mark.parametrize("kind", FALSE)
def test_false_certificates_are_refused(kind: str) -> None:
    certificate = made(busy(), 150)
    assert certificate is not None
    file = json.loads(dump_certificate(certificate))
    FALSE[kind](file)
    try:
        read = load_certificate(json.dumps(file))
    except InputError:
        return
    assert recomputed(busy(), read)[1]


def test_it_proves_nothing_where_jobs_share_gpus() -> None:
    certificate, instance = made(busy(), 150), busy()
    assert certificate is not None
    mode = replace(instance.running[0].mode, share_with="both")
    shared = replace(instance, running=(replace(instance.running[0], mode=mode),))
    value, wrong = recomputed(shared, certificate)
    assert value is None and "shared" in wrong[-1]


def test_solve_writes_what_verify_bound_accepts(tmp_path: Path) -> None:
    source, target = tmp_path / "i.json", tmp_path / "c.json"
    source.write_text(dump_instance(busy()))
    asked = ["solve", str(source), "--solver", "cpsat", "--workers", "1", "--time-limit", "20"]
    solved = CliRunner().invoke(main, [*asked, "--certificate", str(target)])
    assert solved.exit_code == 0 and f"certificate: {target}" in solved.output
    checked = CliRunner().invoke(main, ["verify-bound", str(source), str(target)])
    assert checked.exit_code == 0 and "no plan of the plan class has" in checked.output


def test_solve_says_why_there_is_no_certificate(tmp_path: Path) -> None:
    source, target = tmp_path / "i.json", tmp_path / "c.json"
    source.write_text(dump_instance(tiny.single_gpu([2.0, 3.0])))
    solved = CliRunner().invoke(main, ["solve", str(source), "--certificate", str(target)])
    assert solved.exit_code == 0 and "there is no certificate" in solved.output
    assert not target.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text, None),
        (lambda text: text.replace('"value": ', '"value": 9'), "the check of bounds says that its"),
        (lambda text: text[:99], "a certificate cannot be read"),
    ],
)
def test_the_engine_passes_on_what_the_check_accepts(
    change: Callable[[str], str], said: str | None
) -> None:
    certificate, given = made(busy(), 150), []
    assert certificate is not None

    class Certifier:
        name, title, needs, guarantee = "certifier", "", (), "bound"

        def supports(self, *_: object) -> None:
            return None

        def solve(self, request: Request, report: Report) -> None:
            assert request.certify and certificate is not None
            report.certificate(change(dump_certificate(certificate)))

    solution = solve(busy(), solver=Certifier(), isolate=False, on_certificate=given.append)
    assert given == ([certificate] if said is None else [])
    assert said is None or any(said in note for note in solution.notes)
