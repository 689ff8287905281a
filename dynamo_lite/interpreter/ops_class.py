"""Class bodies: the instructions that read and write their namespace, and ``__build_class__``.

A class body is a function that is evaluated with a namespace. Invariant: these instructions break the graph in code
that has no namespace here (a module's, ``exec``'s).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..rules.table import handles
from ..variables.base import VariableTracker, unsupported
from ..variables.cells import CellVariable
from ..variables.constant import ConstantVariable
from ..variables.containers.mappings import DictVariable
from ..variables.functions.functions import NestedFunctionVariable
from ..variables.objects.made_classes import define_class
from .registry import opcode
from .translator import Translator

if TYPE_CHECKING:
    from ..variables.protocols import Tracer


def namespace_of(tx: Translator, i: Any) -> DictVariable:
    """The namespace of the class body that an instruction belongs to."""
    if tx.namespace is None:
        unsupported("unsupported_opcode", f"{i.opname}: it belongs to class bodies and modules")
    return tx.namespace


@opcode("LOAD_NAME")
def _load_name(tx: Translator, i: Any) -> None:
    value = namespace_of(tx, i).lookup(tx, ConstantVariable(i.argval))
    tx.push(value if value is not None else tx.load_global(i.argval))


@opcode("STORE_NAME")
def _store_name(tx: Translator, i: Any) -> None:
    namespace_of(tx, i).store(tx, ConstantVariable(i.argval), tx.pop())


@opcode("DELETE_NAME")
def _delete_name(tx: Translator, i: Any) -> None:
    namespace = namespace_of(tx, i)
    if namespace.lookup(tx, ConstantVariable(i.argval)) is None:
        tx.raise_error(NameError, f"name {i.argval!r} is not defined")
    namespace.delitem(tx, ConstantVariable(i.argval))


@opcode("SETUP_ANNOTATIONS")
def _setup_annotations(tx: Translator, i: Any) -> None:
    namespace = namespace_of(tx, i)
    if namespace.lookup(tx, ConstantVariable("__annotations__")) is None:
        namespace.store(tx, ConstantVariable("__annotations__"), tx.values.new_dict({}))


@handles(__build_class__)
def _build_class(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    body, name, *bases = args
    text = name.constant()
    meta = kwargs.pop("metaclass", None)
    if kwargs or not isinstance(body, NestedFunctionVariable) or (meta is not None and not meta.is_constant()):
        unsupported("class_definition", f"class {text}")
    if set(body.code().co_cellvars) & set(body.code().co_freevars):
        unsupported("class_definition", f"class {text}, with two variables of one name")
    namespace = DictVariable({})
    assert isinstance(tx, Translator)
    frame = Translator(body.code(), tx.output, body.globals(), tx.builtins, {}, tx)
    frame.free_cells = body.cells(tx)
    frame.namespace = namespace
    try:
        cell = frame.run()
    finally:
        frame.release_parts()
    contents = {key.constant(): value for key, value in zip(namespace.keys(), namespace.values(tx))}
    contents.pop("__classcell__", None)
    # Since 3.14, in bodies with functions: the cell of the class's dict, which only annotations read. It keeps the
    # namespace of the body.
    contents.pop("__classdictcell__", None)
    made = define_class(tx, text, bases, contents, None if meta is None else meta.constant())
    if isinstance(cell, CellVariable):
        cell.store(tx, made)
    return made
