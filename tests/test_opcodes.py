"""Every opcode of the running Python is either evaluated or refused by name, none by oversight."""

from __future__ import annotations

import dis
import importlib
import pkgutil
import re
import sys

from dynamo_lite import interpreter
from dynamo_lite.interpreter.registry import HANDLERS, REFUSED

RUNNING = f"py{sys.version_info[0]}{sys.version_info[1]}"
# Decoding folds these into the instructions that they belong to.
FOLDED = {"CACHE", "EXTENDED_ARG"}

for _module in pkgutil.iter_modules(interpreter.__path__):
    if not re.fullmatch(r"py3\d+", _module.name) or _module.name == RUNNING:
        importlib.import_module(f"{interpreter.__name__}.{_module.name}")


def test_each_opcode_is_handled_or_refused() -> None:
    assert set(dis.opmap) - FOLDED - set(HANDLERS) - set(REFUSED) == set()


def test_none_is_both() -> None:
    assert not set(HANDLERS) & set(REFUSED)


def test_the_tables_name_opcodes_of_this_python() -> None:
    assert set(HANDLERS) | set(REFUSED) <= set(dis.opmap)


def test_what_is_refused_says_why() -> None:
    assert all(reason.strip() for reason in REFUSED.values())
