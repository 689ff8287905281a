"""What torch's classes of tensors define, as opposed to what a program puts there: a method of its own under a name of
torch's (``torch.Tensor.relu = ...``) or under a new one.

Torch's methods are recorded without being followed, and their nodes say no more than the name. Invariant: that a method
or attribute is torch's own is guarded where it is relied on; the program's are followed like those of any class, or
break the graph where Python calls them by itself. What classes derived from torch.Tensor define is followed elsewhere
(``subclasses``).
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from ..base import unsupported
from .attributes import PLAIN_TENSOR_TYPES
from .parameters import adds_only, is_added

if TYPE_CHECKING:
    from ..protocols import TensorVariable, Tracer

_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.GetSetDescriptorType)
_BASES = (torch.Tensor, torch._C.TensorBase, object)
# Names under which torch.Tensor has methods that are called otherwise.
_RENAMED = {
    "__rtruediv__": "__rdiv__", "__itruediv__": "__idiv__", "__pow__": "pow", "__ipow__": "pow_",
    "__pos__": "positive", "__neg__": "neg", "__abs__": "abs",
}


def is_torchs(cls: type, name: str, attribute: Any) -> bool:
    """Whether an attribute of a class of tensors is what torch defines under this name.

    Args:
        attribute: the object in the dict of the class or of one of its bases.
    """
    if cls not in PLAIN_TENSOR_TYPES:
        if is_added(cls, name):
            return False
        if not adds_only(cls):
            return True
    named = _RENAMED.get(name, name)
    if isinstance(attribute, _IN_C):
        return attribute.__objclass__ in _BASES and attribute.__name__ == named
    if isinstance(attribute, property):
        attribute = attribute.fget
    elif isinstance(attribute, (staticmethod, classmethod)):
        attribute = attribute.__func__
    if isinstance(attribute, types.FunctionType):
        package = str(attribute.__globals__.get("__name__")).partition(".")[0]
        return package == "torch" and attribute.__name__ == named
    return name.startswith("__") and name.endswith("__")  # such as __module__ and __new__


def check_special(tx: Tracer, tensor: TensorVariable, *names: str) -> None:
    """Guards that these special methods of a tensor's class are torch's own.

    Raises:
        exc.Unsupported: the program has replaced one of them.
    """
    cls = tensor.cls
    if cls not in PLAIN_TENSOR_TYPES and not adds_only(cls):
        return
    for name in names:
        method = tx.classes.lookup(cls, name)
        if method is not None and not is_torchs(cls, name, method):
            unsupported("unsupported_method", f"{name} of {tensor.describe()}, which the program has replaced")
