"""How a GPU scan is cut: into chunks, groups of chunks, and words of several tokens."""

from __future__ import annotations

from importlib.util import find_spec

TRITON_FOUND = find_spec("triton") is not None
LARGEST_STATE = 64  # d up to which a row of a matrix fits in a thread
LARGEST_WALK = 128  # d up to which a matrix fits in the threads of one program
LARGEST_BELIEF = 128  # d up to which a matrix fits in the registers of a program, for the normalised scan


def ceiling(numerator: int, denominator: int) -> int:
    """Divide and round up."""
    return -(-numerator // denominator)


def chunk_length(batch: int, time: int, dim: int) -> int:
    """Return the steps per chunk: at least 2d for large scans, where products then need half of the states' memory.

    Shorter chunks are quicker while there are multiprocessors to spare, longer ones need fewer products above them.
    """
    if dim <= 16 and batch < 8:
        return 32 if batch * time <= 1 << 18 else 128
    if dim <= 32 and batch * time <= 1 << 15:
        return 32
    return 64 if dim <= 32 else 128


def chunk_count(batch: int, time: int, dim: int) -> int:
    """Return the chunks per row; 1 when a row is so short that one chain of steps is quickest."""
    length = chunk_length(batch, time, dim)
    return 1 if time <= 2 * length else ceiling(time, length)


def chunks_per_group(chunks: int, dim: int) -> int:
    """Return how many chunks' products are multiplied once more, so that the chain over all chunks is short."""
    if dim > 16 and chunks <= 128:  # a step of the chain costs more
        return 8
    return 16 if chunks <= 2048 else 64


def group_count(chunks: int, dim: int) -> int:
    """Return the groups of chunks per row; 0 when the chunks are few enough for one chain."""
    group = chunks_per_group(chunks, dim)
    return 0 if chunks <= 4 * group else ceiling(chunks, group)


def product_shapes(
    batch: int, time: int, dim: int, symbols: int, *, masked: bool = False, packed: bool = False, double: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of the products of chunks and of groups that a forward pass keeps for its backward pass."""
    block = row_block(dim)
    if walk_letters(batch, time, dim, symbols, masked=masked, packed=packed, double=double):
        return (batch, 0, block, block), (batch, 0, block, block)
    chunks = chunk_count(batch, time, dim)
    return (batch, chunks if chunks > 1 else 0, block, block), (batch, group_count(chunks, dim), block, block)


# Nanoseconds on an H200: of a step of a walk, which waits for the one before, by the size of a state; and of one
# multiplication and addition in the products of chunks, which fill the machine.
_WALK_STEP = {16: 95.0, 32: 160.0, 64: 260.0, 128: 1000.0}
_PRODUCT_STEP = 5e-5
_MULTIPROCESSORS = 132
# All words of a walk together, which are read from the second-level cache.
_WORDS_BYTES = 16 << 20


def walk_letters(batch: int, time: int, dim: int, symbols: int, *, masked: bool, packed: bool, double: bool) -> int:
    """Return the tokens per word of a walk; 0 where products of chunks are quicker, or there are no rows of tokens."""
    if symbols == 0 or packed or dim > LARGEST_WALK:
        return 0
    block = walk_block(dim)
    size = (8 if double else 4) * block**2
    letters = max(k for k in range(1, 5) if k == 1 or (symbols + masked) ** k * size <= _WORDS_BYTES)
    if dim > LARGEST_STATE:
        return letters
    if dim <= 16 or double or time < 256:
        return 0
    walk = time / letters * _WALK_STEP[block] * max(1.0, batch / _MULTIPROCESSORS)
    products = batch * time * block**3 * _PRODUCT_STEP / max(1, word_letters(symbols, block, batch * time))
    return letters if 1.5 * walk < products else 0  # backward, products are there already, and a walk is not


def letter_tiles(block: int, symbols: int) -> tuple[int, int, int]:
    """Return how a letter's step is cut: items per span, states multiplied at a time, warps."""
    return max(2048, 128 * min(symbols, 64)), 32, {16: 1, 32: 1, 64: 4, 128: 8}[block]


def walk_block(dim: int) -> int:
    """Round d up to a power of two of at least sixteen: what a walk and a product of tiles hold."""
    return max(16, row_block(dim))


def row_block(dim: int) -> int:
    """Round d up to a power of two of at least four: what one program of a sweep holds."""
    return max(4, 1 << (dim - 1).bit_length())


def product_warps(block: int, chunks: int) -> int:
    """Return how many warps share a chunk's product: one, which keeps it in registers, unless chunks are too few."""
    if block <= 16:
        return 1
    return 4 if block == 64 or chunks < 128 else 1


def read_ahead(wanted: int, block: int) -> int:
    """Return for how many steps a thread reads matrices ahead: a row of each takes two registers per column."""
    return wanted if block <= 16 else min(max(wanted, 1), 64 // block)


def picking_spans(positions: int, symbols: int, room: int) -> int:
    """Return the number of spans in which each token's positions are picked; 0 when sorting them costs less.

    A span is short enough for one token to have it all, and ``room`` is how many sums per token there may be.
    """
    if symbols <= 16:
        return max(1, min(room, 512, ceiling(positions, 256)))
    spans = min(room, ceiling(positions, 2048))
    return spans if positions * symbols <= 1 << 24 and positions <= 4096 * spans else 0


def short_runs(positions: int, symbols: int, dim: int) -> bool:
    """Tell whether a token has so few positions that they are summed one after another; else on the matrix units."""
    return dim <= 32 and positions < 32 * symbols


def prepares(positions: int, symbols: int, *, reverse: bool) -> bool:
    """Tell whether there are so many positions that laying the table out for them saves time.

    Read as it lies, a transposed matrix takes twice as long.
    """
    return positions >= (2 if reverse else 16) * symbols


def word_letters(symbols: int, block: int, positions: int) -> int:
    """Return the tokens per word of the products of chunks; 0 reads the table as it lies.

    Up to d = 16 words (2 KiB each) must stay in fast memory; wider ones are worth reading from the second-level cache.
    """
    if block <= 16:
        return max(k for k in range(1, 5) if k == 1 or (symbols + 1) ** k <= 100)
    largest = min(positions // 16, (1 << 22) // block**2)
    return max((k for k in range(2, 5) if (symbols + 1) ** k <= largest), default=0)


def walk_shape(block: int) -> tuple[int, int]:
    """Return the warps of a walk, and for how many steps it reads matrices ahead."""
    return {16: (1, 6), 32: (4, 6), 64: (16, 6), 128: (16, 2)}[block]
