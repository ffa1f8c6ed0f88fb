"""The address server: where a client without configured name servers gets their list over HTTP (START-10)."""

from __future__ import annotations

import asyncio
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Mapping

from rocketstream.cluster.name_servers import parse_name_servers
from rocketstream.errors import ConfigurationError, NameServerError

log = logging.getLogger("rocketstream.cluster")

# As the Java client's system properties rocketmq.namesrv.domain and rocketmq.namesrv.domain.subgroup.
DOMAIN_VARIABLE = "ROCKETMQ_NAMESRV_DOMAIN"
SUBGROUP_VARIABLE = "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP"
DEFAULT_DOMAIN = "jmenv.tbsite.net"
DEFAULT_SUBGROUP = "nsaddr"

_MAX_ANSWER = 64 * 1024


def default_url(environment: Mapping[str, str] | None = None) -> str:
    """Where RocketMQ's clients look by default; the environment may name another domain."""
    variables = os.environ if environment is None else environment
    domain = variables.get(DOMAIN_VARIABLE) or DEFAULT_DOMAIN
    subgroup = variables.get(SUBGROUP_VARIABLE) or DEFAULT_SUBGROUP
    if ":" not in domain:
        domain += ":8080"
    return f"http://{domain}/rocketmq/{subgroup}"


class AddressServer:
    """Fetches the list of name servers; the HTTP request runs off the event loop."""

    def __init__(self, url: str | None = None, unit_name: str | None = None, timeout: float = 3.0) -> None:
        self.url = (url or default_url()) + (f"-{unit_name}?nofix=1" if unit_name else "")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(f"address_server={url!r} must begin with http:// or https://")
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"<AddressServer {self.url}>"

    async def fetch(self) -> tuple[str, ...]:
        """The addresses that the server names; `NameServerError` says why there are none."""
        return await asyncio.to_thread(self._fetch)

    def _fetch(self) -> tuple[str, ...]:
        try:
            with urllib.request.urlopen(self.url, timeout=self._timeout) as answer:
                if answer.status != 200:
                    raise NameServerError(f"the address server {self.url} answered HTTP {answer.status}")
                text: str = answer.read(_MAX_ANSWER).decode("utf-8", "replace").strip()
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise NameServerError(
                f"the address server {self.url} could not be asked for name servers: {reason}."
                " Pass name_servers= or set $NAMESRV_ADDR if there is none"
            ) from error
        first_line = text.splitlines()[0] if text else ""
        try:
            return parse_name_servers(first_line)
        except ConfigurationError as error:
            raise NameServerError(f"the address server {self.url} named no usable name server: {error}") from None
