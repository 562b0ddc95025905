"""Which class of a Java source is run."""

from __future__ import annotations

import time

import pytest

from proctor.core.limits import Limits
from proctor.engine.java import names
from proctor.engine.job import Case, Job
from proctor.engine.languages import LANGUAGES, program
from proctor.engine.shared import SyncEngine

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


def test_the_heap_hangs_on_the_limit_and_not_on_the_hosts_memory() -> None:
    """A JVM would let its heap grow to a part of the host's memory before it collected anything."""
    run = program("class Main {}", "java", memory_mib=256).argv
    assert {"-Xms16m", "-Xmx192m"} <= set(run)
    assert "-Xmx40m" in program("class Main {}", "java", memory_mib=80).argv
    assert "-Xmx448m" in program("class Main {}", "java").argv


QUEUE = """import java.util.*;
public class Main { public static void main(String[] a) {
  ArrayDeque<int[]> q = new ArrayDeque<>(); long s = 0;
  for (int i = 0; i < 8000000; i++) { q.add(new int[]{i, i, i, i}); if (q.size() > 1000000) s += q.poll()[0]; }
  System.out.println(s); } }
"""


def test_what_is_collected_takes_no_memory(engine: SyncEngine) -> None:
    if not next(row for row in LANGUAGES if row.name == "java").available():
        pytest.skip("there is no JDK on this host")
    limits = Limits(cpu_s=20, memory_mib=256)
    (outcome,) = engine.run(Job(program(QUEUE, "java", memory_mib=256), (Case(),), limits))
    assert (outcome.error, outcome.ended_by, outcome.exit_code) == (None, None, 0)
    assert outcome.peak_memory_bytes is None or outcome.peak_memory_bytes < 200 << 20
