"""What a kWh costs or emits on a live cluster: always the same, by the time of day, or from known
instants on."""

import re
from datetime import datetime, time, timedelta
from itertools import pairwise
from typing import Annotated

from pydantic import ConfigDict, PlainValidator, TypeAdapter, ValidationError

from ..model import Steps
from ..model.quantity import Amount

TIME_OF_DAY = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"
DAYS_AHEAD = 7
"""So many days of a table are known to a round."""
SOUND = (
    'must be a number, {"07:00" = 0.32, "22:00" = 0.18}, or [[2026-08-01T00:00:00, 0.32], ...] in '
    "order of time, with numbers of at least 0"
)
_amount: TypeAdapter[float] = TypeAdapter(Amount, config=ConfigDict(strict=True))


def _stated(given: object) -> float | dict[str, float] | Steps:
    """Return what a file says, instants as Unix time. Raises ValueError."""
    try:
        if isinstance(given, dict):
            if given and all(re.fullmatch(TIME_OF_DAY, at) for at in given):
                return {at: _amount.validate_python(amount) for at, amount in given.items()}
            raise ValueError
        if not isinstance(given, list | tuple):
            return _amount.validate_python(given)
        steps = tuple((_unix_s(at), _amount.validate_python(amount)) for at, amount in given)
    except (TypeError, ValueError, OverflowError, ValidationError):
        raise ValueError(SOUND) from None
    if not steps or any(earlier[0] >= later[0] for earlier, later in pairwise(steps)):
        raise ValueError(SOUND)
    return steps


def _unix_s(at: object) -> float:
    if not (isinstance(at, datetime) and abs(at.year - 1970) < 250):
        raise ValueError
    return at.timestamp()


Rates = Annotated[float | dict[str, float] | Steps, PlainValidator(_stated)]


def known(stated: float | dict[str, float] | Steps | None, now_s: float) -> float | Steps | None:
    """Return what is known of the rates from yesterday on, times of day by the clock of this host;
    the same all day long."""
    if not isinstance(stated, dict | tuple):
        return stated
    yesterday = datetime.fromtimestamp(now_s).date() - timedelta(days=1)
    days = [yesterday + timedelta(days=count) for count in range(DAYS_AHEAD + 2)]
    begin_s, end_s = (datetime.combine(day, time()).timestamp() for day in (days[0], days[-1]))
    if isinstance(stated, dict):
        own = {
            datetime.combine(day, time.fromisoformat(at)).timestamp(): amount
            for day in days[:-1]
            for at, amount in sorted(stated.items())
        }
        return tuple(sorted(own.items()))
    past = sum(at_s <= begin_s for at_s, _ in stated)
    return tuple(step for step in stated[max(0, past - 1) :] if step[0] < end_s) or stated[:1]
