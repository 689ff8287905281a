"""Programs that read their surroundings, and changes to these before each call, and in it: a stale entry gives the old
answer."""
from __future__ import annotations

import random

from .more_topics import MORE_TOPICS
from .topics import TOPICS

HEAD = '''
import collections
import contextvars
import dataclasses
import enum
import functools
import math
import random
import threading
import types
import weakref

import numpy as np
import torch

SEEN = {seen}
STEP = 0
torch.manual_seed(1)

'''
INPUTS = [
    "torch.randn(3, 4)", "torch.randn(4)", "torch.randn(4, 3).t()", "torch.randn(3, 4).double()",
    "torch.randint(-3, 4, (3, 4))", "torch.randn(2, 3, 4)", "torch.randn(6, 4)[::2]",
    "torch.randn(1, 4).expand(3, 4)", "torch.randn(3, 4, requires_grad=True)", "torch.nn.Parameter(torch.randn(4))",
    "torch.randn(0, 4)",
]
STEPS = 7


def program(seed: int) -> str:
    """The source of a program with its changes."""
    rng = random.Random(f"environment {seed}")
    topics = rng.sample([*TOPICS.values(), *MORE_TOPICS.values()], rng.choice([1, 1, 2, 3]))
    names = sorted({line.split(" = ")[0].split(",")[0] for t in topics for line in t.setup.splitlines()
                    if " = " in line and line[0] not in " @#"})
    reads = [read for t in topics for read in rng.sample(t.reads, min(len(t.reads), rng.choice([1, 2, 4])))]
    lines, steps = [], []
    for number, read in enumerate(reads):
        if rng.random() < 0.2:    # also in the middle of a call
            steps.append(_function(f"own_{number}", rng.choice(rng.choice(topics).changes)))
            lines += ["try:", f"    own_{number}()", "except Exception as e:", "    r.append(type(e).__name__)"]
        kind = rng.random()
        if kind < 0.6:
            lines.append(f"r.append({read})")
        elif kind < 0.75:
            lines.append(f"r.append((lambda x: {read})(x))")
        elif kind < 0.85:
            lines += ["try:", f"    r.append({read})", "except Exception as e:", "    r.append(type(e).__name__)"]
        elif kind < 0.95:
            lines += [f"def local_part(x): return {read}", "r.append(local_part(x))"]
        else:
            lines += ["dynamo_lite.graph_break()" if rng.random() < 0.5 else "r.append(x.shape)", f"r.append({read})"]
    for step in range(1, STEPS):
        chosen = rng.sample(rng.choice(topics).changes, rng.choice([0, 1, 1, 1, 2]))
        steps += [_function(f"change_{step}_{number}", change) for number, change in enumerate(chosen)]
    first, rest = rng.choice(INPUTS[:4]), [rng.choice(INPUTS) if rng.random() < 0.2 else None for _ in range(STEPS)]
    inputs = ", ".join(f"lambda: {given or first}" for given in rest)
    return "\n".join([
        HEAD.format(seen=tuple(names)) + "import dynamo_lite\n", *(t.setup for t in topics), *steps, CHANGE,
        f"INPUTS = [{inputs}]", ARGUMENTS,
        "def f(x):", "    r = []", *("    " + line for line in lines), "    return r\n"])


def _function(name: str, change: str) -> str:
    parts = change.split("; ", 1) if change.startswith("global") else [change]
    return f"def {name}():\n    " + "\n    ".join(parts)


ARGUMENTS = '''

def arguments(i):
    return [INPUTS[STEP % len(INPUTS)]()]

'''
CHANGE = '''

def change(i):
    global STEP
    STEP += 1
    for n in range(2):
        made = globals().get(f"change_{STEP - 1}_{n}")
        if made is not None:
            try:
                made()
            except Exception:
                pass
'''
