"""Files to documents: formats, wrappers, directories, standard input, and what makes a file unreadable."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders import Json, accelerator, document, refusal, server

from optimizer import load_system
from optimizer.schema.files import (
    MAX_JSON_BYTES,
    MAX_YAML_BYTES,
    parse_part,
    read_parts,
    read_text,
    spec_from_value,
)
from optimizer.spec.writing import write_document, write_text

ROOT = Path(__file__).resolve().parent.parent.parent
WRAPPERS = {
    "accelerators": "acceleratorData",
    "models": "modelData",
    "serviceClasses": "serviceClassData",
    "servers": "serverData",
    "count": "capacityData",
    "optimizer": "optimizerData",
}


def small() -> Json:
    return document([server("s")], [accelerator("A")], {"A": 9})


# --- formats -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".yml", ".JSON", ".Yaml", "", ".txt"])
def test_a_json_document_is_read_under_any_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"system{suffix}"
    path.write_text(json.dumps(small(), indent=1))
    assert load_system(path) == load_system(small())


@pytest.mark.parametrize("suffix", [".yaml", ".yml", "", ".txt"])
def test_yaml_is_read_under_any_suffix_except_json(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"system{suffix}"
    path.write_text("servers:\n- {name: s, model: m}\n")
    assert read_parts(path)[0].spec.servers[0].name == "s"
    other = path.rename(tmp_path / "other.json")
    assert refusal(lambda: read_parts(other)) == f"{other}:1:1: not valid JSON: expecting value"


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "system.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(small()).encode())
    assert load_system(path) == load_system(small())


@pytest.mark.parametrize("text", [json.dumps(small()), "servers: [{name: s, model: m}]"])
def test_standard_input_may_be_either_format(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert read_parts("-")[0].spec.servers[0].name == "s"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"servers": [{"name": "s"}]}')))
    assert refusal(lambda: read_parts("-")) == (
        "standard input:1:14: servers[0].model: missing; this key is required"
    )


# --- wrappers ------------------------------------------------------------------------------------------


WRAPPED: Json = {WRAPPERS[name]: {name: value} for name, value in small().items()}


@pytest.mark.parametrize(
    "source",
    [
        WRAPPED,
        {"system": WRAPPED},
        {"system": small()},
        {"system": WRAPPED | {"optimizerData": None}},
        {"SYSTEM": {WRAPPERS[name].upper(): {name.upper(): value} for name, value in small().items()}},
        small() | {"optimizer": {"optimizer": small()["optimizer"]}},
    ],
)
def test_sections_may_stand_in_the_wrappers_of_the_reference(source: Json) -> None:
    assert load_system(source) == load_system(small())


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            small() | {"serverData": {"servers": []}},
            "x.yaml: servers: the section occurs twice in one document; join the two",
        ),
        (
            {"servers": [], "Servers": []},
            "x.yaml: servers: the section occurs twice in one document; join the two",
        ),
        ({"serverData": {"servers": [], "surprise": 1}}, "x.yaml: surprise: unknown key"),
    ],
)
def test_wrong_sections_are_refused(source: Json, message: str) -> None:
    assert refusal(lambda: spec_from_value(source, "x.yaml")).startswith(message)


# --- directories ---------------------------------------------------------------------------------------


def test_the_documents_of_a_directory_are_joined(tmp_path: Path) -> None:
    """Sections of one file each, one of several files, an empty one, and files that are no documents."""
    whole = document([server("s"), server("t"), server("u")], [accelerator("A"), accelerator("B")], {"A": 9})
    for i, item in enumerate(whole["servers"]):
        write_document({"servers": [item]}, tmp_path / f"{i}.yaml")
    for i, (name, value) in enumerate(whole.items()):
        if name != "servers":
            write_document({name: value}, tmp_path / f"{name}{['.yaml', '.json', '.yml'][i % 3]}")
    (tmp_path / "later.yaml").write_text("servers:\n")
    (tmp_path / "README.md").write_text("not: [a document")
    (tmp_path / "old.yaml").mkdir()
    (tmp_path / "old.yaml" / "servers.yaml").write_text("not: [a document")
    (tmp_path / ".#a.yaml").symlink_to("somebody@somewhere.1234")  # the lock of an editor
    assert load_system(tmp_path) == load_system(whole)


def test_the_file_of_the_offender_is_named_in_a_directory(tmp_path: Path) -> None:
    write_document(small(), tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("servers:\n- name: t\n  model: m\n  clas: gold\n")
    assert refusal(lambda: load_system(tmp_path)) == (
        f"{tmp_path}/b.yaml:4:3: servers[0].clas: unknown key; did you mean 'class'?"
    )


def test_a_directory_without_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("{}")
    assert refusal(lambda: read_parts(tmp_path)) == (
        f"{tmp_path}: the directory has no .yaml, .yml, .json file"
    )


def test_an_empty_path_is_not_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_document(small(), tmp_path / "system.yaml")
    monkeypatch.chdir(tmp_path)
    assert refusal(lambda: load_system("")) == (
        "'': an empty path; name a file, or '.' for the current directory"
    )
    assert load_system(".") == load_system(small())


@pytest.mark.parametrize(
    ("target", "said"),
    [("b.yaml", "too many levels of symbolic links"), ("gone", "no such file or directory")],
)
def test_a_link_that_leads_nowhere_is_refused_by_name(tmp_path: Path, target: str, said: str) -> None:
    write_document(small(), tmp_path / "a.yaml")
    (tmp_path / "b.yaml").symlink_to(tmp_path / target)
    assert refusal(lambda: load_system(tmp_path)) == f"{tmp_path}/b.yaml: {said}"
    assert refusal(lambda: load_system(tmp_path / "b.yaml")) == f"{tmp_path}/b.yaml: {said}"


@pytest.mark.parametrize(("suffix", "limit"), [(".json", MAX_JSON_BYTES), (".yaml", MAX_YAML_BYTES)])
def test_a_file_over_the_limit_of_its_format_is_refused_unread(
    tmp_path: Path, suffix: str, limit: int
) -> None:
    path = tmp_path / f"big{suffix}"
    with path.open("wb") as file:
        file.truncate(3 * limit)
    mib = limit >> 20
    assert refusal(lambda: read_parts(path)).startswith(
        f"{path}: {3 * mib} MiB is over the limit of {mib} MiB for this format; split it into a directory"
    )


# --- YAML 1.2 ------------------------------------------------------------------------------------------


def yaml_scalar(text: str) -> object:
    """Return what the reader takes a plain YAML scalar for: its message quotes the value."""
    message = refusal(lambda: parse_part(f"servers: {text}\n"))
    return json.loads(message.partition(", not ")[2])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-9", 1e-9),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-1.", -1.0),
        ("+12", 12),
        ("007", 7),
        ("0123", 123),
        ("1_000", "1_000"),
        ("0x1F", "0x1F"),
        ("0o17", "0o17"),
        ("12:30:45", "12:30:45"),
        ("2001-01-01", "2001-01-01"),
        ("no", "no"),
        ("off", "off"),
        ("Yes", "Yes"),
        ("y", "y"),
        ("true", True),
        ("FALSE", False),
        ('"1"', "1"),
        ("'true'", "true"),
        ("!!str 12", "12"),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    found = yaml_scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_every_spelling_of_null_in_yaml_means_absent(text: str) -> None:
    spec = parse_part(f"servers: {text}\ncount: []\n").spec
    assert spec.servers == ()


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "-.INF", "1e999"])
def test_numbers_of_yaml_that_are_not_finite_are_refused(text: str) -> None:
    message = refusal(lambda: parse_part(f"accelerators: [{{name: A, type: A, cost: {text}}}]"))
    assert message.startswith("accelerators[0].cost: must be a finite number, not ")


# --- what is no document -------------------------------------------------------------------------------


NO_SECTIONS = "x: expected a document with sections such as 'servers', but found"
NESTED_ALIASES = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servers: []\ncount: []\nservers: []\n", r"x:3:1: .* occurs twice"),
        ("servers:\n- name: s\n  model: m\n  name: t\n", r"x:4:3: .* occurs twice"),
        ("servers: [{'name': s, \"name\": t}]", r"x:1:23: .* occurs twice"),
        ('{"servers": [{"name": "s", "model": "m", "name": "t"}]}', r"x:1:42: key 'name' occurs twice in .*"),
        ('{"servers": [{"name": "s", "Name": "t"}]}', r"x:\d+:\d+: servers\[0\]: key .* occurs twice"),
        ("servers:\n- name: s\n  NAME: t\n", r"x:\d+:\d+: servers\[0\]: key .* occurs twice"),
        ("servers:\n- maxQueueSize: 1\n  maxqueuesize: 2", r"x:\d+:\d+: servers\[0\]: key .* occurs twice"),
        ("servers: []\n---\nservers: []\n", "x:2:1: .*a single document.*"),
        ("", f"{NO_SECTIONS} nothing"),
        ("# only a comment\n", f"{NO_SECTIONS} nothing"),
        ("[]", f"{NO_SECTIONS} a list"),
        ("just text", f'{NO_SECTIONS} "just text"'),
        ('{"a":\n  1,}', "x:2:.*"),
        ('{"servers": [null]}', r"x:1:14: servers\[0\]: must be an object with keys, not null"),
        (f'{{"count": {"9" * 5000}}}', "x((?!sys[.]).)* digits((?!sys[.]).)*"),
        (f"count: {'9' * 5000}", "x((?!sys[.]).)* digits((?!sys[.]).)*"),
        (NESTED_ALIASES, "x.*nested more than 100 deep.*"),
        ("!!python/object/apply:os.system [true]", "x:.*"),
        ("servers: !!binary zzz", "x:.*"),
        ("servers: !!int abc", "x:.*"),
        ("servers: !!float abc", "x:.*"),
        ("servers: !!bool abc", "x:.*"),
        ("servers: !!timestamp abc", "x:.*"),
        ("servers: !unknown abc", "x:.*"),
        ("{[1, 2]: 3}", "x:.*"),
        ("<<: 5", "x:.*"),
        ("servers: *nowhere", "x:.*"),
        ("servers:\n\t- name: x", "x:.*"),
        ("&a a: &b {system: *b}\nsystem: *b", "x:.*"),
        ("system: &b {system: *b}", "x:.*"),
    ],
)
def test_text_that_is_no_document_is_refused_in_one_line(text: str, message: str) -> None:
    found = refusal(lambda: parse_part(text, "x"))
    assert re.fullmatch(message, found), found


@pytest.mark.slow
def test_nesting_of_any_depth_is_refused_and_not_followed() -> None:
    # In a process of its own: a stack that overflows takes the whole process with it.
    openings = ("[", '{"a":', "- ")
    program = (
        "import sys; from optimizer.schema.files import parse_part; from optimizer import SpecError\n"
        "for opening in sys.argv[1:]:\n"
        "    for depth in (100, 5_000, 200_000):\n"
        "        print(f'{depth} times {opening}', end=': ', flush=True)\n"
        "        try: parse_part(opening * depth, 'x')\n"
        "        except SpecError as error: print(error)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, *openings], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, ""), found.stdout
    depths = [f"{depth} times {opening}" for opening in openings for depth in (100, 5_000, 200_000)]
    lines = found.stdout.splitlines()
    assert len(lines) == len(depths)
    for line, depth in zip(lines, depths, strict=True):
        assert line.startswith(f"{depth}: x")


def test_nested_wrappers_do_not_cause_a_recursion_error() -> None:
    nested: Json = {}
    for _ in range(2000):
        nested = {"system": nested}
    assert refusal(lambda: spec_from_value(nested, "x")).startswith("x: ")


# --- aliases -------------------------------------------------------------------------------------------


def laughs(levels: int, width: int = 10) -> str:
    """A document of a few lines whose aliases stand for `width` to the power of `levels` values."""
    lines = ["- &a0 {name: s, model: m}"]
    lines += [f"- &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "servers:\n" + "\n".join(lines) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        laughs(9),
        "servers:\n- &s {name: s, model: m}\n" + "- *s\n" * 100_000,  # each stands for 5 values
        "servers:\n- &s [" + "{name: s}," * 1000 + "]\n" + "- [" + "*s," * 1000 + "]\n",
    ],
    ids=["a billion laughs", "many", "a product"],
)
def test_yaml_alias_bombs_are_rejected_before_expansion(text: str) -> None:
    import tracemalloc

    assert len(text) < 1_000_000
    tracemalloc.start()
    message = refusal(lambda: parse_part(text, "x.yaml"))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message == (
        "x.yaml: its aliases expand to more than 300,000 additional values; use fewer of them, or JSON"
    )
    assert peak_bytes < 200 * 2**20


@pytest.mark.slow
def test_values_that_aliases_stand_for_are_counted_exactly() -> None:
    # A server of 5 values (the object, 2 keys, 2 values), 60,000 more times: 300,000 further ones.
    fitting = "servers:\n- &s {name: s, model: m}\n" + "- *s\n" * 60_000
    assert len(parse_part(fitting).spec.servers) == 60_001
    assert "its aliases expand to more" in refusal(lambda: parse_part(fitting + "- *s\n"))


@pytest.mark.slow
def test_merge_keys_of_many_profiles_are_honest() -> None:
    text = "models:\n- &base {name: m, acc: A0, maxBatchSize: 8, atTokens: 64, decodeParms: {alpha: 1}}\n"
    text += "".join(f"- {{<<: *base, acc: A{i}}}\n" for i in range(1, 5001))
    profiles = parse_part(text).spec.models
    assert [profile.accelerator for profile in profiles] == [f"A{i}" for i in range(5001)]
    assert {profile.max_batch_size for profile in profiles} == {8}


# --- paths ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nowhere", "nowhere/at/all.json", "n" * 300, "n/" * 4000])
def test_a_path_that_leads_nowhere_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = f"{tmp_path}/{name}"
    message = refusal(lambda: load_system(path))
    assert message.startswith(path.rstrip("/"))
    assert refusal(lambda: load_system("a\0b")) == "'a\\x00b': not a path"


@pytest.mark.parametrize("method", ["read_bytes", "stat", "iterdir"])
def test_what_may_not_be_read_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    path = tmp_path if method == "iterdir" else tmp_path / "system.yaml"
    (tmp_path / "system.yaml").write_text("servers: []")

    def denied(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", lambda _: method == "iterdir")
    monkeypatch.setattr(Path, method, denied)
    monkeypatch.setattr(Path, "open", denied)  # whichever way it is read
    assert refusal(lambda: load_system(path)) == f"{path}: permission denied"


def test_bytes_that_are_no_text_are_refused_with_their_position(tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    path.write_bytes(b"servers: \xe9")
    assert refusal(lambda: read_text(path)) == f"{path}: not UTF-8 text (byte 9)"


# --- writing -------------------------------------------------------------------------------------------


def test_written_files_keep_their_mode_or_have_the_usual_one(tmp_path: Path) -> None:
    plain, old = tmp_path / "plain", tmp_path / "old"
    plain.write_text("")
    old.write_text("old")
    old.chmod(0o640)
    for path, mode in ((tmp_path / "new", plain.stat().st_mode & 0o777), (old, 0o640)):
        write_text("text", path)
        assert path.read_text() == "text"
        assert path.stat().st_mode & 0o777 == mode


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old"
    path.write_text("old")

    def full(*_: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert refusal(lambda: write_text("new", path)) == f"{path}: cannot be written: no space left on device"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("exists", [True, False])
def test_writing_to_a_symlink_writes_its_target(tmp_path: Path, *, relative: bool, exists: bool) -> None:
    target = tmp_path / "kept" / "plan.json"
    target.parent.mkdir()
    if exists:
        target.write_text("old")
        target.chmod(0o640)
    (tmp_path / "first").symlink_to("kept/plan.json" if relative else target)
    (tmp_path / "second").symlink_to("first" if relative else tmp_path / "first")
    write_text("new", tmp_path / "second")
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "second").is_symlink()
    assert not target.is_symlink()
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]
    assert not exists or target.stat().st_mode & 0o777 == 0o640


def test_writing_through_a_linked_directory_works(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    write_text("new", tmp_path / "linked" / "plan.json")
    assert (tmp_path / "real" / "plan.json").read_text() == "new"
    assert (tmp_path / "linked").is_symlink()


def test_unwritable_links_are_rejected_and_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, target in (
        ("circle", "back"),
        ("back", "circle"),
        ("down", "folder"),
        ("lost", "nowhere/plan.json"),
    ):
        (tmp_path / name).symlink_to(target)
    for name, problem in (
        ("circle", "too many levels of symbolic links"),
        ("down", "is a directory"),
        ("lost", "no such file or directory"),
    ):
        path = tmp_path / name
        assert refusal(lambda path=path: write_text("new", path)) == f"{path}: cannot be written: {problem}"  # type: ignore[misc]
        assert path.is_symlink()
    assert {entry.name for entry in tmp_path.iterdir()} == {"folder", "circle", "back", "down", "lost"}


@pytest.mark.slow
def test_standard_output_by_name_is_written_and_not_replaced(tmp_path: Path) -> None:
    if not Path("/dev/stdout").exists():
        pytest.skip("this system has no /dev/stdout")
    program = "from optimizer.spec.writing import *; write_text('text', Path('/dev/stdout'))"
    command = [sys.executable, "-c", program]
    with (tmp_path / "out").open("w") as out:
        subprocess.run(command, stdout=out, check=True, cwd=ROOT)
        assert os.fstat(out.fileno()).st_size == 4  # this very file, and no other in its place
    assert subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout == b"text"
    assert Path("/dev/stdout").is_symlink()


def test_writing_to_a_device_does_not_replace_it() -> None:
    write_text("text", Path("/dev/null"))
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("name", ["x.txt", "x", "x.json.gz"])
def test_a_document_is_written_only_under_a_suffix_that_says_how(tmp_path: Path, name: str) -> None:
    message = refusal(lambda: write_document({}, tmp_path / name))
    assert message == f"{tmp_path}/{name}: the suffix must be one of .yaml, .yml, .json"
    assert not list(tmp_path.iterdir())
