"""Pictures of the page in ten states, for docs/pictures/page and for a look at every change.

Run ``python tests/tools/page_pictures.py [FOLDER]``; it needs Debian's ``chromium`` and ``chromium-driver``.
"""

import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "web"), str(ROOT / "tests" / "rest_server")]

from browsers import started  # noqa: E402
from builders import accelerator, document, server  # noqa: E402
from page_runs import Journey, served  # noqa: E402

from optimizer.spec.writing import write_document  # noqa: E402

PICTURES = ROOT / "docs" / "pictures" / "page"
HEIGHT = 900
COLOURS = 256
STEADY_S = 1.5
"""Time in which charts and fonts become steady [s]."""
BUSY_GPUS = "/?open=sample:gpus&load=1.5"
BROKEN = "accelerators:\n  - {name: H100, type: H100, cost: 300}\ncount:\n  - {type: H100, count: eight}\n"


class State(NamedTuple):
    """A state of the page."""

    name: str
    path: str
    width: int = 1280
    scheme: str = "light"
    act: Callable[[Journey], None] = lambda _: None


def planned(journey: Journey) -> None:
    journey.wait(lambda: journey.fact("total cost"))


def explained(journey: Journey) -> None:
    planned(journey)
    rows = '[role=region][aria-label="Not served in full"] td button'
    journey.wait(lambda: journey.all(rows))
    journey.browser.execute_script("arguments[0].click()", journey.all(rows)[0])
    journey.wait(lambda: journey.shows("batch-llama-3.1-70b: why this accelerator"))
    journey.wait(lambda: "Working out the alternatives" not in journey.text())


def broken(journey: Journey) -> None:
    journey.write(BROKEN)
    journey.press("Check and plan")
    journey.wait(lambda: journey.all(".finding"))


def busy(journey: Journey) -> None:
    planned(journey)
    journey.tab("Studies")
    journey.type("Requests to each pool", "\ue009a\ue0095000000")
    journey.press("Run simulate")
    journey.wait(lambda: "simulate: " in journey.text())


SAMPLES = (
    State("desktop", f"{BUSY_GPUS}&count:H100=24", act=planned),
    State("phone", BUSY_GPUS, 400, act=planned),
    State("tablet", BUSY_GPUS, 768, act=planned),
    State("wide", "/?open=sample:large", 1920, act=planned),
    State("dark", BUSY_GPUS, scheme="dark", act=planned),
    State("empty", "/"),
    State("error", "/", act=broken),
    State("busy", "/?open=sample:gpus", act=busy),
    State("unserved", BUSY_GPUS, act=explained),
)
LONG = State("200-servers", "/", act=planned)


def taken(browser: Any, address: str, states: tuple[State, ...], folder: Path) -> None:
    """Write the pictures of states, with few colours, so that they are small."""
    for state in states:
        journey = Journey(browser, address)
        journey.look(state.width, state.scheme)
        journey.open(state.path, ".q-tab")
        state.act(journey)
        time.sleep(STEADY_S)
        picture = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
        picture.quantize(COLOURS).save(folder / f"{state.name}.png", optimize=True)
        journey.leave()


def main(folder: Path) -> None:
    """Write all pictures to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"a-server-with-a-very-long-name-of-a-team-in-a-region-{i:03}" for i in range(200)]
    servers = [server(name, 60.0 + 2 * i) for i, name in enumerate(names)]
    with tempfile.TemporaryDirectory() as place, contextlib.contextmanager(started)(Path(place)) as browser:
        path = Path(place) / "fleet.json"
        write_document(document(servers, [accelerator("G")], {"G": 500}), path)
        with served(Path(place) / "log", "web", "--no-browser") as address:
            taken(browser, address, SAMPLES, folder)
        with served(Path(place) / "log", "web", str(path), "--no-browser") as address:
            taken(browser, address, (LONG,), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
