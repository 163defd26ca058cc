"""Measured profiles attached by rule: who gets what, what the trace says stays, and every job can
still run."""

from collections import Counter
from dataclasses import replace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import files
from optsched.cli import import_
from optsched.errors import InputError
from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Instance
from optsched.model.job import Elastic, Job, Mode
from optsched.model.profile import Locality, Profile, Sharing
from optsched.physics import rate, sharing_rate
from optsched.physics.catalogue import Catalogue
from optsched.physics.unschedulable import why_never
from optsched.plugins import registry
from optsched.traces.clusters import cluster_of
from optsched.traces.imported import Format, Imported
from optsched.traces.profiles.attach import _with_profile, attach
from optsched.traces.profiles.measured import FAMILIES

MIXED = cluster_of("v100=64,p100=32,t4=32", 8)
MIXED = replace(MIXED, nodes=tuple(replace(node, cpus=6 * node.gpus) for node in MIXED.nodes))


def job(number: int, **fields: Any) -> Job:
    return Job(**{"id": f"j{number}", "duration_s": 7200.0, **fields})


def attached(*jobs: Job, cluster: Cluster = MIXED, seed: int = 0, **options: Any) -> list[Profile]:
    return [
        one.profile for one in attach(Instance(cluster=cluster, jobs=jobs), seed, **options).jobs
    ]


def named(
    model: str, cluster: Cluster = MIXED, own: Profile | None = None, **fields: Any
) -> Profile:
    (found,) = attached(
        job(0, profile=replace(own or Profile(), name=model), **fields), cluster=cluster
    )
    return found


def one_node(**fields: Any) -> Cluster:
    return Cluster(
        nodes=(Node(**{"name": "n", "gpu_type": "v100", "gpus": 8, **fields}),),
        reference_gpu="v100",
    )


# --------------------------------------------------------------------------------------------------
# -- the draw


def test_jobs_of_one_user_and_command_get_one_family_whatever_their_order_size_and_length() -> None:
    jobs = [
        job(
            i,
            user=f"u{i % 5}",
            command=f"c{i % 3}",
            gpus=1 + i % 8,
            duration_s=60.0 + 500 * (i % 7),
        )
        for i in range(300)
    ]
    names = {one.id: profile.name for one, profile in zip(jobs, attached(*jobs), strict=True)}
    by_group = {(one.user, one.command): names[one.id] for one in jobs}
    assert all(names[one.id] == by_group[one.user, one.command] for one in jobs)
    assert len(set(by_group.values())) > 4
    backwards = dict(
        zip((one.id for one in reversed(jobs)), attached(*reversed(jobs)), strict=True)
    )
    assert {identity: profile.name for identity, profile in backwards.items()} == names


def test_without_a_command_the_user_and_the_gang_size_decide_and_without_a_user_each_job() -> None:
    jobs = [job(i, user="u", gpus=1 + i % 2) for i in range(40)]
    profiles = attached(*jobs)
    assert (
        len({profile.name for profile in profiles[::2]})
        == len({profile.name for profile in profiles[1::2]})
        == 1
    )
    assert len({profile.name for profile in attached(*(job(i) for i in range(200)))}) > 10


def test_the_seed_changes_the_draw_and_nothing_else_does() -> None:
    jobs = [job(i) for i in range(100)]
    first = [profile.name for profile in attached(*jobs)]
    assert first == [profile.name for profile in attached(*jobs)]
    assert first != [profile.name for profile in attached(*jobs, seed=1)]


def test_large_gangs_get_models_that_were_measured_at_their_size() -> None:
    names = Counter(profile.name for profile in attached(*(job(i, gpus=16) for i in range(2000))))
    assert all(FAMILIES[str(name)].largest_gang >= 16 for name in names)
    large = sum(count for name, count in names.items() if FAMILIES[str(name)].gpu_memory_gib > 8)
    assert large / 2000 == pytest.approx(
        24 / 29, abs=0.04
    )  # 8 large families at weight 3, 5 small ones at 1
    beyond = attached(*(job(i, gpus=64) for i in range(50)))
    assert all(FAMILIES[str(profile.name)].largest_gang == 32 for profile in beyond)


def test_short_jobs_of_one_gpu_get_small_models_more_often() -> None:
    small = [family.name for family in FAMILIES.values() if family.gpu_memory_gib <= 8]
    short, long = (
        sum(
            profile.name in small
            for profile in attached(*(job(i, duration_s=float(s)) for i in range(2000)))
        )
        / 2000
        for s in (600, 6000)
    )
    assert long == pytest.approx(len(small) / len(FAMILIES), abs=0.04)
    assert short == pytest.approx(
        3 * len(small) / (3 * len(small) + len(FAMILIES) - len(small)), abs=0.04
    )


# ------------------------------------------------------------------------------------------------
# what is attached


def test_rates_are_relative_to_the_type_on_which_the_duration_was_observed() -> None:
    assert named("resnet50").rate == {"v100": 1, "p100": 0.596, "t4": 0.485}
    on_t4 = replace(MIXED, reference_gpu="t4")
    assert named("resnet50", on_t4).rate == {"v100": 2.0619, "p100": 1.2289, "t4": 1}
    elsewhere = replace(MIXED, reference_gpu="a100")
    assert named("resnet50", elsewhere).rate["v100"] == round(1 / 1.9, 4)
    fastest = named("resnet50", replace(MIXED, reference_gpu=None))
    assert fastest.rate["v100"] == 1


def test_a_job_that_may_use_some_types_only_ran_on_the_fastest_of_them() -> None:
    own = Profile(rate={"p100": 1.0, "t4": 1.0})
    assert named("resnet50", own=own).rate == {"p100": 1, "t4": round(0.485 / 0.596, 4)}
    assert named("resnet50", own=Profile(rate={"p100": 1.0, "t4": 0.3})).rate == {
        "p100": 1.0,
        "t4": 0.3,
    }  # measured


def test_types_nobody_knows_are_as_fast_as_a_v100() -> None:
    cluster = Cluster(
        nodes=(Node(name="a", gpu_type="G2", gpus=8), Node(name="b", gpu_type="P100", gpus=8))
    )
    profile = named("resnet50", cluster)
    assert profile.rate == {"G2": 1, "P100": 0.596}
    assert profile.power_w == {"P100": 228}


def test_nodes_without_a_type_need_no_rates() -> None:
    profile = named("bert", one_node(gpu_type=None))
    assert (profile.name, profile.rate, profile.power_w) == ("bert", {}, {})


@pytest.mark.parametrize(
    ("gpus", "spread"), [(1, None), (2, 0.425), (3, 0.425), (4, 0.401), (8, 0.247), (9, None)]
)
def test_spread_costs_what_was_measured_at_the_gangs_size_where_a_node_could_hold_it(
    gpus: int, spread: Any
) -> None:
    profile = named("resnet18", gpus=gpus)
    assert profile.locality == (None if spread is None else Locality(rack=spread, cluster=spread))


def test_no_loss_measured_is_no_locality() -> None:
    assert named("resnet50", gpus=4).locality is None


@pytest.mark.parametrize(
    ("cpus", "levels"),
    [
        (None, {}),
        (4, {}),
        (8, {1: 1.0}),
        (16, {1: 0.5139, 2: 1.0}),
        (32, {1: 0.37, 3: 1.0, 4: 1.3}),
        (96, {1: 0.37, 3: 1.0, 6: 1.75, 9: 2.4}),
    ],
)
def test_cores_beyond_what_a_full_node_has_for_each_gpu_are_left_out(
    cpus: int | None, levels: Any
) -> None:
    assert named("resnet18", one_node(cpus=cpus)).cpus_per_gpu == levels


def test_a_model_that_needs_few_cores_has_one_level() -> None:
    assert named("bert").cpus_per_gpu == {1: 1.0}


def test_cores_bind_on_some_nodes_only() -> None:
    cluster = Cluster(
        nodes=(
            Node(name="a", gpu_type="v100", gpus=8, cpus=16),
            Node(name="b", gpu_type="p100", gpus=8),
        ),
        reference_gpu="v100",
    )
    assert named("resnet50", cluster).cpus_per_gpu == {1: 0.5405, 2: 1.0, 3: 1.3514, 4: 1.5541}


@pytest.mark.parametrize(("memory_gib", "each"), [(None, 58.2), (1024.0, 58.2), (256.0, 32.0)])
def test_host_memory_is_at_most_a_gpus_share_of_the_node(
    memory_gib: float | None, each: float
) -> None:
    assert named("resnet50", one_node(memory_gib=memory_gib)).memory_gib_per_gpu == each


def test_partners_and_duties() -> None:
    resnet, transformer, bert, gpt2 = (
        named(model) for model in ("resnet50", "transformer", "bert", "gpt2")
    )
    assert sharing_rate(resnet, transformer) == 0.58
    assert sharing_rate(transformer, resnet) == 0.206
    assert sharing_rate(bert, gpt2) == pytest.approx(1 / (0.899 + 0.962))
    assert named("yolov3").sharing is None


def test_overheads_can_be_left_out() -> None:
    own = Profile(name="bert", checkpoint_s=1.0)
    (costly,), (kept,), (free,) = (
        attached(job(0, profile=profile), overheads=overheads)
        for profile, overheads in ((Profile(name="bert"), True), (own, True), (own, False))
    )
    assert (costly.checkpoint_s, costly.startup_s, costly.restore_s) == (24, 10, 86)
    assert (kept.checkpoint_s, kept.startup_s, kept.restore_s) == (1, 0, 0)
    assert (free.checkpoint_s, free.startup_s, free.restore_s) == (0, 0, 0)


def test_elastic_jobs_scale_as_measured_relative_to_their_largest_size() -> None:
    profile = named("resnet50", gpus=Elastic(min=2, max=8))
    assert profile.gpus == {2: round(1.97 / 5.87, 4), 4: round(3.75 / 5.87, 4), 8: 1.0}
    assert profile.locality is None  # the measured scaling has the spread in it
    assert named("a3c", gpus=Elastic(min=1, max=4)).gpus == {}


def test_what_the_trace_says_of_a_job_stays() -> None:
    own = Profile(
        rate={"v100": 1.0},
        cpus_per_gpu={5: 1.0},
        memory_gib_per_gpu=7.0,
        gpu_memory_gib=3.0,
        sharing=Sharing(duty=0.25),
        network_gbps=2.0,
        checkpoint_every_s=600.0,
        power_w={"v100": 99.0},
    )
    profile = named("resnet18", own=own, gpus=2)
    for field in (
        "rate",
        "cpus_per_gpu",
        "memory_gib_per_gpu",
        "gpu_memory_gib",
        "sharing",
        "network_gbps",
        "checkpoint_every_s",
        "power_w",
    ):
        assert getattr(profile, field) == getattr(own, field), field
    assert (profile.name, profile.restore_s) == ("resnet18", 20)


def test_jobs_without_gpus_and_jobs_with_listed_modes_are_left_alone() -> None:
    jobs = (job(0, gpus=0, cpus=4), Job(id="listed", modes=(Mode(duration_s=5, gpus=1),)))
    instance = Instance(cluster=MIXED, jobs=jobs)
    assert attach(instance, 0) == instance


def test_equal_profiles_are_one_object() -> None:
    jobs = [
        job(i, gpus=1 + i % 20, user=f"u{i % 40}", profile=Profile(network_gbps=float(i % 2)))
        for i in range(400)
    ]
    profiles = attached(*jobs)
    distinct = {id(profile): profile for profile in profiles}
    assert len(distinct) < 100
    texts = {
        files.dump_instance(Instance(jobs=(job(0, profile=one),))) for one in distinct.values()
    }
    assert len(distinct) == len(texts)


def test_the_fast_copy_is_that_of_replace() -> None:
    one = job(
        1,
        user="u",
        command="c",
        gpus=Elastic(min=1, max=2),
        after=("x",),
        resources={"r": 1.0},
        weight=2.0,
    )
    assert _with_profile(one, Profile(name="new")) == replace(one, profile=Profile(name="new"))


# ------------------------------------------------------------------------------------------------
# the command


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Instance:
    """The instance that the format `bare` reads, whatever the source."""
    instance = Instance(cluster=MIXED, jobs=tuple(job(i) for i in range(30)))
    known = Format(
        title="bare", read=lambda source, **options: Imported(instance=instance, read=30)
    )
    real = registry.importer
    monkeypatch.setattr(registry, "importer", lambda name: known if name == "bare" else real(name))
    monkeypatch.setattr(import_.command.params[0], "type", click.Choice(["bare", "gavel"]))
    return instance


def imported(*arguments: str) -> Instance:
    result = CliRunner().invoke(import_.command, ["bare", "source", *arguments])
    if result.exception is not None:
        raise result.exception
    return files.load_instance(result.stdout)


def test_the_command_attaches_by_seed(bare: Instance) -> None:
    assert imported() == imported("--profiles", "measured", "--seed", "0") == attach(bare, 0)
    assert imported("--seed", "7") == attach(bare, 7) != attach(bare, 0)
    assert imported("--no-overheads") == attach(bare, 0, overheads=False)
    assert imported("--profiles", "none") == bare


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["gavel", "x", "--profiles", "measured"],
            "--profiles does not go with the format gavel, whose jobs keep",
        ),
        (["gavel", "x", "--seed", "1"], "--seed does not go with the format gavel"),
        (
            ["bare", "x", "--profiles", "none", "--seed", "1"],
            "--seed does not go with --profiles none",
        ),
        (
            ["bare", "x", "--profiles", "none", "--no-overheads"],
            "--no-overheads does not go with the format bare",
        ),
        (["bare", "x", "--cluster", "v100=8"], "--cluster does not go with the format bare"),
    ],
)
def test_the_command_refuses_what_would_do_nothing(
    bare: Instance, arguments: list[str], said: str
) -> None:
    result = CliRunner().invoke(import_.command, arguments)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


# ------------------------------------------------------------------------------------------------
# runnable


def test_a_family_whose_memory_fits_no_gpu_is_not_drawn() -> None:
    t4 = cluster_of("t4=32", 4)
    assert (
        max(
            profile.gpu_memory_gib
            for profile in attached(*(job(i) for i in range(300)), cluster=t4)
        )
        <= 16
    )
    only_small = replace(t4, nodes=tuple(replace(node, gpu_memory_gib=4.0) for node in t4.nodes))
    own = Profile(network_gbps=1.0)
    assert attached(job(0, profile=own), cluster=only_small) == [own]


def test_enough_gpus_must_have_the_memory() -> None:
    cluster = Cluster(
        nodes=(
            Node(name="big", gpu_type="v100", gpus=8, gpu_memory_gib=32),
            *(Node(name=f"n{i}", gpu_type="v100", gpus=8, gpu_memory_gib=16) for i in range(4)),
        ),
        reference_gpu="v100",
    )
    one, gang = (
        {
            profile.name
            for profile in attached(*(job(i, gpus=gpus) for i in range(400)), cluster=cluster)
        }
        for gpus in (8, 16)
    )
    assert {"roberta-large", "vit-large"} <= one
    assert not {"roberta-large", "vit-large"} & gang


def test_a_named_model_that_does_not_fit_is_replaced() -> None:
    profile = named("roberta-large", cluster_of("t4=8", 4))
    assert profile.name != "roberta-large"
    assert profile.gpu_memory_gib <= 16


nodes = st.builds(
    dict,
    gpu_type=st.sampled_from(["v100", "T4", "G2", None]),
    gpus=st.integers(1, 8),
    gpu_memory_gib=st.none() | st.sampled_from([4.0, 12.0, 16.0, 32.0]),
    cpus=st.none() | st.integers(1, 96),
    memory_gib=st.none() | st.sampled_from([16.0, 256.0]),
)


@settings(max_examples=150)
@given(
    kinds=st.lists(nodes, min_size=1, max_size=4),
    gpus=st.lists(st.integers(1, 16), min_size=1, max_size=6),
    reference=st.sampled_from(["v100", "t4", "a100", None]),
    seed=st.integers(0, 9),
)
def test_a_job_that_could_run_still_can_and_where_it_was_observed_as_fast(
    kinds: list[Any], gpus: list[int], reference: str | None, seed: int
) -> None:
    cluster = Cluster(
        nodes=tuple(Node(name=f"n{i}", **kind) for i, kind in enumerate(kinds)),
        reference_gpu=reference,
    )
    jobs = [job(i, gpus=count) for i, count in enumerate(gpus)]
    instance = Instance(
        cluster=cluster,
        jobs=tuple(one for one in jobs if why_never(Catalogue.of(cluster), one) is None),
    )
    made = attach(instance, seed)
    assert [why_never(Catalogue.of(cluster), one) for one in made.jobs] == [None] * len(
        instance.jobs
    )
    files.load_instance(files.dump_instance(made), "made")
    for one in made.jobs:
        levels = one.profile.cpus_per_gpu or {0: 1.0}
        best = max(
            rate(one, Mode(gpus=int(str(one.gpus)), cpus_per_gpu=n), t, "node")
            for t in cluster.gpu_types
            for n in levels
        )
        assert (
            best > 0.999 if reference is None else best > 0
        )  # else observed on a type that may be missing
