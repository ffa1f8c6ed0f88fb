"""Java's properties files, as RocketMQ sends its settings in bodies."""

from __future__ import annotations

from collections.abc import Mapping


def parse_properties(data: bytes) -> dict[str, str]:
    """The settings in a text of `name=value` lines; comments and blank lines are left out."""
    settings: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, _, value = line.partition("=")
        settings[name.strip()] = value.strip()
    return settings


def format_properties(settings: Mapping[str, str]) -> bytes:
    """A text of `name=value` lines, sorted by name."""
    return "".join(f"{name}={settings[name]}\n" for name in sorted(settings)).encode()
