from __future__ import annotations

import pytest
import torch

from cirag_dspy.distill import lora
from cirag_dspy.distill.encode import TokenRow
from cirag_dspy.distill.settings import LoraSettings
from cirag_dspy.distill.training import PickedPositions, Training, epoch_batches

ROWS = [
    TokenRow([5, 6, 7, 8, 9, 10], [False, False, True, True, False, True]),
    TokenRow([11, 12, 13], [False, True, True]),
]


@pytest.fixture
def model(tiny_folder):
    """With an adapter that does something."""
    model, _ = lora._load(tiny_folder, LoraSettings(rank=8), torch.float32, None)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return model


def test_loss_and_gradients_are_those_of_the_full_computation(model):
    ids = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 12, 13, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    labels = torch.tensor([[-100, -100, 7, 8, -100, 10], [-100, 12, 13, -100, -100, -100]])
    full = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    full.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
    model.zero_grad()

    ours = PickedPositions(model).loss(ROWS)
    ours.backward()

    assert torch.allclose(ours, full, atol=1e-6)
    assert len(expected) == 28
    for name, p in model.named_parameters():
        if p.requires_grad:
            assert torch.allclose(p.grad, expected[name], atol=1e-5), name
        else:
            assert p.grad is None, name


def test_padding_changes_nothing(model):
    picked = PickedPositions(model)
    alone = [picked.loss([row]) * sum(row.learnt) for row in ROWS]
    assert torch.allclose(picked.loss(ROWS), sum(alone) / 5, atol=1e-6)


def test_the_output_layer_sees_the_learnt_positions_only(model):
    picked, seen = PickedPositions(model), []
    model.get_base_model().lm_head.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].shape))
    picked.loss(ROWS)
    assert seen == [(5, 64)]


def test_steps_too_small_for_bfloat16_add_up(tiny_folder):
    model, _ = lora._load(tiny_folder, LoraSettings(rank=8), torch.bfloat16, None)
    settings = LoraSettings(rank=8, learning_rate=1e-5, epochs=100, schedule="constant", warmup=0.0)
    training = Training(model, settings, ROWS)
    name = next(name for name in training.weights if "lora_A" in name)
    weight, before = training.weights[name], training.weights[name].detach().clone()
    for batch in training.batches():
        training.update(training.gradients(batch), tokens=9)
    moved = (training.masters[name] - before.float()).abs()
    assert moved.max() > 5e-4  # 100 steps of at most 1e-5
    assert weight.dtype == torch.bfloat16 and torch.equal(weight, training.masters[name].to(torch.bfloat16))
    assert not torch.equal(weight, before)


def test_an_epoch_has_every_row_once_in_batches_of_like_length():
    lengths = [(7 * n) % 101 for n in range(1000)]
    batches = epoch_batches(lengths, 4, seed=3, epoch=0)
    assert sorted(index for batch in batches for index in batch) == list(range(1000))
    assert [len(batch) for batch in batches] == [4] * 250
    assert sum(max(lengths[i] for i in b) * 4 - sum(lengths[i] for i in b) for b in batches) < 0.05 * sum(lengths)
    firsts = [lengths[batch[0]] for batch in batches]
    assert firsts != sorted(firsts)
    assert batches == epoch_batches(lengths, 4, seed=3, epoch=0)
    assert batches != epoch_batches(lengths, 4, seed=3, epoch=1) != epoch_batches(lengths, 4, seed=4, epoch=1)
    assert [len(batch) for batch in epoch_batches([1, 2, 3], 2, seed=0, epoch=0)] in ([2, 1], [1, 2])


@pytest.mark.parametrize(("epochs", "steps"), [(1.0, 4), (0.5, 2), (0.01, 1), (1.3, 6), (2.0, 8), (0.75, 3)])
def test_epochs_may_be_fractions(model, epochs, steps):
    rows = [TokenRow([n, n + 1], [False, True]) for n in range(7)]
    training = Training(model, LoraSettings(rank=8, epochs=epochs, batch_size=2), rows)
    seen = []
    for batch in training.batches():
        seen += [row.ids[0] for row in batch]
        training.step += 1
    assert training.total == training.step == steps
    assert sorted(seen[:7]) == list(range(7)) if steps >= 4 else len(set(seen)) == len(seen)
