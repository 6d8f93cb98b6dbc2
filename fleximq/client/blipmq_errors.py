"""What the broker refuses in the BlipMQ dialect."""

from fleximq.client.errors import PublishFailed


class Nacked(PublishFailed):
    """The broker answered a publication, or an ACK, by a NACK (BlipMQ document, "Error Codes").

    ``code`` and ``reason`` are the NACK's; ``number`` is what :meth:`publish` returned, None if it was an ACK, whose
    delivery tag is ``tag``. ``topic`` is the publication's, "" where it is not known any more.
    """

    number: int | None = None
    tag: int | None = None

    @property
    def code(self) -> int:
        """The NACK's code."""
        return self.status

    @property
    def reason(self) -> str:
        """The NACK's words."""
        return self.words

    @property
    def topic(self) -> str:
        """The topic."""
        return self.path
