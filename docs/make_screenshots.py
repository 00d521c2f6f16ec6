"""Pictures of the explorer for the documentation, taken in a real browser: Chromium, its driver and selenium.

    python docs/make_screenshots.py RUN

opens the page of the committed examples and that of the fit in RUN (the door's log, made as ``docs/start.md`` says, but
with all recipes), does on each what its picture shows, and writes ``docs/figures/explorer_*.png``.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from typer.testing import CliRunner

from transductor.cli.app import app

FIGURES = Path(__file__).parent / "figures"
PATIENCE = 60.0  # seconds, on a machine that has other work
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")


@dataclass(frozen=True)
class Picture:
    """What one picture shows.

    Attributes:
        file: Its name below ``docs/figures``.
        model: The place of the model on its page.
        fields: What is put into the fields of the page, in order.
        last: The last section that is shown, by the name of its title.
        broken: Whether the button that looks for a wrong word is pressed.
        doors: Whether the page is that of the fit.
        width: In pixels; 390 is a phone.
        dark: Whether the reader prefers dark pages.
    """

    file: str
    model: int
    fields: tuple[tuple[str, str], ...]
    last: str = "length-title"
    broken: bool = False
    doors: bool = False
    width: int = 1100
    dark: bool = False


PICTURES = (
    Picture("explorer_mod5.png", 0, (("word", "012" * 20), ("length-number", "100000"))),
    Picture("explorer_s5.png", 1, (("word", "0110101"), ("length-number", "20000")), "break-title", True, dark=True),
    Picture("explorer_dense.png", 3, (("word", "0123450"), ("length-number", "400")), "break-title", True),
    Picture("explorer_doors.png", 0, (("word", "arm open close arm"),), doors=True),
    Picture("explorer_phone.png", 0, (("word", "0120"),), "word-title", width=390),
)


def put(browser: Any, name: str, value: str) -> None:
    """Give a field a value, and tell the page as typing would."""
    browser.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true}));",
        name, value,
    )  # fmt: skip


def settled(browser: Any, name: str) -> None:
    """Wait until what an element says has not changed for a second."""
    end, before, since = time.monotonic() + PATIENCE, "", time.monotonic()
    while time.monotonic() < end:
        says = browser.execute_script("return document.getElementById(arguments[0]).textContent", name)
        if says != before:
            before, since = says, time.monotonic()
        if says and time.monotonic() - since > 1.0:
            return
        time.sleep(0.1)
    raise TimeoutError(f"#{name} still says {before!r}")


def take(browser: Any, page: Path, picture: Picture) -> Path:
    """Bring a page into the state of a picture, and write the picture."""
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if picture.dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    size = {"width": picture.width, "height": 900, "deviceScaleFactor": 1, "mobile": picture.width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())
    put(browser, "model", str(picture.model))
    for name, value in picture.fields:
        put(browser, name, value)
    settled(browser, "length-said" if picture.last != "word-title" else "said")
    if picture.broken:
        browser.execute_script("document.getElementById('break').click()")
        settled(browser, "break-said")
    height = browser.execute_script(
        "return document.querySelector(`section[aria-labelledby=${arguments[0]}]`).getBoundingClientRect().bottom",
        picture.last,
    )
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size | {"height": int(height) + 8})
    time.sleep(0.5)
    with Image.open(io.BytesIO(browser.get_screenshot_as_png())) as shot:
        shot.convert("RGB").quantize(128).save(FIGURES / picture.file, optimize=True)
    return FIGURES / picture.file


def main(run: Path) -> None:
    """Write all pictures."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as folder:
        examples, doors = Path(folder) / "examples.html", Path(folder) / "doors.html"
        for arguments in (["-o", str(examples)], [str(run), "-o", str(doors)]):
            if (result := CliRunner().invoke(app, ["explore", *arguments])).exit_code:
                raise SystemExit(result.output)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            for picture in PICTURES:
                print(f"written: {take(browser, doors if picture.doors else examples, picture)}")
        finally:
            browser.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
