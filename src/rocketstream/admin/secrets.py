"""What of a server's settings is nobody's business: names that stand for a secret keep their name and lose their value.

A pure function. Rather one setting too many: whoever needs the value has access to the server's own file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

REDACTED: Final = "********"
# initAuthenticationUser and innerClientAuthenticationCredentials (5.x) are JSON with a password in it; the headers of
# exporters carry tokens of whoever collects the metrics.
_SECRET: Final = re.compile(
    r"secret|passw|credential|token|access_?key|private_?key|authenticationuser|exporterheader", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Whether a setting's value is to be hidden."""
    return _SECRET.search(name) is not None


def redacted(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings by name, sorted, with secrets hidden; an empty value is no secret."""
    return {name: REDACTED if value and is_secret(name) else value for name, value in sorted(settings.items())}
