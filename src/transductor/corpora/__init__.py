"""Corpora: source code of permissively licensed packages, fetched by name and hash and split by package."""

from transductor.corpora.building import Manifest, build, built_from_packages, built_from_standard_library
from transductor.corpora.languages import LANGUAGES, Language
from transductor.corpora.packages import PACKAGES, Package
from transductor.corpora.reading import PARTS, Corpus, corpora_folder, opened

__all__ = [
    "LANGUAGES",
    "PACKAGES",
    "PARTS",
    "Corpus",
    "Language",
    "Manifest",
    "Package",
    "build",
    "built_from_packages",
    "built_from_standard_library",
    "corpora_folder",
    "opened",
]
