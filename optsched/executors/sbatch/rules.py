"""What a site lets Slurm's users say of their jobs, and what it says of them itself, by QOS and
account."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...control.settings import Preempt, SlurmSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`preempt` says which jobs may be stopped for others: those of which it is known that they
    save (`savers`), all, or none; jobs of `preempt_qos` and `preempt_accounts` may be in any
    case. None is before it has run for `min_run_s`, nor more than `max_preemptions` times. A job
    weighs as `qos_weight` says of its QOS, times what `account_weight` says of its account; 1
    where they say nothing."""

    preempt: "Preempt" = "savers"
    preempt_qos: tuple[str, ...] = ()
    preempt_accounts: tuple[str, ...] = ()
    min_run_s: float = 0.0
    max_preemptions: int | None = None
    qos_weight: Mapping[str, float] = field(default_factory=dict)
    account_weight: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, given: "SlurmSettings") -> "Rules":
        """Those of `[slurm]`."""
        return cls(
            preempt=given.preempt,
            preempt_qos=given.preempt_qos,
            preempt_accounts=given.preempt_accounts,
            min_run_s=float(given.min_run),
            max_preemptions=given.max_preemptions,
            qos_weight=given.qos_weight,
            account_weight=given.account_weight,
        )

    def may_be_stopped(self, entry: Mapping[str, Any], agrees: bool) -> tuple[bool, bool]:
        """Whether a job of Slurm's may be stopped for others, and whether even where nobody
        knows that it saves. `agrees` is what its user says, which does not count where its QOS
        or account decides."""
        if entry.get("qos") in self.preempt_qos or entry.get("account") in self.preempt_accounts:
            return True, True
        return agrees and self.preempt != "none", self.preempt == "all"

    def weight(self, entry: Mapping[str, Any]) -> float:
        """What the site says a job of Slurm's weighs."""
        by_qos = self.qos_weight.get(str(entry.get("qos")), 1.0)
        return by_qos * self.account_weight.get(str(entry.get("account")), 1.0)


NONE = Rules()
"""Those of a site that says nothing."""
