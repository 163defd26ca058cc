"""What Slurm is told of attempts: to let a job go, to ask it to stop, to put it back into its
queue."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from ..attempts.attempt import AGAIN_S
from ..base import SAVED_AND_STOPPED, NoAnswerError, NodeStatus, RefusedError
from ..slurm.client import SlurmClient
from ..slurm.declining import ELSEWHERE_S, Declining
from ..slurm.jobs import SHELL_STEP
from ..slurm.site import Site
from .attempt import SbatchAttempt
from .hints import hints_of
from .jobs_json import ON_HOLD, HeldJob

FINAL = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"})
"""States of which no job that has not saved is put back into the queue."""
SILENT = ("does not respond", "is in no known state")
"""Of nodes that soon answer again, or else are said to be down: so all are for a moment when
slurmctld has started."""
REQUEUE = ("scontrol", "requeuehold")


STARTS = re.compile(r" ?\[starts: [^\]]*\]")
SAID = re.compile(r" ?\[(?:not started|starts): [^\]]*\]")
"""What this adds to the comment of a job that Slurm did not start, or that is expected to start."""
MOST_TOLD = 20
"""So many jobs are told at once when they are expected to start."""


def unsaid(job: HeldJob) -> str:
    """Return the job's comment without that."""
    return SAID.sub("", _comment(job))


def _comment(job: HeldJob) -> str:
    return str(job.entry.get("comment") or "")


class Teller:
    """Tells; `told_s` is when it last did, after which what was seen of jobs before is stale."""

    def __init__(self, client: SlurmClient, site: Site, declining: Declining) -> None:
        self._client, self._site, self._declining = client, site, declining
        self.told_s = -float("inf")
        self._kept: set[str] = set()

    def tell(self, *words: str) -> None:
        """Run one of Slurm's programs. Raises RefusedError, NoAnswerError."""
        try:
            self._client.ask(words[0], *words[1:])
        finally:
            self.told_s = time.monotonic()

    def release(self, attempt: SbatchAttempt, job: HeldJob) -> None:
        """Let a held job go on the attempt's nodes, whose key Slurm keeps before it does.
        job_submit.lua refuses that for another job than the one that was meant. Raises
        RefusedError, NoAnswerError."""
        released = attempt.record.get("release")
        if released and (job.priority or not attempt.mine(job)):
            return  # it is on its way; or Slurm has forgotten it, which `look` finds out
        if job.released or not attempt.mine(job):
            memory_mib = attempt.record["memory_mib"]
            shortened = attempt.record.get("shortened")
            self.tell(
                "scontrol",
                "update",
                f"jobid={job.target}",
                f"ReqNodeList={','.join(attempt.names)}",
                "StartTime=now",  # else a requeued job waits two minutes
                *([f"Comment={unsaid(job)}"] if SAID.search(_comment(job)) else []),
                f"AdminComment=optsched {job.token} {attempt.key}",
                *([] if memory_mib is None else [f"MinMemoryNode={memory_mib}"]),
                *([f"TimeLimit={shortened[0]}"] if shortened else []),
            )
        try:
            attempt.write(release=True, released_s=attempt.record.get("released_s") or time.time())
            self.tell("scontrol", "release", job.target)
        except RefusedError as error:
            raise NoAnswerError(str(error)) from None
        except OSError as error:
            raise NoAnswerError(
                f"that {attempt.key} is started cannot be recorded: {error.strerror}"
            ) from error

    def see_to_limit(self, attempt: SbatchAttempt, job: HeldJob, minutes: int | None) -> None:
        """Lower the time limit again of a job that Slurm was late to start before a reservation,
        which leaves it `minutes`, and give it its own back once it runs or is not to start any
        more. Raises OSError."""
        shortened = attempt.record.get("shortened")
        if not shortened or job.completing or job.over or not attempt.mine(job):
            return
        own, after = shortened[1], None
        if job.waits and attempt.stop is None and job.restarts == attempt.record["restarts"]:
            if not minutes or minutes >= shortened[0]:
                return
            after = [minutes, own]
        with suppress(NoAnswerError, RefusedError):
            limit = minutes if after else own
            self.tell("scontrol", "update", f"jobid={job.target}", f"TimeLimit={limit}")
            attempt.write(shortened=after)

    def foretell(self, jobs: Iterable[HeldJob], starts: Mapping[str, str]) -> None:
        """Say in the comments of jobs when they start, by origin; of others nothing any more."""
        told = 0
        for job in jobs:
            start, comment = starts.get(job.origin), STARTS.sub("", _comment(job))
            if start is not None:
                comment = f"{comment} [starts: {start}]".strip()
            if comment != _comment(job) and told < MOST_TOLD:
                told += 1
                with suppress(NoAnswerError, RefusedError):
                    self.tell(
                        "scontrol", "update", f"jobid={job.target}", f"Comment={comment or ' '}"
                    )

    def keep(self, targets: Iterable[str]) -> None:
        """Put jobs on hold; those that run go on, and wait for us whoever requeues them."""
        listed = ",".join(dict.fromkeys(targets))
        if listed:
            with suppress(NoAnswerError, RefusedError):
                self.tell("scontrol", "hold", listed)

    def keep_from_users(self, jobs: Iterable[HeldJob]) -> None:
        """Put on hold as an administrator does what job_submit.lua has held, which Slurm takes for
        its user's doing."""
        users = [
            job
            for job in jobs
            if job.waits and not job.priority and job.held_by_user and job.origin not in self._kept
        ]
        self._kept |= {job.origin for job in users}
        self.keep(job.whole for job in users)

    def see_to(self, attempt: SbatchAttempt, job: HeldJob, statuses: Sequence[NodeStatus]) -> None:
        """Tell Slurm what it has not done yet."""
        stop = attempt.stop
        timed = stop is not None and stop["grace_s"] is not None and not stop.get("forced")
        late = timed and attempt.overdue_s() > 0
        if time.monotonic() < attempt.told_s + AGAIN_S and not late:
            return
        with suppress(NoAnswerError, RefusedError, OSError):
            words = self._wanted(attempt, job, statuses)
            if words is None:
                return
            attempt.told_s = time.monotonic()
            try:
                self.tell(*words)
            except RefusedError:
                if words[:2] != REQUEUE or job.entry.get("requeue"):
                    raise
                self.tell(
                    "scancel", "--quiet", job.target
                )  # its user wants it never to be requeued
            if words[0] == "scancel" and attempt.stop is not None:
                attempt.write(stop={**attempt.stop, "told": True})

    def _wanted(
        self, attempt: SbatchAttempt, job: HeldJob, statuses: Sequence[NodeStatus]
    ) -> tuple[str, ...] | None:
        """Return what Slurm is to be told of the attempt's job, in words; None for nothing. Raises
        NoAnswerError, RefusedError."""
        again = job.restarts > attempt.record["restarts"]
        if job.completing or job.over:
            return None
        if job.waits:
            if attempt.stop is None and not again:
                self._give_up(attempt, job, statuses)
            return ("scontrol", "hold", job.target) if job.priority and attempt.stop else None
        if attempt.stop is not None and attempt.stop.get("lost") is not None:
            attempt.write(stop=None)  # it began while it was being given up
        if again:  # Slurm has started it once more
            return (*REQUEUE, job.target)
        stop = attempt.stop
        if stop is None or not attempt.mine(job):
            return None
        if (
            stop["grace_s"] is None
        ):  # scancel cannot send SIGKILL to all without cancelling the job for good
            return (*REQUEUE, job.target)
        if attempt.overdue_s() > 0:
            with suppress(OSError):
                attempt.write(stop={**stop, "forced": True})
            return (*REQUEUE, job.target)
        return None if stop.get("told") else self._signal(job)

    def _give_up(
        self, attempt: SbatchAttempt, job: HeldJob, statuses: Sequence[NodeStatus]
    ) -> None:
        """Have an attempt stop that waits in Slurm for a node that takes no jobs any more, or has
        for too long; the job's comment says why. Raises NoAnswerError, RefusedError, OSError."""
        released_s = attempt.record.get("released_s")
        if released_s is None:
            return
        answering = (status for status in statuses if not (status.reason or "").startswith(SILENT))
        late = attempt.since_s(released_s) > self._site.gives_up_s(job.reason)
        reason = job.reason if late and attempt.mine(job) else None
        gives_up = self._declining.gives_up(answering, reason, *attempt.asks())
        if gives_up is None:
            return
        lost, retry_s = gives_up
        if self._declining.limit(attempt.who) is not None:
            retry_s = ELSEWHERE_S  # until there is room it is barred with all others alike
        attempt.give_up(lost, 0.0, retry_s)
        with suppress(NoAnswerError, RefusedError):
            said = f"{unsaid(job)} [not started: {lost.replace(']', ')')}]"
            self.tell("scontrol", "update", f"jobid={job.target}", f"Comment={said.strip()}")

    def _signal(self, job: HeldJob) -> tuple[str, ...]:
        """Return how a job is asked to stop: its steps are signalled, and where there are none its
        batch script with all that it has started. An srun that is signalled itself kills its step.
        Raises NoAnswerError, RefusedError."""
        hints = hints_of(_comment(job))
        signal = f"--signal={hints.signal}"
        if hints.batch_only:
            return ("scancel", "--quiet", "--batch", signal, job.target)
        which = ("--steps", f"--jobs={job.target}", "-o", "%i %j")
        steps = (line.split() for line in self._client.ask("squeue", "-h", *which).splitlines())
        own = [step[0] for step in steps if step and step[1:] != [SHELL_STEP]]
        stepped = any(step.rpartition(".")[2].isdecimal() for step in own)
        full = [] if job.entry.get("batch_flag") is False or stepped else ["--full"]
        return ("scancel", "--quiet", *full, signal, job.target)

    def marks_hold(self, attempt: SbatchAttempt, job: HeldJob) -> None:
        """Have a job that its user stopped by `scontrol requeuehold` bear the mark of those that
        users hold."""
        by_others = job.waits and job.restarts > attempt.record["restarts"]
        ours = attempt.stop is not None or attempt.record.get("last") is not None
        if by_others and not ours and job.held_by_user and not job.held:
            with suppress(NoAnswerError, RefusedError):
                comment = f"Comment={_comment(job)} {ON_HOLD}"
                self.tell("scontrol", "update", f"jobid={job.target}", comment)

    def puts_back(self, attempt: SbatchAttempt, job: HeldJob) -> bool:
        """Return whether an attempt that has ended is being put back into Slurm's queue, for its
        job is to go on: it says so (85), or was asked to stop and has not done all. Raises
        OSError."""
        saved = job.status == SAVED_AND_STOPPED and "CANCELLED" not in job.states
        goes_on = saved or (job.status and attempt.stop is not None and not job.states & FINAL)
        again = job.restarts > attempt.record["restarts"]
        done = attempt.ended is not None or again or attempt.record.get("final")
        if done or not goes_on or not job.over or not attempt.mine(job):
            return False
        if attempt.record.get("last") is None:
            attempt.write(last={"status": job.status, "ended_s": job.ended_s})
        elif time.monotonic() < attempt.told_s + AGAIN_S:
            return True
        attempt.told_s = time.monotonic()
        try:
            self.tell(*REQUEUE, job.target)
        except NoAnswerError:
            return True
        except RefusedError:  # its user wants that
            attempt.write(final=True)
            return False
        return True
