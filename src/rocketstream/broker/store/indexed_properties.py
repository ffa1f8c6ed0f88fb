"""The three properties that the store finds messages by: tags, keys, unique key."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from rocketstream.broker.store.segment import Segment
from rocketstream.property_names import KEY_SEPARATOR, PropertyName
from rocketstream.wire.java import java_string_hash
from rocketstream.wire.properties import decode_properties

_TAGS: Final = f"\x02{PropertyName.TAGS}\x01".encode()
_KEYS: Final = f"\x02{PropertyName.KEYS}\x01".encode()
_UNIQUE_KEY: Final = f"\x02{PropertyName.UNIQUE_KEY}\x01".encode()
_SEPARATOR: Final = KEY_SEPARATOR.encode()

# Topics have a handful of tags; somebody who tags each message with a number must not fill the memory.
_MAX_KNOWN_TAGS: Final = 4096
_known_tags: dict[bytes, int] = {b"": 0}


def tags_code_of(tags: bytes) -> int:
    """Java's hash of a tag; 0 without one."""
    code = _known_tags.get(tags)
    if code is None:
        if len(_known_tags) > _MAX_KNOWN_TAGS:
            _known_tags.clear()
            _known_tags[b""] = 0
        code = _known_tags[tags] = java_string_hash(tags.decode("utf-8", "replace"))
    return code


def key_seed_of(topic: str) -> int:
    """What the hashes of a topic's keys begin with: Java's key of its index is topic#key, too."""
    return crc32(f"{topic}#".encode())


def key_hash(seed: int, key: bytes) -> int:
    """The hash under which a key is found."""
    return crc32(key, seed)


def indexed_properties(raw: bytes, seed: int, segment: Segment, at: int) -> int:
    """Index the keys in an encoded property string, of the record at a byte of a segment; returns the tags code."""
    text = b"\x02" + raw
    found = text.rfind(_UNIQUE_KEY)
    if found >= 0:
        value = _value(text, found + len(_UNIQUE_KEY)) or _odd(raw, PropertyName.UNIQUE_KEY)
        if value:
            segment.key_hashes.append(crc32(value, seed))
            segment.key_places.append(at)
    found = text.rfind(_KEYS)
    if found >= 0:
        value = _value(text, found + len(_KEYS)) or _odd(raw, PropertyName.KEYS)
        for key in value.split(_SEPARATOR):
            if key:
                segment.key_hashes.append(crc32(key, seed))
                segment.key_places.append(at)
    found = text.rfind(_TAGS)
    if found < 0:
        return 0
    return tags_code_of(_value(text, found + len(_TAGS)) or _odd(raw, PropertyName.TAGS))


def has_key(properties: dict[str, str], key: str) -> bool:
    """Whether a message has that key or unique key."""
    return properties.get(PropertyName.UNIQUE_KEY) == key or key in properties.get(PropertyName.KEYS, "").split(
        KEY_SEPARATOR
    )


def _value(text: bytes, start: int) -> bytes:
    end = text.find(b"\x02", start)
    return text[start:] if end < 0 else text[start:end]


def _odd(raw: bytes, name: str) -> bytes:
    # An empty value does not count, an earlier one of the same name then may.
    return decode_properties(raw.decode("utf-8", "replace")).get(name, "").encode()
