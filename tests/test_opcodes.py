"""Every opcode of each version of Python is either evaluated or refused by name, none by oversight."""

from __future__ import annotations

import importlib
import opcode
import sys

import pytest
from opcode_tables import OPCODES

from dynamo_lite.bytecode import instructions, library
from dynamo_lite.bytecode.facts import facts as facts_of_this_python
from dynamo_lite.bytecode.instructions import shown_names
from dynamo_lite.interpreter import opcodes
from dynamo_lite.interpreter.registry import COMMON, HANDLERS, REFUSED

# Decoding folds these into the instructions that they belong to.
FOLDED = {"CACHE", "EXTENDED_ARG"}
# No function's code has them.
INTERNAL = {"RESERVED", "INTERPRETER_EXIT", "EXIT_INIT_CHECK", "ENTER_EXECUTOR"}
assert opcodes  # it fills the tables of the running Python
THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"

_MODULE = "dynamo_lite.interpreter.py"
TABLES = {
    version: importlib.import_module(_MODULE + version.replace(".", "")).TABLE for version in OPCODES
}


def shown(version: str) -> set[str]:
    """The names under which decoding shows a version's opcodes."""
    facts = importlib.import_module("dynamo_lite.bytecode.py" + version.replace(".", ""))
    parts = [part for name in OPCODES[version] - FOLDED - INTERNAL for part in facts.PARTS.get(name, (name,))]
    names = {facts.READ_AS.get(part, part) for part in parts} | set(facts.BINARY_READ_AS.values())
    return names | ({"LOAD_METHOD"} if facts.METHOD_BIT else set()) | ({"LOAD_CLOSURE"} if facts.FAST_CELLS else set())


def test_the_table_of_this_python_is_true() -> None:
    ours = {name for name in library.OPMAP if not name.startswith("INSTRUMENTED_")}
    assert ours - set(getattr(opcode, "_specialized_opmap", ())) == OPCODES[THIS]
    assert {form[1] for form in instructions._FORMS.values()} >= shown(THIS) - {"LOAD_METHOD", "LOAD_CLOSURE"} - set(
        facts_of_this_python.BINARY_READ_AS.values()
    )


def handled(version: str) -> set[str]:
    return {*COMMON.handlers, *TABLES[version].handlers} & shown(version) - set(TABLES[version].refused)


def refused(version: str) -> set[str]:
    return {*COMMON.refused, *TABLES[version].refused} & shown(version) - set(TABLES[version].handlers)


@pytest.mark.parametrize("version", OPCODES)
def test_each_opcode_is_handled_or_refused(version: str) -> None:
    assert shown(version) == handled(version) | refused(version)


@pytest.mark.parametrize("version", OPCODES)
def test_none_is_both(version: str) -> None:
    assert not handled(version) & refused(version)


@pytest.mark.parametrize("version", OPCODES)
def test_a_versions_table_names_its_own_opcodes(version: str) -> None:
    assert {*TABLES[version].handlers, *TABLES[version].refused} <= shown(version)


def test_the_common_table_names_opcodes_of_some_python() -> None:
    assert {*COMMON.handlers, *COMMON.refused} <= set().union(*map(shown, OPCODES))


def test_the_running_pythons_tables() -> None:
    assert shown_names() - FOLDED - INTERNAL >= shown(THIS)
    assert set(HANDLERS) == handled(THIS) and set(REFUSED) == refused(THIS)


def test_what_is_refused_says_why() -> None:
    reasons = [*COMMON.refused.values(), *(reason for table in TABLES.values() for reason in table.refused.values())]
    assert all(reason.strip() for reason in reasons)
