"""The result of a statement that is no query: a message, or a small table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CommandResult:
    """A message, and rows with the names of their columns, if there are any."""

    message: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()

    def __str__(self) -> str:
        lines = [self.message] if self.message else []
        lines += ["  ".join("" if value is None else str(value) for value in row)
                  for row in self.rows]
        return "\n".join(lines)
