"""Credentials from a command's options: the secret key itself, or better the file that has it."""

from __future__ import annotations

from pathlib import Path

from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import Credentials


def credentials_of(
    access_key: str | None, secret_key: str | None, secret_key_file: Path | None, token: str | None = None
) -> Credentials | None:
    """The credentials that the options ask for."""
    if secret_key is not None and secret_key_file is not None:
        raise ConfigurationError("--secret-key and --secret-key-file are two ways to say the same: give one")
    if secret_key_file is not None:
        secret_key = _first_line(secret_key_file)
    if (access_key is None) != (secret_key is None):
        raise ConfigurationError("--access-key and --secret-key belong together: one of them is missing")
    if access_key is None or secret_key is None:
        if token is not None:
            raise ConfigurationError("--security-token is of no use without --access-key and --secret-key")
        return None
    return Credentials(access_key, secret_key, token)


def _first_line(path: Path) -> str:
    try:
        line = path.read_text().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text"
        raise ConfigurationError(f"--secret-key-file {path} cannot be read: {why}") from None
    if not line:
        raise ConfigurationError(f"--secret-key-file {path}: its first line is empty")
    return line
