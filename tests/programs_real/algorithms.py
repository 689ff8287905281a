"""Programs around tensors: search, suppression, sampling, simulation, with Python's control flow on their values."""
import dataclasses
import heapq
import math
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F


def _iou(box, boxes):
    low, high = torch.maximum(box[:2], boxes[:, :2]), torch.minimum(box[2:], boxes[:, 2:])
    both = (high - low).clamp(min=0).prod(1)
    area = lambda b: (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
    return both / (area(box) + area(boxes) - both)


def nms(compile):
    """Detection's post-processing: scores cut off, boxes suppressed one by one."""
    torch.manual_seed(0)

    @compile
    def detect(boxes, scores, threshold=0.5):
        kept, order = [], scores.argsort(descending=True)
        while order.numel() > 0:
            best = order[0]
            kept.append(best)
            if order.numel() == 1:
                break
            rest = order[1:]
            order = rest[_iou(boxes[best], boxes[rest]) <= threshold]
        return torch.stack(kept)

    results = []
    for n in (6, 6, 9):
        corner = torch.rand(n, 2) * 4
        results.append(detect(torch.cat([corner, corner + 1 + torch.rand(n, 2) * 3], 1), torch.rand(n)))
    return results


def nms_of_fixed_size(compile):
    """The same as it is written for compilers: a fixed number of rounds, masks instead of shorter lists."""
    torch.manual_seed(0)

    @compile
    def detect(boxes, scores):
        keep = []
        for _ in range(4):
            best = scores.argmax()
            keep.append(torch.where(scores[best] > 0, best, -1))
            scores = torch.where(_iou(boxes[best], boxes) > 0.5, torch.zeros_like(scores), scores)
        return torch.stack(keep)

    corner = torch.rand(8, 2) * 4
    boxes = torch.cat([corner, corner + 1 + torch.rand(8, 2) * 3], 1)
    return [detect(boxes, torch.rand(8)) for _ in range(3)]


def beam_search(compile):
    torch.manual_seed(0)
    transition = torch.log_softmax(torch.randn(7, 7), -1)

    @dataclasses.dataclass(order=True)
    class Beam:
        score: float
        tokens: list = dataclasses.field(compare=False)

    @compile
    def scores_of(last):
        return torch.log_softmax(transition[last] * 1.5, -1).topk(3)

    beams, finished = [Beam(0.0, [0])], []
    for _ in range(5):
        grown = []
        for beam in beams:
            values, indices = scores_of(torch.tensor(beam.tokens[-1]))
            for value, index in zip(values.tolist(), indices.tolist()):
                new = Beam(beam.score + value, [*beam.tokens, index])
                (finished if index == 6 else grown).append(new)
        beams = heapq.nlargest(3, grown)
    return [(round(b.score, 4), b.tokens) for b in sorted(beams + finished, reverse=True)]


def batched_beam_search(compile):
    """All beams in tensors, one graph for a step."""
    torch.manual_seed(0)
    table = torch.randn(9, 9)

    @compile
    def step(tokens, scores):
        candidates = scores[:, None] + F.log_softmax(table[tokens[:, -1]], -1)
        best, where = candidates.flatten().topk(4)
        beam, token = torch.div(where, 9, rounding_mode="floor"), where % 9
        return torch.cat([tokens[beam], token[:, None]], dim=1), best

    tokens, scores = torch.zeros(4, 1, dtype=torch.long), torch.tensor([0.0, -9.0, -9.0, -9.0])
    for _ in range(4):
        tokens, scores = step(tokens, scores)
    return tokens, scores


def kmeans(compile):
    torch.manual_seed(0)
    points = torch.randn(40, 2)

    @compile
    def iterate(centers):
        nearest = torch.cdist(points, centers).argmin(1)
        sums = torch.zeros_like(centers).index_add_(0, nearest, points)
        counts = torch.bincount(nearest, minlength=centers.size(0)).clamp(min=1)
        return sums / counts[:, None], nearest

    centers, steps = points[:4].clone(), 0
    while True:
        moved, labels = iterate(centers)
        steps += 1
        if torch.allclose(moved, centers) or steps > 20:
            break
        centers = moved
    return centers, labels, steps


def newton(compile):
    """A loop that stops when a tensor says so."""

    @compile
    def root(a):
        x, steps = a / 2 + 1, 0
        while (x * x - a).abs().max() > 1e-4:
            x = (x + a / x) / 2
            steps += 1
        return x, steps

    return [root(torch.tensor([2.0, 9.0])), root(torch.tensor([5.0, 1.0])), root(torch.tensor([1e4, 4.0]))]


def kalman(compile):
    torch.manual_seed(0)
    transition, noise = torch.tensor([[1.0, 0.1], [0.0, 1.0]]), torch.eye(2) * 0.01
    observe = torch.tensor([[1.0, 0.0]])

    @compile
    def step(state, covariance, z):
        state, covariance = transition @ state, transition @ covariance @ transition.T + noise
        s = observe @ covariance @ observe.T + 0.1
        gain = covariance @ observe.T @ torch.linalg.inv(s)
        return state + gain @ (z - observe @ state), (torch.eye(2) - gain @ observe) @ covariance

    state, covariance, path = torch.zeros(2, 1), torch.eye(2), []
    for i in range(5):
        state, covariance = step(state, covariance, torch.randn(1, 1) + i)
        path.append(state)
    return torch.stack(path), covariance


def leapfrog(compile):
    """A simulation that keeps its state in an object and counts in Python."""
    torch.manual_seed(0)

    class System:
        def __init__(self):
            self.x, self.v, self.time, self.log = torch.randn(3, 2), torch.zeros(3, 2), 0.0, []

        def energy(self):
            return 0.5 * (self.v**2).sum() + 0.5 * (self.x**2).sum()

        def step(self, dt=0.1):
            self.v = self.v - 0.5 * dt * self.x
            self.x = self.x + dt * self.v
            self.v = self.v - 0.5 * dt * self.x
            self.time += dt
            self.log.append(self.energy())

    system = System()
    step = compile(System.step)
    for _ in range(6):
        step(system)
    return system.x, system.v, round(system.time, 6), system.log


def replay_buffer(compile):
    """Observations in NumPy arrays, a ring buffer, batches as tensors."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    buffer, at = np.zeros((10, 3), dtype=np.float32), 0
    weight = torch.randn(3, 2)

    @compile
    def act(batch):
        return (torch.as_tensor(batch) @ weight).relu().argmax(-1)

    seen = []
    for i in range(13):
        buffer[at] = rng.normal(size=3).astype(np.float32)
        at = (at + 1) % 10
        if i % 4 == 3:
            seen.append(act(torch.from_numpy(buffer[rng.integers(0, 10, 4)])))
    return seen


def metrics(compile):
    """Running sums in a dictionary, as logging code keeps them."""
    torch.manual_seed(0)
    totals = defaultdict(float)
    model = torch.nn.Linear(4, 3)

    @compile
    def evaluate(x, y):
        with torch.no_grad():
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            hits = (logits.argmax(-1) == y).float().mean()
        return {"loss": loss, "accuracy": hits, "perplexity": torch.exp(loss)}

    for _ in range(4):
        for name, value in evaluate(torch.randn(5, 4), torch.randint(0, 3, (5,))).items():
            totals[name] += value.item()
    return {name: math.floor(total * 1e4) for name, total in totals.items()}


PROGRAMS = {
    nms: None, nms_of_fixed_size: None, beam_search: None, batched_beam_search: None, kmeans: None, newton: None,
    kalman: 1,
    leapfrog: None, replay_buffer: 1, metrics: 1,
}
