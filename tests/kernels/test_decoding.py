"""A decoded token by one kernel: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from tests.comparison import assert_same
from transductor.kernels.gpu.decoding import TokenDecoder, decodes_at_once

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def operands(rows=3, dim=5, symbols=7, outputs=3 * 40, dtype=torch.float32, precision=torch.float32):
    table = torch.randn(symbols, dim, dim, dtype=precision)
    tokens, state = torch.randint(0, symbols, (rows, 1)), torch.randn(rows, dim, dtype=precision)
    weight = torch.randn(outputs, dim, dtype=torch.float64).to(dtype)
    return [each.to(DEVICE) for each in (table, tokens, state, weight)]


def decoded_token(table, classes, tokens, state, weight, width):
    decoder = TokenDecoder(table, classes, weight, width, len(tokens))
    return decoder(tokens, state), decoder.terms


def plainly(table, tokens, state, weight, width):
    """The definition, in float64 from the rounded state on."""
    after = (table[tokens[:, 0]].double() @ state.double().unsqueeze(-1)).squeeze(-1)
    rounded = after.to(table.dtype).to(weight.dtype).double()
    return after, (rounded @ weight.double().mT).unflatten(-1, (-1, width)).transpose(0, 1).unsqueeze(2)


@pytest.mark.parametrize("dim", [1, 2, 5, 16, 33, 64])
@pytest.mark.parametrize(("outputs", "width"), [(1, 1), (128, 128), (120, 40), (1290, 129)], ids=str)
def test_states_and_terms(dim, outputs, width):
    table, tokens, state, weight = operands(dim=dim, outputs=outputs)
    after, terms = decoded_token(table, None, tokens, state, weight, width)
    assert terms.shape == (outputs // width, 3, 1, width)
    expected = plainly(table, tokens, state, weight, width)
    assert_same(after, expected[0].float())
    assert_same(terms, expected[1].float())


@pytest.mark.parametrize("rows", [1, 2, 17])
@pytest.mark.parametrize("token_type", [torch.int64, torch.int32], ids=str)
def test_rows(rows, token_type):
    table, tokens, state, weight = operands(rows=rows)
    after, terms = decoded_token(table, None, tokens.to(token_type), state, weight, 40)
    expected = plainly(table, tokens, state, weight, 40)
    assert_same(after, expected[0].float())
    assert_same(terms, expected[1].float())


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
        (torch.float64, torch.float64),
        (torch.float64, torch.bfloat16),
    ],
    ids=str,
)
def test_precisions(precision, dtype):
    """States in that of the head, terms in that of the projections."""
    table, tokens, state, weight = operands(precision=precision, dtype=dtype)
    after, terms = decoded_token(table, None, tokens, state, weight, 40)
    expected = plainly(table, tokens, state, weight, 40)
    assert (after.dtype, terms.dtype) == (precision, dtype)
    assert_same(after, expected[0].to(precision))
    assert_same(terms, expected[1].to(dtype))


def test_strided_operands():
    """The last of many states, the last of many tokens."""
    table, tokens, state, weight = operands()
    states, text = state.new_zeros(3, 1, 9, 5), tokens.new_zeros(3, 6)
    states[:, 0, -1], text[:, -1:] = state, tokens
    found = decoded_token(table, None, text[:, -1:], states[:, 0, -1], weight, 40)
    for one, other in zip(found, decoded_token(table, None, tokens, state, weight, 40), strict=True):
        assert torch.equal(one, other)


def test_one_token_after_the_other():
    """Terms are written over, states are not."""
    table, _, state, weight = operands()
    decoder = TokenDecoder(table, None, weight, 40, 3)
    kept, expected = [state], [state]
    for letters in torch.randint(0, 7, (4, 3, 1), device=DEVICE):
        kept.append(decoder(letters, kept[-1]))
        after, terms = decoded_token(table, None, letters, expected[-1], weight, 40)
        expected.append(after)
        assert torch.equal(decoder.terms, terms)
        assert all(torch.equal(one, other) for one, other in zip(decoder.by_layer, terms, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(kept, expected, strict=True))


class TestWhatItWasMadeFor:
    def made(self):
        table, tokens, state, weight = operands()
        weight, classes = torch.nn.Parameter(weight), torch.arange(7, device=DEVICE)
        return TokenDecoder(table, classes, weight, 40, 3), classes, tokens, state, weight

    def test_it_reads(self):
        decoder, classes, tokens, state, weight = self.made()
        assert decoder.reads(classes, tokens, state, weight)
        assert decoder.reads(classes, tokens.clone(), state.clone(), weight)

    @pytest.mark.parametrize(
        "fault", ["classes", "no classes", "weight", "storage", "precision", "rows", "states", "kind"]
    )
    def test_it_does_not_read(self, fault):
        decoder, classes, tokens, state, weight = self.made()
        if fault == "classes":
            classes = classes.clone()
        elif fault == "no classes":
            classes = None
        elif fault == "weight":
            weight = torch.nn.Parameter(weight.detach())
        elif fault == "storage":
            weight.data = weight.data.clone()
        elif fault == "precision":
            weight.data = weight.data.double()
        elif fault == "rows":
            tokens = tokens[:2]
        elif fault == "states":
            state = state[:2]
        elif fault == "kind":
            tokens = tokens.as_subclass(type("Wrapped", (torch.Tensor,), {}))
        assert not decoder.reads(classes, tokens, state, weight)

    def test_new_numbers_are_read(self):
        """Of projections that are trained further, in place."""
        decoder, classes, tokens, state, weight = self.made()
        with torch.no_grad():
            weight.mul_(2)
        assert decoder.reads(classes, tokens, state, weight)
        decoder(tokens, state)
        assert_same(decoder.terms, decoded_token(decoder.table, classes, tokens, state, weight, 40)[1])


@pytest.mark.parametrize("letter_type", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_classes(letter_type):
    table, tokens, state, weight = operands(symbols=4)
    classes = torch.tensor([3, 0, 1, 2, 2, 1], device=DEVICE)
    tokens = torch.tensor([[5], [0], [3]], device=DEVICE)
    found = decoded_token(table, classes.to(letter_type), tokens, state, weight, 40)
    for one, other in zip(found, decoded_token(table, None, classes[tokens], state, weight, 40), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("token", [-1, 7, 10**12])
@pytest.mark.parametrize("classes", [False, True])
def test_an_unknown_token_makes_its_row_nan(token, classes):
    """And reads nothing that is not there."""
    table, tokens, state, weight = operands()
    letters = torch.arange(7, device=DEVICE) if classes else None
    expected = decoded_token(table, letters, tokens, state, weight, 40)
    tokens[1] = token
    after, terms = decoded_token(table, letters, tokens, state, weight, 40)
    assert after[1].isnan().all()
    assert terms[:, 1].isnan().all()
    assert torch.equal(after[[0, 2]], expected[0][[0, 2]])
    assert torch.equal(terms[:, [0, 2]], expected[1][:, [0, 2]])


@pytest.mark.parametrize("letter", [-1, 7])
def test_an_unknown_class_makes_its_row_nan(letter):
    table, tokens, state, weight = operands()
    classes = torch.full((7,), letter, device=DEVICE)
    assert all(found.isnan().all() for found in decoded_token(table, classes, tokens, state, weight, 40))


class TestWhatCanBeRead:
    @pytest.fixture(autouse=True)
    def _a_gpu(self, monkeypatch):
        monkeypatch.setattr("transductor.kernels.gpu.decoding.runs_on", lambda device: True)

    @pytest.mark.parametrize("classes", [False, True])
    def test_what_belongs_together(self, classes):
        table, tokens, state, weight = operands()
        letters = torch.arange(7, device=DEVICE) if classes else None
        assert decodes_at_once(table, letters, tokens, state, torch.nn.Parameter(weight))

    @pytest.mark.parametrize("fault", ["rows", "dim", "states", "weight", "stride", "large", "elsewhere", "kind"])
    def test_what_does_not(self, fault):
        table, tokens, state, weight = operands(dim=65 if fault == "large" else 5)
        if fault == "rows":
            tokens = tokens[:2]
        elif fault == "dim":
            table = table[:, :4, :4]
        elif fault == "states":
            state = state[:, :4]
        elif fault == "weight":
            weight = weight[:, :4].contiguous()
        elif fault == "stride":
            weight = weight.mT.contiguous().mT
        elif fault == "elsewhere":
            weight = weight.to("meta")
        elif fault == "kind":
            weight = weight.as_subclass(type("Wrapped", (torch.Tensor,), {}))
        assert not decodes_at_once(table, None, tokens, state, weight)


def test_a_processor_is_no_gpu():
    assert not decodes_at_once(operands()[0].cpu(), None, *(each.cpu() for each in operands()[1:]))
