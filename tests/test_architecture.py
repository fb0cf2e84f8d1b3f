"""The shape of the code: imports point one way, heavy libraries have one home each, nothing is global.

The layers of packages are a table. The order inside a package follows from its imports, which have no circle.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from parsed_sources import parsed

ROOT = Path(__file__).resolve().parent.parent

LAYERS: tuple[tuple[str, ...], ...] = (
    ("optimizer.errors",),
    (
        "optimizer.arrays",
        "optimizer.attribute_docs",
        "optimizer.lazy",
        "optimizer.parallel",
        "optimizer.printed",
        "optimizer.quantities",
        "optimizer.text",
        "optimizer.tolerances",
        "optimizer.units",
    ),
    ("optimizer.cluster", "optimizer.money", "optimizer.section"),
    ("optimizer.documents",),
    ("optimizer.timing",),
    ("optimizer.simulation",),
    ("optimizer.queueing",),
    ("optimizer.limits",),
    ("optimizer.kinds",),
    ("optimizer.schema",),
    ("optimizer.spec",),
    ("optimizer.profiles",),
    ("optimizer.prices",),
    ("optimizer.candidates",),
    ("optimizer.milp",),
    ("optimizer.topologies",),
    ("optimizer.solvers",),
    ("optimizer.plan",),
    ("optimizer.checking",),
    ("optimizer.compat",),
    (
        "optimizer.fitting",
        "optimizer.generate",
        "optimizer.starters",
    ),
    ("optimizer.pipeline",),
    ("optimizer.stabilisation",),
    ("optimizer.studies",),
    ("optimizer.render",),
    ("optimizer.jobs",),
    ("optimizer.library",),
    ("rest_server",),
    ("optimizer.cli",),
    ("optimizer.__main__",),
)
"""Low to high: a module imports only what stands before it; those of one layer do not meet."""

FEATURES = "optimizer.features"
PARTS = {
    "fields": "optimizer.schema",
    "streams": "optimizer.spec",
    "faults": "optimizer.spec",
    "feature": "optimizer.spec",
    "table": "optimizer.spec",
    "limit": "optimizer.limits",
    "packing": "optimizer.spec",
    "price": "optimizer.prices",
    "patterns": "optimizer.candidates",
    "turns": "optimizer.candidates",
    "parts": "optimizer.candidates",
    "rows": "optimizer.candidates",
    "offers": "optimizer.candidates",
    "divisions": "optimizer.topologies",
    "topology": "optimizer.topologies",
    "staying": "optimizer.plan",
    "decision": "optimizer.solvers",
    "uses": "optimizer.plan",
    "view": "optimizer.plan",
    "views": "optimizer.plan",
    "purposes": "optimizer.plan",
    "checks": "optimizer.plan",
    "explained": "optimizer.studies",
    "hourly": "optimizer.studies",
    "replayed": "optimizer.studies",
    "simulated": "optimizer.studies",
    "sections": "optimizer.render",
}
"""Parts of a feature, and the package in whose layer each stands."""

MUTUAL = {("rest_server.compat", "rest_server.v1")}
"""Packages that import each other, module by module without a circle."""

PUBLIC_FACADE = "optimizer"
"""Names everything for type checkers."""
FACADE_USERS = ("optimizer.cli.main", "optimizer.cli.reporting", "optimizer.plan.build", "rest_server.app")
"""What reads its version."""

HOMES = {
    "joblib": ("optimizer.parallel", "optimizer.cluster"),
    "distributed": ("optimizer.cluster",),
    "nicegui": ("rest_server.web",),
    "numba": ("optimizer.simulation.machine.compiling",),
    "highspy": ("optimizer.milp.highs",),
    "pulp": ("optimizer.milp.pulp_solvers",),
    "matplotlib": ("optimizer.render.plots",),
    "jinja2": ("optimizer.render.pages",),
    "pebble": ("rest_server.solver_processes",),
    "prometheus_client": ("rest_server.metrics", "rest_server.loop.scrape", "rest_server.loop.serving"),
    "httpx2": ("rest_server.http_client", "rest_server.loop.fetching", "rest_server.loop.kubernetes"),
    "lightkube": ("rest_server.loop.kubernetes",),
    "fastapi": ("rest_server",),
    "starlette": ("rest_server",),
    "uvicorn": ("rest_server", "optimizer.cli"),
    "pandas": ("optimizer.plan.tabular",),
    "rich": ("optimizer.render",),
    "shtab": ("optimizer.cli.shell",),
    "yaml": ("optimizer.schema.yaml_format",),
}
"""The only modules or packages that may import a library."""

JOBS = {
    "compare", "explain", "fit", "make_figure", "make_report", "plan_horizon", "predict", "repair_plan",
    "replay", "simulate_plan", "simulation_of", "sweep", "verify", "with_profile",
}  # fmt: skip
"""Functions that have a job in `optimizer.jobs`; the command line and the service call that."""

FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
MAX_FUNCTION_LINES = 45
"""Lines of a function without its docstring, comments and blanks."""
MAX_TEST_NAME_LENGTH = 60
"""Characters."""

PROCESS_BOUNDARIES = {"rest_server.solver_processes"}
"""May catch every exception: they hand it to another process, which raises it."""
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc", "shared"}
MUTATORS = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft",
    "remove", "reverse", "setdefault", "sort", "update", "__setitem__", "__delitem__",
}  # fmt: skip


def in_package(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@cache
def sources() -> dict[str, Path]:
    """Return the file of every module of both packages."""
    found = {}
    for package in ("optimizer", "rest_server"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    return parsed(sources()[module])


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(module)))


@cache
def imports(module: str) -> tuple[str, ...]:
    """Return what a module imports, wherever in it: our own modules in full, other libraries by their top."""
    found = set()
    for node in nodes(module):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in sources() else str(node.module) for name in whole]
        else:
            continue
        found |= {name if name in sources() else name.partition(".")[0] for name in names}
    return tuple(sorted(found))


def own_imports(module: str) -> list[str]:
    return [name for name in imports(module) if name in sources()]


@cache
def home(module: str) -> str:
    """Return a module, or for a part of a feature the package in whose layer it stands."""
    part = module.rpartition(".")[2]
    is_part = in_package(module, FEATURES) and sources()[module].name != "__init__.py"
    assert not is_part or part in PARTS, f"{module} is no part in PARTS of {Path(__file__).name}; name it"
    return PARTS[part] if is_part else module


@cache
def layer(module: str) -> int:
    ranks = [i for i, group in enumerate(LAYERS) if any(in_package(home(module), name) for name in group)]
    assert len(ranks) == 1, f"{module} has no place in LAYERS of {Path(__file__).name}; give it one"
    return ranks[0]


@cache
def package_of(module: str) -> str:
    return next(name for group in LAYERS for name in group if in_package(home(module), name))


@cache
def modules() -> list[str]:
    """Return all modules but the facade, and the empty ones of features' folders."""
    found = (name for name in sources() if name != PUBLIC_FACADE)
    return [name for name in found if name not in folders_of_features()]


@cache
def folders_of_features() -> set[str]:
    return {
        name for name, path in sources().items() if in_package(name, FEATURES) and path.stem == "__init__"
    }


def imports_between_parts(package: str) -> dict[str, set[str]]:
    """Return what each part of a package, a module or a package inside it, imports of the other parts."""

    def part(module: str) -> str:
        inner = module.removeprefix(package).removeprefix(".").partition(".")[0]
        return f"{package}.{inner}" if inner else package

    found: dict[str, set[str]] = {}
    for module in (name for name in modules() if in_package(name, package)):
        others = {part(name) for name in own_imports(module) if in_package(name, package)}
        found.setdefault(part(module), set()).update(others - {part(module), PUBLIC_FACADE})
    return found


def test_imports_point_one_way() -> None:
    for module, other in ((name, other) for name in modules() for other in own_imports(name)):
        if other == PUBLIC_FACADE:
            assert module in FACADE_USERS, f"{module} imports the package's own facade"
        elif package_of(other) != package_of(module):
            assert layer(other) < layer(module), f"{module} imports {other}, which is not of a lower layer"


def test_parts_of_a_package_import_in_one_direction() -> None:
    packages = {name.rpartition(".")[0] for name in modules()} | {FEATURES}
    for package in packages - {"", PUBLIC_FACADE}:
        graph = imports_between_parts(package)
        for one, other in MUTUAL & {(one, other) for one in graph for other in graph}:
            assert other in graph[one]
            graph[one].remove(other)
        TopologicalSorter(graph).prepare()


@pytest.mark.slow
def test_scipy_is_loaded_where_it_is_used() -> None:
    """Importing its special functions takes as long as a small plan, which needs none of them."""
    for module in modules():
        for node in tree(module).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(in_package(name, "scipy") for name in names), module


def test_command_line_and_service_compute_through_jobs_alone() -> None:
    shells = ("optimizer.cli", "rest_server")
    for module in modules():
        if not any(in_package(module, shell) for shell in shells):
            continue
        for node in nodes(module):
            if isinstance(node, ast.ImportFrom) and not in_package(str(node.module), "optimizer.jobs"):
                found = {alias.name for alias in node.names} & JOBS
                assert not found, f"{module} has {sorted(found)} from {node.module}, not from optimizer.jobs"


def test_there_are_no_import_circles() -> None:
    TopologicalSorter({name: {*own_imports(name)} - {name, PUBLIC_FACADE} for name in modules()}).prepare()


def loaded_before(module: str) -> set[str]:
    """Return our modules that are loaded before a module: those it imports at its top, and their packages."""
    found = set()
    for node in tree(module).body:
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    packages = {name.rsplit(".", cut)[0] for name in found for cut in range(1, name.count("."))}
    return {name for name in found | packages if name in sources() and not in_package(module, name)}


def test_every_module_can_be_loaded_first() -> None:
    """The circle that importing one module of a package ends in is that of the package's own imports."""
    TopologicalSorter({module: loaded_before(module) for module in modules()}).prepare()


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_only_at_its_home(library: str) -> None:
    users = [module for module in sources() if library in imports(module)]
    strangers = [user for user in users if not any(in_package(user, home) for home in HOMES[library])]
    assert not strangers, f"{library} belongs into {', '.join(HOMES[library])}"


def test_every_module_has_a_name_that_says_what_it_is_for() -> None:
    assert not [module for module in sources() if set(module.split(".")) & SAYS_NOTHING]


def test_every_class_name_has_one_definition() -> None:
    homes: dict[str, list[str]] = {}
    for module in sources():
        for node in nodes(module):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_names_of_tests_are_short() -> None:
    named = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
    too_long = [
        f"{path.name}: {name}"
        for path in (ROOT / "tests").rglob("*.py")
        for name in named.findall(path.read_text(encoding="utf-8"))
        if len(name) > MAX_TEST_NAME_LENGTH
    ]
    assert not too_long, f"names of more than {MAX_TEST_NAME_LENGTH} characters: {too_long}"


# --- the size of functions ------------------------------------------------------------------------------


def lines_of_code(text: str, functions: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> set[int]:
    """Return the numbers of all lines that are neither blank, comment nor docstring of a function."""
    lines = {n for n, line in enumerate(text.splitlines(), 1) if line.strip() and line.lstrip()[0] != "#"}
    for node in functions:
        if ast.get_docstring(node, clean=False):
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def test_no_function_is_long() -> None:
    for module, path in sources().items():
        every = [node for node in nodes(module) if isinstance(node, FUNCTIONS)]
        code = lines_of_code(path.read_text(encoding="utf-8"), every)
        for node in every:
            count = len(code & set(range(node.lineno, (node.end_lineno or 0) + 1)))
            name = f"{module}.{node.name}"
            limit = MAX_FUNCTION_LINES
            assert count <= limit, f"{name} has {count} lines, more than {limit}; split it by meaning"


# --- no module-level mutable state ---------------------------------------------------------------------


@cache
def module_level_names(module: str) -> set[str]:
    names = set()
    for node in tree(module).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def functions(module: str) -> Iterator[ast.AST]:
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node


def root_name(node: ast.AST) -> str:
    """Return the name that an expression such as ``a.b[0].c`` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def changes(function: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the name at the root of everything that a function changes in place."""
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS
        ):
            yield root_name(node.func.value), node
        for target in targets:
            if isinstance(target, ast.Attribute | ast.Subscript):
                yield root_name(target), node


def local_names(function: ast.AST) -> set[str]:
    names = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    return names | {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def test_no_function_changes_a_name_of_its_module() -> None:
    for module, function in ((name, function) for name in sources() for function in functions(name)):
        names = module_level_names(module)
        rebound = [node for node in ast.walk(function) if isinstance(node, ast.Global)]
        assert not rebound, f"{module}:{rebound[0].lineno}: global"
        for name, node in changes(function):
            shared = name in names and name not in local_names(function)
            assert not shared, f"{module}:{getattr(node, 'lineno', 0)}: changes {name}"


def test_a_mutable_value_at_module_level_is_a_constant_table() -> None:
    """A table in capitals that nothing changes; an empty collection could only be meant to be filled."""
    for module, node in ((name, node) for name in sources() for node in tree(name).body):
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        names = [name.strip("_") for name in module_level_names(module) if value is not None]
        if isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp):
            mine = ast.unparse(node).partition("=")[0].partition(":")[0].strip()
            assert mine == "__all__" or mine.strip("_").isupper(), f"{module}: {mine} of {names}"
            filled = list(ast.iter_child_nodes(value))
            assert any(not isinstance(child, ast.expr_context) for child in filled), f"{module}: {mine}"
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            assert value.func.id not in {
                "dict",
                "list",
                "set",
                "defaultdict",
                "deque",
                "Counter",
                "bytearray",
            }, module


def test_no_exception_is_swallowed_wholesale() -> None:
    for module in sources().keys() - PROCESS_BOUNDARIES:
        for node in nodes(module):
            if isinstance(node, ast.ExceptHandler):
                caught = "" if node.type is None else ast.unparse(node.type)
                ends = node.body[-1]
                passed_on = isinstance(ends, ast.Raise) and ends.exc is None
                assert passed_on or caught not in {"", "Exception", "BaseException"}, (
                    f"{module}:{node.lineno}"
                )


# --- what no file may say ------------------------------------------------------------------------------


def project_files() -> list[Path]:
    """Return every text file that is or may become part of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is no clone of the repository")
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    binary = {".png", ".jpg", ".gif", ".ico", ".woff2", ".gz"}
    return [path for path in paths if path.is_file() and path.suffix not in binary]


def test_no_file_names_a_package_index() -> None:
    index = re.compile(
        "|".join(["py" + r"pi\.org", "python" + r"hosted\.org", "index" + "-url", "find" + "-links"])
    )
    guilty = [path for path in project_files() if index.search(path.read_text(encoding="utf-8"))]
    assert not guilty


def test_no_file_names_a_path_of_one_machine() -> None:
    local = re.compile(r"(?<![\w.$}/~-])/(?:work|root|home|Users)/|(?<!\w)/tmp/v\b|shared/reference")
    guilty = [
        path
        for path in project_files()
        if path.relative_to(ROOT).parts[0] != "tests" and local.search(path.read_text(encoding="utf-8"))
    ]
    assert not guilty


def test_the_top_level_holds_what_was_agreed_and_nothing_else() -> None:
    agreed = {
        "pyproject.toml", "README.md", "LICENSE", "optimizer", "rest_server", "specs", "demos", "manifests",
        "tests", "docs",
    }  # fmt: skip
    found = {path.relative_to(ROOT).parts[0] for path in project_files()}
    assert {name for name in found if not name.startswith(".")} <= agreed


def test_there_is_no_lock_file() -> None:
    locks = re.compile(r"(\.lock|^requirements.*\.txt|^Pipfile.*|^constraints.*\.txt)$")
    assert not [path for path in project_files() if locks.search(path.name)]


# --- kinds of replicas ---------------------------------------------------------------------------------

BELOW_KINDS = ("kinds", "timing", "queueing", "simulation")
"""What kinds are made of."""
MODELS_OF_KINDS = ("bulk", "continuous", "reference", "static")
"""Modules of queue models: each drives the laws of one kind."""


def conditions(module: str) -> Iterator[ast.expr]:
    """Yield every expression that a module decides by, and the keys of its tables."""
    for node in nodes(module):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Compare):
            yield node
        elif isinstance(node, ast.Dict):
            yield from (key for key in node.keys if key is not None)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"isinstance", "issubclass"}:
            yield node.args[1]


def names_of_kinds(module: str) -> set[str]:
    """Return the names of a module that stand for a single kind, its queue models or its laws."""
    homes = [f"optimizer.kinds.{kind}" for kind in ("batch_servers", "token_batching")]
    homes += [f"optimizer.queueing.{model}" for model in MODELS_OF_KINDS]
    homes += [f"optimizer.timing.{law}" for law in ("batch", "engine", "iteration", "linear", "static")]
    names = set()
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom):
            source = str(node.module)
            laws = source == "optimizer.timing"
            names |= {
                alias.asname or alias.name
                for alias in node.names
                if any(in_package(source, home) for home in homes)
                or (laws and (alias.name.endswith("Law") or alias.name == "is_static"))
            }
    return names


def test_few_modules_decide_by_the_kind_of_a_replica() -> None:
    """All others ask the object: `optimizer.kinds` has the table."""
    own = {"batch", "batch_trigger", "batch_window", "batch_window_ms", "busy", "mean_batch", "jobs"}
    own |= {"stages", "answers_together", "has_tokens"}
    found = []
    for module in sources():
        if any(in_package(module, f"optimizer.{name}") for name in BELOW_KINDS):
            continue
        names = names_of_kinds(module)
        for node in (part for condition in conditions(module) for part in ast.walk(condition)):
            is_named = isinstance(node, ast.Name) and node.id in names
            if is_named or (isinstance(node, ast.Attribute) and node.attr in own):
                found.append(module)
                break
    assert len(found) <= 10, found


SECTIONS_OF_PLACEMENTS = {"allocations", "shared_cards", "rented", "shared_queues", "kept"}


def test_few_functions_join_sections_of_a_plan() -> None:
    """What runs where is read from `placements_of`; the plan's own package builds its sections."""
    found = []
    for module in sources():
        for function in nodes(module) if not in_package(module, "optimizer.plan") else ():
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                read = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
                found += [f"{module}.{function.name}"] * (len(read & SECTIONS_OF_PLACEMENTS) > 1)
    assert len(found) <= 8, found
