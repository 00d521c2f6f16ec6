"""``python -m transductor``."""

from transductor.cli import main

main()
