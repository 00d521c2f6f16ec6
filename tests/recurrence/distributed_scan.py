"""Run on every rank: the scan along time across ranks, beside the scan of the whole on every rank."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.ranks import leave
from transductor.recurrence import scan
from transductor.recurrence.sequence_parallel import sequence_parallel_scan

V, D, B = 5, 4, 3
LONG = 24 * 17  # several chunks of the product on every rank

SPLITS = {  # of 24 steps (scaled up where a case is longer), by number of ranks
    1: {"whole": [24]},
    2: {"even": [12, 12], "uneven": [5, 19], "one_token": [23, 1], "empty": [0, 24]},
    4: {"even": [6] * 4, "uneven": [1, 10, 3, 10], "one_token": [21, 1, 1, 1], "empty": [9, 0, 15, 0]},
}
# Documents of 24 steps: crossing ranks, beginning where a rank begins, empty, one spanning several ranks.
PACKED = {
    "many": [0, 2, 5, 5, 6, 11, 12, 18, 18, 24],
    "one": [0, 24],
    "long": [0, 1, 23, 24],
    "empty_last": [0, 9, 24, 24],
}


def orthogonal(*shape):
    return torch.linalg.qr(torch.randn(*shape, D, D, dtype=torch.float64))[0]


def problems():
    """Name to the arguments of a scan of the whole; what begins with an underscore is not along time."""
    torch.manual_seed(0)
    tokens = torch.randint(0, V, (B, 24))
    start, table = torch.randn(D, dtype=torch.float64), orthogonal(V)
    bias, token_bias = torch.randn(B, 24, D, dtype=torch.float64), torch.randn(V, D, dtype=torch.float64)
    rows = torch.randn(B, D, dtype=torch.float64)
    left = torch.arange(24) >= torch.tensor([[0], [7], [20]])
    given = {
        "tokens": {"transitions": table, "tokens": tokens, "initial_state": start},
        "unbatched": {"transitions": table, "tokens": tokens[0], "initial_state": start, "bias": bias[0]},
        "matrices": {"transitions": orthogonal(B, 24), "initial_state": rows},
        "biases": {"transitions": table, "tokens": tokens, "bias": bias, "token_bias": token_bias},
        "left_padding": {"transitions": table, "tokens": tokens, "mask": left, "initial_state": rows, "bias": bias},
        "masked_matrices": {"transitions": orthogonal(B, 24), "mask": left, "initial_state": start},
        "lengths": {
            "transitions": table,
            "tokens": tokens,
            "lengths": torch.tensor([24, 6, 0]),
            "initial_state": start,
        },
        "long": {
            "transitions": table,
            "tokens": torch.randint(0, V, (B, LONG)),
            "bias": torch.randn(B, LONG, D, dtype=torch.float64),
            "initial_state": rows,
        },
        "only_start_trains": {"transitions": table, "tokens": tokens, "initial_state": start, "frozen": "transitions"},
        "only_table_trains": {
            "transitions": table,
            "tokens": tokens,
            "initial_state": start,
            "frozen": "initial_state",
        },
    }
    for backend in ("reference", "chunked", "kogge_stone"):
        given[backend] = {"transitions": table, "tokens": tokens, "initial_state": start, "backend": backend}
    for name, bounds in PACKED.items():
        packed = {"transitions": table, "tokens": tokens[:1], "cu_seqlens": torch.tensor(bounds)}
        each = torch.randn(len(bounds) - 1, D, dtype=torch.float64)
        given[f"packed_{name}"] = {**packed, "initial_state": start}
        given[f"packed_{name}_biased"] = {**packed, "initial_state": each, "bias": bias[:1]}
        given[f"packed_{name}_masked"] = {**packed, "initial_state": each, "mask": left[1:2]}
        given[f"packed_{name}_matrices"] = {
            "transitions": orthogonal(1, 24),
            "cu_seqlens": torch.tensor(bounds),
            "initial_state": each,
        }
    return given


def along_time(name, arguments):
    return name in ("tokens", "bias", "mask") or (name == "transitions" and "tokens" not in arguments)


def compared(arguments, sizes, group, weigh_final):
    """Return this rank's largest errors of states, final state and gradients, relative to the largest entry of each."""
    arguments = dict(arguments)
    frozen = arguments.pop("frozen", None)
    unbatched = arguments.get("tokens", arguments["transitions"]).ndim in (1, 3)
    total = (arguments["tokens"] if "tokens" in arguments else arguments["transitions"]).shape[0 if unbatched else 1]
    sizes = [size * total // 24 for size in sizes]
    rank = dist.get_rank(group)
    span = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    trained = [
        name for name in ("transitions", "bias", "token_bias", "initial_state") if name in arguments and name != frozen
    ]

    def cut(value):
        return value[span] if unbatched else value[:, span]

    whole = {n: v.clone().requires_grad_() if n in trained else v for n, v in arguments.items()}
    ours = {
        n: (cut(v) if along_time(n, arguments) else v).clone() if torch.is_tensor(v) else v
        for n, v in arguments.items()
    }
    for name in trained:
        ours[name].requires_grad_()
    states, final = scan(**whole, return_final=True)
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(states.shape, generator=generator, dtype=torch.float64)
    # Every rank weighs the final state in its own way; the whole is the sum.
    shares = torch.randn(len(sizes), *final.shape, generator=generator, dtype=torch.float64) * weigh_final
    ((states * weights).sum() + (final * shares.sum(0)).sum()).backward()
    found, found_final = sequence_parallel_scan(**ours, group=group, return_final=True)
    without = sequence_parallel_scan(
        **{n: v.detach() if torch.is_tensor(v) else v for n, v in ours.items()}, group=group
    )
    loss = (found * cut(weights)).sum()
    if weigh_final:
        loss = loss + (found_final * shares[rank]).sum()
    loss.backward()
    errors = {
        "states": error(found, cut(states)),
        "final": error(found_final, final),
        "without_final": error(without, cut(states)),
    }
    shared = [name for name in trained if not along_time(name, arguments)]
    for name in trained:
        grad = ours[name].grad
        if name in shared:
            assert grad is not None, f"rank {rank} has no share of {name}"
        else:
            errors[f"{name}.grad"] = error(grad, cut(whole[name].grad))
    if shared:
        flat = torch.cat([ours[name].grad.flatten() for name in shared])
        dist.all_reduce(flat, group=group)  # all at once: a message takes longer than what is in it
        parts = flat.split([whole[name].numel() for name in shared])
        for name, summed in zip(shared, parts, strict=True):
            errors[f"{name}.grad"] = error(summed.view_as(whole[name]), whole[name].grad)
    return errors


def error(found, expected):
    if expected.numel() == 0:
        return 0.0 if found.shape == expected.shape else float("inf")
    return ((found - expected).abs().max() / expected.abs().max().clamp_min(1)).item()


def half_precision(group):
    """bfloat16 transitions are carried in float32: the error is that of one rounding."""
    torch.manual_seed(2)
    table, tokens, start = orthogonal(V).bfloat16(), torch.randint(0, V, (1, 64)), torch.randn(D).bfloat16()
    size, rank = 64 // dist.get_world_size(group), dist.get_rank(group)
    found = sequence_parallel_scan(table, tokens[:, rank * size : (rank + 1) * size], initial_state=start, group=group)
    expected = scan(table.double(), tokens, initial_state=start.double())[:, rank * size : (rank + 1) * size]
    assert found.dtype == torch.bfloat16
    return error(found.double(), expected)


def overflow(group):
    """A product beyond float64: refused with the same words on every rank."""
    rank = dist.get_rank(group)
    tokens = torch.zeros(1, 400, dtype=torch.long)
    try:
        sequence_parallel_scan(
            torch.full((1, 2, 2), 1e2, dtype=torch.float64),
            tokens,
            initial_state=torch.ones(2, dtype=torch.float64),
            group=group,
        )
    except ValueError as refusal:
        return f"{refusal}" if rank == 0 else ""
    return "accepted"


def main(file):
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    alone = [dist.new_group([rank]) for rank in range(ranks)][dist.get_rank()]
    found = {}
    for name, arguments in problems().items():
        found[f"1-whole-{name}"] = compared(arguments, [24], alone, True)
        for split, sizes in SPLITS[ranks].items():
            for weigh_final in (True, False) if split == "uneven" else (True,):
                label = f"{ranks}-{split}-{name}" + ("" if weigh_final else "-final_unused")
                found[label] = compared(arguments, sizes, None, weigh_final)
    worst = torch.tensor([value for errors in found.values() for value in errors.values()], dtype=torch.float64)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    values = iter(worst.tolist())
    found = {label: {name: next(values) for name in errors} for label, errors in found.items()}
    found["half"], found["overflow"] = half_precision(None), overflow(None)
    leave(file, found)
