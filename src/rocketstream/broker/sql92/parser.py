"""The grammar of RocketMQ's filter, by recursive descent: one method per rule of its `SelectorParser.jj`."""

from __future__ import annotations

from rocketstream.broker.sql92 import operands
from rocketstream.broker.sql92.errors import SqlError
from rocketstream.broker.sql92.lexer import Kind, Lexer, Token
from rocketstream.broker.sql92.numbers import INT_MAX, LONG_MAX
from rocketstream.broker.sql92.operands import Evaluate, Operand, OperandError, Type

_SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")


def parse(text: str) -> Evaluate:
    """The expression as a function of properties to True, False or None. What follows it is not looked at."""
    parser = _Parser(text)
    try:
        return operands.condition(parser.any_of()).evaluate
    except OperandError as error:
        raise SqlError(str(error), parser.operator_position, text) from None
    except RecursionError:
        raise SqlError("it is nested too deeply", parser.operator_position, text) from None


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._lexer = Lexer(text)
        self.operator_position = 0
        """Where the last word was that means something to operands: what an error about operands points at."""

    # --- from loose to tight ----------------------------------------------------------------------------------------

    def any_of(self) -> Operand:
        left = self._all_of()
        while self._next_is("OR"):
            left = operands.either(left, self._all_of())
        return left

    def _all_of(self) -> Operand:
        left = self._equality()
        while self._next_is("AND"):
            left = operands.both(left, self._equality())
        return left

    def _equality(self) -> Operand:
        left = self._comparison()
        while True:
            if self._next_is("="):
                left = operands.equal(left, self._comparison())
            elif self._next_is("<>"):
                left = operands.negation(operands.equal(left, self._comparison()))
            elif self._next_is("IS"):
                negated = self._next_is("NOT")
                self._expect("NULL", "NULL" if negated else "NULL or NOT NULL")
                left = operands.is_null(left)
                left = operands.negation(left) if negated else left
            else:
                return left

    def _comparison(self) -> Operand:
        left = self._unary()
        while True:
            token = self._lexer.peek()
            if token.kind not in (Kind.SYMBOL, Kind.KEYWORD):
                return left
            if token.value in (">", ">=", "<", "<="):
                self._take()
                left = operands.ordered(token.value, left, self._unary())
            elif token.value in ("NOT", "BETWEEN", "IN", *_SEARCHES):
                left = self._worded(left)
            else:
                return left

    def _worded(self, left: Operand) -> Operand:
        negated = self._next_is("NOT")
        token = self._take()
        word = token.value if token.kind is Kind.KEYWORD else ""
        if word in _SEARCHES:
            return operands.searched(word, left, self._string(), negated)
        if word == "BETWEEN":
            low = self._unary()
            self._expect("AND", "AND between the bounds of BETWEEN")
            high = self._unary()
            return operands.not_between(left, low, high) if negated else operands.between(left, low, high)
        if word == "IN":
            return operands.one_of(left, self._strings(), negated)
        raise self._unexpected(token, "CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN after NOT")

    def _unary(self) -> Operand:
        if self._next_is("+"):
            return self._unary()
        if self._next_is("-"):
            return operands.minus(self._unary())
        if self._next_is("NOT"):
            return operands.negation(self._unary())
        return self._primary()

    def _primary(self) -> Operand:
        token = self._lexer.take()
        match token:
            case Token(Kind.NAME, name):
                return operands.named(name)
            case Token(Kind.STRING, text):
                return operands.literal(Type.TEXT, text, f"'{text}'")
            case Token(Kind.INTEGER, digits):
                return self._integer(token, digits.rstrip("lL"))
            case Token(Kind.FLOAT, digits):
                return self._float(token, digits)
            case Token(Kind.KEYWORD, "TRUE" | "FALSE" as word):
                return operands.literal(Type.BOOLEAN, word == "TRUE", word)
            case Token(Kind.KEYWORD, "NULL"):
                return operands.literal(Type.BOOLEAN, None, "NULL")
            case Token(Kind.SYMBOL, "("):
                inner = self.any_of()
                self._expect(")", "')'")
                return inner
        raise self._unexpected(token, "a property, a number, a quoted string, TRUE, FALSE, NULL or '('")

    # --- literals ---------------------------------------------------------------------------------------------------

    def _integer(self, token: Token, digits: str) -> Operand:
        if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
            raise SqlError(f"{_short(digits)} is greater than {LONG_MAX}", token.position, self._text)
        value = int(digits)
        return operands.literal(Type.INT if value <= INT_MAX else Type.LONG, value, digits)

    def _float(self, token: Token, digits: str) -> Operand:
        value = float(digits)
        if value == float("inf"):
            raise SqlError(f"{_short(digits)} is greater than 1.7976931348623157E308", token.position, self._text)
        if value == 0.0:
            raise SqlError(f"{_short(digits)} is less than 4.9E-324, the least number", token.position, self._text)
        return operands.literal(Type.DOUBLE, value, digits)

    def _string(self) -> str:
        token = self._take()
        if token.kind is not Kind.STRING:
            raise self._unexpected(token, "a quoted string")
        return token.value

    def _strings(self) -> list[str]:
        self._expect("(", "'(' after IN")
        values = [self._string()]
        while self._next_is(","):
            values.append(self._string())
        self._expect(")", "',' or ')'")
        return values

    # --- words ------------------------------------------------------------------------------------------------------

    def _take(self) -> Token:
        token = self._lexer.take()
        self.operator_position = token.position
        return token

    def _next_is(self, value: str) -> bool:
        token = self._lexer.peek()
        if token.value != value or token.kind not in (Kind.KEYWORD, Kind.SYMBOL):
            return False
        self._take()
        return True

    def _expect(self, value: str, said: str) -> None:
        if not self._next_is(value):
            raise self._unexpected(self._lexer.peek(), said)

    def _unexpected(self, token: Token, expected: str) -> SqlError:
        return SqlError(f"expected {expected}, found {token}", token.position, self._text)


def _short(digits: str) -> str:
    return digits if len(digits) <= 40 else digits[:37] + "..."
