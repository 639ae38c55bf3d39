"""Parameters of stores in the cloud, and files of credentials: what is said of wrong ones."""

from pathlib import Path

import pytest

from quipu.model.errors import SettingError
from quipu.runtime.objects.cloud_options import open_clients
from quipu.runtime.objects.credentials import FILE_SIZE_MAX, read_credentials
from quipu.runtime.objects.parameters import ALLOWED, StoreParameters, parse_parameters


def test_parameters() -> None:
    """Each by its name, decoded."""
    assert parse_parameters(
        "s3", "endpoint=https%3A%2F%2Fs3.example.com%2F&region=eu-central-1&path_style=false"
        "&unsigned_payload=true&credentials=/run/secrets/s3&timeout_ms=5000&retries=0"
    ) == StoreParameters(
        endpoint="https://s3.example.com", region="eu-central-1", path_style=False,
        unsigned_payload=True, credentials="/run/secrets/s3", timeout_ms=5000, retries=0)
    assert parse_parameters("gs", "") == StoreParameters()


@pytest.mark.parametrize(("scheme", "query", "said"), [
    ("s3", "regoin=x", "did you mean region"),
    ("s3", "account=x", "no parameter account"),
    ("gs", "region=x", "no parameter region"),
    ("s3", "region=a&region=b", "twice"),
    ("s3", "region=", "region"),
    ("s3", "region=a%20b", "region"),
    ("s3", "endpoint=ftp://x", "http://HOST"),
    ("s3", "endpoint=http://user:swordfish@x", "http://HOST"),
    ("s3", "path_style=yes", "true or false"),
    ("s3", "credentials=file", "absolute path"),
    ("s3", "timeout_ms=1", "from 100"),
    ("s3", "timeout_ms=9999999999", "from 100"),
    ("s3", "retries=-1", "from 0"),
    ("s3", "region", "name=value"),
    ("s3", "&".join(["region=a"] * 30), "at most"),
])
def test_wrong_parameters(scheme: str, query: str, said: str) -> None:
    """The error names the parameter, and the nearest one that there is."""
    with pytest.raises(SettingError, match=said) as error:
        parse_parameters(scheme, query)
    assert "swordfish" not in str(error.value)


@pytest.mark.parametrize("name", [
    "aws_secret_access_key", "access_key", "token", "sas_key", "password", "Signature"])
def test_secrets_do_not_belong_into_urls(name: str) -> None:
    """runtime.O7: the error says where they belong, and does not show them."""
    for scheme in ALLOWED:
        with pytest.raises(SettingError, match="environment") as error:
            parse_parameters(scheme, f"{name}=swordfish")
        assert "swordfish" not in str(error.value)


def test_a_file_of_credentials(tmp_path: Path) -> None:
    """As AWS's own: the first section counts."""
    path = tmp_path / "credentials"
    path.write_text("# mine\n[default]\naws_access_key_id = AKIA\nAWS_SECRET_ACCESS_KEY=a=b\n"
                    "[other]\naws_access_key_id = no\n")
    assert read_credentials("s3", str(path)) == {
        "access_key_id": "AKIA", "secret_access_key": "a=b"}
    path.write_text("azure_storage_account_key = c3dvcmRmaXNo\n")
    assert read_credentials("az", str(path)) == {"account_key": "c3dvcmRmaXNo"}


@pytest.mark.parametrize("text", [
    b"", b"swordfish\n", b"aws_secret_key = swordfish\n", b"# only\n", b"\xff\xfe",
    b"#" * (FILE_SIZE_MAX + 1)], ids=range(6))
def test_no_credentials(text: bytes, tmp_path: Path) -> None:
    """runtime.O7: the error names the file and the line, and shows nothing of it."""
    path = tmp_path / "credentials"
    path.write_bytes(text)
    with pytest.raises(SettingError, match=str(path)) as error:
        read_credentials("s3", str(path))
    assert "swordfish" not in str(error.value)
    with pytest.raises(SettingError, match="No such file"):
        read_credentials("s3", f"{path}-not")


def test_what_the_library_refuses_is_not_quoted(tmp_path: Path) -> None:
    """runtime.O7: a file of Google's that is none, a key that is no base64, no certificates."""
    path = tmp_path / "file"
    path.write_text("swordfish")
    with pytest.raises(SettingError) as error:
        open_clients("gs", "bucket", "", StoreParameters(credentials=str(path)))
    assert "swordfish" not in str(error.value)
    path.write_text("azure_storage_account_key = sword*fish")
    with pytest.raises(SettingError) as error:
        open_clients("az", "bucket", "", StoreParameters(account="a", credentials=str(path)))
    assert "sword*fish" not in str(error.value)
    assert error.value.__cause__ is None
    for ca in (str(path), "/not/there"):
        with pytest.raises(SettingError):
            open_clients("s3", "bucket", "", StoreParameters(ca=ca))


def test_styles_and_signatures_of_s3() -> None:
    """The bucket is in the host's name at Amazon, and in the path elsewhere; bytes are signed
    where TLS does not protect them.
    """
    cases = [(StoreParameters(), "true", "true"),
             (StoreParameters(endpoint="https://x"), "false", "true"),
             (StoreParameters(endpoint="http://x"), "false", "false"),
             (StoreParameters(endpoint="http://x", path_style=False, unsigned_payload=True),
              "true", "true")]
    for parameters, in_host, unsigned in cases:
        for client in open_clients("s3", "bucket", "a/b", parameters):
            found = {name: str(value).lower() for name, value in dict(client.config).items()}
            assert found["virtual_hosted_style_request"] == in_host, parameters
            assert found["unsigned_payload"] == unsigned, parameters
            assert client.prefix == "a/b"
