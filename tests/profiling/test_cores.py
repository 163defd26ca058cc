"""The smallest core count on the plateau."""

import os
import random
import xml.etree.ElementTree as ET

import pytest

from optsched.errors import InputError
from optsched.profiling.cores import check_counts, plateau, sweep
from optsched.profiling.picture import bars, svg
from optsched.profiling.probe import ProbeError
from tests.profiling.conftest import LOOP, patiently


def rates(found) -> dict[int, float]:
    return {one.cpus_per_gpu: one.rate for one in found.counts}


def test_by_hand() -> None:
    """Counts 4 and 8 are within 5 % of the best; the median of their six rates is 10, the line
    9.5."""
    found = plateau({1: [3, 3, 3], 2: [6, 6, 6], 4: [9.8, 9.8, 10], 8: [10, 10.2, 10.1]})
    assert found.smallest == 4
    assert found.repeats == 3
    assert found.sure
    assert rates(found)[2] < 0.65
    assert rates(found)[8] == 1.0
    assert [one.steps_per_s for one in found.counts] == [3, 6, 9.8, 10.1]


def test_a_host_that_slows_down_changes_nothing() -> None:
    """In the second repeat everything takes twice, in the third four times as long."""
    found = plateau({1: [5, 2.5, 1.25], 2: [10, 5, 2.5], 4: [10, 5, 2.5]})
    assert rates(found) == pytest.approx({1: 0.5, 2: 1.0, 4: 1.0})
    assert (found.smallest, found.sure) == (2, True)
    assert [(one.least_rate, one.most_rate) for one in found.counts] == [(0.5, 0.5), (1, 1), (1, 1)]


def test_one_hiccup_changes_nothing_but_is_told() -> None:
    found = plateau({1: [5, 5, 5], 2: [10, 10, 10], 4: [10, 4, 10]})
    assert (found.smallest, found.sure) == (2, False)


def test_more_cores_may_be_slower() -> None:
    found = plateau({1: [5], 2: [10], 4: [7]})
    assert found.smallest == 2
    assert rates(found) == pytest.approx({1: 0.5, 2: 1.0, 4: 0.7})


def test_flat_needs_the_least() -> None:
    found = plateau({2: [10, 10], 4: [10, 10], 16: [10, 10]})
    assert (found.smallest, found.sure) == (2, True)


def test_one_count() -> None:
    assert plateau({4: [3.0]}).smallest == 4


def test_noise_seldom_misleads() -> None:
    """True rates 1, 2, 2, 2, each measured with 3 % noise on a host that drifts by up to a fifth:
    found to be 2 in at least 97 of 100 cases with three repeats, in all of 300 cases with nine. The
    best median alone as the level would be wrong about three times as often."""
    draw = random.Random(7)

    def measured(repeats: int) -> dict[int, list[float]]:
        drift = [draw.uniform(0.8, 1.0) for _ in range(repeats)]
        true = {1: 1.0, 2: 2.0, 4: 2.0, 8: 2.0}
        return {
            count: [rate * slow * draw.gauss(1, 0.03) for slow in drift]
            for count, rate in true.items()
        }

    assert sum(plateau(measured(3)).smallest == 2 for _ in range(300)) >= 291
    assert all(plateau(measured(9)).smallest == 2 for _ in range(300))


@pytest.mark.parametrize(
    ("counts", "gpus", "cores", "said"),
    [
        ([1, 8], 1, 4, "--cpus 8: 8 cores, but this host has 4"),
        ([3], 2, 4, "3 cores for each of 2 GPUs are 6, but this host has 4"),
        ([5], 0, 4, "--cpus 5: 5 cores"),
    ],
)
def test_more_cores_than_there_are_are_refused(counts, gpus, cores, said) -> None:
    with pytest.raises(InputError, match=said):
        check_counts(counts, gpus, cores)


def test_a_real_command(python, setting) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this host has one core to use")
    seen: list[tuple[int, int]] = []

    def measure(for_s):
        seen.clear()
        try:
            return sweep(
                setting(python(LOOP), for_s=for_s), [1, 2], 2, lambda *run: seen.append(run)
            )
        except ProbeError:
            return None

    found = patiently(
        measure, lambda found: found is not None and 0.4 < rates(found)[1] < 0.65, (0.6, 4, 30)
    )
    assert seen == [(1, 0), (2, 0), (2, 1), (1, 1)]
    assert found.smallest == 2
    assert 0.4 < rates(found)[1] < 0.65


def test_without_steps_there_is_no_rate(setting) -> None:
    with pytest.raises(ProbeError, match=r"no two steps were seen in 0.2 s.*--for"):
        sweep(setting(["sleep", "60"], for_s=0.2), [1], 1)


def test_pictures() -> None:
    found = plateau({1: [5, 5.2], 2: [10, 10.1], 16: [10, 9.9]})
    lines = bars(found)
    assert len(lines) == 3
    assert lines[1].startswith(" 2 ") and "smallest on the plateau" in lines[1]
    assert 0.45 * lines[2].count("█") < lines[0].count("█") < 0.6 * lines[2].count("█")
    drawn = svg(found, 'python <train>.py "&"' * 9, "cores for each GPU")
    assert ET.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert drawn == svg(found, 'python <train>.py "&"' * 9, "cores for each GPU")
