r"""A message's properties as RocketMQ carries them: one string, `name \x01 value \x02` for each.

The rule of this file: reading forgives what Java forgives (odd pieces are left out, the last of two equal names
wins) because the message is more than its properties; writing refuses whatever would not be read back the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from rocketstream.errors import ConfigurationError
from rocketstream.message import Message
from rocketstream.property_names import PropertyName

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"

#: The length of the string is a signed 16-bit number in a record, so Java reads more than this as nothing.
MAX_PROPERTIES_SIZE: Final = 32767


def encode_properties(properties: Mapping[str, str]) -> str:
    """The properties as one string; an error names the property that cannot be carried."""
    for name, value in properties.items():
        if not name or not value:
            raise ConfigurationError(f"property {name!r}={value!r}: RocketMQ drops an empty name or value")
        if NAME_END in name or VALUE_END in name or VALUE_END in value or NAME_END in value:
            raise ConfigurationError(
                rf"property {name!r}={value!r} contains \x01 or \x02, which separate properties on the wire"
            )
    return "".join([f"{name}{NAME_END}{value}{VALUE_END}" for name, value in properties.items()])


def decode_properties(text: str) -> dict[str, str]:
    """The properties of such a string, as Java reads them: a piece without a name or a value does not count."""
    properties: dict[str, str] = {}
    for piece in text.split(VALUE_END):
        name, _, value = piece.partition(NAME_END)
        if value and name:
            properties[name] = value
    return properties


@lru_cache(maxsize=256)
def _search_key(name: str) -> bytes:
    return f"{VALUE_END}{name}{NAME_END}".encode()


def find_property(buffer: bytes, start: int, end: int, name: str) -> str | None:
    """One property of the encoded string at `buffer[start:end]`, the same that decoding all would give.

    For names without separators; made for the tag filter, which looks at every message.
    """
    key = _search_key(name)
    found = buffer.rfind(key, start, end)
    if found >= 0:
        value_start = found + len(key)
    elif buffer.startswith(key[1:], start, end):
        value_start = start + len(key) - 1
    else:
        return None
    value_end = buffer.find(b"\x02", value_start, end)
    value = buffer[value_start : end if value_end < 0 else value_end]
    if value:
        return value.decode("utf-8", "replace")
    # An empty value does not count, so an earlier piece of the same name may: rare enough to read them all.
    return decode_properties(buffer[start:end].decode("utf-8", "replace")).get(name)


def properties_bytes(properties: str) -> bytes:
    """The UTF-8 bytes of an encoded string, refused when a record has no room for them."""
    try:
        raw = properties.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"properties cannot be written as UTF-8: {error}") from None
    if len(raw) > MAX_PROPERTIES_SIZE:
        raise ConfigurationError(
            f"the properties take {len(raw)} bytes, RocketMQ carries at most {MAX_PROPERTIES_SIZE} per message"
        )
    return raw


def message_properties(message: Message, *, unique_id: str | None = None) -> dict[str, str]:
    """All properties of a message to send: the user's own and those that its attributes stand for."""
    properties = dict(message.properties)
    named = {
        PropertyName.TAGS: message.tags,
        PropertyName.KEYS: message.keys,
        PropertyName.SHARDING_KEY: message.sharding_key,
        PropertyName.UNIQUE_KEY: unique_id,
    }
    # An empty tag or key is none: the broker would drop it anyway, and Java's callers pass "" for "no tags".
    properties.update({name: value for name, value in named.items() if value})
    if message.delay_level:
        properties[PropertyName.DELAY_LEVEL] = str(message.delay_level)
    if message.delay is not None:
        properties[PropertyName.TIMER_DELAY_MS] = str(round(message.delay * 1000))
    if message.deliver_at is not None:
        properties[PropertyName.TIMER_DELIVER_MS] = str(message.deliver_at)
    properties.setdefault(PropertyName.WAIT_STORE_OK, "true")
    return properties


_OWN_START: Final = f"{PropertyName.UNIQUE_KEY}{NAME_END}"
_OWN_END: Final = f"{VALUE_END}{PropertyName.WAIT_STORE_OK}{NAME_END}true{VALUE_END}"
#: What `message_text` is of a message that is only a body: its unique id, between these.
BARE_START: Final = _OWN_START.encode()
BARE_END: Final = _OWN_END.encode()


def message_text(message: Message, unique_id: str) -> str:
    """`message_properties`, encoded; without the dict where there is nothing to put into it."""
    if message.properties or message.delay_level or message.delay is not None or message.deliver_at is not None:
        return encode_properties(message_properties(message, unique_id=unique_id))
    own = f"{_OWN_START}{unique_id}{_OWN_END}"
    tags, keys, sharding_key = message.tags, message.keys, message.sharding_key
    if not (tags or keys or sharding_key):
        return own
    count = 2
    named = ""
    every = (PropertyName.TAGS, tags), (PropertyName.KEYS, keys), (PropertyName.SHARDING_KEY, sharding_key)
    for name, value in every:
        if value:
            named += f"{name}{NAME_END}{value}{VALUE_END}"
            count += 1
    text = named + own
    if text.count(NAME_END) != count or text.count(VALUE_END) != count:
        return encode_properties(message_properties(message, unique_id=unique_id))  # it names the one that is wrong
    return text
