from typing import Any

class Entry:
    """A generated function as a callable: first its tensors, then its integers; returns the tensors that it made."""

    def __call__(self, *args: Any) -> Any: ...

def load(path: str) -> int: ...
def entry(
    library: int,
    symbol: str,
    n_tensors: int,
    n_sizes: int,
    layouts: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...],
    release_gil: bool,
    /,
) -> Entry: ...
def can_allocate() -> bool: ...
def use_tensor_type(tensor_type: type, /) -> bool: ...
def data_pointer(tensor: Any, /) -> int: ...
