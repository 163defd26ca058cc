"""Stopping and starting attempts as was decided."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..executors.base import AttemptState, DeclinedError, NoAnswerError, Order, RefusedError
from ..model import Slot, Window
from ..physics import hold_to_save_s
from ..physics.windows import leaves_saved
from .core import AGAIN_S, said_of
from .journal.events import (
    KillIntended,
    Noted,
    Signalled,
    StartIntended,
    StartRefused,
    StopIntended,
    Why,
)
from .journal.state import Attempt, LiveJob
from .launchable import Launchable, launchable
from .looking import Looking
from .present import ASKED_S, as_waiting, memory_of, start_setup_s
from .warning import number_of, warning_of

OVERTIME_S = 15.0
"""So long after its grace an attempt that has not ended is killed from here."""


class Acting(Looking):
    """The part of a controller that stops and starts attempts."""

    def _stop_unwanted(self) -> None:
        """Ask those to stop that are cancelled, held, or not to go on after the last round."""
        windows = [window for window in self.cluster.windows if window.nodes]
        for attempt in [*self.state.live_attempts()]:
            job = self.state.jobs[attempt.key.job]
            why = self._why_stop(job, attempt)
            if why is None and windows and self._must_save(job, attempt, windows):
                why = "preempt"
            self._warn(job, attempt)
            if attempt.leaving:
                self._stop_again(attempt)
            elif why is not None:
                self._stop(job, attempt, why)

    def _warn(self, job: LiveJob, attempt: Attempt) -> None:
        """Send the signal that is wanted before the time limit, once it is time for that."""
        if job.submission.warning is None or attempt.warned or attempt.leaving:
            return
        name, before_s = warning_of(job.submission.warning)
        running = attempt.started_s is not None and attempt.lost is None
        if running and job.limit_left_s(self.clock.now_s()) <= before_s:
            try:
                self.executor.signal(attempt.key, number_of(name))
            except (NoAnswerError, OSError):
                return  # sent at the next turn
            except RefusedError as error:
                self.record(Noted(text=f"{attempt.key} is not warned of its time limit: {error}"))
            except Exception as error:
                self.bug(f"sending a signal to {attempt.key}", error)
            self.record(Signalled(job=job.id, number=attempt.key.number, signal=name))

    def _why_stop(self, job: LiveJob, attempt: Attempt) -> Why | None:
        if job.cancelled is not None:
            return "cancel"
        if job.held is not None:
            return "hold"
        if attempt.lost is not None:
            return None
        if job.requeued:
            return "requeue"
        if job.limit_left_s(self.clock.now_s()) <= 0:
            return "limit"
        if job.id in self.state.stay:
            return None
        claim = self.state.claims.get(job.id)
        if claim is None:
            return "preempt"
        return "migrate" if claim.mode.size == attempt.mode.size else "resize"

    def _must_save(self, job: LiveJob, attempt: Attempt, windows: Sequence[Window]) -> bool:
        """Return whether a job has to save now for a window and no round has asked it to, as rounds
        fail or are decided without it."""
        known, now_s = as_waiting(job), self.clock.now_s()
        if attempt.started_s is None or attempt.leaving or attempt.lost is not None:
            return False
        if now_s < attempt.started_s + known.min_run_s or not leaves_saved(known, job.preemptions):
            return False
        early_s = hold_to_save_s(known) + ASKED_S / 2
        nodes = {slot.node for slot in attempt.placement}
        return any(
            window.from_s - early_s <= now_s < window.to_s
            and window.bars(known.tenant, known.user)
            and not nodes.isdisjoint(window.nodes)
            for window in windows
        )

    def _stop(self, job: LiveJob, attempt: Attempt, why: Why) -> None:
        name, number = attempt.key.job, attempt.key.number
        if attempt.key in self.observed or attempt.started_s is not None:
            self.record(
                StopIntended(job=name, number=number, why=why, grace_s=job.submission.grace_s)
            )
        else:
            self.record(
                KillIntended(
                    job=name, number=number, reason="it was not wanted any more before it began"
                )
            )
        self._ask_to_end(attempt)

    def _stop_again(self, attempt: Attempt) -> None:
        now_s = self.clock.now_s()
        late = attempt.stop_s is not None and now_s > attempt.stop_s + attempt.grace_s + OVERTIME_S
        if late and attempt.killed is None:
            self.record(
                KillIntended(
                    job=attempt.key.job,
                    number=attempt.key.number,
                    reason="it had not ended when its grace period was over",
                )
            )
            self._ask_to_end(attempt)
        elif now_s - self._asked_s.get(attempt.key, -float("inf")) >= AGAIN_S:
            self._ask_to_end(attempt)

    def _ask_to_end(self, attempt: Attempt) -> None:
        self._asked_s[attempt.key] = self.clock.now_s()
        try:
            if attempt.killed is not None:
                self.executor.kill(attempt.key)
            else:
                self.executor.checkpoint_stop(attempt.key, attempt.grace_s)
        except (NoAnswerError, OSError):
            pass  # asked again until it is seen to have ended
        except Exception as error:
            self.bug(f"stopping {attempt.key}", error)

    def _start_claimed(self) -> None:
        now_s = self.clock.now_s()
        for attempt in [*self.state.live_attempts()]:
            seen = self.observed.get(attempt.key)
            half_done = attempt.started_s is None and (
                seen is None or seen.state == AttemptState.STARTING
            )
            if (
                half_done
                and not attempt.leaving
                and now_s - self._asked_s.get(attempt.key, -float("inf")) >= AGAIN_S
            ):
                self._start(attempt)
        for start in launchable(
            self.state,
            self.cluster,
            self.tenants,
            self.statuses,
            self._progress(),
            now_s,
            self.strangers(),
        ):
            self._start_new(start)

    def _start_new(self, start: Launchable) -> None:
        claim = start.claim
        job = self.state.jobs[claim.job]
        number = len(job.attempts) + 1
        self.record(
            StartIntended(
                job=claim.job,
                number=number,
                mode=claim.mode,
                placement=claim.placement,
                work_s=job.left_s,
                rate=start.rate,
                setup_s=start_setup_s(job),
                reserved=claim.reserved,
            )
        )
        self._start(job.attempts[-1])

    def _start(self, attempt: Attempt) -> None:
        self._asked_s[attempt.key] = self.clock.now_s()
        try:
            self.executor.start(self._order(attempt))
        except (NoAnswerError, OSError):
            pass  # made again until it is seen
        except RefusedError as error:
            retry_s = error.retry_s if isinstance(error, DeclinedError) else None
            self.record(
                StartRefused(
                    job=attempt.key.job,
                    number=attempt.key.number,
                    reason=str(error),
                    retry_s=retry_s,
                )
            )
        except Exception as error:
            self.bug(f"starting {attempt.key}", error)
            with suppress(
                NoAnswerError, OSError
            ):  # else tried again as if there had been no answer
                self.executor.kill(attempt.key)  # nobody knows how far it came
                self.record(
                    StartRefused(
                        job=attempt.key.job,
                        number=attempt.key.number,
                        reason=f"its start failed: {said_of(error)}",
                    )
                )

    def _order(self, attempt: Attempt) -> Order:
        job = self.state.jobs[attempt.key.job]
        submission = job.submission
        environment = dict(submission.environment)
        if submission.array is not None:
            environment["OPTSCHED_ARRAY"] = submission.array
            environment["OPTSCHED_ARRAY_INDEX"] = str(submission.index)
        for chosen, variable in (
            (attempt.mode.memory_gib_per_gpu, "OPTSCHED_MEMORY_GIB_PER_GPU"),
            (attempt.mode.gpu_memory_gib, "OPTSCHED_GPU_MEMORY_GIB"),
        ):
            if chosen is not None:
                environment[variable] = f"{chosen:.12g}"
        placement = attempt.placement or (Slot(node=self.statuses[0].node.name),)
        return Order(
            key=attempt.key,
            placement=placement,
            argv=submission.argv,
            directory=submission.directory,
            environment=environment,
            memory_gib=memory_of(submission.job, attempt.mode, placement),
            checkpoint_directory=str(self.checkpoints(attempt.key.job)),
            user=submission.user_id,
            origin=submission.origin,
            output_bytes=round(self.settings.output_gib * 2**30),
            image=submission.image,
            leaves_saved=leaves_saved(as_waiting(job), job.preemptions),
        )

    def checkpoints(self, job: str) -> Path:
        """Return where a job saves, whatever its attempt."""
        return self.settings.attempts / "checkpoints" / job
