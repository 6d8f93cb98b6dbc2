"""Why a run has no number."""


class Refused(Exception):
    """A run must not be reported: something was lost, came twice, came late, or was answered by an error.

    Its text says what, in a few words.
    """
