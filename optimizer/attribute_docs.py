"""Docstrings of the fields of a class, read from its source when they are needed.

Pydantic's ``use_attribute_docstrings`` reads them when a class is created, which is a fifth of the time that
``inferplan solve`` takes to plan a small system.
"""

import ast
import inspect
from functools import cache
from itertools import pairwise
from textwrap import dedent


@cache
def attribute_docs(documented: type) -> dict[str, str]:
    """Return the docstrings of the annotated attributes of a class, by attribute.

    An attribute without a docstring in the class has that of the first base with the attribute, from which
    pydantic takes the field.
    """
    found: dict[str, str] = {}
    for base in reversed(documented.__bases__):
        found |= attribute_docs(base)
    return found | _own_docs(documented)


def _own_docs(documented: type) -> dict[str, str]:
    if not inspect.get_annotations(documented):
        return {}
    try:
        source = inspect.getsource(documented)
    except (OSError, TypeError):  # a class without source, such as `object`
        return {}
    (statement,) = ast.parse(dedent(source)).body
    body = statement.body if isinstance(statement, ast.ClassDef) else []
    docs = {}
    for field, text in pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                docs[name] = inspect.cleandoc(doc)
    return docs
