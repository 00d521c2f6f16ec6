"""Every derivative that torch can ask for, by every backend: the table in docs/scan.md, row by row."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

from tests.comparison import assert_same
from tests.laws.test_scan import HERE, OF_ANY_RING, operands
from tests.laws.test_scan_of_columns import sparse
from transductor.heads import RationalHead
from transductor.recurrence import scan, sequence_parallel_scan
from transductor.recurrence.backends import STRUCTURED
from transductor.recurrence.normalised_operator import normalised_backends
from transductor.transitions import FAMILIES

KINDS = ["plain", "affine", "dense", "lengths", "mask", "packed", "packed_dense"]
ENGINES = ["auto", *(name for name in HERE if name != "reference")]
NORMALISED = "normalised "
EVERY = [(backend, kind) for backend in ("reference", *ENGINES, *STRUCTURED) for kind in KINDS]
EVERY += [
    (NORMALISED + backend, kind)
    for backend in normalised_backends()
    for kind in ("plain", "dense", "mask", "packed")
    if backend != "triton"
]
T = 6
# torch's own, when it first needs a tangent.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.*deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def repeatable():
    torch.manual_seed(0)


class Case:
    """A small scan of one kind: its leaves, directions for tangents, and a functional that bends."""

    def __init__(self, kind, device="cpu", dim=2):
        packed = kind.startswith("packed")
        leaves, tokens = operands(T, batch=1 if packed else 2, dim=dim, symbols=2, dense="dense" in kind)
        if packed:
            leaves["initial_state"] = torch.randn(3, dim, dtype=torch.float64)
        if kind == "plain":
            leaves = {name: leaves[name] for name in ("transitions", "initial_state")}
        self.names = list(leaves)
        self.leaves = tuple(leaf.detach().to(device) for leaf in leaves.values())
        self.directions = tuple(torch.randn_like(leaf) for leaf in self.leaves)
        self.options = {
            "lengths": {"lengths": torch.tensor([T, 2], device=device)},
            "mask": {"mask": torch.tensor([[1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 1, 1]], device=device).bool()},
            "packed": {"cu_seqlens": torch.tensor([0, 2, 2, T], device=device)},
            "packed_dense": {"cu_seqlens": torch.tensor([0, 1, 4, T], device=device)},
        }.get(kind, {})
        self.tokens = None if tokens is None else tokens.to(device)

    def states(self, backend):
        def function(*leaves):
            given = dict(zip(self.names, leaves, strict=True))
            return scan(**given, tokens=self.tokens, backend=backend, **self.options)

        return function

    def bent(self, backend):
        states = self.states(backend)
        return lambda *leaves: states(*leaves).sin().sum()

    def gradients(self):
        """By plain autograd through the loop, the meaning of every backend."""
        leaves = [leaf.clone().requires_grad_() for leaf in self.leaves]
        return torch.autograd.grad(self.bent("reference")(*leaves), leaves)

    def slope(self):
        return sum((part * along).sum() for part, along in zip(self.gradients(), self.directions, strict=True))


class ColumnsCase(Case):
    """Matrices with one entry in a column; tangents may lead away from these."""

    def __init__(self, kind):
        super().__init__(kind)
        others = sparse(*self.leaves[0].shape[:-2], dim=2)
        self.leaves = (others, *self.leaves[1:])


class NormalisedCase(Case):
    """States of norm 1, and the log of the norm as one more coordinate."""

    def __init__(self, kind):
        super().__init__(kind)
        kept = [self.names.index(name) for name in ("transitions", "initial_state")]
        self.names = [self.names[place] for place in kept]
        self.leaves = tuple(self.leaves[place].exp() for place in kept)
        self.directions = tuple(self.directions[place] for place in kept)

    def states(self, backend):
        def function(transitions, start):
            given = {"tokens": self.tokens, "initial_state": start, **self.options}
            result = scan(transitions, **given, normalise="l1", backend=backend.removeprefix(NORMALISED))
            return torch.cat((result.states, result.logs.unsqueeze(-1)), -1)

        return function


def case_for(backend, kind):
    if backend.startswith(NORMALISED):
        return NormalisedCase(kind)
    return ColumnsCase(kind) if backend == "columns" else Case(kind)


def twice_along(case, backend):
    """The second derivative in one direction, by differentiating the gradient backwards again."""
    leaves = [leaf.clone().requires_grad_() for leaf in case.leaves]
    first = torch.autograd.grad(case.bent(backend)(*leaves), leaves, create_graph=True)
    slope = sum((part * along).sum() for part, along in zip(first, case.directions, strict=True))
    return torch.autograd.grad(slope, leaves)


def assert_each(found, expected, what):
    for name, ours, theirs in zip(expected[0], found, expected[1], strict=True):
        assert_same(ours, theirs, what=f"{what} by {name}")


def assert_forward_mode(case, backend):
    """The tangents of torch.func and of dual numbers, against the gradient of the loop."""
    assert_same(jvp(case.bent(backend), case.leaves, case.directions)[1], case.slope(), what="jvp")
    with forward_ad.dual_level():
        duals = map(forward_ad.make_dual, case.leaves, case.directions)
        tangent = forward_ad.unpack_dual(case.bent(backend)(*duals)).tangent
    assert tangent is not None
    assert_same(tangent, case.slope(), what="dual numbers")
    for index in range(len(case.leaves)):  # a tangent of one operand alone
        along = [torch.zeros_like(leaf) for leaf in case.leaves]
        along[index] = case.directions[index]

        def one(leaf, index=index):
            return case.bent(backend)(*case.leaves[:index], leaf, *case.leaves[index + 1 :])

        tangent = jvp(one, (case.leaves[index],), (case.directions[index],))[1]
        expected = (case.gradients()[index] * case.directions[index]).sum()
        assert_same(tangent, expected, what=f"jvp of {case.names[index]} alone")


def assert_second_derivatives(case, backend):
    """Reverse over reverse, by plain autograd and by torch.func, and forward over reverse."""
    expected, argnums = (case.names, twice_along(case, "reference")), tuple(range(len(case.leaves)))
    assert_each(twice_along(case, backend), expected, "double backward")
    gradients = grad(case.bent(backend), argnums)
    assert_each(jvp(gradients, case.leaves, case.directions)[1], expected, "forward over reverse")

    def slope(*leaves):
        return sum((part * along).sum() for part, along in zip(gradients(*leaves), case.directions, strict=True))

    assert_each(grad(slope, argnums)(*case.leaves), expected, "reverse over reverse")


@pytest.mark.parametrize(("backend", "kind"), EVERY)
class TestEveryBackend:
    def test_forward_mode(self, backend, kind):
        assert_forward_mode(case_for(backend, kind), backend)

    def test_functional_gradients(self, backend, kind):
        case = case_for(backend, kind)
        argnums = tuple(range(len(case.leaves)))
        assert_each(grad(case.bent(backend), argnums)(*case.leaves), (case.names, case.gradients()), "grad")

    def test_jacobians(self, backend, kind):
        case = case_for(backend, kind)
        argnums = tuple(range(len(case.leaves)))
        expected = torch.autograd.functional.jacobian(case.states("reference"), case.leaves)
        for jacobian in (jacfwd, jacrev):
            found = jacobian(case.states(backend), argnums)(*case.leaves)
            assert_each(found, (case.names, expected), jacobian.__name__)

    def test_hessians_and_double_backward(self, backend, kind):
        case = case_for(backend, kind)
        argnums = tuple(range(len(case.leaves)))
        expected = torch.autograd.functional.hessian(case.bent("reference"), case.leaves)
        found = hessian(case.bent(backend), argnums)(*case.leaves)
        for row, wanted in zip(found, expected, strict=True):
            assert_each(row, (case.names, wanted), "hessian")
        assert_second_derivatives(case, backend)

    def test_reverse_over_forward_and_forward_over_forward(self, backend, kind):
        case = case_for(backend, kind)
        argnums = tuple(range(len(case.leaves)))

        def slope(*leaves):
            return jvp(case.bent(backend), leaves, case.directions)[1]

        second = twice_along(case, "reference")
        assert_each(grad(slope, argnums)(*case.leaves), (case.names, second), "reverse over forward")
        curvature = sum((part * along).sum() for part, along in zip(second, case.directions, strict=True))
        assert_same(jvp(slope, case.leaves, case.directions)[1], curvature, what="forward over forward")

    def test_vmap(self, backend, kind):
        case = case_for(backend, kind)
        many = [torch.stack((leaf, along, leaf - along)) * 0.5 for leaf, along in zip(case.leaves, case.directions)]  # noqa: B905
        states = case.states(backend)
        one_by_one = torch.stack([case.states("reference")(*each) for each in zip(*many, strict=True)])
        assert_same(vmap(states)(*many), one_by_one)
        for index in range(len(many)):  # only one operand differs
            dims = [0 if place == index else None for place in range(len(many))]
            mixed = [many[index] if place == index else leaf for place, leaf in enumerate(case.leaves)]
            expected = torch.stack(
                [
                    case.states("reference")(*case.leaves[:index], each, *case.leaves[index + 1 :])
                    for each in many[index]
                ]
            )
            assert_same(vmap(states, tuple(dims))(*mixed), expected, what=f"vmap over {case.names[index]}")

    def test_vmap_of_derivatives(self, backend, kind):
        """Gradients of many at once: what is batched is inside what carries derivatives."""
        case = case_for(backend, kind)
        argnums = tuple(range(len(case.leaves)))
        many = [torch.stack((leaf, 0.5 * leaf)) for leaf in case.leaves]
        gradients = vmap(grad(case.bent(backend), argnums))(*many)
        tangents = vmap(lambda *leaves: jvp(case.bent(backend), leaves, case.directions)[1])(*many)
        for number in range(2):
            case.leaves = tuple(each[number] for each in many)
            one = [each[number] for each in gradients]
            assert_each(one, (case.names, case.gradients()), "gradients side by side")
            assert_same(tangents[number], case.slope(), what="tangents side by side")


@pytest.mark.parametrize("backend", ENGINES)
def test_tangents_are_differences(backend):
    """Nothing but arithmetic: the slope between two nearby points, at a length that is cut into chunks."""
    leaves, tokens = operands(129, dim=3)
    names, points = list(leaves), [leaf.detach() for leaf in leaves.values()]
    along = [torch.randn_like(point) for point in points]

    def states(*values):
        return scan(**dict(zip(names, values, strict=True)), tokens=tokens, backend=backend)

    step = 1e-6
    ahead, behind = ([p + sign * step * a for p, a in zip(points, along, strict=True)] for sign in (1, -1))
    difference = (states(*ahead) - states(*behind)) / (2 * step)
    tangent = jvp(states, tuple(points), tuple(along))[1]
    # A central difference is off by step² times a third derivative, which grows with the cube of the length.
    assert (tangent - difference).abs().max() < 1e-5 * difference.abs().max()


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("time", [0, 1])
def test_tangents_of_very_short_scans(backend, time):
    table, tokens, start = torch.randn(3, 2, 2), torch.zeros(2, time, dtype=torch.long), torch.randn(2)
    direction = torch.randn_like(table)

    def states(table):
        return scan(table, tokens, initial_state=start, backend=backend)

    expected = (direction[0] @ start).expand(2, time, 2)
    assert_same(jvp(states, (table,), (direction,))[1], expected)


@pytest.mark.parametrize("backend", OF_ANY_RING)
@pytest.mark.parametrize("semiring", ["log", "max_plus"])
def test_other_semirings(backend, semiring):
    leaves, tokens = operands(T, semiring=semiring)
    names, points = list(leaves), tuple(leaf.detach() for leaf in leaves.values())
    along = tuple(torch.randn_like(point) for point in points)

    def bent(*values):
        given = dict(zip(names, values, strict=True))
        return scan(**given, tokens=tokens, semiring=semiring, backend=backend).sin().sum()

    gradients = torch.autograd.grad(bent(*leaves.values()), list(leaves.values()))
    slope = sum((part * direction).sum() for part, direction in zip(gradients, along, strict=True))
    assert_same(jvp(bent, points, along)[1], slope)
    assert_each(grad(bent, tuple(range(len(points))))(*points), (names, gradients), "grad")
    assert_same(vmap(bent)(*(point[None] for point in points))[0], bent(*points))


@pytest.mark.parametrize("family", FAMILIES)
def test_tangents_pass_through_every_family_of_a_head(family):
    """The operations below a table are registered with torch too, and have no tangent of their own."""
    head = RationalHead(FAMILIES[family](vocab_size=3, state_dim=4)).double()
    tokens = torch.randint(0, 3, (2, 9))
    points = {name: value.detach() + 0.3 * torch.randn_like(value) for name, value in head.named_parameters()}
    along = {name: torch.randn_like(value) for name, value in points.items()}

    def bent(values):
        return functional_call(head, values, (tokens,)).sin().sum()

    leaves = {name: value.clone().requires_grad_() for name, value in points.items()}
    first = torch.autograd.grad(bent(leaves), list(leaves.values()), create_graph=True)
    slope = sum((part * direction).sum() for part, direction in zip(first, along.values(), strict=True))
    second = torch.autograd.grad(slope, list(leaves.values()))
    assert_same(jvp(bent, (points,), (along,))[1], slope)
    assert_each(grad(bent)(points).values(), (leaves, first), "grad")
    assert_each(jvp(grad(bent), (points,), (along,))[1].values(), (leaves, second), "forward over reverse")


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(("backend", "halves"), [("auto", True), ("columns", True), (NORMALISED + "auto", False)])
def test_a_compiled_tangent_is_not_zero(backend, halves):
    """torch takes the tangent of a registered operation for zero; one graph is refused, two halves are right.

    Where a loop of plain operations is compiled, one graph is right too.
    """
    case = case_for(backend, "plain")

    def slope(*leaves):
        return jvp(case.bent(backend), leaves, case.directions)[1]

    torch.compiler.reset()
    assert_same(torch.compile(slope, backend="aot_eager")(*case.leaves), case.slope())
    torch.compiler.reset()
    complete = torch.compile(slope, backend="aot_eager", fullgraph=True)
    if halves:
        with pytest.raises(Exception, match="disable"):
            complete(*case.leaves)
    else:
        assert_same(complete(*case.leaves), case.slope())


def test_documents_cannot_differ_under_vmap():
    table, tokens, start = torch.eye(2).expand(3, 2, 2), torch.zeros(1, T, dtype=torch.long), torch.ones(2)
    bounds = torch.tensor([[0, 2, T], [0, 3, T]])
    with pytest.raises(NotImplementedError, match="cu_seqlens must be the same"):
        vmap(lambda cuts: scan(table, tokens, initial_state=start, cu_seqlens=cuts))(bounds)


def test_a_scan_over_ranks_refuses_transforms():
    table, tokens, start = torch.eye(2).expand(3, 2, 2), torch.zeros(1, T, dtype=torch.long), torch.ones(2)
    with pytest.raises(NotImplementedError, match="sequence_parallel_scan is differentiated by backward"):
        jvp(lambda state: sequence_parallel_scan(table, tokens, initial_state=state), (start,), (start,))
