"""What is left of budgets of GPU-hours, and until when."""

from math import isfinite

from ..frozen import frozen
from .budgets import period_s
from .caps import caps_of, has_budgets
from .core import ControllerCore
from .limits import Budgets, holders_of
from .settings import Period


@frozen
class BudgetView:
    """The budget of a user, or of a tenant with all below it: `gpu_h` in the period, what was used
    of it, what the jobs that run are expected to use yet, and what that leaves for others."""

    user: str | None
    tenant: str | None
    gpu_h: float
    used_gpu_h: float
    expected_gpu_h: float
    left_gpu_h: float


@frozen
class BudgetsView:
    """All budgets, those of users first: for the period from `from_s` on, after which they begin
    anew at `until_s` (None: never)."""

    now_s: float
    per: Period
    from_s: float
    until_s: float | None
    rows: tuple[BudgetView, ...]


def budgets_view(known: ControllerCore, user: str | None) -> BudgetsView:
    """Return the budgets of all tenants, and of all users that have used anything, or only of this
    one."""
    now_s, settings, state = known.clock.now_s(), known.settings, known.state
    from_s, until_s = period_s(settings.limits.gpu_hours_per, now_s)
    rows: list[BudgetView] = []
    if has_budgets(settings):
        used = known.meter.spent(from_s, now_s)
        budgets = Budgets(settings, lambda _: used, now_s)
        for job, gpus in holders_of(state):
            noun = job.submission.job
            budgets.take(caps_of(settings, noun.user or "", noun.tenant), job, gpus)

        def row(whose: str, gpu_h: float, user: str | None, tenant: str | None) -> BudgetView:
            used_h, due_h = (gpu_s / 3600 for gpu_s in budgets.used_and_due_gpu_s(whose))
            return BudgetView(
                user=user,
                tenant=tenant,
                gpu_h=gpu_h,
                used_gpu_h=used_h,
                expected_gpu_h=due_h,
                left_gpu_h=max(0.0, gpu_h - used_h - due_h),
            )

        named = {*settings.limits.users, *(name for name, _ in used)}
        named |= {job.submission.job.user or "" for job in state.open.values()}
        for name in sorted(named - {""}) if user is None else (user,):
            caps = caps_of(settings, name, None)
            rows += (
                row(name, cap.gpu_hours, name, None) for cap in caps if cap.gpu_hours is not None
            )
        for own in settings.tenants:
            if own.max_gpu_hours is not None:
                rows.append(row(f"tenant {own.name}", own.max_gpu_hours, None, own.name))
    return BudgetsView(
        now_s=now_s,
        per=settings.limits.gpu_hours_per,
        from_s=from_s,
        until_s=until_s if isfinite(until_s) else None,
        rows=tuple(rows),
    )
