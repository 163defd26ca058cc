"""Who shares GPUs with whom, as rows that have prices too: without them the relaxation puts several
jobs on the GPUs of one."""

from dataclasses import replace

import numpy as np

from optsched.round.model import RoundModel, Row


def with_guest_rows(model: RoundModel) -> RoundModel:
    """The model with further rows, after its own, that every round satisfies: a job whose GPUs
    others may share has one guest at most, and only if it is kept; of two that share, the second
    stays alone only if the first leaves."""
    hosted, alone = np.flatnonzero(model.host >= 0), np.flatnonzero(model.rival >= 0)
    if not len(hosted) + len(alone):
        return model
    hosts, of_host = np.unique(model.host[hosted], return_inverse=True)
    own = len(model.rows)
    after = own + len(hosts)
    keep = model.first[:-1]
    return replace(
        model,
        rows=(
            *model.rows,
            *(Row("guests", model.jobs[j].id, 0.0) for j in hosts.tolist()),
            *(Row("alone", model.jobs[j].id, 1.0) for j in model.job[alone].tolist()),
        ),
        capacity=np.concatenate([model.capacity, np.zeros(len(hosts)), np.ones(len(alone))]),
        entry_row=np.concatenate(
            [
                model.entry_row,
                own + of_host,
                own + np.arange(len(hosts)),
                np.tile(after + np.arange(len(alone)), 2),
            ]
        ),
        entry_pattern=np.concatenate(
            [
                model.entry_pattern,
                model.pattern[hosted],
                model.pattern[keep[hosts]],
                model.pattern[alone],
                model.pattern[keep[model.rival[alone]]],
            ]
        ),
        entry_amount=np.concatenate(
            [
                model.entry_amount,
                np.ones(len(hosted)),
                -np.ones(len(hosts)),
                np.ones(2 * len(alone)),
            ]
        ),
        memo={},
    )
