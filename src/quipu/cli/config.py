"""`quipu config`: checks the settings of a node before it starts, and shows those in force.

`check` and `show` of a file read settings as `quipu start` does: the file, then QUIPU_...
environment variables, then --set.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from quipu.cli.application import PLAIN
from quipu.cli.cluster import AsJson, connect
from quipu.cli.config_file import read_config
from quipu.cli.errors import CommandFailed
from quipu.cli.output import Row, count, note, print_json, printable, show
from quipu.client.admin.configs import DEFAULT, describe_broker
from quipu.model.settings import BROKER, OWN_BROKER, BrokerSettings, value_of
from quipu.model.settings_check import CheckedSettings, SettingProblem, examine
from quipu.model.settings_sources import from_assignments, from_environment
from quipu.model.settings_types import render

app = typer.Typer(help="Check the settings of a node, and show those in force.", **PLAIN)

EXIT_FAILED: Final = 1
HIDDEN: Final = "[hidden]"

Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting, as `quipu start` takes it; may be "
                 "repeated.")]


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Properties file with settings, of "
                                         "Quipu or of Kafka.")],
    *,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Tell everything that is wrong with a configuration, and which settings have no effect.

    Settings are read as `quipu start --config FILE` reads them, environment variables included.
    Exit code 0 if a node would start with them, 1 if not.
    """
    found = _examined(file, assignments)
    for problem in found.problems:
        if as_json:
            print_json(_fields(problem))
        else:
            print(_line(str(file), problem))
    errors, warnings = len(found.errors), len(found.problems) - len(found.errors)
    if not as_json:
        said = f"{count(errors, 'error')}, {count(warnings, 'warning')}"
        note(f"{file}: {said}" if errors else f"{file}: a node starts with it; {said}")
    if errors:
        raise typer.Exit(EXIT_FAILED)


@app.command("show")
def show_(
    *,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Properties file "
                                                "with settings.")] = None,
    assignments: Assignments = None,
    bootstrap: Annotated[str | None, typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT",
        help="Show the settings of a running broker instead.")] = None,
    node: Annotated[int | None, typer.Option(
        "--node", metavar="ID", min=0,
        help="With --bootstrap: of this broker (default: the one with the lowest id).")] = None,
    given: Annotated[bool, typer.Option(
        "--given", help="Only settings that were given, without defaults.")] = False,
    every: Annotated[bool, typer.Option(
        "--all", help="Kafka's settings that have no effect, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the settings in force, and where each comes from; secrets are not shown.

    Of a node that would start with --config, --set and the environment; or, with --bootstrap, of a
    broker that runs.
    """
    if bootstrap is None:
        rows = list(_of_configuration(config, assignments))
    elif config is not None or assignments:
        raise CommandFailed("--bootstrap shows a running broker: leave out --config and --set")
    else:
        rows = list(_of_broker(bootstrap, node))
    wanted = [row for row in rows
              if (row["source"] != DEFAULT or not given)
              and (every or row["has_effect"] or row["source"] != DEFAULT)]
    columns = ["name", "value", "source", *(["has_effect"] if every else [])]
    show(wanted, columns, as_json=as_json)


def _examined(file: Path, assignments: Iterable[str] | None) -> CheckedSettings:
    return examine(read_config(file), str(file), [
        from_environment(os.environ), from_assignments(assignments or ())])


def _fields(problem: SettingProblem) -> Row:
    return {"line": problem.line, "setting": problem.name,
            "level": "warning" if problem.is_warning else "error", "message": problem.message}


def _line(file: str, problem: SettingProblem) -> str:
    at = file if problem.line is None else f"{file}:{problem.line}"
    level = "warning" if problem.is_warning else "error"
    return printable(f"{at}: {level}: {problem.message}")


def _of_configuration(config: Path | None, assignments: Iterable[str] | None) -> Iterable[Row]:
    """The settings that a node would have; CommandFailed if it would not start."""
    content, file = ("", "") if config is None else (read_config(config), str(config))
    found = examine(content, file, [
        from_environment(os.environ), from_assignments(assignments or ())])
    if found.settings is None:
        first = found.errors[0]
        raise CommandFailed(
            f"{first.message}" + (f" (and {len(found.errors) - 1} more: `quipu config check`)"
                                  if len(found.errors) > 1 else ""))
    for name in sorted(BROKER):
        given = found.given.get(name)
        yield _row(found.settings, name, DEFAULT if given is None else given.where)


def _row(settings: BrokerSettings, name: str, source: str) -> Row:
    row, value = BROKER[name], value_of(settings, name)
    if source == DEFAULT and name in OWN_BROKER and value != row.default:
        source = "controller.listener.names"  # what Kafka's listener is turned into
    return {"name": name, "value": HIDDEN if row.is_sensitive and value else render(value),
            "source": source, "has_effect": not row.ignored}


def _of_broker(bootstrap: str, node: int | None) -> Iterable[Row]:
    with connect(bootstrap) as cluster:
        known = cluster.brokers()
        wanted = min(known) if node is None else node
        if wanted not in known:
            raise CommandFailed(f"there is no broker {wanted}; there are "
                                f"{', '.join(map(str, sorted(known)))}")
        found = describe_broker(cluster, wanted)
    for each in sorted(found):
        row = BROKER.get(each.name)
        yield {
            "name": each.name, "source": each.source,
            "value": HIDDEN if each.is_sensitive and each.source != DEFAULT else each.value,
            "has_effect": row is None or not row.ignored}
