"""Errors whose message is written for the person who caused or can mend them."""


class OptschedError(Exception):
    """Base of all errors that are shown without a traceback."""


class InputError(OptschedError):
    """The input is wrong; the message says what, where, and what would be right."""


class SolverUnavailable(OptschedError):
    """A solver or policy cannot be used here; the message says what is missing."""
