"""TLS: contexts from the files that people have, and what a failed handshake means in words that help.

The rule of this file: a file that cannot work is refused when the context is made, by the setting's name; what OpenSSL
says of a handshake is said again with what to do about it.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from rocketstream.errors import ConfigurationError

PathLike: TypeAlias = str | os.PathLike[str]

NAMES: Final[Mapping[str, str]] = {
    "ca_file": "ca_file",
    "cert_file": "cert_file",
    "key_file": "key_file",
    "key_password": "key_password",
    "check_host_name": "check_host_name",
}
# The first two bytes of a TLS alert: record type 21, version 3.x.
_ALERT: Final = b"\x15\x03"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """For `tls=`: whom to trust and who we are, as files in PEM; a value that can be compared, pickled and shipped.

    `ca_file` has the certificates of the authorities that are trusted instead of the system's. `cert_file` is our own
    certificate, with its chain, for brokers that ask for one; `key_file` its private key unless that is in the same
    file, `key_password` what the key is encrypted with. Brokers are reached at the addresses that name servers tell,
    mostly IP addresses: where their certificates do not name those, `check_host_name=False` trusts any server whose
    certificate the authority has signed. The files are read again for every new connection, so that renewed
    certificates are used without a restart.
    """

    ca_file: PathLike | None = None
    cert_file: PathLike | None = None
    key_file: PathLike | None = None
    key_password: str | None = field(default=None, repr=False)
    check_host_name: bool = True

    def context(self, names: Mapping[str, str] = NAMES) -> ssl.SSLContext:
        """The context; a file that cannot work is a `ConfigurationError` by the name that its setting has (`names`)."""
        flag: object = self.check_host_name
        if not isinstance(flag, bool):
            raise ConfigurationError(f"{names['check_host_name']}={flag!r} must be True or False")
        return _make(self.ca_file, self.cert_file, self.key_file, self.key_password, self.check_host_name, names)


Tls: TypeAlias = bool | ssl.SSLContext | TlsFiles
"""What `tls=` takes."""


def context_of(tls: Tls) -> ssl.SSLContext | None:
    """The context that a setting stands for; None for plain TCP."""
    if isinstance(tls, TlsFiles):
        return tls.context()
    if isinstance(tls, ssl.SSLContext):
        return tls
    return ssl.create_default_context() if tls else None


def check_tls(tls: object) -> None:
    """Refuse what `tls=` cannot take, and files that cannot work, before anything is opened."""
    if not isinstance(tls, Tls):
        raise ConfigurationError(f"tls={tls!r} must be True, False, TlsFiles(ca_file, ...) or an ssl.SSLContext")
    if isinstance(tls, TlsFiles):
        tls.context()


def _make(
    ca_file: PathLike | None,
    cert_file: PathLike | None,
    key_file: PathLike | None,
    key_password: str | None,
    check_host_name: bool,
    names: Mapping[str, str],
) -> ssl.SSLContext:
    context = _trusting(names["ca_file"], ca_file)
    context.check_hostname = check_host_name
    if cert_file is None:
        if key_file is not None:
            raise ConfigurationError(
                f"{names['key_file']} is given without {names['cert_file']}: a key is of no use without its certificate"
            )
        return context
    certificate = _readable(names["cert_file"], cert_file)
    key = None if key_file is None else _readable(names["key_file"], key_file)
    password = _Password(key_password, names)
    try:
        # Without a function, OpenSSL would ask for a password on the terminal, and wait there.
        context.load_cert_chain(certificate, key, password=password)
    except ssl.SSLError as error:
        raise ConfigurationError(_wrong_certificate(names, certificate, key, error, password.was_asked)) from None
    return context


def _trusting(name: str, path: PathLike | None) -> ssl.SSLContext:
    readable = None if path is None else _readable(name, path)
    try:
        return ssl.create_default_context(cafile=readable)
    except ssl.SSLError as error:
        raise ConfigurationError(f"{name}={readable!r} holds no certificate in PEM: {_reason(error)}") from None


def _readable(name: str, path: PathLike) -> str:
    given: object = path
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise ConfigurationError(f"{name}={given!r} must be the path of a file")
    text = os.fspath(path)
    try:
        with Path(text).open("rb") as file:
            file.read(1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(f"{name}={text!r} cannot be read: {why}") from None
    return text


class _Password:
    """Says the password of a private key to OpenSSL, which asks only for a key that is encrypted."""

    def __init__(self, password: str | None, names: Mapping[str, str]) -> None:
        self._password = password
        self._names = names
        self.was_asked = False

    def __call__(self) -> str:
        self.was_asked = True
        if self._password is not None:
            return self._password
        if "key_password" in self._names:
            raise ConfigurationError(f"the private key is encrypted: give {self._names['key_password']}")
        raise ConfigurationError("the private key is encrypted, which cannot be used here: store it without a password")


def _wrong_certificate(
    names: Mapping[str, str], certificate: str, key: str | None, error: ssl.SSLError, has_password: bool
) -> str:
    where = f"{names['cert_file']}={certificate!r}"
    if key is not None:
        where += f" and {names['key_file']}={key!r}"
    if "KEY_VALUES_MISMATCH" in str(error):
        return f"{where}: the key is not the one of the certificate"
    if has_password:
        return f"{where}: the password of the key is wrong"
    if key is None:
        return f"{where} holds no certificate with its private key, in PEM: where is the key ({names['key_file']})?"
    return f"{where} are no certificate with its private key, in PEM"


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's own word, without the line of its source."""
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()


# --- what went wrong --------------------------------------------------------------------------------------------


def is_of_handshake(error: BaseException) -> bool:
    """Whether an attempt to connect with TLS failed in the handshake; else nobody was reached at all."""
    return isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError | BrokenPipeError)


def handshake_failure(error: BaseException, host: str) -> str:
    """Why a TLS handshake failed, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS handshake failed, the server's certificate is not trusted: {_untrusted(error, host)}"
    refusal = _refusal(error)
    if refusal is not None:
        return f"TLS handshake failed: {refusal}"
    if isinstance(error, ConnectionError | ssl.SSLEOFError) or "WRONG_VERSION_NUMBER" in str(error):
        return (
            "TLS handshake failed: the server ended it; it seems not to speak TLS at this port (then tls=False), or to"
            f" want a client certificate ({_told(error)})"
        )
    return f"TLS handshake failed: {_told(error)}"


def _untrusted(error: ssl.SSLCertVerificationError, host: str) -> str:
    said = error.verify_message or _told(error)
    if "mismatch" in said.lower() or "not valid for" in said:
        return (
            f"it is not for {host!r} ({said}); reach the server by a name that its certificate has, or trust every"
            " certificate of the authority: tls=TlsFiles(ca_file, check_host_name=False)"
        )
    if "expired" in said or "not yet valid" in said:
        return f"{said}; renew it, or set the clocks right"
    return f"{said}; if it should be, give the authority that has signed it: tls=TlsFiles(ca_file)"


def _refusal(error: BaseException) -> str | None:
    """What an alert of the server says of our certificate."""
    said = str(error).upper().replace(" ", "_")
    if "CERTIFICATE_REQUIRED" in said or "HANDSHAKE_FAILURE" in said:
        return f"the server wants a client certificate: tls=TlsFiles(ca_file, cert_file, key_file) ({_told(error)})"
    for sign in (
        "UNKNOWN_CA",
        "BAD_CERTIFICATE",
        "CERTIFICATE_UNKNOWN",
        "UNSUPPORTED_CERTIFICATE",
        "CERTIFICATE_EXPIRED",
    ):
        if f"ALERT_{sign}" in said:
            return (
                f"the server misses a client certificate, or does not take ours ({_told(error)}): give one that an"
                " authority has signed which the server trusts, tls=TlsFiles(ca_file, cert_file, key_file)"
            )
    return None


def _told(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        return _reason(error)
    return str(error) or type(error).__name__


def end_of_connection(error: BaseException | None, *, tls: bool, heard: bool) -> str:
    """Why a connection ended that had been made; before anything was heard it may be a matter of TLS."""
    if error is None and (heard or tls):
        told = "the peer closed it"
    elif error is None:
        told = "the peer closed it before it said anything; does it expect TLS (tls=True)?"
    else:
        told = str(error) or type(error).__name__
    if not tls or heard:
        return told
    # With TLS 1.3 a client has shaken hands before the server has looked at its certificate.
    refusal = _refusal(error) if error is not None else None
    return refusal or f"{told}, right after the TLS handshake; does it want a client certificate?"


def is_alert(first: bytes) -> bool:
    """Whether the first bytes of a plain connection are TLS: an alert of a server that expects it."""
    return first.startswith(_ALERT)
