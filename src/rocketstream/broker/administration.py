"""What operators ask of the broker as a whole: its settings, and to clean up."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from rocketstream.broker import java_settings
from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.properties_file import format_properties, parse_properties
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.clock import Clock
from rocketstream.errors import ConfigurationError
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.admin import GetBrokerConfigResponseHeader

log = logging.getLogger("rocketstream.broker")

#: What RocketMQ lets nobody change (its `configBlackList`).
_BLACK_LIST: Final = frozenset({"configBlackList", "brokerConfigPath"})


class Administration:
    """Settings and cleaning."""

    def __init__(self, *, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._version = DataVersion(timestamp=clock.wall_ms())

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        """Changed settings are not kept: the next start is told its own."""

    def handlers(self) -> Mapping[int, Handler]:
        """The requests of operators."""
        return {
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.UPDATE_BROKER_CONFIG: self._update,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._clean,
        }

    def _config(self, connection: ClientConnection, command: Command) -> Command:
        version = GetBrokerConfigResponseHeader(version=self._version.encode().decode())
        body = format_properties(java_settings.properties(self._settings))
        return response(command, ResponseCode.SUCCESS, header=version, body=body)

    def _update(self, connection: ClientConnection, command: Command) -> Command:
        wanted = parse_properties(command.body)
        if _BLACK_LIST & wanted.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        for name, value in wanted.items():
            try:
                java_settings.change(self._settings, name, value)
            except ConfigurationError as error:
                raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
            log.info("%s changed a setting: %s=%s", connection.address, name, value)
        self._version = DataVersion(timestamp=self._clock.wall_ms(), counter=self._version.counter + 1)
        return response(command, ResponseCode.SUCCESS)

    def _clean(self, connection: ClientConnection, command: Command) -> Command:
        # The store removes what has expired by itself, index and all: there is nothing left to be cleaned by hand.
        return response(command, ResponseCode.SUCCESS)
