"""Gangs played message by message, by hand."""

import pytest

from benchmarks.messages import Gang, Gate, Play


def gang(node: str, message_s: float, steps: int = 1, submit_s: float = 0.0) -> Gang:
    """Return a gang that computes for a second before each message over the one link."""
    return Gang(submit_s, submit_s, (node,), ("uplink",), 1.0, message_s, steps)


@pytest.mark.parametrize(
    ("gate", "eta", "second", "ends_s"),
    [
        ("avoid", 0.0, gang("b", 2.0), [3.0, 5.0]),
        ("accept", 0.0, gang("b", 2.0), [5.0, 5.0]),
        ("accept", 0.5, gang("b", 2.0), [6.0, 6.0]),  # each takes 2.5 times as long
        ("adadual", 0.0, gang("b", 2.0), [3.0, 5.0]),
        ("adadual", 0.0, gang("b", 0.5, submit_s=0.5), [3.5, 2.5]),  # 0.5 < 1.5 / 2: they share
        ("adadual", 1.0, gang("b", 0.5, submit_s=0.5), [3.0, 3.5]),  # 0.5 > 1.5 / 4: it waits
        ("avoid", 0.0, gang("b", 1.0, steps=2), [3.0, 6.0]),  # a has less to do in all
    ],
)
def test_two_gangs_on_a_link(gate: Gate, eta: float, second: Gang, ends_s: list[float]) -> None:
    assert Play([gang("a", 2.0), second], gate, eta).run() == pytest.approx(ends_s)


def test_gpus_are_had_in_order() -> None:
    alone = Gang(0.0, 1.0, ("a", "b"), (), 5.0, 0.0, 1)
    after = Gang(0.0, 2.0, ("b",), (), 1.0, 0.0, 1)
    assert Play([gang("a", 2.0), alone, after], "avoid", 0.0).run() == [3.0, 8.0, 9.0]
