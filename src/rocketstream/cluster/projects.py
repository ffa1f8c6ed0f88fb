"""Projects: how several environments shared one cluster before there were namespaces (RES-05).

An operator writes at the name servers which project a machine belongs to; the topics of that project end in
`%PROJECT_<name>%`, which its users never see (Java's `VirtualEnvUtil`).
"""

from __future__ import annotations

import logging
from typing import Final

from rocketstream.cluster.name_servers import NameServers
from rocketstream.errors import RocketStreamError
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.name_server import GetKVConfigRequestHeader, GetKVConfigResponseHeader

log = logging.getLogger("rocketstream.cluster")

PROJECT_CONFIG: Final = "PROJECT_CONFIG"


async def project_of(name_servers: NameServers, ip: str, timeout: float) -> str | None:
    """The project of a machine, if the name servers know one; never raises: hardly anybody has projects."""
    header = GetKVConfigRequestHeader(namespace=PROJECT_CONFIG, key=ip)
    try:
        address, answer = await name_servers.ask(request(RequestCode.GET_KV_CONFIG, header), timeout)
        if answer.code != ResponseCode.SUCCESS:
            log.debug("name server %s knows no project of %s: %s", address, ip, answer.remark)
            return None
        project = (GetKVConfigResponseHeader.from_fields(answer.fields).value or "").strip()
    except RocketStreamError as error:
        log.info("whether %s belongs to a project could not be asked: %s", ip, error)
        return None
    if project:
        log.info("%s belongs to project %s: topics are shown without it", ip, project)
    return project or None


def with_project(project: str | None, topic: str) -> str:
    """A topic as brokers know it."""
    return topic + _ending(project) if project else topic


def without_project(project: str | None, topic: str) -> str:
    """A topic as its users know it; one of another project stays as it is."""
    return topic.removesuffix(_ending(project)) if project else topic


def _ending(project: str) -> str:
    return f"%PROJECT_{project}%"
