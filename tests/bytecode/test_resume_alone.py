"""Resume functions where there is no torch: breaks at every instruction of the zoo's programs."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from typing import Any

import pytest

if importlib.util.find_spec("torch") is not None:
    pytest.skip("tests/continuation/test_resume.py has more", allow_module_level=True)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from zoo_breaks import FUNCTIONS, OPTIONS, check_a_break_at_each_instruction, check_one_instruction_at_a_time


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_break_at_each_instruction(name: str) -> None:
    check_a_break_at_each_instruction(name)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "wide"])
@pytest.mark.parametrize("options", OPTIONS, ids=["lean", "literal"])
def test_one_instruction_at_a_time(name: str, options: dict[str, Any]) -> None:
    check_one_instruction_at_a_time(name, options)
