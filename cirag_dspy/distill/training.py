"""The steps of a LoRA training: batches, loss, optimizer, and the state that a checkpoint keeps."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from cirag_dspy.distill.encode import TokenRow
from cirag_dspy.distill.settings import LoraSettings
from cirag_dspy.errors import RunError

# Tokens that a batch's gradients are computed of at a time: its memory goes by these, its result does not.
_TOKENS_AT_A_TIME = 8192


class Training:
    """The state of a training: float32 masters of the adapter's weights, their optimizer, the step and the losses.

    The model computes in its own dtype, adapter included, which is faster by a third in bfloat16; but steps too small
    to change a bfloat16 weight add up in its master.

    Args:
        model: A peft model, in training mode.
        settings: How to train.
        rows: What to train on, at least one.
    """

    def __init__(self, model: Any, settings: LoraSettings, rows: Sequence[TokenRow]) -> None:
        self.model = model
        self.settings = settings
        self.rows = rows
        self.weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.masters = {name: weight.detach().float().clone() for name, weight in self.weights.items()}
        self.optimizer = torch.optim.AdamW(
            self.masters.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.per_epoch = math.ceil(len(rows) / settings.batch_size)
        self.total = max(1, math.ceil(round(settings.epochs * self.per_epoch, 6)))
        self.step = 0
        self.losses: list[list[float]] = []  # [step, loss, tokens so far, seconds so far]
        self.whole = True  # not in the middle of an update
        self._picked = PickedPositions(model)
        self._seconds = 0.0
        self._started = time.monotonic()

    def batches(self) -> Iterator[list[TokenRow]]:
        """What is left to train on, from the current step on; the same whatever happened before."""
        lengths = [len(row.ids) for row in self.rows]
        while self.step < self.total:
            epoch, skip = divmod(self.step, self.per_epoch)
            order = epoch_batches(lengths, self.settings.batch_size, seed=self.settings.seed, epoch=epoch)
            for batch in order[skip : skip + self.total - self.step]:
                yield [self.rows[index] for index in batch]

    def gradients(self, batch: Sequence[TokenRow]) -> float:
        """Compute the gradients of a batch; returns its loss.

        Raises:
            RunError: The loss is no number.
        """
        if self.settings.dropout:
            torch.manual_seed(self.settings.seed * 1_000_003 + self.step)
        learnt = sum(sum(row.learnt) for row in batch)
        value = 0.0
        for part in parts(batch, _TOKENS_AT_A_TIME):
            loss = self._picked.loss(part) * (sum(sum(row.learnt) for row in part) / learnt)
            loss.backward()
            value += float(loss.detach())
        if not math.isfinite(value):
            rate = self.settings.learning_rate
            raise RunError(f"the loss of step {self.step + 1} is {value}: use a lower learning_rate than {rate}")
        return value

    def update(self, loss: float, tokens: int) -> None:
        """One optimizer step with the gradients that are there."""
        self.whole = False
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(self.step, self.total)
        for name, weight in self.weights.items():
            self.masters[name].grad = None if weight.grad is None else weight.grad.float()
            weight.grad = None
        torch.nn.utils.clip_grad_norm_(self.masters.values(), self.settings.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._copy_down()
        self.step += 1
        seen = int(self.losses[-1][2]) if self.losses else 0
        seconds = self._seconds + time.monotonic() - self._started
        self.losses.append([self.step, round(loss, 6), seen + tokens, round(seconds, 1)])
        self.whole = True

    def state(self) -> dict[str, torch.Tensor]:
        """Masters and optimizer, by name."""
        tensors = {f"weight/{name}": master for name, master in self.masters.items()}
        for name, master in self.masters.items():
            for key, value in self.optimizer.state[master].items():
                tensors[f"{key}/{name}"] = value
        return tensors

    def restore(self, tensors: dict[str, torch.Tensor], losses: list[list[float]]) -> None:
        """Go on from what `state` and `losses` were."""
        for key, value in tensors.items():
            kind, _, name = key.partition("/")
            master = self.masters[name]
            if kind == "weight":
                master.copy_(value)
            else:
                self.optimizer.state[master][kind] = value if kind == "step" else value.to(master.device)
        self._copy_down()
        self.losses = losses
        self.step, self._seconds = int(losses[-1][0]), losses[-1][3]

    @torch.no_grad()
    def _copy_down(self) -> None:
        for name, weight in self.weights.items():
            weight.copy_(self.masters[name])


class PickedPositions:
    """Runs a model so that its output layer sees only the hidden states before a learnt token.

    The rest of the model's own forward (scaling or capping of logits) stays as it is.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._wanted: tuple[torch.Tensor, torch.Tensor] | None = None
        model.get_base_model().get_output_embeddings().register_forward_pre_hook(self._pick)

    def loss(self, batch: Sequence[TokenRow]) -> torch.Tensor:
        """Mean cross-entropy over the learnt tokens; rows are padded on the right."""
        longest = max(len(row.ids) for row in batch)
        ids, learnt = (torch.zeros(len(batch), longest, dtype=torch.long) for _ in range(2))
        for index, row in enumerate(batch):
            ids[index, : len(row.ids)] = torch.tensor(row.ids)
            learnt[index, : len(row.ids)] = torch.tensor(row.learnt)
        where, at = learnt.nonzero(as_tuple=True)
        device = self.model.device
        self._wanted = (where.to(device), (at - 1).to(device))
        # No mask: attention looks back only, so padding on the right is never seen, and causal kernels are faster.
        logits = self.model(input_ids=ids.to(device), use_cache=False).logits
        return F.cross_entropy(logits.float(), ids[where, at].to(device))

    def _pick(self, layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        assert self._wanted is not None
        return (inputs[0][self._wanted], *inputs[1:])


def parts(batch: Sequence[TokenRow], tokens: int) -> list[Sequence[TokenRow]]:
    """A batch in parts of so many tokens at most, padding included; of one row where that alone is longer."""
    longest = max(len(row.ids) for row in batch)
    size = max(1, tokens // longest)
    return [batch[at : at + size] for at in range(0, len(batch), size)]


def epoch_batches(lengths: Sequence[int], size: int, *, seed: int, epoch: int) -> list[list[int]]:
    """Indices of an epoch's batches: shuffled, but rows of like length together, so that little is padded."""
    rng = random.Random(f"{seed}/{epoch}")
    order = list(range(len(lengths)))
    rng.shuffle(order)
    pool = 50 * size
    batches = []
    for start in range(0, len(order), pool):
        near = sorted(order[start : start + pool], key=lambda index: lengths[index])
        batches += [near[at : at + size] for at in range(0, len(near), size)]
    rng.shuffle(batches)
    return batches
