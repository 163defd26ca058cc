"""Rounds as they were decided, read back from the journal."""

from collections.abc import Iterator
from dataclasses import replace

from ...errors import InputError
from ...files import load_instance
from ...frozen import frozen
from ...model import Instance, Placement
from ...round.files import load_round
from ...round.plan import RoundSolution
from ..journal.events import RoundDecided
from ..journal.journal import Journal, JournalError


@frozen
class PastRound:
    """A round of a journal: its number, what was decided of which instance, and what was not to be
    given away then."""

    number: int
    instance: Instance
    solution: RoundSolution
    blocked: tuple[Placement, ...]


def past_rounds(journal: Journal, *numbers: int) -> Iterator[PastRound]:
    """Yield rounds of these numbers, or all there are, in order.

    Raises JournalError where the journal is damaged, InputError for a round that it does not have.
    """
    wanted = set(numbers)
    for entry in journal.entries():
        event = entry.event
        if not isinstance(event, RoundDecided) or (numbers and event.round not in wanted):
            continue
        number = event.round
        wanted.discard(number)
        if event.blocked is None:
            raise InputError(
                f"journal {journal.path}: round {number} is of an earlier version, which did not "
                "write down what was blocked; choose a later one"
            )
        instance, solution = stored(journal, number)
        yield PastRound(number=number, instance=instance, solution=solution, blocked=event.blocked)
        if numbers and not wanted:
            return
    for number in sorted(wanted):
        raise InputError(journal.no_round(number))


def stored(journal: Journal, number: int) -> tuple[Instance, RoundSolution]:
    """Return the instance and the decisions of a round. Raises JournalError, InputError."""
    try:
        instance_text, round_text = journal.round_files(number)
    except JournalError as error:
        if "has no round" in str(error):
            raise InputError(str(error)) from None
        raise
    instance = load_instance(instance_text, f"round {number}", now_only=True)
    return replace(instance, name=f"round {number}"), load_round(round_text, f"round {number}")
