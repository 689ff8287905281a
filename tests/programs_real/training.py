"""Training loops: losses of three steps, and the parameters after them."""
import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def _steps(model, optimizer, loss_of, compile, steps=3):
    """The usual loop around a compiled loss."""
    compiled = compile(loss_of)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = compiled(step)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, [p.detach() for p in model.parameters()], [b.clone() for b in model.buffers()]


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), (2, 2))
        x = torch.flatten(x, 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def lenet(compile):
    torch.manual_seed(0)
    model = LeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = torch.randn(4, 1, 28, 28), torch.randint(0, 10, (4,))
    compiled = compile(model)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach() for p in model.parameters()]


class WordModel(nn.Module):
    """PyTorch's word language model: an embedding, an LSTM, a decoder with tied weights, the state handed on."""

    def __init__(self, words=40, size=16, layers=2):
        super().__init__()
        self.encoder = nn.Embedding(words, size)
        self.rnn = nn.LSTM(size, size, layers)
        self.decoder = nn.Linear(size, words)
        self.decoder.weight = self.encoder.weight
        self.layers, self.size = layers, size

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return (weight.new_zeros(self.layers, batch, self.size), weight.new_zeros(self.layers, batch, self.size))

    def forward(self, words, hidden):
        output, hidden = self.rnn(self.encoder(words), hidden)
        decoded = self.decoder(output).view(-1, self.decoder.out_features)
        return F.log_softmax(decoded, dim=1), hidden


def repackage(hidden):
    return hidden.detach() if isinstance(hidden, torch.Tensor) else tuple(repackage(v) for v in hidden)


def word_language_model(compile):
    torch.manual_seed(0)
    model = WordModel()
    data = torch.randint(0, 40, (19, 3))
    compiled, hidden, losses = compile(model), model.init_hidden(3), []
    for i in range(0, 18, 6):
        model.zero_grad()
        hidden = repackage(hidden)
        output, hidden = compiled(data[i : i + 6], hidden)
        loss = F.nll_loss(output, data[i + 1 : i + 7].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=-0.5)
        losses.append(loss.item())
    return losses, [p.detach() for p in model.parameters()], hidden


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(20, 16), nn.Linear(16, 4), nn.Linear(16, 4)
        self.fc3, self.fc4 = nn.Linear(4, 16), nn.Linear(16, 20)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def forward(self, x):
        h1 = F.relu(self.fc1(x.view(-1, 20)))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        z = self.reparameterize(mu, logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def vae(compile):
    torch.manual_seed(0)
    model, x = VAE(), torch.rand(5, 4, 5)

    def loss_of(step):
        recon, mu, logvar = model(x)
        bce = F.binary_cross_entropy(recon, x.view(-1, 20), reduction="sum")
        return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())

    return _steps(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss_of, compile)


def gan(compile):
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.BatchNorm1d(16), nn.Linear(16, 8), nn.Tanh())
    discriminator = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid())
    # No Adam: what a bias in front of a normalization gets is rounding alone, which it would make a step of.
    options = dict(lr=0.1, nesterov=True, momentum=0.5)
    optimizers = [torch.optim.SGD(m.parameters(), **options) for m in (generator, discriminator)]
    criterion, real = nn.BCELoss(), torch.randn(6, 8)
    fast_g, fast_d = compile(generator), compile(discriminator)
    seen = []
    for _ in range(3):
        optimizers[1].zero_grad()
        noise = torch.randn(6, 4)
        fake = fast_g(noise)
        loss_d = criterion(fast_d(real), torch.ones(6, 1)) + criterion(fast_d(fake.detach()), torch.zeros(6, 1))
        loss_d.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        loss_g = criterion(fast_d(fake), torch.ones(6, 1))
        loss_g.backward()
        optimizers[0].step()
        seen += [loss_d.item(), loss_g.item()]
    parameters = [*generator.parameters(), *discriminator.parameters()]
    return seen, [p.detach() for p in parameters], [b.clone() for b in generator.buffers()]


def dqn(compile):
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    target = copy.deepcopy(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    states, actions, rewards = torch.randn(8, 4), torch.randint(0, 2, (8, 1)), torch.randn(8)
    following = [torch.randn(4) if i % 3 else None for i in range(8)]

    def loss_of(step):
        final = torch.tensor([s is not None for s in following], dtype=torch.bool)
        values = policy(states).gather(1, actions)
        next_values = torch.zeros(8)
        with torch.no_grad():
            best = target(torch.stack([s for s in following if s is not None])).max(1).values
            next_values = next_values.masked_scatter(final, best)
        expected = next_values * 0.99 + rewards
        return nn.SmoothL1Loss()(values, expected.unsqueeze(1))

    losses, parameters, _ = _steps(policy, optimizer, loss_of, compile)
    state, with_old = target.state_dict(), policy.state_dict()
    for key in with_old:
        state[key] = with_old[key] * 0.005 + state[key] * 0.995
    target.load_state_dict(state)
    return losses, parameters, [p.detach() for p in target.parameters()]


def policy_gradient(compile):
    """A rollout in an environment of NumPy, the return discounted in Python, a step of REINFORCE."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    policy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-2)

    @compile
    def act(state):
        logits = policy(torch.from_numpy(state).float())
        return F.log_softmax(logits, dim=-1)

    losses = []
    for _ in range(3):
        state, logs, rewards = rng.normal(size=3), [], []
        for _ in range(5):
            probabilities = act(state)
            action = int(probabilities.argmax())
            logs.append(probabilities[action])
            state = state * 0.9 + (action - 0.5) * rng.normal(size=3)
            rewards.append(float(-np.abs(state).sum()))
        total, returns = 0.0, []
        for r in rewards[::-1]:
            total = r + 0.9 * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = torch.stack([-l * r for l, r in zip(logs, returns)]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach() for p in policy.parameters()]


def distillation(compile):
    torch.manual_seed(0)
    teacher, student = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 5)), nn.Linear(6, 5)
    x, y = torch.randn(8, 6), torch.randint(0, 5, (8,))
    teacher.eval()

    def loss_of(step):
        with torch.no_grad():
            soft = F.softmax(teacher(x) / 2.0, dim=-1)
        logits = student(x)
        kl = F.kl_div(F.log_softmax(logits / 2.0, dim=-1), soft, reduction="batchmean") * 4.0
        return 0.7 * kl + 0.3 * F.cross_entropy(logits, y, label_smoothing=0.1)

    return _steps(student, torch.optim.Adagrad(student.parameters(), lr=0.1), loss_of, compile)


def accumulated_gradients(compile):
    """Mini-batches, gradients gathered over two, a schedule, an average of the weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1))
    average = copy.deepcopy(model)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    compiled, losses = compile(model), []
    for i, (x, y) in enumerate([(torch.randn(5, 4), torch.randn(5, 1)) for _ in range(6)]):
        loss = F.mse_loss(compiled(x), y) / 2
        loss.backward()
        if i % 2:
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                for a, p in zip(average.parameters(), model.parameters()):
                    a.lerp_(p, 0.1)
        losses.append(loss.item())
    return losses, [p.detach() for p in average.parameters()], schedule.get_last_lr()


PROGRAMS = {
    lenet: 1, word_language_model: 1, vae: 1, gan: 3, dqn: 1, policy_gradient: None, distillation: 1,
    accumulated_gradients: 1,
}
