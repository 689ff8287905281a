"""A part of module_db and optim_db; benchmarks/coverage_torch.py runs all of both."""
import pytest
import torch

pytest.importorskip("expecttest")
from coverage_torch import check_module, check_optimizer
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

MODULES = [info for number, info in enumerate(module_db) if number % 6 == 0]
OPTIMIZERS = [info for info in optim_db if info.optim_cls in (torch.optim.SGD, torch.optim.AdamW, torch.optim.LBFGS)]


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("info", MODULES, ids=lambda info: info.name)
@pytest.mark.filterwarnings("ignore")
def test_module(info, training):
    assert check_module(info, training, inputs=1) in ("pass", "skip")


@pytest.mark.parametrize("info", OPTIMIZERS, ids=lambda info: info.optim_cls.__name__)
@pytest.mark.filterwarnings("ignore")
def test_optimizer(info):
    assert check_optimizer(info, inputs=1) == "pass"
