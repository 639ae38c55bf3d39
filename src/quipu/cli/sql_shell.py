r"""`quipu sql` on a terminal: statements as they are typed, one after the other.

A statement ends with a semicolon and may take several lines.  Ctrl-C clears the line, or ends the
statement that runs; Ctrl-D leaves.  Words that begin with a backslash are for the shell itself,
see `\?`.  What was typed is kept in the state directory, without its passwords.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from quipu.cli.output import printable, show, tell
from quipu.cli.sql_answers import Engine
from quipu.cli.sql_attending import Attendant, Interrupted
from quipu.cli.sql_completion import COMMANDS, SqlCompleter, is_finished
from quipu.cli.sql_progress import COLUMNS, row, summary
from quipu.cli.sql_running import answer, carry_out, error_text
from quipu.model.errors import QuipuError
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.parser import pieces
from quipu.pipeline.sql.printer import quote_name
from quipu.pipeline.sql.secrecy import mask_text
from quipu.pipeline.sql.statements import ObjectKind

HISTORY: Final = "history"
PROMPT: Final = "sql> "
CONTINUED: Final = "  -> "
TOOLBAR_SECONDS: Final = 1.0

_WELCOME: Final = "Statements end with a semicolon; \\? helps, Ctrl-D leaves."


class Shell:
    """Reads, carries out, shows; until Ctrl-D."""

    def __init__(
        self, attendant: Attendant, state: Path, *, as_json: bool = False,
        terminal: tuple[Input, Output] | None = None,
    ) -> None:
        engine = attendant.engine
        self._attendant = attendant
        self._engine = engine
        self._as_json = as_json
        self._tells_time = False
        self._watch = Watch(engine)
        self._commands: dict[str, Callable[[str], None]] = {
            "\\?": self._help, "\\d": self._describe, "\\progress": self._progress,
            "\\timing": self._timing,
        }
        keyboard, screen = (None, None) if terminal is None else terminal
        self._session: PromptSession[str] = PromptSession(
            history=History(str(state / HISTORY)),
            completer=SqlCompleter(engine.names, engine.columns), complete_while_typing=False,
            multiline=True, key_bindings=key_bindings(),
            prompt_continuation=lambda *_: CONTINUED,
            bottom_toolbar=lambda: self._watch.told, refresh_interval=TOOLBAR_SECONDS,
            input=keyboard, output=screen,
        )

    def run(self) -> None:
        """Until the end of the input."""
        tell(_WELCOME)
        with self._watch:
            while (text := self._typed()) is not None:
                self.handle(text)

    def _typed(self) -> str | None:
        """The next statement or command; None at the end."""
        while True:
            try:
                text = self._session.prompt(PROMPT)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return None
            return None if text.strip() == "\\q" else text

    def handle(self, text: str) -> None:
        """Carry out what was typed; whatever goes wrong is told, and the shell goes on."""
        begun = time.monotonic()
        try:
            if text.lstrip().startswith("\\"):
                self._command(text.strip())
                return
            for piece in pieces(text):
                carry_out(self._attendant, text, piece, as_json=self._as_json, is_terminal=True)
        except Interrupted:
            tell("cancelled")
        except (SqlError, QuipuError) as error:
            tell(error_text(error))
        if self._tells_time:
            tell(f"{time.monotonic() - begun:.3f} s")

    # -- the shell's own commands

    def _command(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        command = self._commands.get(word)
        if command is None:
            tell(f"there is no {printable(word)}; \\? lists what there is")
        else:
            command(rest.strip().rstrip(";"))

    def _help(self, _: str) -> None:
        for word, about in COMMANDS.items():
            tell(f"{word:10} {about}")
        tell("Ctrl-C     clear the line, or end the statement that runs")
        tell("Tab        what may come next")

    def _describe(self, name: str) -> None:
        if name:
            text = f"SHOW COLUMNS FROM {name}"
            answer(self._attendant, text, as_json=self._as_json, is_terminal=True)
            return
        rows = [{"kind": kind.value.lower(), "name": quote_name(each)}
                for kind in ObjectKind for each in self._engine.names().get(kind, ())]
        if not rows:
            tell("nothing has been created yet")
            return
        show(rows, ["kind", "name"], as_json=self._as_json)

    def _progress(self, _: str) -> None:
        show([row(each) for each in self._engine.progress()], COLUMNS, as_json=self._as_json)

    def _timing(self, _: str) -> None:
        self._tells_time = not self._tells_time
        tell(f"timing is {'on' if self._tells_time else 'off'}")


class Watch:
    """Looks at progress from time to time, in a thread: brokers may take long to answer."""

    def __init__(self, engine: Engine) -> None:
        self.told = ""
        self._engine = engine
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._look, name="progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _look(self) -> None:
        while not self._stop.wait(TOOLBAR_SECONDS):
            try:
                self.told = summary(self._engine.progress())
            except Exception as error:  # noqa: BLE001 the line is no reason to end the shell
                self.told = printable(str(error))
        self._engine.leave()


class History(FileHistory):
    """What was typed, without passwords."""

    def store_string(self, string: str) -> None:
        super().store_string(mask_text(string))


def key_bindings() -> KeyBindings:
    """Enter takes what the menu offers, ends a statement that has its semicolon, and begins a new
    line in any other.
    """
    bindings = KeyBindings()

    @bindings.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif is_finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings
