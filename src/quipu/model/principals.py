"""The principal on whose behalf a request is carried out, as Kafka names it."""

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    """A user or service that sends requests: a type, nearly always `User`, and a name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")  # on listeners without authentication
