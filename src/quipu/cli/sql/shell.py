r"""The shell of `quipu sql` on a terminal: reads a statement, runs it and shows its result.

A statement ends with a semicolon and may take several lines.  Ctrl-C clears the line, or cancels
the running statement; Ctrl-D leaves.  Words that begin with a backslash are commands of the shell
itself, see `\?`.  The input history is kept in the state directory, without passwords.
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

from quipu.cli.output import note, printable, show
from quipu.cli.sql.completion import COMMANDS, SqlCompleter, is_finished
from quipu.cli.sql.engine import Engine
from quipu.cli.sql.progress import COLUMNS, row, summary
from quipu.cli.sql.runner import EngineRunner, Interrupted
from quipu.cli.sql.statements import error_text, run_statement, run_text
from quipu.model.errors import QuipuError
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.parser import pieces
from quipu.pipeline.sql.printer import quote_name
from quipu.pipeline.sql.secrets import mask_text
from quipu.pipeline.sql.statements import ObjectKind

HISTORY: Final = "history"
PROMPT: Final = "sql> "
CONTINUED: Final = "  -> "
TOOLBAR_SECONDS: Final = 1.0

_WELCOME: Final = "Statements end with a semicolon; \\? helps, Ctrl-D leaves."


class Shell:
    """Reads statements, runs them and shows their results, until Ctrl-D."""

    def __init__(
        self, runner: EngineRunner, state: Path, *, as_json: bool = False,
        terminal: tuple[Input, Output] | None = None,
    ) -> None:
        engine = runner.engine
        self._runner = runner
        self._engine = engine
        self._as_json = as_json
        self._shows_time = False
        self._toolbar = ProgressToolbar(engine)
        self._commands: dict[str, Callable[[str], None]] = {
            "\\?": self._help, "\\d": self._describe, "\\progress": self._progress,
            "\\timing": self._timing,
        }
        keyboard, screen = (None, None) if terminal is None else terminal
        self._session: PromptSession[str] = PromptSession(
            history=InputHistory(str(state / HISTORY)),
            completer=SqlCompleter(engine.names, engine.columns), complete_while_typing=False,
            multiline=True, key_bindings=key_bindings(),
            prompt_continuation=lambda *_: CONTINUED,
            bottom_toolbar=lambda: self._toolbar.text, refresh_interval=TOOLBAR_SECONDS,
            input=keyboard, output=screen,
        )

    def run(self) -> None:
        """Read and run statements until the end of the input."""
        note(_WELCOME)
        with self._toolbar:
            while (text := self._typed()) is not None:
                self.handle(text)

    def _typed(self) -> str | None:
        """The next statement or command that the user types; None at the end of the input."""
        while True:
            try:
                text = self._session.prompt(PROMPT)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return None
            return None if text.strip() == "\\q" else text

    def handle(self, text: str) -> None:
        """Run what was typed; an error is shown, and the shell goes on."""
        begun = time.monotonic()
        try:
            if text.lstrip().startswith("\\"):
                self._command(text.strip())
                return
            for piece in pieces(text):
                run_statement(self._runner, text, piece, as_json=self._as_json, is_terminal=True)
        except Interrupted:
            note("cancelled")
        except (SqlError, QuipuError) as error:
            note(error_text(error))
        if self._shows_time:
            note(f"{time.monotonic() - begun:.3f} s")

    # -- the shell's own commands

    def _command(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        command = self._commands.get(word)
        if command is None:
            note(f"there is no {printable(word)}; \\? lists the commands")
        else:
            command(rest.strip().rstrip(";"))

    def _help(self, _: str) -> None:
        for word, about in COMMANDS.items():
            note(f"{word:10} {about}")
        note("Ctrl-C     clear the line, or cancel the running statement")
        note("Tab        show what may come next")

    def _describe(self, name: str) -> None:
        if name:
            text = f"SHOW COLUMNS FROM {name}"
            run_text(self._runner, text, as_json=self._as_json, is_terminal=True)
            return
        rows = [{"kind": kind.value.lower(), "name": quote_name(each)}
                for kind in ObjectKind for each in self._engine.names().get(kind, ())]
        if not rows:
            note("nothing has been created yet")
            return
        show(rows, ["kind", "name"], as_json=self._as_json)

    def _progress(self, _: str) -> None:
        show([row(each) for each in self._engine.progress()], COLUMNS, as_json=self._as_json)

    def _timing(self, _: str) -> None:
        self._shows_time = not self._shows_time
        note(f"timing is {'on' if self._shows_time else 'off'}")


class ProgressToolbar:
    """The text of the toolbar: the progress of views, read on a thread as it may take long."""

    def __init__(self, engine: Engine) -> None:
        self.text = ""
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
                self.text = summary(self._engine.progress())
            except Exception as error:  # noqa: BLE001 an error here must not end the shell
                self.text = printable(str(error))
        self._engine.close_thread_connections()


class InputHistory(FileHistory):
    """The history file of the shell, without passwords."""

    def store_string(self, string: str) -> None:
        super().store_string(mask_text(string))


def key_bindings() -> KeyBindings:
    """The key Enter accepts a completion, runs a statement that has its semicolon, or else begins
    a new line.
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
