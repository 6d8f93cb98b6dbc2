"""Limits the bytes that all connections together make the broker buffer before they are admitted or closed.

The first :data:`FREE_BYTES` of each are not charged, so that ordinary clients can still join when attackers have used
up the budget.
"""

from dataclasses import dataclass

from fleximq.limits import Limits

#: Bytes of each connection that are not charged.
FREE_BYTES = 2048


@dataclass(slots=True, eq=False, repr=False)
class UnadmittedBudget:
    """The bytes that are charged now, and their ``limit``."""

    limit: int = Limits().unadmittedBytes
    used: int = 0


@dataclass(slots=True, eq=False, repr=False)
class BufferCharge:
    """The bytes that one connection buffers; ``size`` is their number."""

    _budget: UnadmittedBudget
    size: int = 0

    def change(self, size: int) -> bool:
        """Charge this size instead of the previous one; return False if it is larger and exceeds the budget."""
        budget = self._budget
        used = budget.used + max(size - FREE_BYTES, 0) - max(self.size - FREE_BYTES, 0)
        if used > budget.limit and used > budget.used:
            return False
        budget.used = used
        self.size = size
        return True
