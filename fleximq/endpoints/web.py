"""What stands behind ``--http``: a listener on which nothing but HTTP is spoken."""

from dataclasses import dataclass

from fleximq.endpoints.listen import Listen
from fleximq.errors import SettingError


@dataclass(frozen=True, slots=True)
class WebListen(Listen):
    """One such place.

    :raises SettingError: as :class:`fleximq.endpoints.listen.Listen`, and for a dialect or standard input.
    """

    def __post_init__(self) -> None:
        try:
            Listen.__post_init__(self)
            if self.dialect is not None:
                raise SettingError(f"listen is {str(self)!r}, but there are no dialects on it")
            if self.isStdio:
                raise SettingError(f"listen is {str(self)!r}, but HTTP is not spoken at standard input")
        except SettingError as error:
            raise SettingError(f"http {str(error).removeprefix('listen ')}") from error

    @property
    def served(self) -> str:
        """What is served here, in words."""
        return "HTTP"
