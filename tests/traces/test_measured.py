"""The table of families: every column that has a public file is computed anew, and every family is
complete."""

from typing import Any

import pytest

from optsched.traces.profiles import measured
from optsched.traces.profiles.measured import (
    BOARD_W,
    FAMILIES,
    MODELS,
    Family,
    family_of,
    known_type,
)

from .measured_sources import COLUMNS, GAVEL, LAMBDA_2020, LAMBDA_2022, POLLUX, present


@pytest.mark.skipif(not present(), reason="the public profiles are absent; set OPTSCHED_DATA")
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_is_what_its_source_says(column: str) -> None:
    assert getattr(measured, column) == COLUMNS[column]()


@pytest.mark.parametrize("benchmark", measured.NEWER)
@pytest.mark.parametrize("gpu_type", ["a10", "a100", "h100", "rtx"])
def test_newer_types_are_ratios_of_the_published_throughputs(benchmark: str, gpu_type: str) -> None:
    table: dict[str, dict[str, float]] = LAMBDA_2020 if gpu_type == "rtx" else LAMBDA_2022
    assert measured.NEWER[benchmark][gpu_type] == pytest.approx(
        table[gpu_type][benchmark] / table["v100"][benchmark], rel=0.005
    )


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_a_family_runs_on_every_known_type_and_has_everything_a_profile_needs(
    family: Family,
) -> None:
    assert set(family.rate) == set(BOARD_W)
    assert family.rate["v100"] == 1
    assert min(family.rate.values()) > 0
    assert all(0 < ratio <= 1 for ratio in family.locality.values())
    assert list(family.cpus_per_gpu.values()) == sorted(family.cpus_per_gpu.values())
    assert family.cpus_per_gpu.get(3, max(family.cpus_per_gpu.values())) == 1
    assert 0 < family.gpu_memory_gib <= 32
    assert family.memory_gib_per_gpu > 0
    assert min(family.checkpoint_s, family.startup_s) > 0
    assert family.restore_s >= 0
    assert family.duty is None or 0 < family.duty <= 1


def test_saving_starting_and_loading_take_the_published_restart_penalty() -> None:
    for name, restart_s in measured.RESTART_S.items():
        family = FAMILIES[name]
        assert family.checkpoint_s + family.startup_s + family.restore_s == pytest.approx(
            restart_s, abs=0.1
        )
    assert FAMILIES["resnet50"].checkpoint_s == 1.6  # twice 80.6 MB at 100 MB/s
    assert FAMILIES["bert"].checkpoint_s == 24  # a fifth of 120 s


def test_a_family_that_a_column_leaves_out_takes_the_number_of_the_one_it_is_like() -> None:
    assert "gpt2" not in measured.CPUS_PER_GPU
    assert FAMILIES["gpt2"].cpus_per_gpu == measured.CPUS_PER_GPU["bert"]  # by way of roberta-base
    assert FAMILIES["vit-large"].rate["k80"] == measured.RATE["resnet50"]["k80"]
    assert FAMILIES["roberta-large"].rate["a100"] == measured.A100_RATE["roberta-large"]
    assert FAMILIES["roberta-large"].rate["h100"] == pytest.approx(2.09 * 4.3 / 2.34, abs=0.001)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("vgg19", "vgg16"),
        ("BERT", "bert"),
        ("shufflenet_v2_x1_0", "shufflenet"),
        ("dqn", "a3c"),
        ("inception3", "resnet50"),
    ],
)
def test_models_of_public_traces(model: str, family: str) -> None:
    assert family_of(model) is FAMILIES[family]


def test_models_nobody_measured() -> None:
    assert family_of("llama-70b") is None
    assert family_of(None) is None
    assert set(MODELS.values()) <= set(FAMILIES)
    assert {*GAVEL, *POLLUX} <= set(FAMILIES)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("v100", "v100"),
        ("V100M32", "v100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("A10", "a10"),
        ("nvidia_h100_80gb", "h100"),
        ("RTX2080Ti", "rtx"),
        ("2080ti", "rtx"),
        ("T4", "t4"),
        ("H800", "h100"),
        ("G2", None),
        ("GPU-series-1", None),
        ("", None),
    ],
)
def test_gpu_types_by_their_names(text: str, known: Any) -> None:
    assert known_type(text) == known
