"""Options of the rocketmq source and sink, checked by who will read them; each mistake at its option's line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rocketstream.errors import ConfigurationError
from rocketstream.spark.pipeline.nodes import Node
from rocketstream.spark.pipeline.tables import Table

#: For checking what is left when a wrong one is taken out.
_STAND_IN = "127.0.0.1:9876"


def check_options(table: Table, options: Mapping[str, Node], parse: Callable[[Mapping[str, str]], object]) -> None:
    """Note all that a parser refuses: it tells one mistake at a time, so what it names is taken out for the next."""
    left = {name: str(node.value) for name, node in options.items()}
    for _ in range(len(options) + 1):
        try:
            parse(left)
            return
        except ConfigurationError as error:
            sentence = str(error)
        named = _named(sentence, left)
        table.wrong((options[named].line if named is not None and named in options else 0) or table.line, sentence)
        if named is not None and named.lower() != "nameservers":
            del left[named]
        elif "nameServers" in sentence and left.get("nameServers") != _STAND_IN:
            left = {name: value for name, value in left.items() if name.lower() != "nameservers"}
            left["nameServers"] = _STAND_IN
        else:
            return


def check_write_options(table: Table, options: Mapping[str, Node]) -> None:
    """The same for the sink."""
    from rocketstream.spark.write_options import WriteOptions

    check_options(table, options, WriteOptions.parse)


def _named(sentence: str, options: Mapping[str, str]) -> str | None:
    """The option that a sentence is about: of those given, the one it names first."""
    places = []
    for name in options:
        # `topic` and `topics` are one thing to their parser.
        found = re.search(rf"(?<![A-Za-z]){re.escape(name.removesuffix('s'))}s?(?![A-Za-z])", sentence, re.IGNORECASE)
        if found:
            places.append((found.start(), name))
    return min(places)[1] if places else None
