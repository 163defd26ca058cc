"""Options of policies that are wrong are told by name."""

import pytest

from optsched.errors import InputError
from optsched.plugins.registry import names, policy

WRONG = {
    "a-srpt": "tau=x theta=0.5 early=maybe",
    "ada-srsf": "kappa=-1 eta=x eta=-1 gate=maybe",
    "ces": "order=sjf buffer=-1 boot=soon",
    "coda-style": "gain=-1 bandwidth=wide wide=2",
    "deepshare-myopic": "contention=x interval=0",
    "dl2-myopic": "interval=0",
    "fgd": "tasks=none",
    "gadget": "choice=best utility=square place=packed",
    "gavel-fifo": "round=0 round=soon",
    "gavel-hierarchical": "inside=lottery",
    "gavel-makespan": "sharing=pairs,heterogeneity=agnostic",
    "gavel-max-min": "sharing=all heterogeneity=yes",
    "gavel-sjf": "sharing=pairs",
    "gavel-slo": "idle=no",
    "gavel-throughput": "costs=low",
    "gittins": "step=0 step=x",
    "marl-partition": "interval=0 history=x",
    "netaware": "model=tree",
    "optimus": "interval=0 interval=soon place=left",
    "philly": "tau=0 reclaim=2 retries=-1",
    "pollux": "goodput=guessed delay=soon",
    "powerflow": "solve=best power=-1 power=much energy=0 power=1,energy=1",
    "qssf": "alpha=2 alpha=x",
    "shockwave-style": "round=soon round=0s window=0 window=x",
    "synergy-opt": "share=tuned interval=soon",
    "synergy-tune": "order=random share=none",
    "themis": "lease=0 fairness=2 fairness=x",
    "tiresias": "thresholds= thresholds=5;4 thresholds=0 thresholds=x thresholds=inf promote=-1 "
    "promote=nan promote=x place=left",
}
"""Values that are none, by policy; those with a comma between them exclude each other."""


@pytest.mark.parametrize(
    ("name", "given"), [(name, given) for name, all in WRONG.items() for given in all.split()]
)
def test_values_that_are_none(name: str, given: str) -> None:
    options = dict(each.replace(";", ",").split("=") for each in given.split(","))
    with pytest.raises(InputError, match=next(iter(options))):
        policy(name, options=options)


@pytest.mark.parametrize("name", names("policies"))
def test_options_that_no_policy_has(name: str) -> None:
    with pytest.raises(InputError, match=f"policy {name} .*no-such"):
        policy(name, options={"no-such": "1"})
