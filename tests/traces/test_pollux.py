"""Pollux workloads: measurements of round numbers, faults, and the published ones."""

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from optsched import files
from optsched.cli import import_
from optsched.model.job import Elastic
from optsched.model.profile import Locality
from optsched.traces.readers import pollux
from tests.data import DATA, needs_data

from .refused import refusal

PLACEMENTS = "placement,local_bsz,step_time,sync_time\n"
MEASURED = PLACEMENTS + "".join(
    f"{shape},{batch},{step},{sync}\n"
    for shape, step, sync in (("1", 0.4, 0.1), ("2", 0.5, 0.2), ("11", 0.8, 0.4))
    for batch in (10, 20)
)
SCALABILITY = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
SIX_NODES = SCALABILITY + "6,6,10,1.6,1.2\n6,6,20,1.6,1.2\n"
EPOCHS = "progress,iteration,metric,grad_sqr,grad_var\n100,1,0.5,1.0,1.0\n200,2,0.6,1.0,1.0\n"
HEADER = "name,time,application,num_replicas,batch_size\n"


def workload(folder: Path, *lines: str, header: str = HEADER, **changed: str) -> Path:
    """A workload beside the measurements of one application, `demo`; `changed` are other texts of
    its files."""
    demo = folder / "demo"
    demo.mkdir(exist_ok=True)
    texts = {
        "placements": MEASURED,
        "scalability": SIX_NODES,
        "validation-20": EPOCHS,
        "validation-40": EPOCHS,
    }
    for name, text in {
        **texts,
        **{name.replace("_", "-"): text for name, text in changed.items()},
    }.items():
        (demo / f"{name}.csv").write_text(text)
    path = folder / "jobs.csv"
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return path


def test_an_elastic_job_by_hand(tmp_path: Path) -> None:
    imported = pollux.read(workload(tmp_path, "a,7,demo,2,40"), cluster="t4=2", gpus_per_node=2)
    (job,) = imported.instance.jobs
    assert (job.id, job.submit_s, job.command) == ("a", 7, "demo")
    # A batch of 40 does as much as 1 / (0.5 x 1/2 + 0.5) = 4/3 batches of 20: 150 steps for a
    # progress of 200.
    assert job.duration_s == 150 * 0.5
    assert job.gpus == Elastic(min=1, max=2)  # at least 10 for each GPU would be 4, but there are 2
    # On one GPU two passes of 20, of which the first does not synchronise: 0.4 + 0.3 s a step.
    assert job.profile.gpus == {1: round(0.5 / 0.7, 6), 2: 1.0}
    assert job.profile.locality == Locality(rack=0.625, cluster=0.625)  # 0.5 s / 0.8 s
    assert (job.profile.startup_s, job.profile.restore_s, job.profile.checkpoint_s) == (30, 0, 0)


def test_a_rigid_job_by_hand(tmp_path: Path) -> None:
    (job,) = pollux.read(workload(tmp_path, "a,7,demo,1,40"), elastic=False).instance.jobs
    assert (job.gpus, job.duration_s, job.profile.gpus, job.profile.locality) == (
        1,
        150 * 0.7,
        {},
        None,
    )


def test_gangs_larger_than_a_node_are_measured_spread(tmp_path: Path) -> None:
    (job,) = pollux.read(
        workload(tmp_path, "a,7,demo,2,40"), cluster="t4=2", gpus_per_node=1
    ).instance.jobs
    assert job.duration_s == 150 * 0.8
    assert job.profile.gpus == {1: round(0.8 / 0.7, 6), 2: 1.0}
    assert job.profile.locality is None


def test_shapes_that_were_not_measured_lie_between_the_nearest(tmp_path: Path) -> None:
    (job,) = pollux.read(
        workload(tmp_path, "a,0,demo,3,40"), cluster="t4=4", gpus_per_node=1, elastic=False
    ).instance.jobs
    # Three nodes between two (0.8 s) and six (1.6 s); 14 a GPU would be over the largest batch, so
    # 13.
    steps = 200 * (20 / 39 * 0.5 + 0.5)
    assert job.duration_s == pytest.approx(steps * (0.8 + 0.8 / 4), abs=1e-3)


def test_batches_between_those_measured_are_interpolated(tmp_path: Path) -> None:
    noisier = EPOCHS.replace("1.0,1.0", "1.0,3.0")
    path = workload(tmp_path, "a,0,demo,1,30", validation_40=noisier)
    (job,) = pollux.read(path, elastic=False).instance.jobs
    # Half way between variances 1 and 3; two passes of 15.
    assert job.duration_s == pytest.approx(200 * (2 / 1.5 + 1) / 3 * 0.7, abs=1e-3)


def test_an_adaptive_job_by_hand(tmp_path: Path) -> None:
    path = workload(tmp_path, "a,7,demo,2,20")
    (job,) = pollux.read(path, cluster="t4=2", gpus_per_node=2, fixed_batch=False).instance.jobs
    # On two GPUs a batch of 40 takes no longer than one of 20: 150 steps as above of 0.5 s,
    # although the job asked for 20. On one GPU 40 take two passes, 0.7 s for 4/3 of the progress
    # that 20 make in 0.4 s: 200 steps of 0.4 s.
    assert job.duration_s == 150 * 0.5
    assert job.gpus == Elastic(min=1, max=2)
    # On two nodes a step takes 0.8 s, 120 s in all: the job leaves the second GPU idle and takes 80
    # s as on one.
    assert job.profile.gpus == {1: round(75 / 80, 6), 2: 1.0}
    assert job.profile.locality == Locality(rack=75 / 80, cluster=75 / 80)


def test_an_adaptive_job_leaves_gpus_idle_in_epochs_where_they_do_not_pay(tmp_path: Path) -> None:
    # In the second epoch examples beyond 20 count for nothing: on one node two GPUs take 0.5 s for
    # a step of 20, one GPU takes 0.4 s. The first epoch is all noise: a batch of 40 halves the 100
    # steps, on two GPUs in 0.5 s each.
    epochs = "progress,iteration,metric,grad_sqr,grad_var\n100,1,0.5,0.0,1.0\n200,2,0.6,1.0,0.0\n"
    path = workload(tmp_path, "a,0,demo,2,20", validation_20=epochs, validation_40=epochs)
    (job,) = pollux.read(path, cluster="t4=2", gpus_per_node=2, fixed_batch=False).instance.jobs
    assert job.duration_s == pytest.approx(100 / 2 * 0.5 + 100 * 0.4, abs=1e-3)


def test_the_batch_goes_with_the_noise_of_each_epoch(tmp_path: Path) -> None:
    # Noise in the first epoch only: there a batch of 40 counts twice, in 0.7 s on one GPU for two
    # passes, against 0.4 s for 20 in one. In the second it counts no more than 20, so that those
    # are better.
    epochs = "progress,iteration,metric,grad_sqr,grad_var\n100,1,0.5,0.0,1.0\n200,2,0.6,1.0,0.0\n"
    path = workload(tmp_path, "a,0,demo,1,20", validation_20=epochs, validation_40=epochs)
    (job,) = pollux.read(path, elastic=False, fixed_batch=False).instance.jobs
    assert job.duration_s == pytest.approx(100 / 2 * 0.7 + 100 * 0.4, abs=1e-3)


def test_what_cannot_be_used_is_dropped_and_counted(tmp_path: Path) -> None:
    path = workload(
        tmp_path,
        "f,9,demo,1,20",
        "a,5,demo,1,20",
        "b,1,other,1,20",
        "c,1,demo,1,10",
        "d,1,demo,3,20",
        "e,1,demo,4,40",
    )
    imported = pollux.read(path, jobs=1, cluster="t4=3", elastic=False)
    assert [job.id for job in imported.instance.jobs] == [
        "a"
    ]  # the first by arrival of those that can run
    assert imported.read == 6
    assert imported.dropped == {
        "there are no measurements of application other": 1,
        "demo was not measured with a batch of 10": 1,
        "demo was not measured with a batch of 20 on 3 GPUs": 1,
        "it needs 4 GPUs of one type, the cluster has at most 3": 1,
        "after the first 1": 1,
    }


def test_measurements_may_lie_above_the_workload_or_be_named(tmp_path: Path) -> None:
    path = workload(tmp_path, "a,5,demo,1,20")
    (tmp_path / "workloads").mkdir()
    below = path.rename(tmp_path / "workloads" / "jobs.csv")
    (tmp_path / "far").mkdir()
    far = tmp_path / "far" / "jobs.csv.gz"
    far.write_bytes(gzip.compress(below.read_bytes()))
    assert pollux.read(far, applications=tmp_path).instance == pollux.read(below).instance
    assert "--applications PATH" in refusal(pollux.read, far, applications=tmp_path / "far")


def test_line_ends_and_blanks_do_not_matter(tmp_path: Path) -> None:
    path = workload(tmp_path, "a,7,demo,2,40")
    plain = pollux.read(path).instance
    for file in tmp_path.rglob("*.csv"):
        file.write_bytes(file.read_bytes().replace(b"\n", b" \r\n"))
    assert pollux.read(path).instance == plain


LINE = "a,5,demo,1,20"


@pytest.mark.parametrize(
    ("lines", "changed", "expected"),
    [
        ((), {}, ["jobs.csv", "none of the 0 jobs can be used"]),
        ((LINE,), {"header": "name,time,num_replicas,batch_size\n"}, ["line 1", "application"]),
        ((LINE, "b,x,demo,1,20"), {}, ["line 3", "time", "'x'"]),
        (("a,-5,demo,1,20",), {}, ["line 2", "at least 0", "'-5'"]),
        (("a,5,demo,0,20",), {}, ["line 2", "num_replicas", "at least 1"]),
        (("a,5,demo,1,many",), {}, ["line 2", "batch_size", "'many'"]),
        ((LINE, LINE), {}, ["line 3", "no other job", "'a'"]),
        ((LINE,), {"placements": PLACEMENTS}, ["placements.csv", "no rows"]),
        ((LINE,), {"placements": ""}, ["placements.csv", "is empty"]),
        (
            (LINE,),
            {"placements": PLACEMENTS + "1-1,10,1,0\n"},
            ["placements.csv", "line 2", "'1-1'"],
        ),
        (
            (LINE,),
            {"placements": PLACEMENTS + "1,10,1,2\n"},
            ["placements.csv", "line 2", "sync_time"],
        ),
        (
            (LINE,),
            {"placements": PLACEMENTS + "1,10,nan,0\n"},
            ["placements.csv", "line 2", "step_time"],
        ),
        (
            (LINE,),
            {"scalability": SCALABILITY + "6,0,10,1,0\n"},
            ["scalability.csv", "line 2", "num_replicas"],
        ),
        ((LINE,), {"validation_20": EPOCHS.replace("200", "100")}, ["demo", "does not rise"]),
        (
            (LINE,),
            {"validation_20": EPOCHS.replace("1.0,1.0", "-1,1")},
            ["validation-20.csv", "line 2", "grad_sqr"],
        ),
        (
            (LINE,),
            {"validation_20": EPOCHS.replace("1.0,1.0", "0,0")},
            ["validation-20.csv", "line 2", "above 0"],
        ),
        ((LINE,), {"validation_x": EPOCHS}, ["validation-x.csv", "batch size"]),
    ],
)
def test_faults_are_named_with_their_place(
    tmp_path: Path, lines: tuple[str, ...], changed: dict[str, str], expected: list[str]
) -> None:
    said = refusal(pollux.read, workload(tmp_path, *lines, **changed))
    assert all(part in said for part in expected), said


def test_other_clusters_were_not_measured(tmp_path: Path) -> None:
    path = workload(tmp_path, LINE)
    assert "t4" in refusal(pollux.read, path, cluster="v100=8")
    assert "at most 4 a node" in refusal(pollux.read, path, gpus_per_node=8)


def test_an_application_without_validation_is_a_fault(tmp_path: Path) -> None:
    path = workload(tmp_path, LINE)
    for table in (tmp_path / "demo").glob("validation-*"):
        table.unlink()
    assert "validation-<batch size>.csv" in refusal(pollux.read, path)


def test_the_command_writes_a_sound_instance(tmp_path: Path) -> None:
    path, output = workload(tmp_path, LINE), tmp_path / "instance.json"
    result = CliRunner().invoke(
        import_.command, ["pollux", str(path), "--rigid", "-o", str(output)]
    )
    assert result.exit_code == 0, result.output
    assert files.read_instance(output) == pollux.read(path, elastic=False).instance


@needs_data("pollux_profiles")
def test_adapting_the_batch_is_never_slower() -> None:
    source = DATA / "pollux_profiles" / "workloads" / "workload-6.csv"
    fixed, adaptive = (pollux.read(source, fixed_batch=choice).instance for choice in (True, False))
    files.check_instance(adaptive)
    for job in adaptive.jobs:
        own = fixed.job[job.id]
        assert job.duration_s is not None
        assert own.duration_s is not None
        assert job.duration_s <= own.duration_s * 1.01  # only 50 of all batch sizes are tried
        assert max(job.profile.gpus, default=1) >= max(own.profile.gpus, default=1)


@needs_data("pollux_profiles")
def test_the_published_workload_is_whole() -> None:
    source = DATA / "pollux_profiles" / "workloads" / "workload-6.csv"
    rigid, elastic = (pollux.read(source, elastic=choice).instance for choice in (False, True))
    assert len(rigid.jobs) == len(elastic.jobs) == 160
    assert (len(rigid.cluster.nodes), rigid.cluster.total_gpus) == (16, 64)
    files.check_instance(elastic)
    # Submitted at 53, it starts in the round at 60, pays 30 s and never stops: published as 947 s
    # after submission, with each of its 100 epochs rounded to a second.
    assert rigid.job["cifar10-0"].duration_s == pytest.approx(947 - 7 - 30, rel=0.02)
    for job in elastic.jobs:
        spread = 1.0 if job.profile.locality is None else job.profile.locality.cluster
        asked = rigid.job[job.id].gpus
        assert spread is not None
        assert isinstance(asked, int)
        if job.profile.gpus:
            assert job.profile.gpus[asked] * (spread if asked > 4 else 1) == pytest.approx(
                1.0, abs=1e-5
            )
