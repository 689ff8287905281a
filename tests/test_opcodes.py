"""Every opcode of the running Python is either evaluated or refused by name, none by oversight.

Which opcodes of other versions are neither yet is written down here.
"""

from __future__ import annotations

import dis
import importlib
import opcode
import pkgutil
import re
import sys

import pytest
from opcode_tables import OPCODES

from dynamo_lite import interpreter
from dynamo_lite.bytecode import instructions, library
from dynamo_lite.bytecode.facts import facts as facts_of_this_python
from dynamo_lite.interpreter.registry import HANDLERS, REFUSED

RUNNING = f"py{sys.version_info[0]}{sys.version_info[1]}"
# Decoding folds these into the instructions that they belong to.
FOLDED = {"CACHE", "EXTENDED_ARG"}
# No function's code has them.
INTERNAL = {"RESERVED", "INTERPRETER_EXIT", "EXIT_INIT_CHECK", "ENTER_EXECUTOR"}
THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"

# By version, the instructions that the evaluator neither handles nor refuses by name. Of those that it handles, some
# mean something else than in 3.11: FOR_ITER (goes past the END_FOR), SEND and YIELD_VALUE since 3.12; what pushes or
# uses a callable's NULL (LOAD_GLOBAL, LOAD_METHOD, CALL, CALL_FUNCTION_EX) and MAKE_FUNCTION since 3.13;
# CALL_FUNCTION_EX and WITH_EXCEPT_START since 3.14; GET_ITER and IMPORT_NAME since 3.15.
_SINCE_3_12 = """
BINARY_SLICE CALL_INTRINSIC_1 CALL_INTRINSIC_2 CLEANUP_THROW END_FOR END_SEND LOAD_FAST_AND_CLEAR
LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS LOAD_LOCALS LOAD_SUPER_ATTR POP_JUMP_IF_FALSE POP_JUMP_IF_NONE
POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE STORE_SLICE
"""
_SINCE_3_13 = """
CALL_KW CONVERT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC SET_FUNCTION_ATTRIBUTE TO_BOOL
"""
_SINCE_3_14 = """
BUILD_INTERPOLATION BUILD_TEMPLATE LOAD_SPECIAL NOT_TAKEN POP_ITER
"""
MISSING: dict[str, set[str]] = {
    "3.11": set(),
    "3.12": set(_SINCE_3_12.split()),
    "3.13": {*_SINCE_3_12.split(), *_SINCE_3_13.split()},
    "3.14": {*_SINCE_3_12.split(), *_SINCE_3_13.split(), *_SINCE_3_14.split()},
    "3.15": {*_SINCE_3_12.split(), *_SINCE_3_13.split(), *_SINCE_3_14.split()},
}


def shown(version: str) -> set[str]:
    """The names under which decoding shows a version's opcodes."""
    facts = importlib.import_module("dynamo_lite.bytecode.py" + version.replace(".", ""))
    parts = [part for name in OPCODES[version] - FOLDED - INTERNAL for part in facts.PARTS.get(name, (name,))]
    names = {facts.READ_AS.get(part, part) for part in parts} | set(facts.BINARY_READ_AS.values())
    return names | ({"LOAD_METHOD"} if facts.METHOD_BIT else set()) | ({"LOAD_CLOSURE"} if facts.FAST_CELLS else set())

for _module in pkgutil.iter_modules(interpreter.__path__):
    if not re.fullmatch(r"py3\d+", _module.name) or _module.name == RUNNING:
        importlib.import_module(f"{interpreter.__name__}.{_module.name}")


def test_the_table_of_this_python_is_true() -> None:
    ours = {name for name in library.OPMAP if not name.startswith("INSTRUMENTED_")}
    assert ours - set(getattr(opcode, "_specialized_opmap", ())) == OPCODES[THIS]
    assert {form[1] for form in instructions._FORMS.values()} >= shown(THIS) - {"LOAD_METHOD", "LOAD_CLOSURE"} - set(
        facts_of_this_python.BINARY_READ_AS.values()
    )


@pytest.mark.parametrize("version", OPCODES)
def test_each_opcode_is_handled_or_refused(version: str) -> None:
    assert shown(version) - set(HANDLERS) - set(REFUSED) == MISSING[version]


def test_nothing_is_missing_where_the_project_runs() -> None:
    assert not MISSING[THIS]


def test_none_is_both() -> None:
    assert not set(HANDLERS) & set(REFUSED)


def test_the_tables_name_opcodes_of_this_python() -> None:
    assert set(HANDLERS) | set(REFUSED) <= set(dis.opmap)


def test_what_is_refused_says_why() -> None:
    assert all(reason.strip() for reason in REFUSED.values())
