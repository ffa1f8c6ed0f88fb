from __future__ import annotations

import pytest

from rocketstream.broker.administration import Administration
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.lenient_json import loads
from tests.broker.parts import Parts, ask, request, succeed


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def administration(parts) -> Administration:
    return Administration(settings=parts.settings, clock=parts.clock)


async def config(parts: Parts, administration: Administration) -> tuple[int, dict[str, str]]:
    answer = await succeed(administration, parts.connect(), request(RequestCode.GET_BROKER_CONFIG))
    lines = answer.body.decode().splitlines()
    return loads(answer.fields["version"])["counter"], dict(line.split("=", 1) for line in lines)


async def update(parts: Parts, administration: Administration, text: bytes):
    return await ask(administration, parts.connect(), request(RequestCode.UPDATE_BROKER_CONFIG, body=text))


async def test_settings_are_told_and_changed_by_rocketmqs_names(parts, administration):
    counter, before = await config(parts, administration)
    assert before["brokerName"] == "broker-a"
    assert before["useServerSideResetOffset"] == "true"
    text = b"#comment\n\nuseServerSideResetOffset=false\ntransactionTimeOut=1500\nunheardOf = 1\n"
    assert (await update(parts, administration, text)).code == ResponseCode.SUCCESS
    assert parts.settings.server_side_reset is False
    assert parts.settings.transaction_timeout == 1.5
    after_counter, after = await config(parts, administration)
    assert after_counter == counter + 1
    assert {name: after[name] for name in after if after[name] != before.get(name)} == {
        "useServerSideResetOffset": "false",
        "transactionTimeOut": "1500",
        "unheardOf": "1",
    }


async def test_what_may_not_be_changed_or_makes_no_sense_is_refused(parts, administration):
    answer = await update(parts, administration, b"brokerConfigPath=/etc/passwd")
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    answer = await update(parts, administration, b"maxMessageSize=big")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "maxMessageSize" in (answer.remark or "")


@pytest.mark.parametrize("code", [RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG])
async def test_cleaning_is_accepted(parts, administration, code):
    await succeed(administration, parts.connect(), request(code))
