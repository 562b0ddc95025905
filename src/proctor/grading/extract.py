"""Take the program out of a completion.

In order: chat end tokens at the end and a ``<think>`` part at the start are
dropped; then a rule picks the code. Without any fence the whole text is the
code. Fences are those of CommonMark: three or more backticks or tildes, up to
three spaces before them, a closing line of the same mark that is at least as
long; a block that is never closed runs to the end of the text.

Rules:
    ``last-valid-block``: of the blocks that are labelled with the language or
        not labelled, the last one that is the program. Python: it parses (by
        itself, or behind the problem's prompt where it is a function's body)
        and defines what the problem asks for. Where no block does, or nothing
        is known of it: the last one that acts, so no block of shown output
        (``7``), of imports or of assertions; that may print, where the problem
        runs it for what it prints; and that is no example of the use of an
        earlier block: it uses no name that it lacks and an earlier one binds,
        unless it reads standard input; nor any name that it lacks, where an earlier
        one that reads standard input lacks none. Where there is none of these, the last
        that acts, then the last that parses. A text that parses as a whole,
        fences and all, is a program whose strings hold Markdown. Other
        languages: the last block with that label that is not blank, else the
        last without a label; of these the last with a ``main``, where a program
        is run that must have one. Where fences in list items are indented deeper
        than CommonMark allows and there are no others, they count.
    ``first-block``, ``last-block``: that block, whatever its label, unless it is blank.
    ``whole``: the whole text, fences and all.

A caller may give a function ``(text, language) -> str | None`` instead; it gets
the completion as it came.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from proctor.core.errors import InputError
from proctor.engine.languages import LANGUAGES
from proctor.grading import pysource
from proctor.grading.asked import NOTHING, Asked, acts, bound, free, prints, reads
from proctor.grading.asked import defines as defines_in
from proctor.grading.problem import Problem, TestCase

Rule = Callable[[str, str], str | None]
RULES = ("last-valid-block", "first-block", "last-block", "whole")
DEFAULT_RULE = "last-valid-block"
END_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|return|>",
    "<|end_of_turn|>", "<|endofturn|>", "<|EOT|>", "<|END_OF_TURN_TOKEN|>", "<|pad|>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<end_of_turn>", "<eos>", "<pad>", "</s>",
)  # fmt: skip
MAX_PARSED = 4 * pysource.MAX_SOURCE  # characters parsed for one completion, prompts before its blocks included
MAX_BLOCKS = 200  # blocks of one completion that are tried, from the end

_FENCE = re.compile(r"( *)(`{3,}(?=[^`]*$)|~{3,})(.*)", re.DOTALL)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_LABELS = {name: row.name for row in LANGUAGES for name in (row.name, *row.aliases)}
_LABELS |= {"cc": "cpp", "cplusplus": "cpp", "gnu++17": "cpp", "gnu++": "cpp", "g++": "cpp", "gcc": "c", "jsx": "javascript", "mjs": "javascript",
            "node.js": "javascript", "py2": "python", "pypy": "python", "ipython": "python", "cython": "python", "zsh": "bash"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the first word of its info string in lower case, its text, and the fence that opened it."""

    label: str
    text: str
    mark: str


def strip_chat(text: str) -> str:
    """The answer: without end tokens at the end, and without the reasoning before it.

    Reasoning is what stands before the first ``</think>`` where the text starts
    with ``<think>`` or holds no ``<think>`` before it (the template opened it);
    reasoning that never closes leaves nothing.
    """
    end = keep = len(text)
    while True:  # by index: a megabyte of end tokens is read once
        while end and text[end - 1].isspace():
            end -= 1
        token = next((t for t in END_TOKENS if text.endswith(t, 0, end)), None)
        if token is None:
            break
        end = keep = end - len(token)
    text = text[:keep]
    start = re.match(r"\s*<think(?:ing)?>", text)
    close = re.search(r"</think(?:ing)?>[ \t]*\r?\n?", text)
    if close and (start or not re.search(r"<think(?:ing)?>", text[: close.start()])):
        return text[close.end() :]
    return "" if start else text


def fenced_blocks(text: str, *, indent: int = 3) -> list[Block]:
    """The fenced blocks of a Markdown text in order; ``indent`` is the number of spaces that a fence may have before it."""
    return list(_blocks(text, indent))


def _blocks(text: str, indent: int) -> Iterator[Block]:
    mark, label, width, body = "", "", 0, list[str]()
    for line in _LINE.findall(text):
        bare = line.rstrip("\r\n")
        if not mark:
            opened = _FENCE.fullmatch(bare)
            if opened and len(opened[1]) <= indent:
                width, mark, label, body = len(opened[1]), opened[2], _label(opened[3]), []
        elif _closes(bare, mark, indent):
            yield Block(label, "".join(body), mark)
            mark = ""
        else:
            body.append(line[min(width, len(line) - len(line.lstrip(" "))) :])
    if mark:
        yield Block(label, "".join(body), mark)


def _closes(line: str, mark: str, indent: int) -> bool:
    bare = line.rstrip(" \t").lstrip(" ")
    return len(bare) >= len(mark) and set(bare) == {mark[0]} and len(line) - len(line.lstrip(" ")) <= indent


def _label(info: str) -> str:
    words = info.strip().lower().strip("{}").lstrip(".").split()
    word = re.split("[:,{]", words[0])[0] if words else ""
    return word if word in _LABELS else word.rstrip("0123456789.=")


def extract_code(
    text: str,
    language: str = "python",
    rule: str | Rule = DEFAULT_RULE,
    *,
    prompt: str | None = None,
    asked: Asked = NOTHING,
) -> str | None:
    """The code in a completion, or None where there is none.

    Args:
        text: the completion.
        language: name or alias of the language that is wanted.
        rule: a name of ``RULES`` (see the module) or a function.
        prompt: source which a block that is only a function's body continues.
        asked: what the problem asks a program for; ``asked_of`` says it.

    Raises:
        InputError: no such rule, or a rule's function returned something else than text or None.
    """
    if not isinstance(rule, str):
        found = rule(text, language)
        if found is not None and not isinstance(found, str):
            raise InputError(f"the rule returned {type(found).__name__}, not a string or None", field="extract")
        return found
    if rule not in RULES:
        raise InputError(f"{rule!r} is not one of {', '.join(RULES)}", field="extract")
    answer = strip_chat(text)
    language = _LABELS.get(language.lower(), language.lower())
    blocks = fenced_blocks(answer) if rule != "whole" else []
    if rule == DEFAULT_RULE and not blocks and ("```" in answer or "~~~" in answer):
        blocks = fenced_blocks(answer, indent=40)  # deep in a list item
    if not blocks:
        return answer if answer.strip() else None
    if rule != DEFAULT_RULE:
        chosen = blocks[0 if rule == "first-block" else -1].text
        return chosen if chosen.strip() else None
    if language != "python":
        return _last_of(blocks, language, asked.word)
    return _last_valid(answer, blocks, prompt, asked)


def _last_of(blocks: list[Block], language: str, word: str | None) -> str | None:
    filled = [b for b in blocks if b.text.strip()]
    chosen = [b for b in filled if _LABELS.get(b.label, b.label) == language] or [b for b in filled if not b.label]
    if language == "cpp" and not chosen:
        chosen = [b for b in filled if b.label == "c"]  # which most of C is
    named = [b for b in chosen if re.search(rf"\b{word}\b", b.text)] if word else []
    return (named or chosen)[-1].text if chosen else None


def _last_valid(answer: str, blocks: list[Block], prompt: str | None, asked: Asked) -> str | None:
    left = MAX_PARSED
    if any(b.mark[0] == "`" for b in blocks):
        # Python has backticks only in strings and comments: such a text is a program that holds Markdown.
        left -= _cost(answer)
        tree = pysource.parse(answer)
        if tree is not None and acts(tree):
            return answer
    usable = [b for b in blocks if b.text.strip() and _LABELS.get(b.label or "python") == "python"]
    choice = _Choice(asked)
    for block in reversed(usable[-MAX_BLOCKS:]):
        left -= _cost(block.text)
        if left < 0:
            break
        tree = pysource.parse(block.text)
        if tree is None and prompt:
            whole = _join(prompt, block.text)
            left -= _cost(whole)
            if left < 0:
                break
            if pysource.parse(whole) is not None:
                choice.body(block.text)
        elif tree is not None:
            choice.see(block.text, tree)
        if choice.made:
            break
    return choice.text()


class _Choice:
    """Which block is the program, of those that are seen from the last to the first.

    ``made``: no block before can change it.
    """

    def __init__(self, asked: Asked) -> None:
        self.made = False
        self._asked = asked
        self._named: tuple[int, str] | None = None  # how many of the names it defines
        self._serving: str | None = None
        self._leans: frozenset[str] = frozenset()  # what the serving block lacks
        self._deaf = False  # the serving block reads no input, and each case has one
        self._acting: str | None = None
        self._idle: str | None = None

    def body(self, text: str) -> None:
        """A body that continues the prompt, and so defines what is asked for."""
        self._named = self._named or (len(self._asked.names), text)
        self._acting = self._acting or text
        self.made = True

    def see(self, text: str, tree: ast.Module) -> None:
        names = self._asked.names
        count = sum(any(defines_in(tree, path, imported=False, whole=True) for path in paths) for paths in names)
        if count > (self._named[0] if self._named else 0):
            self._named = count, text
            self.made = count == len(names)
        if self.made:
            return
        if self._leans and (self._leans & bound(tree, imported=False) or (reads(tree) and not free(tree))):
            # It was an example of this one's use, or of how it works.
            self._serving, self._leans, self._deaf = None, frozenset(), False
        if not acts(tree):
            self._idle = self._idle or text
            return
        self._acting = self._acting or text
        if self._serving is None and (not self._asked.prints or prints(tree)):
            self._deaf = self._asked.reads and not reads(tree)
            self._serving, self._leans = text, frozenset() if reads(tree) else free(tree)
            self.made = not self._leans and not names and not self._deaf
        elif self._deaf and reads(tree) and prints(tree):  # the other was an example, or a test
            self._serving, self._leans, self._deaf = text, frozenset(), False
            self.made = not names

    def text(self) -> str | None:
        return (self._named[1] if self._named else None) or self._serving or self._acting or self._idle


def _cost(source: str) -> int:
    """Characters that parsing reads: none of a source that is too long for it."""
    return len(source) if len(source) <= pysource.MAX_SOURCE else 0


def assemble(problem: Problem, code: str) -> str:
    """The source to run: the problem's preamble, its prompt where the code is only a body, and the code.

    The prompt goes before Python code that does not parse by itself, and is
    indented or parses behind the prompt. Nothing else is added or guessed. ``from __future__`` lines of the code move to the top, where Python
    wants them.
    """
    preamble = problem.preamble
    if problem.language != "python":
        return _join(preamble, code) if preamble else code
    name = problem.entry_point
    if problem.prompt and name and not defines(code, name):
        whole = _join(problem.prompt, code)
        # A body that is broken is put where it belongs all the same, so that the error is about the body.
        body = code.lstrip("\r\n").startswith((" ", "\t")) or defines(whole, name)
        if body and pysource.parse(code) is None:
            code = whole
            preamble = "" if whole.startswith(preamble) else preamble
    return _join(*_hoist_future(preamble, code)) if preamble else code


def _hoist_future(preamble: str, code: str) -> tuple[str, str]:
    tree = pysource.parse(code) if "__future__" in code else None
    nodes = []
    for position, node in enumerate(tree.body if tree else []):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            nodes.append(node)
        elif position or not isinstance(node, ast.Expr):
            break
    lines = code.encode("utf-8", "surrogatepass").splitlines(keepends=True)
    for node in nodes:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        lines[first : last + 1] = [head + b"pass" + tail, *[b"\n"] * (last - first)]
    names = sorted({alias.name for node in nodes for alias in node.names})
    top = f"from __future__ import {', '.join(names)}\n" if names else ""
    return top + preamble, b"".join(lines).decode("utf-8", "surrogatepass")


def _join(before: str, after: str) -> str:
    return before + after if before.endswith("\n") or not before else f"{before}\n{after}"


def defines(code: str, entry_point: str) -> bool:
    """The code parses and binds ``f``, or ``Solution.method``, at its top level (if, try and with looked into)."""
    tree = pysource.parse(code)
    return tree is not None and defines_in(tree, tuple(entry_point.split(".")))


def opens_body(source: str, entry_point: str) -> bool:
    """The source ends in the head of that function, with at most a docstring: its body is for a completion to write."""
    tree = pysource.parse(source.rstrip() + "\n    pass\n") if entry_point in source else None
    last = tree.body[-1] if tree and tree.body else None
    if not isinstance(last, ast.FunctionDef | ast.AsyncFunctionDef) or last.name != entry_point:
        return False
    return all(map(pysource.says_nothing, last.body))


def call_target(problem: Problem, case: TestCase, code: str) -> str:
    """The name to call for a case: ``f``, or ``Solution.f`` where the problem allows it and the code has only that."""
    name = case.entry_point or problem.entry_point
    if not name:
        raise InputError("the problem names no function to call", where=problem.source, field="entry_point")
    method = f"{problem.solution_class}.{name}"
    if problem.solution_class and "." not in name and defines(code, method) and not defines(code, name):
        return method
    return name
