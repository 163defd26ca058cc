"""Batches are divided within what was measured."""

from optsched.traces.readers.batch_limits import Limits


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
