"""Jobs that were done before a simulation begins: what is learned from them, and that nothing else
is."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import optsched as opt
from optsched import Completed, Failure, Instance, Job
from optsched.cli import main
from optsched.errors import InputError
from optsched.estimates import learned
from optsched.files import check_instance, dump_instance, load_instance, read_instance
from optsched.simulate.run import Simulation
from optsched.traces.past import with_past

from .believing import ALL, Heard, made, simulated, workload

PAST, JOBS = 60, 90


def spaced() -> Instance:
    """A workload in which no job waits, and the first are done when the next one comes."""
    instance = workload(4, jobs=JOBS, gpus=4096)
    longest_s = max(job.work_s for job in instance.jobs)
    order = sorted(instance.jobs, key=lambda job: (job.submit_s, job.id))
    late = {job.id for job in order[PAST:]}
    jobs = tuple(
        replace(job, submit_s=job.submit_s + longest_s if job.id in late else job.submit_s)
        for job in instance.jobs
    )
    return replace(instance, jobs=jobs)


@pytest.mark.parametrize("kind", ALL)
def test_a_past_is_known_as_if_it_had_been_simulated(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learned, "FIRST_TRAINING", PAST // 2)  # the second one is at the end
    whole = spaced()
    replayed = with_past(whole, PAST)
    assert (len(replayed.past), len(replayed.jobs)) == (PAST, JOBS - PAST)
    assert replayed.now_s == min(job.submit_s for job in replayed.jobs)
    all_along, begun = Heard(made(kind)), Heard(made(kind))
    simulated(whole, all_along)
    record = simulated(replayed, begun)
    assert [answer[:2] for answer in begun.answers] == [
        answer[:2] for answer in all_along.answers[PAST:]
    ]
    assert [believed_s for *_, believed_s in begun.answers] == pytest.approx(
        [believed_s for *_, believed_s in all_along.answers[PAST:]]
    )
    assert {entry.id for entry in record.plan().jobs} == replayed.job.keys()


def one(id: str = "old", **more: object) -> Completed:
    job = Job(id=id, user="ann", duration_s=50.0)
    return Completed(**{"job": job, "completed_s": 60.0, **more})  # type: ignore[arg-type]


NOW = Instance(now_s=100.0, jobs=(Job(id="a", gpus=0, duration_s=5.0, submit_s=100.0),))


def test_in_a_file_as_in_memory(tmp_path: Path) -> None:
    instance = replace(NOW, past=(one(worked_s=70.0), one("older", completed_s=55.0)))
    check_instance(instance)
    assert load_instance(dump_instance(instance)) == instance
    assert [done.work_s for done in instance.past] == [70.0, 50.0]
    assert "past" not in json.loads(dump_instance(NOW))
    assert opt.bound(instance)[0].value == opt.bound(NOW)[0].value


@pytest.mark.parametrize(
    ("past", "said"),
    [
        ((one(), one()), r"past\[1\].job.id: job 'old' is in past already"),
        ((one("a"),), "job 'a' is in jobs already"),
        ((one(completed_s=100.5),), "done after now_s; not after now_s"),
        ((one(completed_s=-1.0),), "done before it is submitted; not before 0"),
        ((one(job=Job(id="x")),), r"past\[0\].job.duration_s: job x has no length"),
    ],
)
def test_faults(past: tuple[Completed, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_instance(replace(NOW, past=past))


def test_what_the_first_jobs_leave_behind() -> None:
    """Failed attempts of the past are work that it did; those of the rest are still to come. Who
    waited for a job of the past waits no more."""
    jobs = (
        Job(id="a", duration_s=10.0),
        Job(id="long", duration_s=500.0, submit_s=1.0),
        Job(id="b", duration_s=10.0, submit_s=90.0, after=("a", "c")),
        Job(id="c", duration_s=10.0, submit_s=95.0),
    )
    failures = (Failure(job="a", work_s=30.0, kept_s=5.0), Failure(job="b", work_s=3.0))
    nodes = opt.Cluster(nodes=(opt.Node(name="n", gpus=1),))
    left = with_past(Instance(cluster=nodes, jobs=jobs, failures=failures), 2)
    check_instance(left)
    [done] = left.past  # the long one would still be at work
    assert (done.job.id, done.completed_s, done.work_s) == ("a", 35.0, 35.0)
    assert left.job["b"].after == ("c",) and left.failures == failures[1:]
    simulation = Simulation(left, opt.plugins.registry.policy("fifo"))
    simulation.run()
    assert simulation.done == 2


@pytest.mark.parametrize(
    ("instance", "jobs", "said"),
    [
        (NOW, 1, "leave at least one"),
        (replace(NOW, jobs=(*NOW.jobs, Job(id="b", gpus=0, duration_s=1.0))), 1, "none of these"),
        (opt.generate("mixed", jobs=4, gpus=32, running=0.5), 2, "jobs run already"),
    ],
)
def test_no_past_to_be_had(instance: Instance, jobs: int, said: str) -> None:
    if "none of" in said:
        instance = replace(
            instance, now_s=0.0, jobs=tuple(replace(job, submit_s=0.0) for job in instance.jobs)
        )
    with pytest.raises(InputError, match=said):
        with_past(instance, jobs)


def test_on_the_command_line(tmp_path: Path) -> None:
    output = tmp_path / "i.json"
    how = ("--like", "helios", "--jobs", "60", "--gpus", "16", "--past", "50", "--load", "0.2")
    said = CliRunner().invoke(main, ["generate", *how, "-o", str(output)])
    instance = read_instance(output)
    assert len(instance.jobs) == 10 and 40 < len(instance.past) <= 50
    assert f"{len(instance.past)} jobs before them are done, for estimates" in said.output
    rows = ["job_id,num_gpu,submit_time,duration"]
    rows += [f"{i},1,{100 * i},{500 if i == 4 else 60}" for i in range(8)]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(rows) + "\n")
    said = CliRunner().invoke(
        main, ["import", "tiresias", str(trace), "--past", "5", "-o", str(output)]
    )
    assert [len(read_instance(output).jobs), len(read_instance(output).past)] == [3, 4]
    assert "dropped 1: of the past, still at work" in said.output and "4 before them" in said.output
    refused = CliRunner().invoke(
        main, ["import", "tiresias", str(trace), "--past", "8", "-o", str(tmp_path / "no.json")]
    )
    assert refused.exit_code == 2 and not (tmp_path / "no.json").exists()
