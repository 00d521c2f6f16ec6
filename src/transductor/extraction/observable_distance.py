"""How far apart two states of a head are for everything that will ever be read off them.

The distance of two states is what a readout shows of their difference now and after every continuation:
``|Δ|² = Δᵀ Q Δ`` with ``Q = Σ_k E_w |W M_w Δ|²`` over words w of k letters, an observability Gramian.  Directions that
are read neither now nor later do not count.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transductor.automata.token_alphabet import TokenAlphabet
from transductor.extraction.probing import Words, logits_given_states, words_or_random
from transductor.heads import RationalHead
from transductor.model import RationalReadout, RationalTransductor

# Continuations longer than this are not considered, nor longer ones than the state has dimensions: they show no more.
_HORIZON = 64
_STILL = 1e-3  # where one more step ahead shows the same to this accuracy, so will all others

# How the sensitivity of a complete model to its head is sampled.
_PROBES, _PROBED_WORDS, _PROBED_LENGTH = 8, 64, 24

# Prefixes of so many words, of at most so many letters, give the size of a typical state.
_SIZED_WORDS, _SIZED_LENGTH = 256, 4


@dataclass(frozen=True)
class ObservedHead:
    """A head in float64 and the linear maps through which its state is read.

    Attributes:
        table: ``(V, D, D)``.
        start: ``(D)``.
        rows: ``(K, D)``.
    """

    table: Tensor
    start: Tensor
    rows: Tensor

    @property
    def finite(self) -> bool:
        """Whether table and start hold neither NaN nor infinity."""
        return bool(self.table.isfinite().all() and self.start.isfinite().all())


@dataclass(frozen=True)
class Contexts:
    """Which letters can come next: states in different contexts have no continuation in common.

    Attributes:
        after: ``(V)``: the context that a letter leads to.
        first: The context of the start.
        likely: ``(C, V)``: how often each letter comes next.
        follows: ``(V + 1, V)``: which letter may come after which; the last row says which may begin.
    """

    after: Tensor
    first: int
    likely: Tensor
    follows: Tensor

    @classmethod
    def of(cls, words: Words | Tensor | None, letters: int) -> Contexts:
        """Return the contexts of words: letters that are ever followed by the same letter share one.

        Without words any letter may follow any.
        """
        if words is None:
            likely = torch.full((1, letters), 1 / letters, dtype=torch.float64)
            follows = torch.ones(letters + 1, letters, dtype=torch.bool)
            return cls(torch.zeros(letters, dtype=torch.long), 0, likely, follows)
        words = Words.of_table(words.long()) if isinstance(words, Tensor) else words
        first = torch.full((len(words), 1), letters)
        before = torch.cat([first, words.letters[:, :-1]], 1)[:, : words.letters.shape[1]]
        pairs = (before * letters + words.letters)[words.inside]
        counts = pairs.bincount(minlength=(letters + 1) * letters).reshape(letters + 1, letters).double()
        follows = counts > 0
        # A letter that ends every word it is in joins the start's context: what follows it is unknown.
        counts[counts.sum(1) == 0] += counts[letters]
        shares = (counts @ counts.T) > 0
        for _ in range((letters + 1).bit_length()):
            shares = (shares.double() @ shares.double()) > 0
        contexts, of_letter = torch.unique(shares, dim=0, return_inverse=True)
        likely = torch.zeros(len(contexts), letters, dtype=torch.float64).index_add_(0, of_letter, counts)
        return cls(of_letter[:letters], int(of_letter[letters]), likely / likely.sum(1, keepdim=True), follows)


def observed(
    model: RationalReadout | RationalTransductor | RationalHead,
    words: Words | None,
    alphabet: TokenAlphabet | None = None,
) -> ObservedHead:
    """Return a model's head with what is read off its states: the matrices of the letters, and the state before a word.

    For a readout, these are its weights up to a number common to all logits, which no softmax shows.  For a complete
    transductor, its sensitivity: how the logits change with the state, sampled on ``words`` or random ones; the
    projections alone also pass on much that the layers ignore.  For a bare head, every coordinate is read.
    """
    if isinstance(model, RationalHead):
        return observed_head(model, torch.eye(model.state_dim, dtype=torch.float64), alphabet)
    head, dim = model.rational_head, model.rational_head.state_dim
    if isinstance(model, RationalReadout):
        weight = model.readout.weight.detach().double().cpu()
        return observed_head(head, _by_state(weight - weight.mean(0), dim), alphabet)
    exact = observed_head(head, torch.eye(dim), alphabet)
    return replace(exact, rows=_sensitivity(model, words, alphabet)) if exact.finite else exact


def observed_head(head: RationalHead, rows: Tensor, alphabet: TokenAlphabet | None = None) -> ObservedHead:
    """Return the head in float64, on the CPU; ``rows (K, D)`` are the linear maps through which its state is read."""
    exact = copy.deepcopy(head).double().cpu().requires_grad_(False)
    with torch.no_grad():
        table, start = exact.transitions.table().detach(), exact.initial_state().detach()
    if alphabet is not None:
        start = start if alphabet.begin is None else table[alphabet.begin] @ start
        table = table[list(alphabet.letters)]
    return ObservedHead(table, start, rows.double().cpu())


def states_along(head: ObservedHead, contexts: Contexts, letters: Tensor) -> tuple[Tensor, Tensor]:
    """Return the states ``(B, T + 1, D)`` and contexts ``(B, T + 1)`` before, within and after ``letters (B, T)``."""
    state = head.start.expand(len(letters), -1)
    states, context = [state], [torch.full((len(letters),), contexts.first)]
    for letter in letters.T:
        state = stepped(head.table, state, letter)
        states.append(state)
        context.append(contexts.after[letter])
    return torch.stack(states, 1), torch.stack(context, 1)


def stepped(table: Tensor, states: Tensor, letters: Tensor) -> Tensor:
    """Return states ``(n, D)`` after one letter ``(n)`` each; no copy of a matrix is made for a state."""
    after = torch.empty_like(states)
    for letter in letters.unique().tolist():
        after[letters == letter] = states[letters == letter] @ table[letter].T
    return after


def observable_coordinates(head: ObservedHead, contexts: Contexts, words: Words | None) -> Tensor:
    """Return ``L (C, D, R)``: in context c two states are ``|(h − h')ᵀ L_c|`` apart; a typical state has size 1.

    Every step ahead counts, but none more than the present one: an unstable head would otherwise be judged by its
    remotest future alone.
    """
    words = words_or_random(words, len(head.table), _SIZED_WORDS, _SIZED_LENGTH)
    reached = torch.cat([torch.ones(len(words), 1, dtype=torch.bool), words.inside], 1)
    states, context = (each[reached] for each in states_along(head, contexts, words.letters))
    basis = _reachable(head)
    table, states, rows = basis.T @ head.table @ basis, states @ basis, head.rows @ basis

    def size(gramian: Tensor) -> float:
        return float((states @ gramian * states.unsqueeze(0)).sum(-1)[context, torch.arange(len(states))].mean())

    present = (rows.T @ rows).expand(len(contexts.likely), -1, -1)
    gramian, ahead, first = present, present, size(present)
    for left in reversed(range(min(basis.shape[1], _HORIZON))):
        before, ahead = ahead, torch.einsum("cv,vij->cij", contexts.likely, table.mT @ ahead[contexts.after] @ table)
        first = first or size(ahead)
        ahead = ahead * min(1.0, first / max(size(ahead), 1e-300))
        if not ahead.isfinite().all():
            break
        gramian = gramian + ahead
        if (ahead - before).norm() <= _STILL * before.norm():
            gramian = gramian + left * ahead
            break
    values, vectors = torch.linalg.eigh(gramian)
    unit = max(size(gramian), 1e-300) ** 0.5
    coordinates: Tensor = basis @ (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)) / unit
    return coordinates


def _by_state(rows: Tensor, state_dim: int) -> Tensor:
    """Return rows ``(K, D)`` on one state, from rows ``(K, n·D)`` on the n states that a head shows at a position."""
    return torch.cat(rows.split(state_dim, -1))


def _sensitivity(model: RationalTransductor, words: Words | None, alphabet: TokenAlphabet | None) -> Tensor:
    """Return rows ``(D', D)`` whose Gram matrix is the mean of ``JᵀJ``, J how all logits change with one state."""
    exact = copy.deepcopy(model).double().cpu().eval().requires_grad_(False)
    alphabet = alphabet or TokenAlphabet.all_tokens(exact.vocab_size)
    words = words_or_random(words, len(alphabet.letters), _PROBED_WORDS, _PROBED_LENGTH)
    tokens, counts = words.tokens(alphabet), words.positions(alphabet)
    states = exact.rational_head(tokens).requires_grad_(True)
    generator = torch.Generator().manual_seed(0)
    with torch.enable_grad():
        logits = logits_given_states(exact, tokens, states)
        if not logits.requires_grad:
            return torch.zeros(1, exact.rational_head.state_dim, dtype=torch.float64)
        logits = (logits - logits.mean(-1, keepdim=True)) * counts[..., None]
        # The expectation of (Jᵀv)(Jᵀv)ᵀ over random v is JᵀJ.
        probes = [torch.randn(logits.shape, generator=generator, dtype=logits.dtype) for _ in range(_PROBES)]
        rows = [torch.autograd.grad((logits * probe).sum(), states, retain_graph=True)[0][counts] for probe in probes]
    each = _by_state(torch.cat(rows), exact.rational_head.state_dim)
    if not each.isfinite().all():  # states overflow: a walk will say so
        return torch.eye(exact.rational_head.state_dim, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(each.T @ each / len(each))
    root: Tensor = (vectors * values.clamp_min(0).sqrt()).T
    return root


def _reachable(head: ObservedHead) -> Tensor:
    """Return an orthonormal basis ``(D, R)`` of all states that words lead to."""
    basis = torch.zeros(len(head.start), 0, dtype=torch.float64)
    fresh = head.start.unsqueeze(-1)
    while fresh.shape[1]:
        fresh = fresh / fresh.norm(dim=0).clamp_min(1e-300)
        for _ in range(2):  # the second time takes away what rounding left
            fresh = fresh - basis @ (basis.T @ fresh)
        vectors, values, _ = torch.linalg.svd(fresh, full_matrices=False)
        fresh = vectors[:, values > 1e-9][:, : len(basis) - basis.shape[1]]
        basis = torch.cat([basis, fresh], 1)
        fresh = (head.table @ fresh).permute(1, 0, 2).flatten(1)
    return basis
