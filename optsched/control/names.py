"""Names of jobs as their users may read them."""

from collections.abc import Sequence

from ..errors import listed
from ..frozen import record
from .journal.state import LiveJob, State

MOST_NAMES = 3
"""Jobs named before the rest is counted."""


@record
class Names:
    """Names of jobs as the user of one of them may read them: those of other users are counted."""

    state: State
    asker: LiveJob
    all: bool

    def shown(self, job_id: str) -> bool:
        """Tell whether a job may be named."""
        other = self.state.jobs.get(job_id)
        return self.all or (other is not None and _user(other) == _user(self.asker))

    def texts(self, job_ids: Sequence[str]) -> tuple[str, ...]:
        """Return names, then how many others."""
        shown = [name for name in job_ids if self.shown(name)]
        others = len(job_ids) - len(shown)
        more = [f"{others} job{'s' * (others != 1)} of other users"] if others else []
        return (*shown, *more)

    def text(self, job_ids: Sequence[str]) -> str:
        """Return `a, b, c and 4 more`."""
        names = self.texts(job_ids)
        if len(names) > MOST_NAMES + 1:
            return f"{', '.join(names[:MOST_NAMES])} and {len(job_ids) - MOST_NAMES} more"
        return listed(names)


def _user(job: LiveJob) -> tuple[int | None, str | None]:
    return job.submission.user_id, job.submission.job.user
