"""The publication that all Gavel policies come from."""

from optsched.plugins.policy import Source

GAVEL = Source(
    authors="D. Narayanan, K. Santhanam, F. Kazhamiaka, A. Phanishayee, M. Zaharia",
    title="Heterogeneity-aware cluster scheduling policies for deep learning workloads",
    venue="OSDI",
    year=2020,
    link="https://github.com/stanford-futuredata/gavel",
    needs=("profile.rate",),
    sureness="verified",
    published="average JCT and makespan up to 3.5x better than heterogeneity-agnostic policies "
    "(all of Gavel)",
)
"""To be completed by each policy."""

PAIRS_NEED = "profile.sharing"
"""What `sharing=pairs` reads."""
