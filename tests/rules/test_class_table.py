import pytest

from dynamo_lite.rules.class_table import ClassTable
from dynamo_lite.rules.table import RuleError


def by_number(value):
    return value


def by_text(value):
    return value


def test_the_first_class_in_the_resolution_order_counts():
    table = ClassTable("read")
    table.register(int)(by_number)
    table.register(str, bytes)(by_text)
    assert table.of(bool) is by_number and table.exact(bool) is None
    assert table.of(bytes) is table.exact(str) is by_text
    assert table.of(float) is None


def test_a_class_has_one_function():
    table = ClassTable("read")
    table.register(int)(by_number)
    table.register(int)(by_number)  # the module is executed again
    with pytest.raises(RuleError, match="int is read twice: by .*by_number and by .*by_text"):
        table.register(int)(by_text)
