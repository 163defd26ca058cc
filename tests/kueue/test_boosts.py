"""Boosts: the order comes about, with as few changes as possible."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.kueue.boosts import MOST, Place, boosts

PLACES = st.builds(
    Place, base=st.sampled_from([0, 0, 100, -50]), boost=st.integers(-5, 5), below=st.booleans()
)


def falls(order: list[Place], found: list[int]) -> bool:
    now = [one.base + boost for one, boost in zip(order, found, strict=True)]
    return all(now[i - 1] - now[i] >= order[i].below for i in range(1, len(now)))


def most_unchanged(order: list[Place]) -> int:
    """The most places that can keep their boost, by trying all subsets: between two that stay,
    those in between need room."""
    room = [0]
    for one in order[1:]:
        room.append(room[-1] + one.below)

    def possible(stay: tuple[int, ...]) -> bool:
        return all(
            order[i].base + order[i].boost - order[j].base - order[j].boost >= room[j] - room[i]
            for i, j in pairwise(stay)
        )

    count = len(order)
    return max(
        size
        for size in range(count + 1)
        for stay in combinations(range(count), size)
        if possible(stay)
    )


@given(st.lists(PLACES, max_size=7))
def test_the_order_comes_about_with_the_fewest_changes(order: list[Place]) -> None:
    found = boosts(order)
    assert falls(order, found)
    changed = sum(one.boost != boost for one, boost in zip(order, found, strict=True))
    assert changed <= len(order) - most_unchanged(order)
    settled = [
        Place(base=one.base, boost=boost, below=one.below)
        for one, boost in zip(order, found, strict=True)
    ]
    assert boosts(settled) == found


@given(
    st.lists(
        st.builds(Place, base=st.integers(-(2**31), 2**31), boost=st.integers(-MOST, MOST)),
        max_size=30,
    )
)
def test_no_boost_is_larger_than_the_most(order: list[Place]) -> None:
    assert all(abs(boost) <= MOST for boost in boosts(order))


def test_an_order_that_is_there_needs_nothing() -> None:
    """Equal priorities in the order of creation are how Kueue begins."""
    assert boosts([Place(base=0, below=False) for _ in range(100)]) == [0] * 100
    assert boosts([Place(base=priority) for priority in (300, 200, 100)]) == [0, 0, 0]
    assert boosts([]) == []


def test_one_that_comes_first_is_the_one_that_changes() -> None:
    """The last of five that are alike is put first: one boost of five, upwards."""
    first, *rest = boosts([Place(base=7), Place(base=7), *[Place(base=7, below=False)] * 3])
    assert first > 0 and rest == [0] * 4


def test_one_put_between_finds_room() -> None:
    found = boosts([Place(base=0, boost=20), Place(base=0), Place(base=0, boost=10)])
    assert (
        found[0] == 20 and found[2] == 10 and 12 < found[1] < 18
    )  # with room for others on both sides


@pytest.mark.parametrize("rounds", [300])
def test_boosts_stay_small(rounds: int) -> None:
    """Jobs come and go, each new one first at once and then among those that go on: priorities do
    not run away."""
    running: list[int] = []
    largest = 0
    for _ in range(rounds):
        running.sort(reverse=True)
        order = [
            *(Place(base=0, boost=boost, below=False) for boost in running),
            Place(base=0),
            Place(base=0),
        ]
        *running, started, waits = boosts(order)
        assert min([*running, started + 1]) > started > waits
        running = [*running, started][-8:]
        largest = max(largest, *map(abs, [*running, waits]))
    assert largest < 1000
