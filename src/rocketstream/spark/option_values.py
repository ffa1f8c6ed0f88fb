"""Options of a data source one by one: reading a value, and refusing a wrong one in one sentence.

The rule of this file: pure, and shared by source and sink. Spark hands every option over as text, with its name in
lower case.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from rocketstream.cluster.name_servers import configured_name_servers
from rocketstream.cluster.names import check_namespace, check_topic, check_wrapped_topic
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.tls import TlsFiles
from rocketstream.spark.link import LinkSettings

CONNECTION_OPTIONS: Final = (
    "nameServers",
    "accessKey",
    "secretKey",
    "securityToken",
    "tls",
    "tlsCaFile",
    "tlsCertFile",
    "tlsKeyFile",
    "tlsCheckHostName",
    "namespace",
)
"""What source and sink both need to reach a cluster."""

_TLS_FILES: Final = {"ca_file": "tlsCaFile", "cert_file": "tlsCertFile", "key_file": "tlsKeyFile"}


def check_names(options: Mapping[str, str], known: Iterable[str], what: str) -> None:
    """Refuse an option that there is not, with the one that was meant if that can be guessed."""
    by_lower = {name.lower(): name for name in known}
    for name in options:
        if name.lower() in by_lower:
            continue
        if name.lower() == "path":
            raise ConfigurationError(
                f"{what} has no path: name what to use with option 'topic', not in load() or save()"
            )
        close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
        meant = f"did you mean {by_lower[close[0]]!r}?" if close else f"it has {', '.join(by_lower.values())}"
        raise ConfigurationError(f"{what} has no option {shorten(name)!r}: {meant}")


def text_option(options: Mapping[str, str], name: str) -> str | None:
    """A text, blanks around it taken off; None where it is not given, an error where it is empty."""
    value = options.get(name.lower(), options.get(name))
    if value is None:
        return None
    value = str(value).strip()
    if not value:
        raise ConfigurationError(f"option {name} is empty: give it a value or leave it out")
    return value


def flag_option(options: Mapping[str, str], name: str, default: bool) -> bool:
    """true or false."""
    value = text_option(options, name)
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise ConfigurationError(f"{name}={shorten(value)!r} must be true or false")
    return value.lower() == "true"


def count_option(options: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """A whole number within bounds."""
    value = text_option(options, name)
    if value is None:
        return None
    digits = value.removeprefix("-").lstrip("0") or "0"
    if not (value.isascii() and value.removeprefix("-").isdigit()):
        raise ConfigurationError(f"{name}={shorten(value)!r} must be a whole number from {least} to {most}")
    if len(digits) > 20 or not least <= int(value) <= most:
        raise ConfigurationError(f"{name}={shorten(value)} must be from {least} to {most}")
    return int(value)


def seconds_option(options: Mapping[str, str], name: str, default: float, most: float) -> float:
    """A number of seconds, more than none."""
    value = text_option(options, name)
    if value is None:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= most:
        raise ConfigurationError(
            f"{name}={shorten(value)!r} must be a number of seconds, more than 0, at most {most:g}"
        )
    return seconds


def topics_option(options: Mapping[str, str], namespace: str | None) -> tuple[str, ...]:
    """The topics of `topic` or `topics`; none where neither is given."""
    one, many = text_option(options, "topic"), text_option(options, "topics")
    if one is not None and many is not None:
        raise ConfigurationError("options topic and topics are two ways to say the same: give one")
    parts = [part.strip() for part in many.split(",")] if many is not None else [one] if one is not None else []
    for part in parts:
        if one is not None and "," in part:
            raise ConfigurationError(f"topic={shorten(part)!r} has a comma: several topics are for option topics")
        try:
            check_topic(part)
            if namespace:
                check_wrapped_topic(namespace, part)
        except ConfigurationError as error:
            raise ConfigurationError(_short_message(error)) from None
    return tuple(dict.fromkeys(parts))


def link_option(options: Mapping[str, str]) -> LinkSettings:
    """How the cluster is reached: nameServers (else $NAMESRV_ADDR), accessKey with secretKey, tls..., namespace."""
    try:
        name_servers = configured_name_servers(text_option(options, "nameServers"))
    except ConfigurationError as error:
        raise ConfigurationError(_short_message(error).replace("name_servers=", "nameServers=", 1)) from None
    if name_servers is None:
        raise ConfigurationError("option nameServers is missing (and $NAMESRV_ADDR is not set): give host:port")
    access_key, secret_key = text_option(options, "accessKey"), text_option(options, "secretKey")
    if (access_key is None) != (secret_key is None):
        missing = "secretKey" if secret_key is None else "accessKey"
        raise ConfigurationError(f"option {missing} is missing: accessKey and secretKey go together")
    token = text_option(options, "securityToken")
    if token is not None and access_key is None:
        raise ConfigurationError("option securityToken is of no use without accessKey and secretKey")
    namespace = text_option(options, "namespace")
    check_namespace(namespace)
    return LinkSettings(name_servers, access_key, secret_key, tls_option(options), namespace, token)


def tls_option(options: Mapping[str, str]) -> bool | TlsFiles:
    """tls, or the files that say whom to trust and who we are; they are looked at, where this runs."""
    paths = {name: text_option(options, option) for name, option in _TLS_FILES.items()}
    check_host_name = flag_option(options, "tlsCheckHostName", True)
    given = [_TLS_FILES[name] for name, path in paths.items() if path is not None]
    if not check_host_name:
        given.append("tlsCheckHostName")
    if not flag_option(options, "tls", bool(given)):
        if given:
            raise ConfigurationError(f"tls=false and {given[0]} contradict each other: leave one of them out")
        return False
    if not given:
        return True
    files = TlsFiles(**paths, check_host_name=check_host_name)
    try:
        files.context({**_TLS_FILES, "check_host_name": "tlsCheckHostName"})
    except ConfigurationError as error:
        raise ConfigurationError(_short_message(error)) from None
    return files


def shorten(text: str, most: int = 120) -> str:
    """A value as an error shows it."""
    return text if len(text) <= most else f"{text[:most]}..."


def _short_message(error: ConfigurationError) -> str:
    return shorten(str(error), 400)
