"""The comparison with Slurm's own scheduler: what its jobs are, how Slurm is set up, and how what
their logs say is counted. (The runs themselves take real clusters and 20 minutes.)"""

import json
import math
from pathlib import Path

import pytest

from benchmarks.beside_slurm import (
    EXEMPT_S,
    LONGEST_S,
    SCHEDULERS,
    SlurmAlone,
    SlurmQos,
    Work,
    interval,
    measure,
    slurm_parser,
    table,
    workload,
)
from tests.live.slurm_cluster import SlurmCluster
from tests.other_user import as_root


def test_half_of_the_jobs_cannot_save_and_all_are_told_the_same() -> None:
    works = [work for seed in range(5) for work in workload(60, 32, seed, 120.0, 1.5)]
    assert 0.4 < sum(work.saves for work in works) / len(works) < 0.6
    assert {work.weight for work in works} == {1, 2, 4}
    for work in works:
        assert 0 < work.duration_s <= LONGEST_S
        assert work.limit_s % 60 == 0
        assert work.duration_s <= work.limit_s <= 2.5 * work.duration_s + 60
        # neither Slurm's priority nor the words for sbatch know the truth
        other = Work(**{**_fields(work), "duration_s": work.duration_s / 2})
        assert other.priority == work.priority
        known = [word for word in work.sbatch(8, Path("/x")) if "--wrap" not in word]
        assert known == [word for word in other.sbatch(8, Path("/x")) if "--wrap" not in word]
    short, long = (next(w for w in works if w.limit_s == limit) for limit in (60.0, 120.0))
    ratio = short.priority * short.gpus / short.weight * long.weight / (long.priority * long.gpus)
    assert ratio == pytest.approx(2.0, rel=1e-3)  # weight / (GPUs x time limit)


def _fields(work: Work) -> dict[str, object]:
    return {name: getattr(work, name) for name in Work.__slots__}


@as_root
@pytest.mark.parametrize("made", [SlurmAlone, SlurmQos])
def test_slurm_is_set_up_as_said(
    made: type[SlurmAlone], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition that takes jobs, backfill, and preemption by QOS of what has run for a
    while."""
    monkeypatch.setattr(SlurmCluster, "_run", lambda *words: "")  # nothing has to run for that
    monkeypatch.setattr(SlurmCluster, "_start_accounting", lambda *ports: None)
    cluster = made(tmp_path, 2)
    cluster.prepare()
    text = cluster.conf.read_text()
    assert "SchedulerType=sched/backfill" in text and "bf_continue" in text
    assert "PriorityTier" not in text
    preempts = f"PreemptExemptTime=00:00:{EXEMPT_S}" in text and "PreemptType=preempt/qos" in text
    assert preempts == (made is SlurmQos)


def test_five_seeds_and_every_way() -> None:
    assert slurm_parser("", SCHEDULERS).parse_args([]).seeds == 5
    assert list(SCHEDULERS) == [
        "slurm, priority",
        "slurm, QOS",
        "optsched, no preemption",
        "optsched",
        "optsched, sbatch",
    ]


def test_what_the_logs_say(tmp_path: Path) -> None:
    """Two GPUs are held for 2 s more than was trained, once preempted."""
    works = [Work("a", 0.0, 2, 1, True, 10.0, 60.0), Work("b", 0.0, 1, 3, False, 5.0, 60.0)]
    logs = {
        "a": [("began", 100.0), ("saved", 105.0), ("began", 120.0), ("ended", 127.0)],
        "b": [("began", 101.0), ("ended", 106.0)],
    }
    for name, lines in logs.items():
        text = "".join(
            json.dumps({"what": what, "at_s": at_s, "done_s": 10.0}) + "\n" for what, at_s in lines
        )
        (tmp_path / f"{name}.log").write_text(text)
    told, waits_s = measure(works, {"a": 100.0, "b": 100.0}, tmp_path)
    assert waits_s == [17.0, 1.0]
    assert told["mean JCT, s"] == 16.5 and told["mean JCT by weight, s"] == 11.25
    assert told["preemptions"] == 1 and told["last job done after, s"] == 27
    assert told["GPU time held and not trained in, %"] == pytest.approx(100 * 2 * 2 / 25)
    assert told["p99 JCT, s"] == pytest.approx(6 + 0.99 * 21)
    with pytest.raises(AssertionError):  # one that has not done all counts for nobody
        measure([Work("a", 0.0, 2, 1, True, 11.0, 60.0)], {"a": 100.0}, tmp_path)


def test_intervals_are_those_of_students_t() -> None:
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0]) == f"3.0 ± {2.776 * math.sqrt(2.5 / 5):.1f}"
    told = {
        name: [{"mean JCT, s": jct, "mean JCT by weight, s": 1.0, "p99 JCT, s": 1.0} for jct in all]
        for name, all in (("one", (10.0, 20.0)), ("other", (9.0, 18.0)))
    }
    lines = table(told).splitlines()
    assert lines[2].startswith("| mean JCT, s | 15.0 ± ")
    assert "| mean JCT against the first, % |  | -10.0 ± 0.0 |" in lines
