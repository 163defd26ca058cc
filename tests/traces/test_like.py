"""Workloads fitted to published clusters: sound, seeded, and as close to the real traces as the
page says."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import files
from optsched.cli import generate as command
from optsched.errors import InputError
from optsched.model.instance import Instance
from optsched.physics.catalogue import catalogue_of
from optsched.physics.unschedulable import why_never
from optsched.traces.clusters import cluster_of
from optsched.traces.generate.like import MODELS, generate, offered_load
from optsched.traces.generate.like.arrivals import DAY_S, HOUR_S, relative_gaps, submit_times
from optsched.traces.generate.like.columns import of_instance, of_trace
from optsched.traces.generate.like.distribution import lognormal, quantiles
from optsched.traces.generate.like.failures import failing_attempts
from optsched.traces.generate.like.fit import distances, kolmogorov_smirnov, total_variation, totals
from optsched.traces.generate.like.model import HOURS
from optsched.traces.generate.like.nodes import scaled
from optsched.traces.profiles.attach import attach
from tests.data import DATA, needs_data

KINDS = list(MODELS)
FAILING = MODELS["philly"].failing
CAUSES = FAILING.causes
ROOMY = 6400


@pytest.fixture(scope="module")
def workload() -> Any:
    """One workload of 20,000 jobs of each kind, made once."""
    made: dict[str, Instance] = {}

    def of(kind: str) -> Instance:
        if kind not in made:
            made[kind] = generate(kind, jobs=20_000, gpus=ROOMY, seed=1)
        return made[kind]

    return of


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(command.command, [str(argument) for argument in arguments])


# ------------------------------------------------------------------------------------------------
# the instance


@settings(max_examples=25)
@given(
    kind=st.sampled_from(KINDS),
    jobs=st.integers(1, 80),
    gpus=st.integers(1, 400),
    seed=st.integers(0, 2**63),
    load=st.none() | st.floats(0.1, 3),
    failures=st.booleans(),
    overheads=st.booleans(),
    quotas=st.booleans(),
)
def test_every_instance_is_sound(kind: str, **arguments: Any) -> None:
    """It can be written and read, every job can run, failures leave work to do, submissions
    ascend."""
    instance = generate(kind, **arguments)
    assert files.load_instance(files.dump_instance(instance)) == instance
    assert (
        len(instance.jobs) == arguments["jobs"] and instance.cluster.total_gpus == arguments["gpus"]
    )
    assert [why for job in instance.jobs if (why := why_never(catalogue_of(instance), job))] == []
    submitted = [job.submit_s for job in instance.jobs]
    assert submitted == sorted(submitted) and submitted[0] >= 0
    assert bool(instance.failures) <= arguments["failures"]
    if not arguments["overheads"]:
        profiles = [job.profile for job in instance.jobs]
        assert {one.restore_s + one.checkpoint_s + one.startup_s for one in profiles} == {0}


@pytest.mark.parametrize("kind", KINDS)
def test_same_arguments_same_bytes(kind: str) -> None:
    first, again, other = (
        files.dump_instance(generate(kind, jobs=300, gpus=256, seed=seed)) for seed in (7, 7, 8)
    )
    assert first == again
    assert first.replace("seed-7", "seed-8") != other


@pytest.mark.parametrize("kind", KINDS)
def test_options_change_nothing_else(kind: str) -> None:
    plain = generate(kind, jobs=400, gpus=512, seed=3)
    for other in (
        generate(kind, jobs=400, gpus=512, seed=3, failures=False),
        generate(kind, jobs=400, gpus=512, seed=3, load=0.7),
        generate(kind, jobs=400, gpus=512, seed=3, quotas=True),
    ):
        assert [replace(job, submit_s=0) for job in other.jobs] == [
            replace(job, submit_s=0) for job in plain.jobs
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_load_and_days(kind: str) -> None:
    """The span is solved for the load; submissions are whole seconds, so it is met to within one of
    them."""
    made = generate(kind, jobs=2000, gpus=512, seed=2, load=0.95)
    assert offered_load(made) == pytest.approx(0.95, rel=2 / made.jobs[-1].submit_s + 1e-9)
    assert generate(kind, jobs=2000, gpus=512, seed=2, days=3.5).jobs[-1].submit_s == 3.5 * DAY_S


def test_offered_load_by_hand() -> None:
    made = generate("acme", jobs=50, gpus=64, seed=0, failures=False, days=2)
    work = sum(job.gpus * job.work_s for job in made.jobs if isinstance(job.gpus, int))
    assert offered_load(made) == pytest.approx(work / (64 * 2 * DAY_S))
    assert (
        offered_load(replace(made, jobs=tuple(replace(job, submit_s=0.0) for job in made.jobs)))
        is None
    )


@pytest.mark.parametrize("kind", KINDS)
def test_profiles_are_those_of_attach(kind: str) -> None:
    """As if the jobs came from a trace: what the model says stripped to its own, then attached
    again."""
    made = generate(kind, jobs=500, gpus=512, seed=4)
    own = {row.kind: row.profile for row in MODELS[kind].rows}
    if kind == "openb":  # its rows differ in what they ask for
        assert all(
            job.profile.cpus_per_gpu and job.profile.memory_gib_per_gpu
            for job in made.jobs
            if job.gpus
        )
        return
    bare = replace(
        made,
        jobs=tuple(
            replace(job, profile=own[(job.command or "").rpartition("-")[0]]) for job in made.jobs
        ),
    )
    assert [job.profile.name for job in attach(bare, 4).jobs] == [
        job.profile.name for job in made.jobs
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gpus", [1, 7, 64, 1000, 5000])
def test_nodes_in_proportion(kind: str, gpus: int) -> None:
    model = MODELS[kind]
    cluster = scaled(model, gpus)
    assert cluster.total_gpus == gpus
    if gpus >= 1000:
        for gpu_type in {node.gpu_type for node in model.nodes if node.gpus}:
            share = (
                sum(node.count * node.gpus for node in model.nodes if node.gpu_type == gpu_type)
                / model.gpus
            )
            have = (
                sum(node.gpus for node in cluster.nodes if node.gpu_type == gpu_type)
                / cluster.total_gpus
            )
            assert abs(share - have) < 0.02
    assert max(Counter(node.rack for node in cluster.nodes).values()) <= 8


def test_the_real_size_gives_the_real_nodes() -> None:
    nodes = scaled(MODELS["philly"], 2490).nodes
    assert Counter((node.gpu_type, node.gpus) for node in nodes) == {
        ("p100", 8): 231,
        ("k80", 2): 321,
    }


def test_another_cluster() -> None:
    made = generate("philly", jobs=200, cluster=cluster_of("v100=64,p100=32", 8), seed=1, load=0.9)
    assert made.cluster.total_gpus == 96 and offered_load(made) == pytest.approx(0.9, rel=1e-3)


def test_quotas_follow_the_virtual_clusters() -> None:
    made = generate("philly", jobs=500, gpus=2490, seed=1, quotas=True)
    quota = {tenant.name: tenant.gpu_quota or 0 for tenant in made.tenants}
    assert quota["6214e9"] == quota["b436b2"] == -(-64 * 2490 // 352)
    assert all(
        isinstance(job.gpus, int) and job.gpus <= quota[job.tenant or ""] for job in made.jobs
    )
    assert all(tenant.gpu_quota is None for tenant in generate("philly", jobs=5, gpus=64).tenants)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"jobs": 0}, "jobs must be"),
        ({"gpus": 0}, "gpus must be"),
        ({"seed": -1}, "seed must be"),
        ({"load": 0.0}, "load must be"),
        ({"load": float("nan")}, "load must be"),
        ({"days": 0.0}, "days must be"),
        ({"days": float("inf")}, "days must be"),
        ({"load": 1.0, "days": 1.0}, "not be given together"),
        ({"gpus": None}, "either gpus or a cluster"),
        ({"jobs": 900_000, "gpus": 1}, "would arrive over"),
    ],
)
def test_arguments_out_of_range(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        generate("philly", **{"jobs": 5, "gpus": 8, **wrong})


def test_unknown_kind_and_a_cluster_without_gpus() -> None:
    with pytest.raises(InputError, match="there are philly, helios, acme, openb"):
        generate("titan", jobs=5, gpus=8)
    bare = replace(cluster_of("v100=8", 8), nodes=())
    with pytest.raises(InputError, match="has no GPUs"):
        generate("philly", jobs=5, cluster=bare)


# ------------------------------------------------------------------------------------------------
# the marginals


@pytest.mark.parametrize("kind", KINDS)
def test_published_totals_come_out(kind: str, workload: Any) -> None:
    """Means of heavy tails vary from seed to seed; shares and medians hardly."""
    for name, published, found in totals(MODELS[kind], workload(kind)):
        if "users" in name:
            # the fewer jobs, the more of the GPU time is a few users': 0.87 here, 0.67 of 100,000
            # jobs
            continue
        loose = 0.35 if "run time" in name or "GPU-seconds" in name else 0.12
        assert found == pytest.approx(published, rel=0.06 if "median" in name else loose), name


@pytest.mark.parametrize("kind", KINDS)
def test_some_users_submit_most(kind: str, workload: Any) -> None:
    jobs = sorted(of_instance(workload(kind)).users.values(), reverse=True)
    assert len(jobs) <= MODELS[kind].users * 1.02
    assert 0.3 < sum(jobs[: round(MODELS[kind].users / 20)]) / 20_000 < 0.6


@pytest.mark.parametrize("kind", KINDS)
def test_gang_shares_come_out(kind: str, workload: Any) -> None:
    rows, jobs = MODELS[kind].rows, workload(kind).jobs
    largest = max(Counter(job.command for job in jobs).values())
    wanted: Counter[int] = Counter()
    for row in rows:
        wanted[row.gpus] += row.share  # type: ignore[assignment]
    found = Counter(job.gpus for job in jobs)
    for gpus, share in wanted.items():
        assert abs(found[gpus] - share / sum(wanted.values()) * len(jobs)) <= max(
            2, 0.02 * largest
        ), gpus


@needs_data("philly")
def test_philly_against_its_trace(workload: Any) -> None:
    found = compare("philly", workload)
    assert found.pop("interval / mean interval") < 0.16  # busy and quiet days are drawn anew
    assert found.pop("weekday") < 0.25
    assert found.pop("hour of the day") < 0.16
    assert found.pop("causes of failures") < 0.13
    assert max(found.values()) < 0.05, found


@needs_data("alibaba_openb")
def test_openb_against_its_trace(workload: Any) -> None:
    found = compare("openb", workload)
    assert (
        found.pop("run time, 2 to 4 GPUs") < 0.3 and found.pop("run time, 5 to 8 GPUs") < 0.25
    )  # of 30 and 44 pods
    assert max(found.values()) < 0.08, found


@needs_data("helios_acme")
def test_helios_against_the_demand_of_earth(workload: Any) -> None:
    found = compare("helios", workload)
    assert found["hour of the day"] < 0.25


def compare(kind: str, workload: Any) -> dict[str, float]:
    real = of_trace(kind, DATA)
    assert real is not None
    return {
        one.marginal: one.value
        for one in distances(MODELS[kind], of_instance(workload(kind)), real)
    }


def test_a_command_runs_alike(workload: Any) -> None:
    """One gang, one user, one virtual cluster; logarithms of run times vary less within commands
    than between."""
    by_command: dict[str, list[Any]] = {}
    for job in workload("philly").jobs:
        by_command.setdefault(job.command, []).append(job)
    for jobs in by_command.values():
        assert len({(job.gpus, job.user, job.tenant, job.profile.name) for job in jobs}) == 1
    spreads = [
        np.var(np.log([job.work_s for job in jobs]))
        for jobs in by_command.values()
        if len(jobs) >= 5
    ]
    assert np.mean(spreads) < 0.5 * np.var(np.log([job.work_s for job in workload("philly").jobs]))
    recurring = sum(len(jobs) for jobs in by_command.values() if len(jobs) >= 5) / 20_000
    assert 0.5 < recurring < 0.9


def test_bursts_and_the_hours_of_the_day() -> None:
    """Intervals vary more than exponential ones and come in bursts; hours follow the rhythm once
    days are alike."""
    rhythm = replace(MODELS["philly"].rhythm, day_spread=0.0)
    gap_rng, day_rng = np.random.default_rng(0).spawn(2)
    gaps = relative_gaps(rhythm, 60_000, gap_rng)
    assert gaps.mean() == pytest.approx(1) and gaps.std() > 2
    ranks = np.argsort(np.argsort(gaps))
    assert np.corrcoef(ranks[1:], ranks[:-1])[0, 1] == pytest.approx(rhythm.gap_burst, abs=0.1)
    submit_s = submit_times(rhythm, gaps, 70 * DAY_S, day_rng)
    assert submit_s[-1] == 70 * DAY_S and (np.diff(submit_s) >= 0).all()
    hours = np.bincount((submit_s // HOUR_S).astype(int) % HOURS, minlength=HOURS) / len(submit_s)
    assert np.abs(hours - np.array(rhythm.hours) / sum(rhythm.hours)).sum() / 2 < 0.08


def test_lognormal_and_quantiles() -> None:
    level = (np.arange(20_000) + 0.5) / 20_000
    found = lognormal(100, 1.5, 1e9).at(level)
    assert np.median(found) == pytest.approx(100, rel=1e-3)
    assert found.mean() == pytest.approx(100 * np.exp(1.5**2 / 2), rel=0.02)
    assert quantiles((0, 0.5, 1), (1, 10, 1000)).at(np.array([0, 0.25, 0.75, 1])) == pytest.approx(
        [1, 10**0.5, 100, 1000]
    )


def test_distances_by_hand() -> None:
    assert kolmogorov_smirnov(np.array([1.0, 2.0]), np.array([1.0, 3.0])) == 0.5
    assert kolmogorov_smirnov(np.array([1.0, 2.0]), np.array([2.0, 1.0])) == 0
    assert total_variation({"a": 1, "b": 1}, {"a": 1, "c": 3}) == 0.75


# ------------------------------------------------------------------------------------------------
# failures


def test_the_table_of_failures_adds_up() -> None:
    assert sum(sum(cause.trials) for cause in CAUSES) == 39_776
    share = {cause.kind: sum(cause.trials) / 39_776 for cause in CAUSES}
    assert share["no signature"] == pytest.approx(0.042, abs=5e-4)
    level = (np.arange(20_000) + 0.5) / 20_000
    time = {
        cause.kind: sum(cause.trials) * float(cause.after_s.at(level).mean()) for cause in CAUSES
    }
    published = {
        "incorrect inputs": 0.3043,
        "model checkpoint error": 0.2173,
        "MPI runtime failure": 0.1463,
        "semantic error": 0.0922,
        "CPU out of memory": 0.0662,
    }
    for kind, value in published.items():
        assert time[kind] / sum(time.values()) == pytest.approx(value, abs=0.04), kind


def test_failures_fit_their_jobs(workload: Any) -> None:
    """No attempt outlasts its job; only causes of the machines keep work, in whole checkpoint
    periods."""
    for kind in KINDS:
        made = workload(kind)
        resumes = {cause.kind for cause in MODELS[kind].failing.causes if cause.resumes}
        for failure in made.failures:
            assert 1 <= failure.work_s <= made.job[failure.job].work_s
            assert failure.kept_s % 1800 == 0 and (failure.kept_s == 0 or failure.kind in resumes)
        assert len({failure.kind for failure in made.failures}) > 10
        assert "out of memory" in {failure.kind for failure in made.failures} or kind == "acme"


def test_failing_jobs_are_long_enough_for_their_time() -> None:
    """Where jobs run for ever the published percentiles of the run time to failure come out."""
    gpus, run_s = np.ones(200_000, dtype=np.int64), np.full(200_000, 1e9)
    found = failing_attempts(FAILING, gpus, run_s, np.random.default_rng(0))
    assert len({one.job for one in found}) / 200_000 == pytest.approx(FAILING.chance[0], rel=0.05)
    for cause in CAUSES[:5]:
        after = np.array([one.work_s for one in found if one.kind == cause.kind])
        for share in (0.5, 0.9):
            wanted = float(cause.after_s.at(np.array([share]))[0])
            level = float((after <= wanted).mean())
            assert level == pytest.approx(share, abs=0.05), cause.kind


# ------------------------------------------------------------------------------------------------
# command and page


def test_command(tmp_path: Path) -> None:
    output = tmp_path / "h.json.gz"
    result = run(
        "--like",
        "helios",
        "--jobs",
        40,
        "--gpus",
        64,
        "--seed",
        5,
        "--load",
        0.8,
        "--quotas",
        "--no-overheads",
        "--no-failures",
        "-o",
        output,
    )
    assert result.exit_code == 0, result.output
    wanted = generate(
        "helios", jobs=40, gpus=64, seed=5, load=0.8, quotas=True, overheads=False, failures=False
    )
    assert files.read_instance(output) == wanted
    assert (
        "offering 0.80 of what the GPUs can do" in result.stdout
        and f"wrote {output}" in result.stdout
    )


def test_command_speaks_json_and_takes_a_cluster() -> None:
    result = run("--jobs", 20, "--cluster", "v100=32", "--gpus-per-node", 4, "--days", 2, "--json")
    assert files.load_instance(result.stdout) == generate(
        "philly", jobs=20, cluster=cluster_of("v100=32", 4), days=2
    )
    said = json.loads(result.stderr)
    assert (said["instance"], said["nodes"], said["gpus"]) == (
        "philly-20-jobs-32-gpus-seed-0",
        8,
        32,
    )
    assert said["offered_load"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpus", 8, "--running", 0.2], "--running goes with --like mixed, llm, not with philly"),
        (["--gpus", 8, "--like", "llm", "--no-failures"], "--no-failures goes with --like philly"),
        (["--gpus", 8, "--load", 1, "--days", 1], "leave one out"),
        (["--gpus", 8, "--cluster", "v100=8"], "leave --gpus out"),
        (["--gpus", 8, "--gpus-per-node", 4], "--gpus-per-node goes with --cluster"),
        (["--cluster", "v100"], "expected GPUs by type"),
        ([], "Give --gpus G or --cluster SPEC"),
        (["--like", "mixed"], "Give --gpus G"),
        (["--gpus", 8, "--fit", "page.txt"], "ends in .html"),
    ],
)
def test_command_refuses(arguments: list[Any], said: str) -> None:
    result = run("--jobs", 5, *arguments)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


def test_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, the same each time, with and without the real trace; failures left out leave their
    pictures out."""
    pytest.importorskip("plotly")
    monkeypatch.delenv("OPTSCHED_DATA", raising=False)
    pages = []
    for name in ("one.html", "two.html"):
        result = run(
            "--jobs",
            300,
            "--gpus",
            256,
            "--no-failures",
            "-q",
            "-o",
            tmp_path / "w.json",
            "--fit",
            tmp_path / name,
        )
        assert result.exit_code == 0, result.output
        pages.append((tmp_path / name).read_text())
    assert pages[0] == pages[1]
    outside = pages[0].rpartition("</script>")[2]
    assert "the real trace is not there" in pages[0] and "Jobs by user" in pages[0]
    assert "Failures by cause" not in pages[0] and "<link" not in pages[0] and "src=" not in outside


@needs_data("philly")
def test_page_with_the_real_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    monkeypatch.setenv("OPTSCHED_DATA", str(DATA))
    result = run(
        "--jobs",
        400,
        "--gpus",
        256,
        "-o",
        tmp_path / "w.json",
        "--fit",
        tmp_path / "fit.html",
        "-q",
    )
    assert result.exit_code == 0, result.output
    page = (tmp_path / "fit.html").read_text()
    for words in (
        "real: Philly trace",
        "run time, 1 GPU",
        "82,247",
        "Failures by cause",
        "How close",
    ):
        assert words in page


def test_a_trace_that_is_none(tmp_path: Path) -> None:
    assert (
        of_trace("philly", tmp_path) is None
        and of_trace("acme", DATA) is None
        and of_trace("openb", None) is None
    )
    (tmp_path / "philly").mkdir()
    (tmp_path / "philly" / "philly.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(InputError, match="line 1: expected a header with the columns timestamp"):
        of_trace("philly", tmp_path)
