"""The tables that a query names, found without a parser, and a few things that its words tell.

Spark itself checks the grammar once it runs. Before that it is enough to know what stands after FROM and JOIN, so that
a slip in a name is told with its line and not by a Java exception. Where the words leave a doubt, nothing is said.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<skip>  \s+ | --[^\n]* | /\*.*?(?:\*/|$) )
  | (?P<text>  [rR]?'(?:[^'\\]|\\.|'')*(?:'|$) | [rR]?"(?:[^"\\]|\\.|"")*(?:"|$) )
  | (?P<name>  `(?:[^`]|``)*` | [A-Za-z_][A-Za-z0-9_]* )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
#: Functions with a FROM of their own: EXTRACT(year FROM t), TRIM(BOTH 'x' FROM t), ...
_FROM_INSIDE = {"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY", "POSITION"}
#: What may stand where a table's alias could, so that a comma after it is still the list of FROM.
_ENDS_FROM = {
    "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "MINUS", "WINDOW", "SELECT", "SORT",
    "CLUSTER", "DISTRIBUTE", "QUALIFY", "OFFSET", "ON", "USING",
}  # fmt: skip
_NOT_TABLES = {"LATERAL", "VALUES", "TABLE", "UNNEST", "IDENTIFIER", "STREAM"}


class TableName(NamedTuple):
    """A table that a query names, and on which of the query's lines (0 is the first)."""

    name: str
    line: int


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "name" else self.text


def tables_of(sql: str) -> list[TableName]:
    """The tables after FROM and JOIN, but for the query's own (WITH) and those with a catalog or schema before them."""
    tokens = _tokens(sql)
    own = _own_names(tokens)
    found: list[TableName] = []
    opened: list[str] = []  # the word before each open parenthesis
    lists = [False]  # per open parenthesis: whether a comma is one of FROM's list
    for index, token in enumerate(tokens):
        before = tokens[index - 1].word if index else ""
        if token.text == "(":
            opened.append(before)
            lists.append(False)
        elif token.text == ")":
            opened[-1:] = []
            lists[1:] = lists[1:-1]
        elif token.word in _ENDS_FROM:
            lists[-1] = False
        elif _starts_tables(tokens, index, opened) or (token.text == "," and lists[-1]):
            lists[-1] = lists[-1] or token.word == "FROM"
            name = _table(tokens, index + 1)
            if name is not None and name.lower() not in own:
                found.append(TableName(name, sql.count("\n", 0, tokens[index + 1].at)))
    return found


def has_words(sql: str, *words: str) -> bool:
    """Whether these words follow each other somewhere in a query, outside of its texts and comments."""
    said = [token.word for token in _tokens(sql)]
    return any(tuple(said[index : index + len(words)]) == words for index in range(len(said)))


def has_parts(sql: str) -> bool:
    """Whether a query has queries inside, or beside it: then its words don't tell what the whole does."""
    return sum(token.word in ("SELECT", "FROM") for token in _tokens(sql)) > 2 or has_words(sql, "UNION")


def _tokens(sql: str) -> list[_Token]:
    tokens = (_Token(found.lastgroup or "other", found[0], found.start()) for found in _TOKEN.finditer(sql))
    return [token for token in tokens if token.kind != "skip"]


def _own_names(tokens: list[_Token]) -> set[str]:
    """The names before `AS (`, with or without a list of columns: those of WITH, and some that do no harm."""
    if not any(token.word == "WITH" for token in tokens):
        return set()
    own = set()
    for index, token in enumerate(tokens[:-1]):
        if token.word != "AS" or tokens[index + 1].text != "(":
            continue
        at = index - 1
        if at >= 0 and tokens[at].text == ")":
            while at >= 0 and tokens[at].text != "(":
                at -= 1
            at -= 1
        if at >= 0 and tokens[at].kind == "name":
            own.add(_plain(tokens[at].text).lower())
    return own


def _starts_tables(tokens: list[_Token], index: int, opened: list[str]) -> bool:
    word = tokens[index].word
    if tokens[index].text.startswith("`") or (index and tokens[index - 1].text == "."):
        return False
    if word == "JOIN":
        return True
    if word != "FROM" or (opened and opened[-1] in _FROM_INSIDE):
        return False
    return not (index and tokens[index - 1].word == "DISTINCT" and _is_comparison(tokens, index - 1))


def _is_comparison(tokens: list[_Token], distinct: int) -> bool:
    """IS [NOT] DISTINCT FROM."""
    before = [token.word for token in tokens[max(0, distinct - 2) : distinct]]
    return before[-1:] == ["IS"] or before == ["IS", "NOT"]


def _table(tokens: list[_Token], index: int) -> str | None:
    """The plain name at this place; None if it is a subquery, a function or a name of several parts."""
    if index >= len(tokens) or tokens[index].kind != "name" or tokens[index].word in _NOT_TABLES:
        return None
    after = tokens[index + 1].text if index + 1 < len(tokens) else ""
    return None if after in (".", "(") else _plain(tokens[index].text)


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
