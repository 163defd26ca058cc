"""What jobs are believed to be: each kind by hand, and how good it is."""

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from optsched import Elastic, Failure, Instance, Job, Mode, Profile
from optsched.cli import main
from optsched.errors import InputError
from optsched.estimates import learned
from optsched.estimates.commands import similar
from optsched.estimates.history import NEWEST, History
from optsched.estimates.learned import Learned
from optsched.estimates.noisy import Noisy
from optsched.estimates.parse import KINDS as DOCUMENTED
from optsched.estimates.parse import parse
from optsched.estimates.unknown import FIRST_GUESS_S, Unknown
from optsched.files import dump_instance
from optsched.traces.generate.like import generate
from tests.clusters import one_node

from .believing import ALL, Heard, made, needs_sklearn, simulated, workload


@pytest.fixture
def trained_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "FIRST_TRAINING", 30)


# --------------------------------------------------------------------------------------------------
# -- by name


def test_each_kind_has_its_name() -> None:
    assert parse("oracle") is None
    for text, kind in (
        ("noisy:0.5", Noisy),
        ("noisy:0", Noisy),
        ("history", History),
        ("none", Unknown),
    ):
        found = parse(text)
        assert isinstance(found, kind) and found.name == text


@needs_sklearn
def test_learned_has_its_name() -> None:
    assert made("learned").name == "learned"


@pytest.mark.parametrize(
    "text", ["", "Oracle", "oracle:1", "history:3", "none:", "learned:5", "noise:1", "median"]
)
def test_unknown_kinds_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="choose from oracle, noisy:SIGMA, history, learned, none"):
        parse(text)


@pytest.mark.parametrize("noise", ["", ":", ":x", ":-1", ":nan", ":inf", ":1:2", ":4"])
def test_bad_noise_is_refused(noise: str) -> None:
    with pytest.raises(InputError, match=r"from 0 to 3, as in noisy:0\.5"):
        parse(f"noisy{noise}")


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match=r"pip install 'optsched\[learn\]'"):
        parse("learned")


def test_on_the_command_line(tmp_path: Path) -> None:
    instance = workload(2, jobs=40, gpus=4)
    (tmp_path / "i.json").write_text(dump_instance(instance))

    def run(*words: str) -> Any:
        return CliRunner().invoke(
            main, ["simulate", str(tmp_path / "i.json"), "--policy", "srtf", *words]
        )

    oracle, history = (
        json.loads(run("--json", *words).stdout) for words in ((), ("--estimates", "history"))
    )
    assert (oracle["estimates"], history["estimates"]) == ("oracle", "history")
    record = simulated(instance, History(), "srtf")
    jct_s = sum(one.completion_s - instance.job[one.id].submit_s for one in record.plan().jobs) / 40
    assert history["jct_s"]["mean"] == pytest.approx(jct_s) != oracle["jct_s"]["mean"]
    assert (
        "; estimates history" in run("--estimates", "history").stdout
        and "estimates" not in run().stdout
    )
    refused = run("--estimates", "noisy")
    assert refused.exit_code == 2 and "as in noisy:0.5" in refused.output


def test_the_documentation_names_each_kind() -> None:
    text = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text()
    table = text.partition("\n### Estimates\n")[2].partition("\n### ")[0]
    assert re.findall(r"^\| `(.*?)` \|", table, re.M) == list(DOCUMENTED)


# --------------------------------------------------------------------------------------------------
# ------ noise


def test_noise_has_median_one_and_the_deviation_asked_for() -> None:
    jobs = [Job(id=f"job-{i}", duration_s=1000.0) for i in range(20_000)]
    noisy = Noisy(0.5, seed=3)
    errors = np.log([noisy.work_s(job, 0.0) / 1000 for job in jobs])
    assert np.std(errors) == pytest.approx(0.5, rel=0.02)
    assert np.median(errors) == pytest.approx(0.0, abs=0.02) and np.mean(errors) == pytest.approx(
        0.0, abs=0.02
    )
    assert np.mean(np.abs(errors) < 0.5) == pytest.approx(0.6827, abs=0.01)


def test_noise_belongs_to_the_job() -> None:
    jobs = [Job(id=name, duration_s=100.0) for name in "abc"]
    forwards = [Noisy(1.0, 5).work_s(job, 0.0) for job in jobs]
    assert forwards == [Noisy(1.0, 5).work_s(job, 77.0) for job in reversed(jobs)][::-1]
    assert forwards != [Noisy(1.0, 6).work_s(job, 0.0) for job in jobs]
    longer = Noisy(1.0, 5).work_s(replace(jobs[0], duration_s=200.0), 0.0)
    assert longer == pytest.approx(2 * forwards[0])
    weaker = Noisy(0.5, 5).work_s(jobs[0], 0.0)
    assert math.log(weaker / 100) == pytest.approx(math.log(forwards[0] / 100) / 2)
    assert [Noisy(0.0).work_s(job, 0.0) for job in jobs] == [100.0] * 3


def test_without_noise_it_is_the_oracle_where_nothing_fails() -> None:
    instance = workload(1, jobs=60)
    # Where preempting costs next to nothing, places are kept by whether run times are known.
    costly = Profile(startup_s=5, restore_s=100, checkpoint_s=200)
    instance = replace(instance, jobs=tuple(replace(job, profile=costly) for job in instance.jobs))
    assert (
        simulated(instance, Noisy(0.0), "srtf").plan() == simulated(instance, None, "srtf").plan()
    )


# --------------------------------------------------------------------------------------------------
# ---- history


@pytest.mark.parametrize(
    "one, other",
    [
        ("python train.py --lr 0.001", "python  train.py --lr 3e-4"),
        ("resnet_2023-01-05_run7", "ResNet_2024-11-30_run12"),
        ("eval-3f2a9c1d77", "eval-00bb12ce41"),
        (
            "/ckpt/123e4567-e89b-12d3-a456-426614174000/last",
            "/ckpt/00000000-aaaa-bbbb-cccc-ffffffffffff/last",
        ),
        ("executable-5", "executable-17"),
    ],
)
def test_commands_that_differ_by_numbers_are_alike(one: str, other: str) -> None:
    assert similar(one) == similar(other) is not None


def test_other_commands_are_not_alike() -> None:
    commands = ["train.py", "test.py", "train.py --fast", "facade", "decade", "bert-base", "gpt"]
    assert len({similar(command) for command in commands}) == len(commands)
    assert [similar(command) for command in ("", "  ", "17", "3f2a9c1d77", "2024-01-01 12:30")] == [
        None
    ] * 5


def job(
    id: str = "new", user: str | None = "ann", command: str | None = "a 1", gpus: Any = 1
) -> Job:
    return Job(id=id, user=user, command=command, gpus=gpus, duration_s=1.0)


def after(*past: tuple[Job, float]) -> History:
    history = History()
    for i, (one, worked_s) in enumerate(past):
        history.completed(one, worked_s, float(i))
    return history


def believed(history: History, *jobs: Job) -> list[float]:
    return [history.work_s(one, 1e6) for one in jobs]


def test_before_anything_has_completed_there_is_a_default() -> None:
    assert believed(after(), job(), job(user=None, command=None)) == [FIRST_GUESS_S] * 2


def mean(*lengths_s: float, first_s: float = FIRST_GUESS_S) -> float:
    for length_s in lengths_s:
        first_s += (length_s - first_s) * NEWEST
    return first_s


def test_only_jobs_of_the_same_user_and_a_similar_command_count() -> None:
    history = after(
        (job(), 100.0),
        (job(gpus=2), 200.0),
        (job(command="a 2"), 1000.0),
        (job(command="b"), 3000.0),
        (job(user="bob"), 7000.0),
        (job(user="bob", command=None), 9000.0),
    )
    similar = mean(100, 200, 1000)
    assert believed(history, job(command="a 3"), job(gpus=8)) == pytest.approx([similar] * 2)
    assert believed(history, job(), job(gpus=2)) == pytest.approx(
        [mean(100, first_s=similar), mean(200, first_s=similar)]
    )
    assert (
        believed(history, job(command="c"), job(user="eve"), job(user="eve", command=None))
        == [FIRST_GUESS_S] * 3
    )
    assert believed(history, job(user="bob", command=None)) == pytest.approx(
        [mean(9000, first_s=mean(9000))]
    )
    assert believed(history, job(user="bob", command=None, gpus=4)) == pytest.approx([mean(9000)])


def test_recent_jobs_count_more() -> None:
    history = after(*((job(), 100.0) for _ in range(50)))
    assert believed(history, job()) == [pytest.approx(100)]
    history.completed(job(), 600.0, 60.0)
    similar = 100 + 500 * NEWEST
    assert believed(history, job(gpus=2), job()) == pytest.approx([similar, similar], rel=0.01)
    for _ in range(30):
        history.completed(job(), 600.0, 61.0)
    assert believed(history, job()) == [pytest.approx(600, rel=0.01)]


def test_gangs_of_every_kind_of_job() -> None:
    listed = Job(id="l", user="ann", modes=(Mode(duration_s=5, gpus=4), Mode(duration_s=9, gpus=2)))
    history = after((job(command=None, gpus=4), 40.0))
    expected = mean(40, first_s=mean(40))
    assert believed(
        history, listed, job(command=None, gpus=Elastic(min=1, max=4))
    ) == pytest.approx([expected] * 2)
    assert believed(history, job(command=None, gpus=0)) == pytest.approx([mean(40)])


def test_failed_attempts_are_work_done() -> None:
    first, second = (
        Job(id=name, user="ann", submit_s=at_s, duration_s=100)
        for name, at_s in (("a", 0), ("b", 500))
    )
    instance = Instance(
        cluster=one_node(gpus=1),
        jobs=(first, second),
        failures=(Failure(job="a", work_s=30, kept_s=10, kind="out of memory"),),
    )
    heard = Heard(History())
    simulated(instance, heard)
    assert heard.answers == [
        (0, "a", FIRST_GUESS_S),
        (500, "b", pytest.approx(mean(120, first_s=mean(120)))),
    ]


# --------------------------------------------------------------------------------------------------
# --- nothing


def test_nothing_but_attained_service_is_known() -> None:
    long = Job(id="long", duration_s=3000)
    short = Job(id="short", submit_s=100, duration_s=300)
    instance = Instance(cluster=one_node(gpus=1), jobs=(long, short))
    with_none, with_all = simulated(instance, Unknown(), "srtf"), simulated(instance, None, "srtf")
    assert with_all.start_s[with_all.job == 1] == pytest.approx([100], abs=1e-3)
    # Believed to be 600 s, then 1,200 s: until then no more is left of the long one than of the
    # short one.
    assert with_none.start_s[with_none.job == 1] == pytest.approx([1200], abs=1e-3)
    assert with_none.end_s[with_none.job == 1] == pytest.approx([1500], abs=1e-3)


def test_jobs_that_outrun_their_belief_give_way_level_by_level() -> None:
    """Jobs that are there together: each is served until its belief has grown beyond what the
    others have left."""
    lengths = {"a": 5000.0, "b": 100.0, "c": 2000.0, "d": 700.0}
    jobs = tuple(
        Job(id=name, submit_s=float(i), duration_s=length)
        for i, (name, length) in enumerate(lengths.items())
    )
    instance = Instance(cluster=one_node(gpus=1), jobs=jobs)
    record = simulated(instance, Unknown(), "srtf")
    stays = [
        ("abcd"[j], round(end_s - start_s))
        for j, start_s, end_s in zip(
            record.job.tolist(), record.start_s.tolist(), record.end_s.tolist(), strict=True
        )
    ]
    order = sorted(range(len(stays)), key=lambda i: record.start_s[i])
    assert [stays[i] for i in order] == [
        ("a", 1200),
        ("b", 100),
        ("c", 1200),
        ("d", 700),
        ("a", 1200),
        ("c", 800),
        ("a", 2600),
    ]


# --------------------------------------------------------------------------------------------------
# ---- quality


def errors(heard: Heard, instance: Instance, skip: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """|log(believed / real)| of all but the first jobs."""
    return np.array(
        [
            abs(math.log(work_s / instance.job[name].work_s))
            for _, name, work_s in heard.answers[skip:]
        ]
    )


class GlobalMean:
    """The mean of all that has completed."""

    name = "mean"

    def __init__(self) -> None:
        self.count, self.total_s = 0, 0.0

    def work_s(self, job: Job, now_s: float) -> float:
        return self.total_s / self.count if self.count else FIRST_GUESS_S

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        self.count += 1
        self.total_s += worked_s


@pytest.mark.parametrize("like", ["philly", "helios"])
def test_what_came_before_says_more_than_the_mean(like: str) -> None:
    instance = generate(like, jobs=2500, gpus=512, seed=2, failures=False)
    history, mean = Heard(History()), Heard(GlobalMean())
    for estimates in (history, mean):
        simulated(instance, estimates)
    assert np.median(errors(history, instance, 600)) < 0.75 * np.median(errors(mean, instance, 600))


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in ("none", "noisy:1")])
@pytest.mark.usefixtures("trained_early")
def test_users_who_repeat_themselves_are_known_well(kind: str) -> None:
    """Within a user's command the logarithms deviate by 0.3, so a perfect median is off by 0.2."""
    instance = workload(5, jobs=600, gpus=32)
    found, mean = Heard(made(kind)), Heard(GlobalMean())
    for estimates in (found, mean):
        simulated(instance, estimates)
    assert (
        np.median(errors(found, instance, 100)) < 0.3 < 1.0 < np.median(errors(mean, instance, 100))
    )


@needs_sklearn
def test_trees_see_what_no_history_of_a_user_says() -> None:
    """New users all the time; the memory of the GPU, the hour and the size of the gang say how long
    a job is."""
    rng = np.random.default_rng(0)
    history, trees = Heard(History()), Heard(Learned())
    works: list[float] = []
    for i in range(900):
        at_s = i * 1000.0
        gib, gpus = float(rng.choice([4, 12, 30])), int(rng.choice([1, 2, 4]))
        work_s = 10 * gib * gpus**2 * (5 if at_s % 86400 < 43200 else 1)
        new = Job(
            id=f"j{i}",
            user=f"u{i}",
            gpus=gpus,
            duration_s=work_s,
            profile=Profile(gpu_memory_gib=gib),
        )
        works.append(work_s)
        for estimates in (history, trees):
            estimates.work_s(new, at_s)
            estimates.completed(new, work_s, at_s + 1)
    of_trees, of_history = (
        np.median(
            [
                abs(math.log(answer[2] / work_s))
                for answer, work_s in zip(estimates.answers[500:], works[500:], strict=True)
            ]
        )
        for estimates in (trees, history)
    )
    assert of_trees < 0.15 < 0.5 < of_history
    assert trees.answers[:500] == history.answers[:500]


@needs_sklearn
def test_one_prediction_serves_all_jobs_that_look_the_same(trained_early: None) -> None:
    found = Learned()
    for i in range(30):
        found.work_s(job(f"old{i}"), 0.0)
        found.completed(job(f"old{i}"), 100.0 + i, 1.0)
    asked: list[int] = []
    model = found._model
    found._model = type(
        "Counting", (), {"predict": lambda self, x: asked.append(len(x)) or model.predict(x)}
    )()
    beliefs = {found.work_s(job(f"new{i}"), 10.0 + i) for i in range(50)}
    assert len(asked) == len(beliefs) == 1
    assert found.work_s(job("else", user="bob"), 10.0) > 0 and len(asked) == 2
