"""Two hundred patterns for constrained decoding: what people write, and random ones; the same for every library.

They are in the syntax that Python's ``re`` and the libraries share, and were drawn before any library was run.
"""

from __future__ import annotations

import random
from typing import Any

from transductor.automata.json_schema import regex_of_json_schema

EACH, RANDOM = 20, 40


def pattern_families(seed: int = 0) -> dict[str, list[str]]:
    """Return patterns by what they describe."""
    source = random.Random(seed)
    drawn = (
        ("dates and times", EACH, dates),
        ("numbers", EACH, numbers),
        ("emails and addresses", EACH, emails),
        ("identifiers", EACH, identifiers),
        ("JSON schemas", EACH, lambda source: regex_of_json_schema(schema(source))),
        ("nested alternations", EACH, lambda source: alternation(source, 3)),
        ("Unicode", EACH, unicode),
        ("counted repetitions", EACH, counted),
        ("random", RANDOM, lambda source: expression(source, 3)),
    )
    families = {}
    for name, count, draw in drawn:
        different: dict[str, None] = {}
        while len(different) < count:
            different[draw(source)] = None
        families[name] = list(different)
    return families


def dates(source: random.Random) -> str:
    year = source.choice(["[0-9]{4}", "(19|20)[0-9]{2}", r"\d{4}"])
    mark = source.choice(["-", "/", r"\."])
    day = f"(0[1-9]|1[0-2]){mark}(0[1-9]|[12][0-9]|3[01])"
    time = source.choice(["", "T([01][0-9]|2[0-3]):[0-5][0-9]", " ([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?"])
    return f"{year}{mark}{day}{time}{source.choice(['', 'Z', '(Z|[+-][0-9]{2}:[0-9]{2})']) if time else ''}"


def numbers(source: random.Random) -> str:
    whole = source.choice(["(0|[1-9][0-9]*)", "[0-9]+", "[1-9][0-9]{0,8}", "[0-9]{1,3}(,[0-9]{3})*", r"\d+"])
    fraction = source.choice(["", r"\.[0-9]+", r"(\.[0-9]{1,4})?", r"\.[0-9]{2}"])
    return (
        source.choice(["", "-?", "[+-]?"])
        + whole
        + fraction
        + source.choice(["", "([eE][+-]?[0-9]{1,3})?", "%", " ?(km|kg|s)"])
    )


def emails(source: random.Random) -> str:
    name = source.choice([r"[a-z0-9._%+-]+", r"[A-Za-z]+(\.[A-Za-z]+)*", r"\w+", "[a-z][a-z0-9_]{1,15}"])
    host = source.choice([r"[a-z0-9-]+(\.[a-z]{2,4})+", r"(example|test)\.(com|org|net)", r"[a-z]+\.[a-z]{2,3}"])
    return source.choice([f"{name}@{host}", f"https?://(www\\.)?{host}(/[a-z0-9]+)*/?", f"mailto:{name}@{host}"])


def identifiers(source: random.Random) -> str:
    return source.choice(
        [
            f"[a-z]{{{source.randint(1, 4)},{source.randint(5, 12)}}}(_[a-z]+)*",
            r"[A-Za-z_][A-Za-z0-9_]*",
            f"[A-Z]{{{source.randint(2, 4)}}}-[0-9]{{{source.randint(3, 8)}}}",
            "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
            f"#[0-9a-fA-F]{{{source.choice([3, 6])}}}",
            f"(get|set|is)([A-Z][a-z]+){{1,{source.randint(2, 4)}}}\\(\\)",
            r"(([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])\.){3}([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])",
            f"v[0-9]+\\.[0-9]+(\\.[0-9]+)?(-(alpha|beta|rc{source.randint(1, 9)}))?",
        ]
    )


def schema(source: random.Random, depth: int = 2) -> dict[str, Any]:
    kinds = ["string", "short", "number", "integer", "boolean", "null", "enum"]
    kind = "object" if depth == 2 else source.choice(kinds + ["object", "array"] * depth)
    if kind == "object":
        names = source.sample(["name", "age", "tags", "id", "price", "is_open", "über"], source.randint(1, 4))
        required = [name for name in names if source.random() < 0.7]
        properties = {name: schema(source, depth - 1) for name in names}
        return {"type": "object", "properties": properties, "required": required}
    if kind == "array":
        return {"type": "array", "items": schema(source, depth - 1), "maxItems": source.randint(1, 4)}
    if kind == "short":
        return {"type": "string", "maxLength": source.randint(3, 20)}
    if kind == "enum":
        return {"enum": source.sample(["red", "green", "blue", 1, 2, None, "don't know"], 3)}
    return {"type": kind}


WORDS = ["alpha", "beta", "gamma", "north", "south", "east", "west", "red", "green", "blue", "one", "two", "three"]
WORDS += ["yes", "no", "maybe", "begin", "end"]


def alternation(source: random.Random, depth: int) -> str:
    if depth == 0:
        return source.choice(WORDS)
    parts = [alternation(source, source.randint(0, depth - 1)) for _ in range(source.randint(2, 4))]
    joined = "|".join(f"{part}{source.choice(['', ' ', '-', '!'])}" for part in parts)
    return (
        f"({joined}){source.choice(['', '', '?', '+', '{1,3}'])}" if depth < 3 else f"({joined}){source.choice(WORDS)}"
    )


def unicode(source: random.Random) -> str:
    return source.choice(
        [
            "[а-яё]+( [а-яё]+)*",
            "[一-龥]{1,6}(，[一-龥]{1,6})*。",
            "(café|naïve|Zoë|Ångström)s?",
            f"[α-ω]{{{source.randint(1, 3)},{source.randint(4, 8)}}}",
            "[🙂🙃😀😎]+",
            "«[^»]*»",
            r"\w+, \w+",
            "„[^“]{1,20}“",
            "[0-9]+ ?(€|£|¥)",
            "(ä|ö|ü|ß|[a-z])+(straße|weg)",
            "[ぁ-んァ-ヶ]+[！？]",
            f".{{1,{source.randint(2, 12)}}}é",
        ]
    )


def counted(source: random.Random) -> str:
    least = source.randint(0, 6)
    most = least + source.randint(1, 50)
    return source.choice(
        [
            f"[a-z]{{{least},{most}}}",
            f"[^,\n]{{{least},{most}}}",
            f"([0-9]{{1,3}};){{{least},{most}}}",
            f"(ab|c){{{least},{most}}}d",
            f"(x{{2}}y{{1,3}}){{1,{source.randint(2, 8)}}}",
            f".{{{most}}}",
            f"([A-Z][a-z]{{{source.randint(1, 3)},9}} ){{2,5}}end",
        ]
    )


def expression(source: random.Random, depth: int) -> str:
    if depth == 0 or source.random() < 0.15:
        return source.choice(["a", "b", "0", " ", "the ", "[a-f]", "[^a-z]", "[0-9]", "é", "漢", r"\.", "x?", "[xyz]*"])
    match source.randrange(4):
        case 0 | 1:
            return "".join(expression(source, depth - 1) for _ in range(source.randint(2, 3)))
        case 2:
            return f"({'|'.join(expression(source, depth - 1) for _ in range(source.randint(2, 3)))})"
        case _:
            return f"({expression(source, depth - 1)}){source.choice(['*', '+', '?', '{2}', '{1,3}', '{2,}'])}"
