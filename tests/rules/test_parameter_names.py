"""Functions that evaluate calls of the program's functions take the same keyword arguments."""
import inspect

import pytest

import dynamo_lite  # noqa: F401  fills the table
from dynamo_lite.rules import table

# Functions that only the library that defines them calls, and without keywords.
_INTERNAL = ("torch._C.", "torch.nn.modules.lazy.", "torch.distributions.utils.", "dynamo_lite.", "_abc.", "enum.")


def _handled():
    for decision in table._rows.values():
        name = table.describe(decision.subject)
        if decision.rule is not table.Rule.HANDLED or name.startswith(_INTERNAL) or "__" in name:
            continue
        try:
            yield pytest.param(inspect.signature(decision.subject), inspect.signature(decision.calls), id=name)
        except (ValueError, TypeError):  # written in C, without a signature
            continue


@pytest.mark.parametrize("real, handler", _handled())
def test_parameter_names(real, handler):
    ours = [p for p in handler.parameters.values() if p.name != "tx"]
    for position, parameter in enumerate(real.parameters.values()):
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name == "self":
            continue
        given = ours[min(position, len(ours) - 1)]
        if given.kind is given.VAR_POSITIONAL:
            break
        if given.kind is not given.VAR_KEYWORD:
            assert given.name == parameter.name and given.kind is not given.POSITIONAL_ONLY
