"""Which class of a Java source is run."""

from __future__ import annotations

import time

import pytest

from proctor.engine.java import names
from proctor.engine.languages import LANGUAGES, program

MAIN = "public static void main(String[] a) {}"


@pytest.mark.parametrize(
    ("source", "file", "run"),
    [
        (f"public class Main {{ {MAIN} }}", "Main", "Main"),
        (f"class Main {{ {MAIN} }}", "Main", "Main"),
        (f"public class Solution {{ {MAIN} }}", "Solution", "Solution"),
        (f"class Solution {{ {MAIN} }}", "Main", "Solution"),
        (f"public final class A {{ class Main {{ }} {MAIN} }}", "A", "A"),
        (f"class H {{ }}\nclass Main {{ {MAIN} }}", "Main", "Main"),
        (f"class H {{ {MAIN} }}\nclass Main {{ {MAIN} }}", "Main", "Main"),
        (f"class H {{ {MAIN} }}\npublic class B {{ {MAIN} }}", "B", "B"),
        (f"public interface Shape {{ }}\nclass Run {{ {MAIN} }}", "Shape", "Run"),
        (f"public record P(int x) {{ {MAIN} }}", "P", "P"),
        (f"package a.b;\nimport java.util.*;\npublic class C {{ {MAIN} }}", "C", "a.b.C"),
        (f"// public class X {{ void main( }}\n/* class Y {{ */\nclass Z {{ {MAIN} }}", "Main", "Z"),
        (f"class Z {{ String s = \"}} public class X {{ void main(\"; char c = '}}'; {MAIN} }}", "Main", "Z"),
        (f'class Z {{ String s = """\n}} " class X {{ void main("""; {MAIN} }}', "Main", "Z"),
        (f"class H {{ void main() {{}} }}\nclass P {{ {MAIN} }}", "Main", "P"),
        (f"public class H {{ public void main() {{}} }}\nclass Main {{ {MAIN} }}", "H", "Main"),
        (f'public @SuppressWarnings({{"x;y"}}) class S {{ {MAIN} }}', "S", "S"),
        (f"public class L\u00f6sung {{ {MAIN} }}", "L\u00f6sung", "L\u00f6sung"),
        (f"class A {{ static int x; void main() {{}} }}\nclass B {{ {MAIN} }}", "Main", "B"),
        ("class Z { public void f() {} }\nclass Y { }", "Main", "Main"),
        ("public class Solution { }", "Solution", "Main"),
        ("", "Main", "Main"),
        ("}}}} public public class", "Main", "Main"),
    ],
)
def test_the_class_that_has_a_main(source: str, file: str, run: str) -> None:
    assert names(source) == (file, run)


@pytest.mark.parametrize(
    "text", ['"', "'", '"""', "/*", "{", "public ", "class ", "class A", "//", "\\", '"\\', "void "]
)
def test_a_hostile_source_is_read_once(text: str) -> None:
    started = time.process_time()
    names(text * 400_000)
    assert time.process_time() - started < 10  # seconds of its own; a square would take hours


def test_the_commands_follow_it() -> None:
    if not next(row for row in LANGUAGES if row.name == "java").available():
        pytest.skip("no java here")
    source = f"package p; public class Solution {{ {MAIN} }}"
    own = program(source, "java")
    assert (list(own.files), own.argv[-1], own.compile[-1] if own.compile else "") == (
        ["Solution.java"],
        "p.Solution",
        "Solution.java",
    )
    tested = program(source, "java", own_class=False)
    assert (list(tested.files), tested.argv[-1]) == (["Main.java"], "Main")
