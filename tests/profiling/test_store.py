"""Profiles that are kept: versions, edits by hand, faults, and several writers at once."""

import json
import multiprocessing
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from optsched.errors import InputError
from optsched.model.profile import Profile
from optsched.profiling.measured import Measured
from optsched.profiling.result import result
from optsched.profiling.store import BY_HAND, KEPT_VERSIONS, PROBE, Store, dump_stored

RUN = Measured(
    gpus=2,
    cpus=8,
    gpu_type="a100",
    user="ann",
    command="python train.py --lr 1",
    restore_s=10.0,
    stop_s=4.0,
    startup_s=20.0,
    memory_gib=8.0,
    step_s=0.5,
)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "profiles")


def edit(store: Store, name: str, change) -> None:
    path = store.folder / f"{name}.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_what_runs_tell_is_kept_as_versions(store) -> None:
    assert store.names() == []
    first = store.learn("bert", RUN, "optsched:bert-1:1")
    assert (first.profile.restore_s, first.profile.checkpoint_s, first.profile.startup_s) == (
        10,
        4,
        20,
    )
    assert first.profile.memory_gib_per_gpu == 4.4  # 8 GiB on two GPUs, and a tenth
    second = store.learn("bert", replace(RUN, restore_s=14.0), "optsched:bert-1:2")
    assert second.profile.restore_s == 12
    assert [one.version for one in second.versions] == [1, 2]
    assert second.versions[0].profile.restore_s == 10
    assert second.versions[1].source == "learned from attempt optsched:bert-1:2"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", second.versions[0].at)
    assert (second.user, second.command) == ("ann", "python train.py --lr 1")
    assert store.read("bert") == second
    assert store.names() == ["bert"]


def test_an_attempt_counts_once(store) -> None:
    once = store.learn("bert", RUN, "optsched:bert-1:1")
    assert store.learn("bert", replace(RUN, restore_s=99.0), "optsched:bert-1:1") == once


def test_a_run_that_changes_nothing_makes_no_version(store) -> None:
    store.learn("bert", RUN, "optsched:bert-1:1")
    again = store.learn("bert", RUN, "optsched:bert-1:2")
    assert (len(again.versions), len(again.runs)) == (1, 2)


def test_a_probe_keeps_what_it_did_not_measure(store) -> None:
    store.learn("bert", RUN, "optsched:bert-1:1")
    probed = result(Measured(gpus=2, startup_s=30.0), name="bert")
    found = store.add("bert", probed)
    assert found.versions[-1].source == PROBE
    assert found.profile.startup_s == 25, "the median of both"
    assert found.profile.restore_s == 10


def test_edits_by_hand_become_versions_and_stay(store) -> None:
    store.learn("bert", RUN, "optsched:bert-1:1")
    edit(
        store,
        "bert",
        lambda content: content["profile"].update(restore_s=1, locality={"rack": 0.5}),
    )
    seen = store.read("bert")
    assert (seen.version, seen.versions[-1].source, seen.by_hand) == (
        2,
        BY_HAND,
        ("locality", "restore_s"),
    )
    assert seen.profile.restore_s == 1
    later = store.learn("bert", replace(RUN, restore_s=50.0, startup_s=40.0), "optsched:bert-1:2")
    assert (later.profile.restore_s, later.profile.startup_s) == (1, 30)
    assert [one.source for one in later.versions][1] == BY_HAND
    assert not any(note.startswith("restore_s") for note in later.versions[-1].notes)
    edit(store, "bert", lambda content: content.pop("by_hand"))
    assert store.learn("bert", RUN, "optsched:bert-1:3").profile.restore_s == 10, (
        "the median of 10, 50 and 10"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda content: content["profile"].update(restore_s="12"),
            r"profile.restore_s: should be a number, not \"12\"",
        ),
        (
            lambda content: content["profile"].update(restore_z=1),
            "profile.restore_z: is not a known field",
        ),
        (
            lambda content: content["profile"].update(restore_s=-1),
            "profile.restore_s: should be at least 0",
        ),
        (lambda content: content.update(name="other"), "name is 'other'; write 'bert'"),
        (lambda content: content.update(versions=[]), "versions is empty"),
        (
            lambda content: content["versions"][0].update(version=3),
            r"versions\[0\].version is 3; write 1",
        ),
        (
            lambda content: content.update(by_hand=["restore"]),
            "by_hand.0. is 'restore', not a field",
        ),
        (
            lambda content: content.update(format="optsched/1"),
            "is an instance .*, expected a profile that is kept",
        ),
    ],
)
def test_faults_are_told_and_nothing_is_overwritten(store, change, said) -> None:
    store.learn("bert", RUN, "optsched:bert-1:1")
    edit(store, "bert", change)
    broken = (store.folder / "bert.json").read_text()
    with pytest.raises(InputError, match=said):
        store.read("bert")
    with pytest.raises(InputError, match=said):
        store.learn("bert", RUN, "optsched:bert-1:2")
    assert (store.folder / "bert.json").read_text() == broken


@pytest.mark.parametrize(
    "name", ["", "../bert", "a/b", ".hidden", "-o", "a" * 101, "a b", "é", "bert\n"]
)
def test_names_that_are_paths_are_refused(store, name) -> None:
    with pytest.raises(InputError, match="cannot name a profile"):
        store.learn(name, RUN, "optsched:bert-1:1")
    with pytest.raises(InputError, match="cannot name a profile"):
        store.read(name)
    assert not store.folder.exists()


def test_what_is_not_there(store) -> None:
    with pytest.raises(InputError, match=r"no profile 'bert' .* none yet"):
        store.read("bert")
    store.learn("gpt", RUN, "optsched:gpt:1")
    with pytest.raises(InputError, match="there are gpt"):
        store.read("bert")


def test_a_file_is_no_store(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not a directory"):
        Store(tmp_path / "file")


def test_files_are_readable(store) -> None:
    stored = store.learn("bert", RUN, "optsched:bert-1:1")
    text = (store.folder / "bert.json").read_text()
    assert text == dump_stored(stored)
    assert '\n    "restore_s": 10,\n' in text, (
        "the present profile is to be edited: one field a line"
    )
    assert all(len(re.findall('"source"', line)) <= 1 for line in text.splitlines()), (
        "one version or run a line"
    )


def learn_some(folder: Path, first: int) -> None:
    for i in range(first, first + 5):
        Store(folder).learn("bert", replace(RUN, restore_s=float(i)), f"optsched:bert:{i}")


def test_several_writers_lose_nothing(store) -> None:
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=learn_some, args=(store.folder, first)) for first in (1, 6, 11)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    found = store.read("bert")
    assert sorted(run.measured.restore_s for run in found.runs) == list(range(1, 16))
    assert sorted(path.name for path in store.folder.iterdir()) == [".lock", "bert.json"]


def test_every_field_of_a_profile_survives(store) -> None:
    full = Profile(
        name="bert",
        rate={"a100": 1.0, "v100": 0.4},
        gpus={4: 0.5, 8: 1.0},
        cpus_per_gpu={1: 0.4, 4: 1.0},
    )
    measured = replace(RUN, notes=("a note",), absent={"gpu_duty": "no NVML"}, at_s=1.7e9)
    found = store.add("bert", replace(result(measured), profile=full))
    assert store.read("bert") == found
    assert (found.profile.rate, found.profile.gpus, found.profile.cpus_per_gpu) == (
        full.rate,
        full.gpus,
        full.cpus_per_gpu,
    )


def noted_and_learned(tmp_path: Path, runs: int) -> tuple[Store, Store]:
    noted, exact = Store(tmp_path / "noted"), Store(tmp_path / "exact")
    for i in range(runs):
        run = replace(RUN, restore_s=float(i % 7), startup_s=float(i), at_s=1e9 + i)
        noted.note("bert", run, f"optsched:bert:{i}")
        exact.learn("bert", run, f"optsched:bert:{i}")
    return noted, exact


def test_what_is_noted_is_read_like_what_is_learned(tmp_path) -> None:
    noted, exact = noted_and_learned(tmp_path, 150)
    path = tmp_path / "noted" / "bert.json"
    found = noted.read("bert")
    assert (found.profile, found.runs) == (exact.read("bert").profile, exact.read("bert").runs)
    assert len(found.versions) < len(exact.read("bert").versions) == KEPT_VERSIONS
    before = path.read_bytes()
    noted.note("bert", replace(RUN, restore_s=99.0), "optsched:bert:new")
    noted.note("bert", replace(RUN, restore_s=99.0), "optsched:bert:new")
    assert path.read_bytes() == before, "a large file is not written for each run"
    assert [run.source for run in noted.read("bert").runs].count(
        "learned from attempt optsched:bert:new"
    ) == 1
    os.utime(path, (1e9, 1e9))
    noted.note("bert", replace(RUN, restore_s=98.0), "optsched:bert:last")
    assert path.read_bytes() != before and not (tmp_path / "noted" / ".bert.runs").exists()
    assert noted.read("bert").runs[-1].measured.restore_s == 98.0


def test_a_line_that_was_cut_off_is_left_out(tmp_path) -> None:
    noted, exact = noted_and_learned(tmp_path, 100)
    with (tmp_path / "noted" / ".bert.runs").open("a") as notes:
        notes.write('\n{"source": "learned from at')
    noted.note("bert", RUN, "optsched:bert:after")
    assert noted.read("bert").runs == exact.learn("bert", RUN, "optsched:bert:after").runs


def test_profiles_of_long_ago_are_dropped_but_for_those_edited_by_hand(store) -> None:
    for name in ("old", "edited", "new"):
        store.learn(name, RUN, f"optsched:{name}:1")
    edit(store, "edited", lambda content: content["profile"].update(restore_s=1))
    for name in ("old", "edited"):
        os.utime(store.folder / f"{name}.json", (1e9, 1e9))
    store.drop(3600.0)
    assert store.names() == ["edited", "new"]
