"""An independent check of a certificate: ``python checker.py CERTIFICATE MODEL SPECIFICATION [DOMAIN]``.

This file needs Python 3.10 and nothing else, and searches for nothing.  The certificate holds a graph: a node is a
state of the head, one of the machine and one of the domain; node 0 is where they start, and every letter leads from
every node to a node, or out of the domain.  If each edge is right, and on each arrival the right logit is strictly the
largest, then by induction every label is right, for all lengths.  So each edge is computed again with the weights of
the checkpoint, exactly, and each interval of logits is compared with one computed here, rounded outwards.

Taken for granted: operations round to nearest, in any order, fused or not, with subnormal numbers or with zeros for
them; layer norms and GELU are as accurate as `normed` and `gelu` say; the model is `transductor.load(folder).eval()`.
"""

import base64
import functools
import gzip
import hashlib
import json
import math
import struct
import sys
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

MOST_BYTES = 1 << 28  # of a file, after it was decompressed
IGNORED = -100  # the label of a position at which anything may be shown
UNUSABLE = 2  # the status where something cannot be read, or is of a kind that is not covered


class CheckError(ValueError):
    """The certificate does not hold (status 1), or something cannot be used (status 2); the message says what."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


def need(condition: object, sentence: str, status: int = 1) -> None:
    """Raise an error with this sentence unless the condition holds."""
    if not condition:
        raise CheckError(sentence, status)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed if its name ends in .gz."""
    need(path.is_file(), f"{path} is not a file", UNUSABLE)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    need(len(data) <= MOST_BYTES, f"{path} holds more than {MOST_BYTES} bytes", UNUSABLE)
    return data


def parsed(data: bytes, name: object) -> Any:
    """Return a JSON value; refuse names that occur twice."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), f"{name} has an object with the same name twice", UNUSABLE)
        return dict(pairs)

    need(data.count(b"[") + 5 * data.count(b"{") + data.count(b",") // 2 <= 8 << 20, f"{name} is too large", UNUSABLE)
    return json.loads(data.decode(), object_pairs_hook=distinct)


def integers(value: Any, name: str, count: int, low: int, high: int) -> list[int]:
    """Return a list of so many integers from ``low`` to ``high``; true and false are none."""
    fits = type(value) is list and all(type(each) is int and low <= each <= high for each in value)
    need(fits and len(value) == count, f"{name} must be {count} integers from {low} to {high}", UNUSABLE)
    return list(value)


def sealed(value: dict[str, Any], name: str) -> str:
    """Return the SHA-256 that a part of a certificate carries, which must be that of the rest of it."""
    rest = {key: each for key, each in value.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)  # no NaN, no infinity
    digest = hashlib.sha256(text.encode()).hexdigest()
    need(value["sha256"] == digest, f"{name} was altered: its SHA-256 is not that of its content")
    return digest


class Tensor(NamedTuple):
    """The numbers other than 0, by their place in the order of indices; all are finite."""

    shape: tuple[int, ...]
    values: dict[int, float]
    dtype: str


# For each way to store numbers: its letter in `struct`, its size in bytes, and what it is called in certificates.
STORED = {"F64": ("d", 8, "float64"), "F32": ("f", 4, "float32"), "F16": ("e", 2, "float16")}
STORED |= {"BF16": ("H", 2, "bfloat16"), "I64": ("q", 8, "int64")}


def decoded(dtype: str, shape: list[Any], data: bytes, name: str) -> Tensor:
    """Return the tensor that little-endian bytes stand for."""
    code, size, format = STORED[dtype.replace("float", "F")]  # certificates say "float32" for "F32"
    fits = all(type(each) is int and each > 0 for each in shape) and len(data) == size * math.prod(shape)
    need(fits, f"{name} has {len(data)} bytes, which are no {dtype} of shape {shape}", UNUSABLE)
    values = struct.unpack(f"<{len(data) // size}{code}", data)
    if dtype == "BF16":  # the upper half of a float32
        values = struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}I", *(x << 16 for x in values)))
    need(all(map(math.isfinite, values)), f"{name} holds NaN or infinity", UNUSABLE)
    return Tensor(tuple(shape), {place: x for place, x in enumerate(values) if x}, format)


def read_checkpoint(folder: Path) -> tuple[str, Any, dict[str, Tensor]]:
    """Return the SHA-256 of the weights, the configuration and the tensors of a checkpoint folder."""
    manifest = parsed(read_bytes(folder / "config.json"), "config.json")
    kind = manifest["format"], repr(manifest["version"]), *Path(file := manifest["weights"]).parts  # one: its name
    need(kind == ("transductor-checkpoint", "1", file), f"config.json is {kind!r:.80}, which is not covered", UNUSABLE)
    data = read_bytes(folder / file)
    digest, size = hashlib.sha256(data).hexdigest(), int.from_bytes(data[:8], "little")
    need(digest == manifest["sha256"], f"{file} was altered: its SHA-256 is not the one in config.json")
    header, body, tensors, end = parsed(data[8 : 8 + size], file), data[8 + size :], {}, 0
    header.pop("__metadata__", None)
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, after = integers(entry["data_offsets"], name, 2, 0, len(body))
        need(begin == end, f"{file} has gaps or overlaps", UNUSABLE)
        tensors[name], end = decoded(entry["dtype"], entry["shape"], body[begin:after], name), after
    need(end == len(body), f"{file} goes on after its last tensor", UNUSABLE)
    return digest, manifest["config"], tensors


SIZES = "vocab_size output_size width layers attention_heads feedforward positions attention dropout"
RENAMED = {"backbone.": "stream.", "injection.": "stream.", "embedding.weight": "embedding", "blocks.": "block"}
RENAMED |= {"projections.weight": "projections", "feedforward_norm": "norm", "final_norm": "norm"}
RENAMED |= {"feedforward.0": "into", "feedforward.2": "back"}


def known(value: Any, kind: str, names: str) -> Any:
    """Return a configuration of this kind; a field that is not known here might mean another model."""
    covered = value["kind"] == kind and value.keys() <= {"kind", *names.split()}
    need(covered, f"only {kind}({names.replace(' ', ', ')}) is covered here; not {value!r:.80}", UNUSABLE)
    return value


def subject_of(config: Any, stored: dict[str, Tensor]) -> tuple[dict[str, Tensor], str, bool]:
    """Return the tensors of a model by the names in certificates, their format, and whether the head looks back."""
    if config["kind"] == "TransductorConfig":
        backbone = known(config, "TransductorConfig", "head backbone injection projections")["backbone"]
        known(known(backbone, "BackboneConfig", SIZES)["attention"], "NoAttention", "")
        known(backbone.get("positions", {"kind": "NoPositions"}), "NoPositions", "")
    else:
        known(config, "ReadoutConfig", "head output_size")
    head, rest = known(config["head"], "HeadConfig", "head transitions backend"), dict(stored)  # `load` checks shapes
    need(head["head"] in ("rational", "lookback"), f"the head {head['head']!r:.40} is not covered", UNUSABLE)
    tensors = {"table": table_of(head["transitions"], "rational_head.transitions.", rest)}
    tensors["initial"] = rest.pop("rational_head.raw_initial_state")
    formats = {tensor.dtype for tensor in rest.values()}
    need(len(formats) == 1, f"the tensors behind the head are in several formats: {sorted(formats)}", UNUSABLE)
    for theirs, tensor in rest.items():
        name = theirs.removeprefix("readout.")
        for before, after in RENAMED.items():
            name = name.replace(before, after)
        tensors[name] = tensor
        if name.endswith("norm.weight"):  # layer norms are made with this constant, which no configuration changes
            tensors[name.replace("weight", "eps")] = Tensor((1,), {0: 1e-5}, "float64")
    return tensors, formats.pop(), head["head"] == "lookback"


def table_of(family: Any, prefix: str, rest: dict[str, Tensor]) -> Tensor:
    """Return the matrices ``[letter, to, from]`` of a family; the format is the narrowest it may be computed in."""
    name, values = known(family, "FamilySpec", "family arguments parts")["family"], {}
    need(name in ("dense", "permutation", "direct_sum"), f"the family {name!r:.40} is not covered", UNUSABLE)
    if name == "dense":
        (letters, size), numbers, dtype = rest.pop(f"{prefix}source.raw")
        dim = math.isqrt(size)
        return Tensor((letters, dim, dim), numbers, "float64" if dtype == "float64" else "float32")
    if name == "permutation":
        (letters, dim), images, _ = rest.pop(f"{prefix}images")
        moves = [[int(images.get(v * dim + source, 0)) for source in range(dim)] for v in range(letters)]
        need(all(sorted(row) == [*range(dim)] for row in moves), f"{prefix}images are no permutations", UNUSABLE)
        values = {(v * dim + to) * dim + source: 1.0 for v, row in enumerate(moves) for source, to in enumerate(row)}
        return Tensor((letters, dim, dim), values, "float32")
    blocks = [table_of(each, f"{prefix}parts.{number}.", rest) for number, each in enumerate(family["parts"])]
    dim, begin = sum(block.shape[1] for block in blocks), 0
    for (_, size, _), numbers, _ in blocks:  # place = (letter · size + to) · size + source
        for place, x in numbers.items():
            values[(place // size**2 * dim + begin + place // size % size) * dim + begin + place % size] = x
        begin += size
    return Tensor((blocks[0].shape[0], dim, dim), values, min(block.dtype for block in blocks))  # "float32" comes first


class Machine(NamedTuple):
    """A deterministic machine with a label for every state; ``transitions[state][letter]``."""

    letters: list[str]
    transitions: list[list[int]]
    outputs: list[int]
    start: int


def machine_of(plain: Any, letters: list[Any], name: object) -> Machine:
    """Return the machine that tables describe."""
    rows, names = plain["transitions"], [str(letter) for letter in letters]
    need(len({*names}) == len(names), f"{name} has two letters of one name", UNUSABLE)
    table = [integers(row, f"{name}: transitions", len(names), 0, len(rows) - 1) for row in rows]
    outputs = integers(plain["outputs"], f"{name}: outputs", len(rows), IGNORED, 1 << 31)
    return Machine(names, table, outputs, *integers([plain["start"]], f"{name}: start", 1, 0, len(rows) - 1))


def read_machine(path: Path) -> Machine:
    """Read a machine: plain tables, or a deterministic automaton of `transductor` whose values are truths or labels."""
    plain = parsed(read_bytes(path), path)
    if plain.get("format") != "transductor.automaton":
        return machine_of(plain, plain["letters"], path)
    (count,), letters = integers([plain["states"]], f"{path}: states", 1, 1, 1 << 20), plain["alphabet"]
    need(count * len(letters) <= 1 << 24, f"{path} has too many states and letters", UNUSABLE)
    outputs, table = [0] * (count + 1), [[count] * len(letters) for _ in range(count + 1)]  # the last: no step, label 0
    for label, state in entries(plain["final"], count):
        outputs[state] = label
    for letter, matrix in enumerate(plain["matrices"]):
        for weight, to, source in entries(matrix, count):
            need(weight == 1 and table[source][letter] == count, f"{path} is not deterministic", UNUSABLE)
            table[source][letter] = to
    ((weight, start),) = entries(plain["initial"], count)
    need(weight == 1 and plain["weights"] in ("boolean", "rational", "float"), f"{path} holds no labels", UNUSABLE)
    return machine_of({"transitions": table, "outputs": outputs, "start": start}, letters, path)


def entries(value: Any, count: int) -> list[list[int]]:
    """Return the whole numbers other than 0 of a vector or matrix in an automaton's file, each before its place."""
    listed, out = value.get("sparse", []), []
    for i, row in enumerate(value.get("dense", [])):
        listed += [[i, j, x] for j, x in enumerate(row)] if type(row) is list else [[i, row]]
    for *place, weight in listed:
        number = float(weight or 0)
        need(number == int(number), f"the weight {weight!r:.40} is no label", UNUSABLE)
        if number:
            out.append([int(number), *integers(place, "indices", len(place), 0, count - 1)])
    return out


def compare(machine: Machine, spec: Machine, what: str, free: int | None = None) -> list[tuple[int, int]]:
    """Check that words have the labels that the specification wants, unless one is free; return the states reached."""
    need({*machine.letters} == {*spec.letters}, f"{what}: letters of certificate and specification differ")
    pairs, places = [(machine.start, spec.start)], {name: place for place, name in enumerate(spec.letters)}
    order, seen = [places[name] for name in machine.letters], {*pairs}
    for mine, theirs in pairs:
        for letter, place in enumerate(order):
            after = machine.transitions[mine][letter], spec.transitions[theirs][place]
            same = spec.outputs[after[1]] in (free, machine.outputs[after[0]])
            need(same, f"{what} of the certificate is not the specification: some word has another label")
            pairs += [] if after in seen else [after]
            seen.add(after)
    return pairs


# For each format: -log2 of its relative error, -log2 of its least normal number (float16: least number), its largest.
FORMATS = {"float64": (53, 1022, (1 << 1024) - (1 << 971)), "float32": (24, 126, (1 << 128) - (1 << 104))}
FORMATS |= {"bfloat16": (8, 126, (1 << 128) - (1 << 120)), "float16": (11, 24, 65504)}
PI = 3141592653589793238462643383279502884197169399375105820974944  # times 10^-60, rounded down
ROOT = math.isqrt((10**60 << 512) // (2 * PI + 2)), math.isqrt((10**60 << 512) // (2 * PI)) + 1  # 2^256 / √(2π)
Ball = tuple[int, int]  # centre and radius, which hold every number that any order of operations may compute


def over(number: int, divisor: int) -> int:
    """Divide and round up."""
    return -(-number // divisor)


def normal_distribution(x: int) -> Ball:
    """Return bounds of Φ(x / 2^96) in units of 2^-256: ½ + (x − x³/(2·3) + x⁵/(2²·2!·5) − …) / √(2π)."""
    one, power, total, n, square = 1 << 256, abs(x) << 160, 0, 0, x * x
    if abs(x) >= 12 << 96:  # 1 − Φ(12) < 2^-108
        return (0, one >> 108) if x < 0 else (one - (one >> 108), one)
    while power >> 136 or 2 * n << 192 < square:  # afterwards terms alternate and decrease, and are below 2^-120
        total, n = power // (2 * n + 1) - total, n + 1  # with the other sign at every second n
        power = (power * square >> 192) // (2 * n)
    # With y = x²/2, the n-th power is too low by less than 1 + y/n + y²/(n(n−1)) + … < e^y, its quotient by 1 more.
    error = (1 << 136) + (2 * n + 1 << (3 * square >> 194) + 1)  # e^y < 2^(3y/2)
    down, up = max(0, abs(total) - error) * ROOT[0] >> 256, over((abs(total) + error) * ROOT[1], one)
    return (one // 2 + down, one // 2 + up) if x >= 0 else (one // 2 - up, one // 2 - down)


class Model:
    """The tensors of a subject in units of 2^-160 (2^-1074 for float64), and what a model computes with them."""

    def __init__(self, tensors: dict[str, Tensor], precision: str, lookback: bool) -> None:
        self.precision, self.lookback, (self.bits, self.tiny, self.largest) = precision, lookback, FORMATS[precision]
        self.grid = 1074 if precision == "float64" else 160
        self.one, self.of = 1 << self.grid, "edge" if lookback or "weight" not in tensors else "node"
        self.letters, self.dim, _ = tensors["table"].shape
        self.head = min(tensors["table"].dtype, tensors["initial"].dtype)  # the narrower one: "float32" comes first
        self.check_head(tensors["table"].values, tensors["initial"].values)
        self.rows: dict[str, list[dict[int, int]]] = {}  # of each row: the numbers other than 0 by their columns
        for name, (shape, numbers, _) in tensors.items():
            self.rows[name] = [{} for _ in range(math.prod(shape[:-1]))]
            for place, x in sorted(numbers.items()):
                self.rows[name][place // shape[-1]][place % shape[-1]] = self.exact(x)
        self.taken = [[k + self.dim * (x < 0) for k, x in row.items()] for row in self.rows["table"]]  # see `step`
        flat = {name: tensor for name, tensor in tensors.items() if len(tensor.shape) == 1}
        self.vectors = {name: [self.exact(x.get(k, 0.0)) for k in range(n)] for name, ((n,), x, _) in flat.items()}
        self.logits = functools.cache(self.computed_logits)  # many edges show the same letter and state

    def exact(self, number: float) -> int:
        """Return a number on the grid, where all weights, and all states of an exact head, lie."""
        numerator, denominator = number.as_integer_ratio()
        need((numerator << self.grid) % denominator == 0, f"{number} is finer than 2^-{self.grid}", UNUSABLE)
        return (numerator << self.grid) // denominator

    def check_head(self, table: dict[int, float], initial: dict[int, float]) -> None:
        """Check that no operation of the scan rounds, in whatever order its products are taken."""
        need({*table.values()} <= {1.0, -1.0}, "matrices with entries other than 0, 1 and -1 are not covered", UNUSABLE)
        bits, most = FORMATS[self.head][0], 1 << (900 if self.head == "float64" else 100)
        whole = [abs(self.exact(x)) for x in initial.values() if abs(x) >= 2.0**-100]
        total, unit = sum(whole), min([x & -x for x in whole] or [1])
        fits = len(whole) == len(initial) and total <= most << self.grid and all(x < (x & -x) << bits for x in whole)
        need(fits, f"the initial state leaves the range in which {self.head} is known to be exact", UNUSABLE)
        if len({place // self.dim for place in table}) < len(table):  # a row has two entries, so numbers are added
            columns = {(place // self.dim**2, place % self.dim) for place in table}
            need(len(columns) == len(table), "matrices must have at most one entry in a row, or in a column", UNUSABLE)
            need(total <= unit << bits, "sums of the initial state may round", UNUSABLE)

    def step(self, letter: int, state: tuple[int, ...]) -> tuple[int, ...]:
        """Return the state after a letter; the matrix takes, for 1 and -1, numbers of the state and of its negative."""
        matrix, both = self.taken[letter * self.dim : (letter + 1) * self.dim], [*state, *(-x for x in state)]
        return tuple([both[row[0]] if len(row) == 1 else sum([both[k] for k in row]) for row in matrix])

    def within(self, size: int, largest: int) -> None:
        """Refuse numbers that come near the end of a format's range."""
        need(size <= largest << self.grid, f"numbers may leave the range of {self.precision}")

    def shown(self, x: int) -> Ball:
        """Cast a state to the precision of what reads it: off by u of it and 2·tiny, unless it has few digits."""
        self.within(4 * abs(x), self.largest)
        kept = x == 0 or (abs(x) >= self.one >> 14 and abs(x) < (x & -x) << self.bits)
        return x, 0 if kept else over(abs(x), 1 << self.bits) + over(2 * self.one, 1 << self.tiny)

    def mapped(self, balls: list[Ball], name: str, rows: list[dict[int, int]] | None = None) -> list[Ball]:
        """Apply a layer, or rows: sums of n products, off by γ(n+2) of their sizes and 16·tiny for each number."""
        rows, biases = (rows, [0] * len(rows)) if rows else (self.rows[f"{name}weight"], self.vectors[f"{name}bias"])
        full, out = ([x for x, _ in balls], [r for _, r in balls], [abs(x) + r for x, r in balls]), []
        for row, bias in zip(rows, biases, strict=True):
            places = [k for k in row if full[2][k]]  # what is multiplied by 0 is exact
            centres, radii, sizes = full if len(places) == len(balls) else ([x[k] for k in places] for x in full)
            weights, lengths, terms = [row[k] for k in places], [abs(row[k]) for k in places], len(places) + 2
            size = over((abs(bias) << self.grid) + sum(map(mul, lengths, sizes)), self.one)
            vanishing = over(16 * ((terms - 1) * self.one + sum(lengths) + sum(sizes)), 1 << self.tiny)
            self.within(4 * (size + vanishing), self.largest)
            need(4 * terms <= 1 << self.bits, f"sums of {terms - 2} products are too long for {self.precision}")
            radius = over(sum(map(mul, lengths, radii)), self.one) + over(size * terms, (1 << self.bits) - terms)
            out.append((bias + (sum(map(mul, weights, centres)) >> self.grid), radius + vanishing + 1))
        return out

    def added(self, first: Ball, second: Ball) -> Ball:
        """Return a sum, off by 2u of itself and 8·tiny."""
        centre, radius = first[0] + second[0], first[1] + second[1]
        self.within(4 * (abs(first[0]) + abs(second[0]) + radius), self.largest)
        return centre, radius + over(2 * (abs(centre) + radius), 1 << self.bits) + over(8 * self.one, 1 << self.tiny)

    def normed(self, balls: list[Ball], name: str) -> list[Ball]:
        """Apply a layer norm: mean and variance are off by γ(n+6) of |x| and 4γ(n+6) of x², the root by 8u."""
        bits, tiny, largest = FORMATS["float64" if self.precision == "float64" else "float32"]
        weight, bias, (eps,) = (self.vectors[f"{name}.{end}"] for end in ("weight", "bias", "eps"))
        n, one, two, sizes = len(balls), self.one, self.one**2, [abs(x) + r for x, r in balls]
        most, squares, gamma = max(sizes), over(sum(x * x for x in sizes), one), (1 << bits) - n - 6
        self.within(16 * n * squares, largest)
        need(4 * (n + 6) <= 1 << bits, "the stream is too wide")
        mean, wide = sum(x for x, _ in balls) // n, over(sum(r for _, r in balls), n) + 1
        error = over(4 * (n + 6) * squares, gamma * n) + over(32 * n * (one + most), 1 << tiny)
        low = sum(max(0, abs(x - mean) - r) ** 2 for x, r in balls) // (n * one) - over(wide * wide, one)
        low = max(0, low) + eps - error
        high = over(sum((abs(x - mean) + r) ** 2 for x, r in balls), n * one) + eps + error  # least about its own mean
        need(low << 60 >= one, "the variance in a layer norm may be too small")
        least, root = two // (math.isqrt(high * one) + 1), over(two, math.isqrt(low * one))
        least, root = least - over(8 * least, 1 << bits), root + over(8 * root, 1 << bits)
        factor, spread, out = (least + root) // 2, (root - least) // 2 + 1, []
        wide += over((n + 6) * sum(sizes), gamma * n) + over(8 * one, 1 << tiny)
        for (x, r), w, b in zip(balls, weight, bias, strict=True):
            self.within(16 * over(most * root * (one + abs(w)), two), largest)
            centre = (x - mean) * factor * w // two + b
            # Of x, mean and bias, each scaled, another 8u are lost, and 16·tiny(1 + |weight|)(1 + root)(1 + |x|).
            terms = over((abs(x) + r + abs(mean) + wide) * root * abs(w), two) + abs(b)
            radius = over((abs(x - mean) * spread + (r + wide) * root) * abs(w), two) + over(8 * terms, 1 << bits)
            radius += over(16 * (one + abs(w)) * (one + root) * (one + most), two << tiny) + 1
            if self.bits < 24:  # a half format, to which the result is rounded
                radius += over(abs(centre) + radius, 1 << self.bits) + over(2 * one, 1 << self.tiny)
            self.within(4 * (abs(centre) + radius), self.largest)
            out.append((centre, radius))
        return out

    def gelu(self, ball: Ball) -> Ball:
        """Return x·Φ(x), off by 8u of x and 16·tiny(1 + |x|); its slope is below 1.13."""
        fine, size = self.one >> 96, abs(ball[0]) + ball[1]
        self.within(4 * size, self.largest)
        low, high = normal_distribution(x := ball[0] // fine)  # in units of 2^-96; what is cut off counts as radius
        radius = over(113 * (ball[1] + fine), 100) + over(abs(x) * (high - low) * fine, 1 << 257) + 1
        radius += over(8 * size, 1 << self.bits) + over(16 * (self.one + size), 1 << self.tiny)
        return x * (low + high) * fine >> 257, radius

    def computed_logits(self, letter: int, seen: tuple[int, ...]) -> list[Ball]:
        """Return the logits after a letter, where the head shows a state, or one and the state before it."""
        shown, number = [self.shown(x) for x in seen], 0
        if "weight" in self.rows:
            return self.mapped(shown, "")
        width, embedding = len(self.vectors["stream.norm.weight"]), self.rows["stream.embedding"][letter]
        values = [(embedding.get(place, 0), 0) for place in range(width)]
        while (block := f"stream.block{number}.") + "into.weight" in self.rows:
            projections = self.rows.get("stream.projections", [])[number * width : (number + 1) * width]
            if projections:
                values = [self.added(*pair) for pair in zip(values, self.mapped(shown, "", projections), strict=True)]
            hidden = [self.gelu(x) for x in self.mapped(self.normed(values, block + "norm"), block + "into.")]
            values, number = [*map(self.added, values, self.mapped(hidden, block + "back."))], number + 1
        return self.mapped(self.normed(values, "stream.norm"), "stream.readout.")


def gap(intervals: Any, label: int) -> float:
    """Return by how much the right logit is ahead of all others; of a single one, how far it is on its side of 0."""
    if len(intervals) == 1 and label in (0, 1):
        return float(intervals[0][0] if label else -intervals[0][1])
    need(0 <= label < len(intervals), f"there is no logit for the label {label}")
    return float(min(intervals[label][0] - high for rival, (_, high) in enumerate(intervals) if rival != label))


def check_invariant(model: Model, machine: Machine, domain: Machine, plain: Any) -> str:
    """Check every edge of the graph, and every interval of logits; return what was checked."""
    states, stated = [tuple(map(model.exact, row)) for row in plain["states"]], plain["logits"]
    inside = [label == 1 for label in domain.outputs]
    outside = [state for state, _ in compare(domain, domain, "the domain") if not inside[state]]
    returns = any(inside[after] for state in outside for after in domain.transitions[state])
    need(inside[domain.start] and not returns, "the domain is not closed under prefixes")
    count, start = len(states), (tuple(model.vectors["initial"]), machine.start, domain.start)
    nodes = integers(plain["machine"], "machine of nodes", count, 0, len(machine.outputs) - 1)
    places = integers(plain["domain"] or [0] * count, "domain of nodes", count, 0, len(domain.outputs) - 1)
    need((states[0], nodes[0], places[0]) == start, "node 0 is not where head, machine and domain start")
    sizes = len(plain["targets"]), len(machine.letters), plain["of"]
    need(sizes == (count, model.letters, model.of), f"there must be {count} nodes, all letters, logits by {model.of}")
    checked, edges, decided, least = set(), 0, 0, math.inf
    ahead = functools.cache(lambda place, label: gap(stated[place], label))
    for node, row in enumerate(plain["targets"]):
        for letter, target in enumerate(integers(row, "targets", model.letters, -1, count - 1)):
            where = f"the edge from node {node} by letter {letter}"
            after = machine.transitions[nodes[node]][letter], domain.transitions[places[node]][letter]
            need((target >= 0) == inside[after[1]], f"{where} does not keep to the domain")
            if target < 0:
                continue
            need((nodes[target], places[target]) == after, f"{where} does not follow machine and domain")
            need(states[target] == model.step(letter, states[node]), f"{where} does not follow the head")
            place, edges = target if model.of == "node" else edges, edges + 1
            if place not in checked:
                seen = states[target] + states[node] if model.lookback else states[target]
                pairs = zip(stated[place], model.logits(letter, seen), strict=True)
                fits = all(model.exact(low) <= x - r and x + r <= model.exact(high) for (low, high), (x, r) in pairs)
                need(fits, f"{where} has logits that may lie outside their intervals")
                checked.add(place)
            label = machine.outputs[after[0]]
            if label != IGNORED:
                decided, least = decided + 1, min(least, ahead(place, label))
                need(least > 0, f"{where} does not certainly show the label {label}")
    unused = [each for place, each in enumerate(stated) if place not in checked and each is not None]
    need(decided and not unused, "no word has a label, or logits are stated where no word leads")
    return f"checked: {count} nodes, {edges} edges, {decided} with a label, ahead by {least:.6g} in {model.precision}"


def check(certificate: Path, folder: Path, specification: Path, domain_file: Path | None = None) -> str:
    """Return two lines that say what was proved; a CheckError says why it was not."""
    try:
        plain = parsed(read_bytes(certificate), certificate)
        kind = tuple(plain[name] for name in ("format", "version", "verdict", "outcome", "holds_up_to", "series"))
        covered = repr(kind) == "('transductor-certificate', 2, 'proved', 'proved', None, None)" and plain["invariant"]
        need(covered, f"only labels proved for all lengths, with a graph, are covered; not {kind!r:.200}", UNUSABLE)
        sealed(plain, "the certificate")
        digest, config, stored = read_checkpoint(folder)
        need(plain["model"] == {"sha256": digest, "config": config}, f"the certificate is not about {folder}")
        (tensors, precision, lookback), subject = subject_of(config, stored), plain["subject"]
        mine = "labels" if "weight" in tensors else "model", precision, lookback, tensors.keys()
        theirs = plain["about"], subject["precision"], subject["lookback"], subject["tensors"].keys()
        need(mine == theirs, "the certificate is about a model of another kind")
        for name, each in subject["tensors"].items():
            sealed(each, name)
            tensor = decoded(each["dtype"], each["shape"], base64.b64decode(each["data"], validate=True), name)
            need(tensor[:2] == tensors[name][:2], f"{name} is not that of the checkpoint")
        everything = {"transitions": [[0] * len(plain["letters"])], "outputs": [1], "start": 0}
        machine = machine_of(plain["machine"], plain["letters"], "the machine")
        domain = machine_of(plain["domain"] or everything, plain["letters"], "the domain")
        compare(machine, read_machine(specification), "the machine", free=IGNORED)
        if domain_file is not None:
            compare(domain, read_machine(domain_file), "the domain")
        facts = check_invariant(Model(tensors, precision, lookback), machine, domain, plain["invariant"])
        words = "word" if plain["domain"] is None else f"word of the domain {sealed(plain['domain'], 'the domain')}"
        facts += f"; letters {', '.join(machine.letters):.200}; machine {sealed(plain['machine'], 'the machine')}"
        return f"proved: after every {words} the label of {folder} ({digest}) is that of {specification}\n{facts}"
    except Exception as error:  # whatever breaks here, it is a file that is damaged
        damaged = f"a file is damaged: {type(error).__name__}, {error}"[:200]
        raise (error if isinstance(error, CheckError) else CheckError(damaged, UNUSABLE)) from None


def main(arguments: list[str]) -> int:
    """Check what the arguments name, print the outcome, and return the exit status: 0 proved, 1 wrong, 2 unusable."""
    try:
        need(3 <= len(arguments) <= 4, "usage: python checker.py CERTIFICATE MODEL SPECIFICATION [DOMAIN]", UNUSABLE)
        print(check(*map(Path, arguments)))
        return 0
    except CheckError as error:
        print(f"{'does not hold' if error.status == 1 else 'cannot be checked'}: {error}")
        return error.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
