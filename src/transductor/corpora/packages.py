"""The packages that corpora are made of: name, version, licence, part and SHA-256 of each archive."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

_PYTHON: Final = """
homeassistant 2024.3.3 Apache-2.0 training 6e1ec2c07441d63fdcfb8acd2c4bbb6f68bc97330855784d3623d10c38fe3577
sympy 1.14.0 BSD-3-Clause training e091cc3e99d2141a0ba2847328f5479b05d94a6635cb96148ccb3f34671bd8f5
django 5.2.19 BSD-3-Clause training 5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00
twisted 26.10.0 MIT training 3732f42af218925a0fe78d6668db55853f7fb532245a89a2669babe7d3000fa8
bokeh 3.9.2 BSD-3-Clause training 448e07d5ee78231f5bdece3be020024bb98696c0d6b127e0e2df0b8ba8fa9765
jax 0.10.2 Apache-2.0 training 724d73c4678d8b06f6a6ab4db1b8a2fea8cd4f1e2c2564f99601634ec7b8d1c6
sphinx 9.0.4 BSD-2-Clause training 5bebc595a5e943ea248b99c13814c1c5e10b3ece718976824ffa7959ff95fffb
dask 2026.8.0 BSD-3-Clause training ccc0c83a189b0398602435189771d28dad7b5773b6089bb8dce14ae732dd782c
distributed 2026.8.0 BSD-3-Clause training 3bd8882861a2cf497453f28c6b61135fa8ef2bb1d6885ad3b9f27e887e9c0e01
scrapy 2.19.0 BSD-3-Clause training 44c1ad4b008f1976e946c75b2adce0e448cbfe470c584b1b59469abf270e8013
ipython 9.18.1 BSD-3-Clause training 997ce9140d374531a61069c70c0f9ef299d6dd3559ea0f94b8af589726e3c1d5
rich 15.0.0 MIT training 33bd4ef74232fb73fe9279a257718407f169c09b78a87ad3d296f548e27de0bb
setuptools 84.2.1 MIT training ca140b45d5325a9478f880e351484f62fef15f336462e449ca0c03c873d589c2
celery 5.7.0 BSD-3-Clause validation 18310a9c919f9029e4735367484d93e6a25cdfd30afdc474622cc263d9b35f6e
werkzeug 3.1.9 BSD-3-Clause validation 6392e50c78460ba618e5b21f08a71f59c99ce99cdc6cf6e3dd7e6ccca8754fab
networkx 3.6.1 BSD-3-Clause test d47fbf302e7d9cbbb9e2555a0d267983d2aa476bac30e90dfbe5669bd57f3762
xarray 2026.9.0 Apache-2.0 test fe349fa871628b1a0a5217af3fe1283a2862d5485156e6eda354fffb81c3bb7c
nltk 3.10.4 Apache-2.0 test 769ba5413f265b7d3e87cd163cc28efa01e29eeef8bb6080bc907949d9fcfb51
pytest 9.2.0 MIT test 07acdcf88ec174f907dc01af70bf52d49b014bbab03faeeade31c96b18c2e588
"""
# Archives of sources: pip runs the build system of each for its metadata before it keeps the file.
_C: Final = """
pynacl 1.6.2 Apache-2.0 training 018494d6d696ae03c7e656e5e74cdfd8ea1326962cc401bcf018f1ed8436811c
brotli 1.2.1 MIT training 02b2f7b5a83485efe448a44ddf7983def05c3bb1dcf917d4f7154070260e13de
zstandard 0.25.0 BSD-3-Clause training 7713e1179d162cf5c7906da876ec2ccb9c3a9dcbdffef0cc7f70c3667a205f0b
ujson 6.1.0 BSD-3-Clause training aef7ea4cd9e2e9f8a35c4538a9780d58c80d76c5da66a8dad269b4cc6d930c29
pycryptodome 4.4.0 BSD-2-Clause training eab7620c60c85f3fa251d026ec06e094f036d96187bebb9752e46fbcebabbb55
lz4 4.4.5 BSD-3-Clause validation 5f0b9e53c1e82e88c10d7c180069363980136b9d7a8306c4dca4f760d60c39f0
greenlet 3.5.6 MIT validation 8e67c43bdfc88d5fee6db0d3e40175b362fc95fb85f0412d233b9b203c53a575
psutil 7.2.2 BSD-3-Clause test 0746f5f8d406af344fd547f1c8daa5f5c33dbc293bb8d6a16d80b4bb88f59372
msgpack 1.2.4 Apache-2.0 test 475c44e12f2a5de766a8448783f149c9b33f3f49b88953c6cd739a77d93c732c
regex 2026.11.15 Apache-2.0 test d6ec7e29e62ebf93ab2a593d1137022b6025497d8610e5cb666d52f9ee5bb0ce
"""


@dataclass(frozen=True)
class Package:
    """An archive of a package index, and the part of a corpus that all of its files belong to."""

    name: str
    version: str
    licence: str
    part: str
    sha256: str
    language: str

    @property
    def file(self) -> str:
        """The name of the archive: a wheel without compiled code, or an archive of sources."""
        ending = "-py3-none-any.whl" if self.language == "python" else ".tar.gz"
        return f"{self.name}-{self.version}{ending}"

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


def _listed(lines: str, language: str) -> tuple[Package, ...]:
    rows = (line.split() for line in lines.strip().splitlines())
    return tuple(
        Package(name, version, licence, part, sha256, language) for name, version, licence, part, sha256 in rows
    )


PACKAGES: Final = {"python": _listed(_PYTHON, "python"), "c": _listed(_C, "c")}
