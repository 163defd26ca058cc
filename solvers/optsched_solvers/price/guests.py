"""Sharing of GPUs as rows that have prices too: without them the relaxation puts several
jobs on the GPUs of one."""

from dataclasses import replace

import numpy as np

from optsched.round.model import RoundModel, Row, Rows


def with_guest_rows(model: RoundModel) -> RoundModel:
    """Return the model with further rows, after its own, that every round satisfies: a job whose
    GPUs others may share has one guest at most, and only if it is kept; of two that share, the
    second stays alone only if the first leaves."""
    options, rows = model.options, model.rows
    hosted, alone = np.flatnonzero(options.host >= 0), np.flatnonzero(options.rival >= 0)
    if not len(hosted) + len(alone):
        return model
    hosts, of_host = np.unique(options.host[hosted], return_inverse=True)
    own = len(rows.limits)
    host_row, alone_row = own + np.arange(len(hosts)), own + len(hosts) + np.arange(len(alone))
    keep = options.pattern[options.first[:-1]]
    limits = (
        *rows.limits,
        *(Row("guests", model.jobs[j].id, 0.0) for j in hosts.tolist()),
        *(Row("alone", model.jobs[j].id, 1.0) for j in options.job[alone].tolist()),
    )
    entries = [
        (rows.row, rows.pattern, rows.amount),
        (own + of_host, options.pattern[hosted], np.ones(len(hosted))),
        (host_row, keep[hosts], -np.ones(len(hosts))),
        (alone_row, options.pattern[alone], np.ones(len(alone))),
        (alone_row, keep[options.rival[alone]], np.ones(len(alone))),
    ]
    return replace(model, rows=Rows.of(limits, entries))
