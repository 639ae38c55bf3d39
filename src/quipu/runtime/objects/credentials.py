"""Reads a file of credentials: `name = value` on each line, as in AWS's own credentials file.

    # comments, empty lines and a section's name, [default], are allowed
    aws_access_key_id = ...
    aws_secret_access_key = ...

The names are those of the environment's variables, in capital or small letters.  Other sections
than the first are ignored.  For gs:// the file is Google's own JSON, and is not read here.

Not here: credentials from the environment, which obstore reads itself.
"""

from pathlib import Path
from typing import Final

from quipu.model.errors import SettingError

FILE_SIZE_MAX: Final = 64 << 10
NAMES: Final = {  # scheme: name in the file -> name that obstore has for it
    "s3": {
        "aws_access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token",
    },
    "az": {
        "azure_storage_account_name": "account_name",
        "azure_storage_account_key": "account_key",
        "azure_storage_sas_key": "sas_key",
        "azure_storage_client_id": "client_id",
        "azure_storage_client_secret": "client_secret",
        "azure_storage_tenant_id": "tenant_id",
    },
}


def read_credentials(scheme: str, path: str) -> dict[str, str]:
    """Credentials by obstore's names; SettingError says what is wrong, and quotes no value."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(FILE_SIZE_MAX + 1).decode()
    except OSError as error:
        raise SettingError(f"credentials file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingError(f"credentials file {path} is not text") from None
    if len(text) > FILE_SIZE_MAX:
        raise SettingError(f"credentials file {path} is larger than {FILE_SIZE_MAX} bytes")
    names, found, sections = NAMES[scheme], {}, 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        sections += stripped.startswith("[")
        if sections > 1:
            break
        if not stripped or stripped[0] in "#;[":
            continue
        name, separator, value = stripped.partition("=")
        known = names.get(name.strip().lower())
        if not separator or known is None:  # the line may hold a secret: it is not shown
            raise SettingError(f"credentials file {path}, line {number}: write NAME = VALUE with "
                               f"one of the names {', '.join(sorted(names))}")
        found[known] = value.strip()
    if not found:
        raise SettingError(f"credentials file {path} holds none of {', '.join(sorted(names))}")
    return found
