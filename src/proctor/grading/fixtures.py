"""Which fixtures a test file asks for that nothing here gives, read from its source."""

from __future__ import annotations

import ast

from proctor.grading import pysource

_Function = ast.FunctionDef | ast.AsyncFunctionDef
KNOWN = frozenset(("tmp_path", "tmp_path_factory", "capsys", "capfd", "request", "monkeypatch"))
_OF_REQUEST = frozenset(["param", "getfixturevalue", "addfinalizer", "fixturename", "function", "cls", "instance"])


def unknown_fixture(tree: ast.Module) -> str:
    """What is wrong with the first test that takes an argument which neither the file nor this runner gives.

    "" where there is none, and where a reader could not be sure: a decorator that is no mark may give arguments, and so
    may names that come by a star.
    """
    known = set(KNOWN)
    for node in pysource.nodes(tree):
        if isinstance(node, ast.ImportFrom):
            known |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, _Function) and any("fixture" in ast.unparse(mark) for mark in node.decorator_list):
            known |= {node.name, *_texts(node.decorator_list)}
        elif isinstance(node, ast.Assign) and "fixture" in ast.unparse(node.value):
            known |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    everywhere = {word for node in pysource.nodes(tree) if isinstance(node, _Function) for word in _texts(_rows(node))}
    for name, function, bound in _tests(tree):
        rows = [mark for mark in function.decorator_list if "usefixtures" not in ast.unparse(mark)]
        given = known | set(_texts(rows)) | set(_texts(_marks(tree)))
        if not function.name.startswith("test"):
            given |= everywhere
        for wanted in _asked(function, bound):
            if wanted in BUILT_IN - given or not ({wanted, "*"} & given or _gives(function) or _gives_all(tree)):
                return f"{name} asks for the fixture {wanted!r}, which is not known here"
    return _unknown_use(tree) or _fixture_of_a_case(tree)


def _unknown_use(tree: ast.Module) -> str:
    """What a fixture of pytest's own is used for that it is not known here."""
    for function in (node for node in pysource.nodes(tree) if isinstance(node, _Function)):
        if any(arg.arg == "request" for arg in (*function.args.args, *function.args.kwonlyargs)) and _is_asking(
            function
        ):
            for node in ast.walk(function):
                if not isinstance(node, ast.Attribute) or getattr(node.value, "id", "") != "request":
                    continue
                if node.attr not in _OF_REQUEST:
                    return f"{function.name} uses request.{node.attr}, which is not known here"
        for mark in function.decorator_list:
            if "fixture" in ast.unparse(mark):
                for word in mark.keywords if isinstance(mark, ast.Call) else ():
                    if word.arg == "params" and "marks=" in ast.unparse(word.value):
                        return f"the fixture {function.name!r} has params with marks of their own, which are not known here"
    return ""


def _fixture_of_a_case(tree: ast.Module) -> str:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any("TestCase" in ast.unparse(base) for base in node.bases):
            for part in node.body:
                if isinstance(part, _Function) and any("pytest.fixture" in ast.unparse(m) for m in part.decorator_list):
                    return f"the unittest class {node.name} has the fixture {part.name!r} of pytest, which is not known here"
    return ""


def varies_all(tree: ast.Module) -> bool:
    """A fixture that every test is made with has params: no test is run under its plain name."""
    marks = [mark for node in pysource.nodes(tree) if isinstance(node, _Function) for mark in node.decorator_list]
    calls = [mark for mark in marks if isinstance(mark, ast.Call) and "fixture" in ast.unparse(mark.func)]
    return any({"params", "autouse"} <= {word.arg for word in call.keywords} for call in calls)


def _rows(function: _Function) -> list[ast.expr]:
    """Where a test's parametrizations name what they give; fixtures that ask for it get it too."""
    marks = [
        mark for mark in function.decorator_list if isinstance(mark, ast.Call) and "parametrize" in ast.unparse(mark)
    ]
    return [
        part for mark in marks for part in (*mark.args[:1], *(w.value for w in mark.keywords if w.arg == "argnames"))
    ]


_WORDS = """cache capfd capfdbinary caplog capsys capsysbinary doctest_namespace pytestconfig pytester
record_property record_testsuite_property record_xml_attribute recwarn testdir tmp_path_factory tmpdir tmpdir_factory mocker"""
BUILT_IN = frozenset(_WORDS.split())


def _tests(tree: ast.Module) -> list[tuple[str, _Function, int]]:
    """Name, function and number of bound arguments of each pytest test, and of each fixture."""
    found: list[tuple[str, _Function, int]] = []
    calls = [node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}  # with arguments of their own
    for node in tree.body:
        if isinstance(node, _Function) and _is_asking(node) and node.name not in called:
            found.append((node.name, node, 0))
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not node.bases:
            for part in node.body:
                if isinstance(part, _Function) and _is_asking(part):
                    static = any(getattr(mark, "id", "") == "staticmethod" for mark in part.decorator_list)
                    found.append((f"{node.name}.{part.name}", part, 0 if static else 1))
    return found


def _is_asking(function: _Function) -> bool:
    return function.name.startswith("test") or any("fixture" in ast.unparse(mark) for mark in function.decorator_list)


def _asked(function: _Function, bound: int) -> list[str]:
    args = function.args
    used = [mark for mark in function.decorator_list if "usefixtures" in ast.unparse(mark)]
    plain = [*args.posonlyargs, *args.args][bound:]
    plain = plain[: len(plain) - len(args.defaults)] if args.defaults else plain
    keyword = [arg for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is None]
    return [*_texts(used), *(arg.arg for arg in (*plain, *keyword))]


def _texts(nodes: list[ast.expr]) -> list[str]:
    """Names in the texts of marks: of parametrizations and fixtures."""
    texts = [part.value for node in nodes for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return [word.strip() for text in texts if isinstance(text, str) for word in text.split(",")]


def _marks(tree: ast.Module) -> list[ast.expr]:
    """Those of classes and of ``pytestmark``, whosever."""
    found: list[ast.expr] = []
    for node in pysource.nodes(tree):
        if isinstance(node, ast.ClassDef):
            found += node.decorator_list
        elif isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets):
            found.append(node.value)
    return found


def _gives(function: _Function) -> bool:
    """A decorator may give arguments by names that no reader sees."""
    return any(not _is_plain(mark) for mark in function.decorator_list)


def _gives_all(tree: ast.Module) -> bool:
    return any(not _is_plain(mark) for mark in _marks(tree))


def _is_plain(mark: ast.expr) -> bool:
    """A mark of pytest; a parametrization only with its names written out."""
    text = ast.unparse(mark)
    if "parametrize" in text:
        first = mark.args[:1] if isinstance(mark, ast.Call) else []
        return all(isinstance(part, ast.Constant | ast.Tuple | ast.List) for part in first) and bool(first)
    return text.startswith(("pytest.mark.", "mark.", "pytest.fixture", "fixture")) or text in (
        "staticmethod",
        "classmethod",
    )
