"""What a site lets Slurm's users say of their jobs, and what it says of them itself, by QOS and
account."""

from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from ...plugins.options import Duration, PluginOptions, declared_options
from ..base import Entry

SiteWeights = dict[str, Annotated[float, Gt(0), Le(1000)]]


@declared_options
class Rules(PluginOptions):
    """Which jobs of users may be stopped for others, and what they weigh."""

    preempt: Annotated[
        Literal["savers", "all", "none"],
        "Which jobs may be preempted: those that say that they save (savers), all, or none.",
    ] = "savers"
    preempt_qos: Annotated[tuple[str, ...], "QOS whose jobs may all be preempted."] = ()
    preempt_accounts: Annotated[tuple[str, ...], "Accounts whose jobs may all be preempted."] = ()
    min_run_s: Annotated[Duration, "How long a job runs before it may be preempted."] = 300.0
    max_preemptions: Annotated[int | None, Ge(0), "How often a job may be preempted."] = 5
    qos_weight: Annotated[SiteWeights, "Weight of the jobs of each QOS; 1 for others."] = field(
        default_factory=dict
    )
    account_weight: Annotated[SiteWeights, "Factor on the weight of the jobs of each account."] = (
        field(default_factory=dict)
    )

    def may_be_stopped(self, entry: Entry, agrees: bool) -> tuple[bool, bool]:
        """Return whether a job of Slurm's may be stopped for others, and whether even where nobody
        knows that it saves. `agrees` is what its user says, which does not count where its QOS or
        account decides."""
        if entry.get("qos") in self.preempt_qos or entry.get("account") in self.preempt_accounts:
            return True, True
        return agrees and self.preempt != "none", self.preempt == "all"

    def weight(self, entry: Entry) -> float:
        """Return what the site says a job of Slurm's weighs."""
        by_qos = self.qos_weight.get(str(entry.get("qos")), 1.0)
        return by_qos * self.account_weight.get(str(entry.get("account")), 1.0)


NONE = Rules(min_run_s=0.0, max_preemptions=None)
"""Those of a site that says nothing."""
