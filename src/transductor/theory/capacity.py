"""What heads and attention can tell apart: histories, decompositions, other linear updates, and products of states."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor, nn

from transductor.automata import WeightedAutomaton, reduced
from transductor.automata.library import base_value
from transductor.automata.modular import rank_of_matrix
from transductor.automata.weights import WEIGHTS, Array
from transductor.checks import VALUE_TOLERANCE
from transductor.compilation.backbone import silence
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, RationalTransductor, Transformer
from transductor.theory.evidence import Checks, alphabet, at_least, generic, generic_automaton, integers, words
from transductor.theory.statements import StatementCertificate, statement
from transductor.transitions import OrthogonalTransitions

_RING = WEIGHTS["rational"]
_TOLERANCE = VALUE_TOLERANCE[torch.float64]  # of sums of up to 1000 terms, relative to the largest


def _told_apart(length: int) -> int:
    """Return how many words of a length a head of two dimensions tells apart: those with another exact state."""
    automaton = base_value(2).automaton
    return len({tuple(automaton.trajectory(word)[-1]) for word in itertools.product("01", repeat=length)})


def _outputs(length: int, width: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return all words of a length and what a random Transformer of one layer without positions says last."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Transformer(BackboneConfig(2, 1, width, layers=1, attention_heads=1)).double().eval()
    tokens = torch.tensor(list(itertools.product((0, 1), repeat=length)))
    with torch.no_grad():
        return tokens, model(tokens)[:, -1, 0]


def _shatters_one_letter(width: int) -> int:
    """Return how many of the four labellings of the words ``0`` and ``1`` a Transformer takes, by weights put in."""
    taken = 0
    for signs in itertools.product((-1.0, 1.0), repeat=2):
        model = Transformer(BackboneConfig(2, 1, width, layers=1, attention_heads=1)).double().eval()
        silence(model.backbone, all_weights=True)
        with torch.no_grad():
            model.backbone.embedding.weight[:, :2] = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
            scale = float(model.backbone.final_norm(model.backbone.embedding.weight)[0, 0])
            model.backbone.readout.weight[0, 0] = (signs[0] - signs[1]) / 2 / scale
            model.backbone.readout.bias[0] = (signs[0] + signs[1]) / 2
            taken += bool((model(torch.tensor([[0], [1]]))[:, 0, 0].sign() == torch.tensor(signs)).all())
    return taken


@statement("Effective Capacity Increase", 9)
def effective_capacity_increase(longest: int = 8, width: int = 8, seed: int = 0) -> StatementCertificate:
    """Shatter all words of length one with a Transformer, and count the histories that each class tells apart.

    The last output of one attention layer without positions depends on the last letter and on how often each occurs, so
    it takes at most 2L values on words of length L, whatever its width; a head of two dimensions has 2^L states.
    """
    at_least("longest", longest, 1)
    checks, table = Checks(), dict[str, dict[str, int]]()
    labellings = _shatters_one_letter(2)
    checks.equal("labellings of the two words of length 1 that a Transformer takes", labellings, 4)
    for length in range(1, longest + 1):
        tokens, outputs = _outputs(length, width, seed)
        classes = tokens[:, -1] * (length + 1) + tokens.sum(1)
        spread = max(
            float(outputs[classes == each].max() - outputs[classes == each].min()) for each in classes.unique()
        )
        allowed = _TOLERANCE * float(outputs.abs().max())
        checks.true(f"outputs of one class differ by {spread:.1e} at length {length}", spread <= allowed)
        checks.equal(f"classes at length {length}", len(classes.unique()), 2 * length)
        checks.equal(f"states of the head at length {length}", _told_apart(length), 2**length)
        table[str(length)] = {"head": _told_apart(length), "attention": len(classes.unique())}
    return StatementCertificate(
        "Effective Capacity Increase",
        (9,),
        f"At L = 1 a Transformer of width 2 shatters both words, so nothing exceeds it; at L = {longest} a head of two "
        f"dimensions tells {2**longest} histories apart and one attention layer without positions {2 * longest}",
        "=",
        4,
        checks.unless_failed(labellings),
        checks.witness(
            "effective_capacity_increase(longest=1): four labellings of two words by a Transformer of width 2"
        ),
        "false as written",
        "Not for any horizon: at L = 1 both classes shatter everything there is, and parity at one length is one "
        "labelling, which shatters nothing. What grows without bound is the number of histories told apart: 2^L "
        "against 2L for one layer without positions; more layers or positions tell more apart.",
        measurements={"histories": table},
    )


def _deep_model(dim: int, width: int, layers: int, seed: int, *, norm: bool) -> RationalTransductor:
    """Return a random Transductor with deep injection, with or without its norms."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = RationalHead(OrthogonalTransitions(vocab_size=3, state_dim=dim))
        model = RationalTransductor(head, BackboneConfig(3, 4, width, layers=layers, attention_heads=1)).double().eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
    return _normed(model, norm)


def _normed(model: RationalTransductor, norm: bool) -> RationalTransductor:
    for module in [*model.backbone.modules()]:
        for name, part in [*module.named_children()]:
            if isinstance(part, nn.LayerNorm):
                setattr(module, name, nn.LayerNorm(part.normalized_shape).double() if norm else nn.Identity())
    return model


def _carrying(deep: RationalTransductor, *, norm: bool) -> RationalTransductor:
    """Return the Transformer on (x, Φ(x)) of the proof: the states stand in coordinates of their own, all the way.

    Every map that read the stream z̃ = z + (W⁰ + … + W^l) h now reads z and h beside it; what was added stays in z.
    """
    config, dim = deep.backbone.config, deep.rational_head.output_dim
    wide = BackboneConfig(3, 4, config.width + dim, config.layers, 1, feedforward=4 * config.width)
    model = RationalTransductor(deep.rational_head, wide, injection="input").double().eval()
    silence(model.backbone, all_weights=True)
    old, new = dict(deep.backbone.named_parameters()), dict(model.backbone.named_parameters())
    injected = torch.zeros(config.width, dim, dtype=torch.float64)
    assert model.injection.projections is not None
    with torch.no_grad():
        model.injection.projections.weight.copy_(torch.eye(wide.width, dtype=torch.float64)[:, config.width :])
        new["embedding.weight"][:, : config.width] = old["embedding.weight"]
        for layer in range(config.layers):
            injected = injected + _projection(deep, layer)
            for name in ("attention.query", "attention.key", "attention.value", "feedforward.0"):
                _widen(old, new, f"blocks.{layer}.{name}", injected)
            for name in ("attention.output", "feedforward.2"):
                weight, bias = (f"blocks.{layer}.{name}.{part}" for part in ("weight", "bias"))
                new[weight][: config.width, : old[weight].shape[1]] = old[weight]
                new[bias][: config.width] = old[bias]
            # Scores are divided by the root of the width, which has grown.
            for part in ("weight", "bias"):
                new[f"blocks.{layer}.attention.query.{part}"].mul_((wide.width / config.width) ** 0.5)
        _widen(old, new, "readout", injected)
    return _normed(model, norm)


def _projection(model: RationalTransductor, layer: int) -> Tensor:
    weight = model.injection.projection(layer)
    assert weight is not None
    return weight.detach()


def _widen(old: Mapping[str, Tensor], new: Mapping[str, Tensor], name: str, injected: Tensor) -> None:
    weight, bias = old[f"{name}.weight"], old[f"{name}.bias"]
    both = torch.cat((weight, weight @ injected), 1)
    new[f"{name}.weight"][: len(weight), : both.shape[1]] = both
    new[f"{name}.bias"][: len(bias)] = bias


@statement("Decomposition Characterization", 13)
def decomposition_characterization(
    dim: int = 3, width: int = 6, layers: int = 3, length: int = 12, seed: int = 0
) -> StatementCertificate:
    """Build the Transformer on (x, Φ(x)) that the proof describes from a random Transductor, and compare their outputs.

    Without norms they agree to rounding.  With LayerNorm they do not, because the copied states are normed as well.
    """
    at_least("length", length, 1)
    checks, gaps = Checks(), dict[str, float]()
    tokens = torch.randint(0, 3, (8, length), generator=torch.Generator().manual_seed(seed))
    for norm in (False, True):
        deep = _deep_model(dim, width, layers, seed, norm=norm)
        with torch.no_grad():
            wanted, carried = deep(tokens), _carrying(deep, norm=norm)(tokens)
            gaps["with norm" if norm else "without norm"] = float((wanted - carried).abs().max() / wanted.abs().max())
            # The other direction: what enters only at the input is a deep injection with zeros further up.
            for layer in range(1, layers):
                _projection(deep, layer).zero_()
            only_input = (
                RationalTransductor(deep.rational_head, deep.backbone.config, injection="input").double().eval()
            )
            only_input.backbone = deep.backbone
            assert only_input.injection.projections is not None
            only_input.injection.projections.weight.copy_(_projection(deep, 0))
            apart = float((only_input(tokens) - deep(tokens)).abs().max() / deep(tokens).abs().max())
            checks.true("the input alone is no deep injection", apart <= _TOLERANCE)
    checks.true(f"without norms outputs differ by {gaps['without norm']:.1e}", gaps["without norm"] <= _TOLERANCE)
    checks.true("the norm changes nothing", gaps["with norm"] > 1e-3)
    return StatementCertificate(
        "Decomposition Characterization",
        (13,),
        "Without norms a Transductor is a Transformer on its states, to rounding; with LayerNorm the construction of "
        f"the proof differs by {gaps['with norm']:.2f} of the largest output",
        "≤",
        _TOLERANCE,
        checks.unless_failed(gaps["without norm"]),
        checks.witness(
            f"random weights, width {width}, {layers} layers, d = {dim}, seed {seed}; difference without norm "
            f"{gaps['without norm']:.1e}, allowed {_TOLERANCE:.0e} (sums of floats in another order)"
        ),
        "holds with care",
        "States that are copied through the stream are part of what LayerNorm divides by, so the first direction is "
        "shown for blocks without norm only. The second holds: an injection at the input is a deep one "
        "with zeros.",
        measurements={"rounding": {"relative_difference": gaps}},
    )


Update = Callable[[Array, int], Array]
"""A linear update as others write it: from a state as a vector, and a letter, to the next state."""


def _updates(size: int, seed: int) -> dict[str, tuple[int, Update]]:
    """Return the updates of other recurrent layers, with the number of coordinates of their states."""
    matrices, offsets = generic(seed, 2, size, size), generic(seed, 2, size)
    keys, values, rates = generic(seed + 1, 2, size), generic(seed + 2, 2, size), generic(seed, 2) / Fraction(50)
    eye = np.eye(size, dtype=int).astype(object)

    def delta(state: Array, letter: int) -> Array:
        key, value = keys[letter], values[letter]
        memory = state.reshape(size, size)
        return np.asarray(
            memory @ (eye - rates[letter] * np.outer(key, key)) + rates[letter] * np.outer(value, key)
        ).reshape(-1)

    return {
        "matrix and additive input": (size, lambda state, letter: matrices[letter] @ state + offsets[letter]),
        "diagonal gates": (size, lambda state, letter: keys[letter] * state + offsets[letter]),
        "linear attention": (size**2, lambda state, letter: state + np.outer(values[letter], keys[letter]).reshape(-1)),
        "delta rule": (size**2, delta),
        "two steps back": (
            2 * size,
            lambda state, letter: np.concatenate(
                (matrices[letter] @ state[:size] + matrices[0] @ state[size:], state[:size])
            ),
        ),
    }


def _as_head(coordinates: int, update: Update) -> WeightedAutomaton:
    """Return the head that takes the update's steps: its columns are steps of a basis, and one coordinate stays 1."""
    dim = coordinates + 1
    eye, matrices = np.eye(coordinates, dtype=int).astype(object), _RING.zeros(2, dim, dim)
    for letter in range(2):
        origin = update(0 * eye[0], letter)
        matrices[letter, :coordinates, coordinates] = origin
        matrices[letter, coordinates, coordinates] = 1
        for place, unit in enumerate(eye):
            matrices[letter, :coordinates, place] = update(unit, letter) - origin
    start = np.eye(dim, dtype=int)[-1]
    return WeightedAutomaton(start, matrices, start, "ab")


@statement("Maximality Under Linear Recurrence", 14)
def maximality_under_linear_recurrence(
    size: int = 2, longest: int = 5, block: int = 8, seed: int = 0
) -> StatementCertificate:
    """Turn the linear updates of other layers into one head each, and follow both through all words up to ``longest``.

    Also a linear update over another semiring, (max, +), which is associative too and is no head over the reals.
    """
    at_least("size", size, 1)
    at_least("block", block, 1)
    checks, dims = Checks(), dict[str, int]()
    for name, (coordinates, update) in _updates(size, seed).items():
        head, wrong = _as_head(coordinates, update), 0
        dims[name] = head.dim
        for word in words((0, 1), longest):
            state = np.zeros(coordinates, dtype=int).astype(object)
            for letter in word:
                state = update(state, letter)
            wrong += int((head.trajectory(["ab"[letter] for letter in word])[-1][:coordinates] != state).any())
        checks.equal(f"words on which {name} is another state than its head", wrong, 0)
        checks.equal(f"dimension of the head of {name}", head.dim, coordinates + 1)
    tropical = WeightedAutomaton(
        [0, 0], {"a": [[1, "-inf"], ["-inf", 0]], "b": [[-1, "-inf"], ["-inf", 0]]}, [0, 0], weights="max_plus"
    )
    grid = np.array([[int(tropical("a" * i + "b" * j)) for j in range(block)] for i in range(block)], dtype=object)
    rank = rank_of_matrix(grid)
    checks.equal("rank of the (max, +) series max(0, #a − #b)", rank, block - 1)
    return StatementCertificate(
        "Maximality Under Linear Recurrence",
        (14,),
        f"{len(dims)} linear updates of other layers are one head each, with one coordinate more, on all words up to "
        f"{longest} exactly",
        "∄",
        0,
        len(checks.failed),
        checks.witness(f"dimensions of the heads: {dims}"),
        "holds with care",
        "For updates that the letters alone choose and that are linear over the reals, an additive term counted as "
        "one coordinate. Over (max, +) a fixed, associative, linear update gives max(0, #a − #b), which no head is, "
        "though hard attention over one is; and updates that an earlier layer's output chooses, as in a stack, are "
        "outside of the argument.",
        measurements={"dims": dims, "tropical_rank": rank},
    )


def _quadratic(automaton: WeightedAutomaton, form: Array) -> WeightedAutomaton:
    """Return the series ``hᵀ Ω h``, on h ⊗ h."""
    matrices = [np.kron(matrix, matrix) for matrix in automaton.matrices]
    return WeightedAutomaton(
        np.kron(automaton.initial, automaton.initial), matrices, form.reshape(-1), automaton.alphabet
    )


def _score_form(dim: int, inner: int, seed: int) -> Array:
    """Return ``Ω = W_Qᵀ W_K`` of an attention head of ``inner`` dimensions."""
    return np.asarray(generic(seed + 3, inner, dim).T @ generic(seed + 4, inner, dim))


@statement("Virtual Tensorization via Attention", 15)
def virtual_tensorization_via_attention(
    dims: tuple[int, ...] = (2, 3, 4), inner: int = 2, seed: int = 0
) -> StatementCertificate:
    """Measure what a score sees: the Hankel rank of hᵀΩh at one position, and of h_tᵀΩh_t' over pairs of positions."""
    dims = integers("dims", dims, least=2)
    checks, table = Checks(), dict[str, dict[str, int]]()
    for dim in dims:
        automaton = generic_automaton(seed, dim, 2)
        form = _score_form(dim, dim, seed)
        same = reduced(_quadratic(automaton, form)).automaton.dim
        checks.equal(f"Hankel rank of hᵀΩh for d = {dim}", same, dim * (dim + 1) // 2)
        states = np.stack([automaton.trajectory(word)[-1] for word in words(alphabet(2), 3)])
        pairs = np.stack([np.kron(one, two) for one in states for two in states])
        spanned = rank_of_matrix(pairs)
        checks.equal(f"dimension that h ⊗ h' spans for d = {dim}", spanned, dim**2)
        scores = rank_of_matrix(states @ _score_form(dim, inner, seed) @ states.T)
        checks.equal(f"rank of the scores of {inner} attention dimensions for d = {dim}", scores, min(inner, dim))
        table[str(dim)] = {"same position": same, "two positions": spanned, "scores": scores}
    largest = max(dims)
    return StatementCertificate(
        "Virtual Tensorization via Attention",
        (15,),
        f"At one position the score hᵀΩh has Hankel rank d(d + 1)/2, {largest * (largest + 1) // 2} for d = "
        f"{largest}; only over two positions do the products span d² = {largest**2}",
        "=",
        largest * (largest + 1) // 2,
        checks.unless_failed(table[str(largest)]["same position"]),
        checks.witness(f"random integer heads, seed {seed}: {table}"),
        "holds with care",
        "A score is linear in h_t ⊗ h_t', as claimed, but with a form Ω of rank at most the width of the attention "
        "head. At t = t' it sees symmetric products alone, so what it simulates has d(d + 1)/2 states and not d².",
        measurements={"ranks": table},
    )
