"""What the page about Python shows runs, and prints what it says; the service is a real one."""

import contextlib
import io
import re
from collections.abc import Iterator

import pytest
from doc_pages import ROOT, read_page
from python_page import completed, generated
from service_runs import Service, in_a_thread

import optimizer
import rest_server.client
from rest_server.client import Client

PAGE = read_page("python.md")
CLIENT = PAGE[PAGE.index("## A client of the service") :]
BLOCKS = re.findall(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```)?", CLIENT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with in_a_thread(stateful=True) as here:
        yield here


@pytest.mark.parametrize(("program", "output"), BLOCKS)
def test_blocks_of_the_client_print_what_the_page_says(
    service: Service, program: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    printed = io.StringIO()
    here = program.replace(":8080", f":{service.port}")
    with contextlib.redirect_stdout(printed):
        exec(here, {"__name__": "page"})  # noqa: S102  the text is our own
    assert printed.getvalue()
    assert not output or printed.getvalue() == output


def test_outputs_are_current() -> None:
    assert generated(PAGE) == PAGE, "run python tests/tools/python_page.py"


def test_the_site_describes_every_public_name() -> None:
    page = completed(PAGE)
    described = re.findall(r"^\| `(\w+)` \| \w.* \|$", page[page.index("## Public names") :], re.MULTILINE)
    assert described == dir(optimizer)


def test_the_page_names_every_method_and_error() -> None:
    methods = {name for name in dir(Client) if not name.startswith("_")}
    methods -= {"blocks", "close", "method_of", "send"}
    names = methods | {name for name in rest_server.client.__all__ if name.endswith("Error")}
    assert {name for name in names if f"`{name}`" not in PAGE} <= {"ServiceError"}
