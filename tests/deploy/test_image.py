"""The Dockerfile: as far as it can be held to account without a container engine."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from quipu.cli.start import parser
from quipu.model.settings_sources import broker_settings, from_assignments

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = REPOSITORY / "Dockerfile"


def test_the_dockerfile_is_sound() -> None:
    """V18: the linter that reads every instruction, shell included, finds nothing."""
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint is not None, "make setup"
    done = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_image_is_built_from_is_there_and_is_let_through() -> None:
    """V18: every file that is copied exists, and .dockerignore does not hold it back."""
    kept = set(re.findall(r"^!(\S+)", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE))
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert "requirements.lock" in names
    assert names == kept
    assert all((REPOSITORY / name).exists() for name in names)


def test_the_image_starts_a_node_by_default() -> None:
    """V18: `docker run` alone gives a broker whose settings are accepted."""
    text = DOCKERFILE.read_text()
    (entry,) = re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)
    (command,) = re.findall(r"^CMD (.+)$", text, re.MULTILINE)
    assert json.loads(entry) == ["quipu"]
    name, *arguments = json.loads(command)
    assert name == "start"
    options = parser().parse_args(arguments)
    settings = broker_settings(from_assignments(
        [*options.set, f"log.dirs={options.dir}", f"listeners={options.listen}"]))
    assert settings.log_dirs == "/var/lib/quipu"
    assert settings.listeners[0].host == "0.0.0.0"
