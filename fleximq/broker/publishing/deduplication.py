"""Messages with ids of their own: published once, however often a publisher that knows no better sends them.

Which ids were there is kept by :mod:`fleximq.broker.publishing.idempotence`; here is decided what of a run is
published, and the
publisher is told of repeats as of the rest.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fleximq.broker.envelope import Envelope
from fleximq.broker.publishing.fan_out import Delivering
from fleximq.broker.publishing.idempotence import Claim, Idempotence, Kept
from fleximq.broker.publishing.slow_path import Publishing
from fleximq.broker.rules import Rules
from fleximq.errors import BrokerError, NotKept
from fleximq.values.records import DIALECTS

#: Brings a run on its way, as :meth:`fleximq.broker.broker.Broker.publish` does.
Bring = Callable[[Envelope, Any, int, Kept | None], None]


def idempotenceOf(rules: Rules, seconds: Callable[[], float], counted: Callable[[str, int], None]) -> Idempotence:
    """Return the memory for ids that these rules ask for; ``seconds`` are those since 1970."""
    return Idempotence(
        round(rules.idempotenceWindow * 1_000_000),
        lambda: round(seconds() * 1_000_000),
        [DIALECTS[name] for name in ("fleximq", "minimq")[: 1 + rules.minimqIdempotent]],
        counted,
    )


class Once:
    """Leaves out of runs what was published lately.

    :param active: False: nothing is left out.
    """

    def __init__(self, active: bool, idempotence: Idempotence, delivering: Delivering, publishing: Publishing) -> None:
        self._active = active
        self._idempotence = idempotence
        self._delivering = delivering
        self._publishing = publishing

    def publish(self, envelope: Envelope, body: Any, ids: Sequence[str], kept: Kept | None, bring: Bring) -> None:
        """Let ``bring`` have those messages of a run that are no repeats.

        :param ids: one for each message.
        :param kept: told of repeats when what they repeat is decided, and of the others as ``bring`` is told to.
        :raises NotKept: as ``bring`` does; ``refused`` are places in the whole run.
        """
        envelope = self._delivering.present(envelope)
        if not (self._active and envelope.topic.durable and self._publishing.isRecorded(envelope)):
            bring(envelope, body, len(ids), kept)
            return
        publisher = envelope.publisher
        claim, number = self._idempotence.claim(envelope.topic.name, ids, kept)
        publisher.unsafe = max(publisher.unsafe, number)
        places = claim.places
        if not places:
            return
        if len(places) < len(ids):
            body = envelope.source.pick(body, places)
        try:
            bring(envelope, body, len(places), partial(self._decided, claim, places, kept))
        except NotKept as error:
            refused = [places[place] for place in error.refused]
            self._idempotence.refused(claim, refused, error.reason)
            raise type(error)(error.reason, refused) from error
        except BrokerError as error:
            self._idempotence.refused(claim, places, str(error))
            raise
        finally:
            claim.number = publisher.unsafe

    def _decided(
        self, claim: Claim, places: Sequence[int], kept: Kept | None, reason: str | None, decided: Sequence[int]
    ) -> None:
        """The journal's word on claimed messages, whose places are those among the ones that were not repeats."""
        if kept is not None:
            kept(reason, [places[place] for place in decided])
        if reason is None:
            self._idempotence.committed(claim)
        else:
            self._idempotence.refused(claim, list(claim.places), reason)
