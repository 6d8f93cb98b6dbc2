"""Why a message became a dead letter."""

from enum import Enum


class DeathReason(Enum):
    """The value is the word that clients, operators and metrics see."""

    ATTEMPTS = "attempts"
    """It was delivered as often as its queue allows, and never acknowledged."""
    REJECTED = "rejected"
    """A consumer rejected it."""
    EXPIRED = "expired"
    """It expired in a queue that makes dead letters of such messages."""
    TOO_LARGE = "too large"
    """It cannot be sent to the consumers of its queue."""
