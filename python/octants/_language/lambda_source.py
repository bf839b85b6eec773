"""Converts the source of a lambda to that of a function with one `return`, for the compiler."""

from __future__ import annotations

import ast
from types import CodeType

_HEAD = "def _(): return ("


def lambda_text(code: CodeType, lines: list[str]) -> tuple[str, int] | None:
    """Source text of a function that returns what the lambda returns, and its first line; None if the lambda is not
    found.

    Omits the parameters, which the function object has. Keeps the columns if the function's head fits before them.
    """
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    positions = getattr(code, "co_positions", None)
    if len(found) > 1:
        if positions is None:
            return None  # Python 3.10 does not provide the columns.
        # Several on one line: the one whose body the code's instructions come from, innermost first.
        places = {(line, column) for line, _, column, _ in positions() if line and column}
        found = [node for node in found if all(_holds(node.body, place) for place in places)][-1:]
    if not found:
        return None
    body = found[0].body
    segment = ast.get_source_segment("".join(lines), body)
    padding = " " * max(body.col_offset - len(_HEAD), 0)
    return f"{padding}{_HEAD}{segment})\n", body.lineno


def _holds(node: ast.expr, place: tuple[int, int]) -> bool:
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= place < end
