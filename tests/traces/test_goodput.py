"""Pollux's goodput: every number by hand, and the fit on times that the model itself made."""

import numpy as np
import pytest

from optsched.errors import OptschedError
from optsched.traces.readers.goodput import Goodput, Limits, Measured, Noise, StepTimes, fit

# Without overlap (gamma 1) times simply add up.
SUM = StepTimes(
    alpha_c=0.1, beta_c=0.01, alpha_n=0.4, beta_n=0.05, alpha_r=0.2, beta_r=0.02, gamma=1.0
)


def one(value: float) -> np.ndarray:
    return np.array([value], np.float64)


def test_a_step_is_its_passes_and_one_synchronisation() -> None:
    # 0.1 + 0.01 x 10 = 0.2 s a pass. Four GPUs: 0.2 + 0.02 x 2 on one node, 0.4 + 0.05 x 2 on two.
    assert SUM.step_s(1, 1, one(10), one(0))[0] == pytest.approx(0.2)
    assert SUM.step_s(1, 4, one(10), one(0))[0] == pytest.approx(0.2 + 0.24)
    assert SUM.step_s(2, 4, one(10), one(0))[0] == pytest.approx(0.2 + 0.5)
    assert SUM.step_s(2, 4, one(10), one(3))[0] == pytest.approx(3 * 0.2 + 0.2 + 0.5)


def test_overlap_is_the_norm_of_gamma() -> None:
    half = StepTimes(0.1, 0.02, 0.0, 0.0, 0.4, 0.0, gamma=2.0)
    assert half.step_s(1, 2, one(10), one(0))[0] == pytest.approx(
        0.5
    )  # 0.3, 0.4 and the hypotenuse


def test_efficiency_is_that_of_the_noise_scale() -> None:
    # The noise scale is 10 x 3 / 1 = 30: (30 + 10) / (30 + 20) of the progress of an example.
    noise = Noise(square=1.0, variance=3.0, batch=10)
    assert noise.efficiency(one(10))[0] == pytest.approx(1.0)
    assert noise.efficiency(one(20))[0] == pytest.approx(40 / 50)
    assert noise.efficiency(one(300))[0] == pytest.approx(40 / 330)


def test_goodput_is_throughput_times_efficiency() -> None:
    goodput = Goodput(SUM, Noise(1.0, 3.0, 10), Limits(10, 40, 5, 20))
    # Two GPUs with 10 each in one pass: a batch of 20 in 0.2 + 0.2 s, worth 0.8.
    assert goodput.at(1, 2, one(10), one(0))[0] == pytest.approx(20 / 0.4 * 0.8)


def test_the_best_batch_is_found_and_the_speedup_is_relative_to_one_gpu() -> None:
    # Only 10 or 11 examples a GPU: by hand, one GPU makes one pass of 10 (0.2 s) or two of 6, a
    # batch of 12.
    noise = Noise(1.0, 3.0, 10)
    goodput = Goodput(SUM, noise, Limits(10, 12, 5, 12))
    alone = {(10, 0): 10 / 0.2, (6, 1): 12 / (0.16 + 0.16) * 40 / 42}
    assert goodput.best(1, 1) == (pytest.approx(max(alone.values())), 10, 0)
    both = {5: 10 / (0.15 + 0.2), 6: 12 / (0.16 + 0.2) * 40 / 42}
    assert goodput.best(1, 2) == (pytest.approx(max(both.values())), 6, 0)
    assert goodput.speedup(1, 2) == pytest.approx(max(both.values()) / max(alone.values()))


def test_no_batch_is_large_enough_for_too_many_gpus() -> None:
    assert Goodput(SUM, Noise(1.0, 1.0, 10), Limits(10, 40, 5, 20)).best(3, 9) == (0.0, 0, 0)


def test_batches_are_divided_within_their_limits() -> None:
    limits = Limits(20, 320, 4, 16)
    for gpus in (1, 2, 3, 7, 16, 80):
        local, passes = limits.divisions(gpus)
        assert local.size
        assert (local >= 4).all()
        assert (local <= 16).all()
        batch = gpus * local * (passes + 1)
        assert (batch >= 20).all()
        assert (batch <= 320).all()
        if gpus == 1:
            assert ((passes > 0) | (local <= 20)).all()
    assert limits.divisions(1)[1].min() >= 1  # 20 do not fit into one pass, and more needs two
    assert limits.divisions(81)[0].size == 0


def measured(
    times: StepTimes, shapes: list[tuple[int, int]], batches: tuple[int, ...]
) -> list[Measured]:
    return [
        Measured(
            nodes,
            gpus,
            local,
            float(times.pass_s(one(local))[0]),
            float(times.step_s(nodes, gpus, one(local), one(0))[0]),
        )
        for nodes, gpus in shapes
        for local in batches
    ]


def test_the_fit_finds_times_that_the_model_made() -> None:
    pytest.importorskip("scipy")
    times = StepTimes(0.05, 0.004, 0.12, 0.004, 0.04, 0.002, gamma=1.5)
    shapes = [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (2, 8), (4, 16)]
    found = fit(measured(times, shapes, (16, 32, 64, 128)))
    for nodes, gpus in [*shapes, (3, 12), (8, 32)]:
        for local in (24, 100):
            assert found.step_s(nodes, gpus, one(local), one(1))[0] == pytest.approx(
                times.step_s(nodes, gpus, one(local), one(1))[0], rel=0.05
            )


def test_what_was_not_measured_is_taken_to_be_fast() -> None:
    pytest.importorskip("scipy")
    found = fit(measured(SUM, [(1, 1)], (10,)))
    # One point: half of its 0.2 s does not grow with the batch, and GPUs are summed for nothing.
    assert found.alpha_c == pytest.approx(0.1, rel=1e-3)
    assert found.beta_c == pytest.approx(0.01, rel=0.05)
    assert found.sync_s(1, 8) < 1e-6
    assert found.sync_s(2, 8) < 1e-6


def test_several_nodes_are_never_faster_than_one() -> None:
    pytest.importorskip("scipy")
    found = fit(measured(SUM, [(1, 1), (1, 2), (1, 4)], (10, 20)))
    assert found.sync_s(2, 4) >= 1.1 * found.sync_s(1, 4) * 0.999


def test_a_fit_needs_measurements() -> None:
    with pytest.raises(OptschedError, match="no measurements"):
        fit([])
