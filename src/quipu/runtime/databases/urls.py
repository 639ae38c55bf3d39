"""URLs that say which database something is stored in.

    sqlite:///ABSOLUTE/PATH                   a SQLite file of this machine
    postgresql://USER:PASSWORD@HOST/DATABASE  a PostgreSQL database

An error shows the path of a file, and of other URLs the scheme: the rest may hold a password.
"""

from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from quipu.model.errors import SettingError

URL_SIZE_MAX: Final = 4096
SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
_POSTGRES: Final = (POSTGRESQL, "postgres")


class DatabaseUrl(NamedTuple):
    """The parts of a URL."""

    scheme: str
    place: str = ""  # the path of a SQLite file, or the whole URL of a PostgreSQL database

    def __repr__(self) -> str:
        return f"DatabaseUrl({self.scheme})"  # the rest may hold a password

    @property
    def is_shared(self) -> bool:
        """Whether several nodes may use it."""
        return self.scheme == POSTGRESQL


class UrlRules(NamedTuple):
    """What may be stored where."""

    subject: str  # whose URL it is
    advice: str  # what to write instead of a wrong URL
    bare_schemes: tuple[str, ...] = ()  # schemes of places that are no databases

    def parse(self, text: str) -> DatabaseUrl:
        """The parts of a URL; raises `SettingError` if it is not valid."""
        try:
            url = urlsplit(text if len(text) <= URL_SIZE_MAX and text.isprintable() else "")
        except ValueError:
            url = urlsplit("")
        if url.scheme in self.bare_schemes:
            if text != f"{url.scheme}:":
                raise self._wrong(text, f"nothing may follow {url.scheme}:")
            return DatabaseUrl(url.scheme)
        if url.scheme == SQLITE:
            path = "/" + unquote(url.path).lstrip("/")
            is_file = text.startswith("sqlite:///") and not (
                url.netloc or url.query or url.fragment or path.endswith("/"))
            if not is_file or "\0" in path or ".." in path.split("/"):
                raise self._wrong(text, "it must be the absolute path of a file, without a host, "
                                        "parameters and ..")
            return DatabaseUrl(SQLITE, path)
        if url.scheme in _POSTGRES:
            if not text.partition("://")[2]:
                raise self._wrong(text, "it names no database")
            return DatabaseUrl(POSTGRESQL, text)
        raise self._wrong(text, "its scheme is unknown")

    def shown(self, text: str) -> str:
        """A URL for people: only a path is shown, because all else may hold a password."""
        scheme = text.partition(":")[0]
        if scheme == SQLITE:
            return repr(text[:200])
        is_known = scheme in (*_POSTGRES, *self.bare_schemes)
        return repr(f"{scheme}:...") if is_known else "not shown"

    def _wrong(self, text: str, why: str) -> SettingError:
        return SettingError(f"the URL of {self.subject} is not valid ({self.shown(text)}): {why}; "
                            f"{self.advice}")
