"""Models of transformers (small, random weights) are one graph each and equal eager, types and strides included."""

import pytest
import torch

import dynamo_lite

pytest.importorskip("transformers")
from coverage_models import CASES, TOLERANCE, build, layouts
from measure import largest_difference


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_model_equals_eager_in_one_graph_where_expected(case):
    model, inputs = build(case)
    with torch.no_grad():
        want = model(**inputs)
        compiled = dynamo_lite.compile(model, fullgraph=case.one_graph, backend="eager")
        # Once compiled, once found again.
        for _ in range(2):
            got = compiled(**inputs)
            assert type(got) is type(want) and list(got) == list(want)
            assert largest_difference(got, want) <= TOLERANCE and layouts(got) == layouts(want)
