"""One run of every measurement, as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import boxes, machine, report, sides
from bench.contest import Times, contest, once
from proctor.core.errors import IsolationUnavailable
from proctor.engine.languages import LANGUAGES
from proctor.engine.shared import SyncEngine
from proctor.images.host import host_image

Row = dict[str, Any]


class Bench:
    """All measurements; ``rows`` is the result."""

    def __init__(self, scale: float, say: Callable[[str], None]) -> None:
        self.scale, self.say = scale, say
        self.rows: list[Row] = []
        self.results: dict[str, Any] = {}

    def add(
        self,
        what: str,
        measured: str,
        beside: str = "",
        ratio: float | None = None,
        aim: str = "",
        met: bool | None = None,
    ) -> None:
        """One line of the table."""
        self.rows.append({"what": what, "measured": measured, "beside": beside, "ratio": ratio, "aim": aim, "met": met})

    def keep(self, name: str, times: dict[str, Times]) -> None:
        """Figures for the JSON file."""
        self.results[name] = {side: t.as_json() for side, t in times.items()}

    def run(self) -> None:
        """Every measurement in turn."""
        image = host_image()
        with sides.Workshop(image) as shop:
            one = SyncEngine(slots=1, image=image)
            two = SyncEngine(slots=2, image=image)
            try:
                self.results["isolation"] = one.isolation
                self.cases(one, shop)
                self.programs(one, shop)
                self.slots(one, two)
                self.again(two)
                self.start(image, one)
                self.compiled(one, shop)
            finally:
                one.close()
                two.close()
        self.inside("gvisor", "gVisor", image, 8 * self.scale)
        self.inside("microvm", "micro-VM", image, 4 * self.scale)
        self.sandboxes()
        self.report()

    def inside(self, level: str, label: str, image: Any, rounds: int) -> None:
        """The same behind another wall, where it can be had."""
        self.say(label)
        try:
            one = SyncEngine(slots=1, isolation=level, image=image)
        except IsolationUnavailable as exc:
            self.add(label, f"skipped: {str(exc)[:60]}")
            return
        try:
            runners = {
                "cold": lambda: sides.cold(lambda: SyncEngine(slots=1, isolation=level, image=image)),
                "pooled": lambda: sides.first_output(one, sides.job(1)),
                "warm": lambda: sides.each_case(one, sides.job(8)),
                "real": lambda: sides.each_case(one, sides.job(3, warm=False)),
            }
            times = contest(runners, rounds)
            sizes = [sum(map(machine.proportional, machine.family(pid))) for pid in one.agent_pids()]
        finally:
            one.close()
        self.keep(level, times)
        self.results[f"{level}_idle_slot_mb"] = round(median(sizes) / 1e6, 2)
        how = f" ({one.features['accelerator']})" if "accelerator" in one.features else ""
        self.add(f"{label}{how}: engine created to first Python output", ms(times["cold"].median))
        self.add("  first output in a slot that is ready", ms(times["pooled"].median))
        self.add("  one case, warm, in an open jail", ms(times["warm"].median))
        self.add("  one case by a fresh python3", ms(times["real"].median))
        self.add("  memory of an idle slot (PSS)", f"{median(sizes) / 1e6:.0f} MB")

    def sandboxes(self) -> None:
        """Sandboxes of the SDK."""
        self.say("sandboxes")
        times = boxes.measure(8 * self.scale)
        self.keep("sandboxes", times)
        process = times["subprocess"].median
        for name, what, aim, published in (
            ("create", "sandbox: create to first Python output", 0.015, boxes.PUBLISHED_CREATE),
            ("warm", "  a Python program in use, warm", 0.008, boxes.PUBLISHED_EXEC),
            ("real", "  a fresh python3 in use", 0.035, boxes.PUBLISHED_EXEC),
        ):
            value = times[name].median
            beside = f"subprocess {ms(process)}; published {ms(published)}"
            self.add(what, ms(value), beside, value / process, ms(aim), value <= aim)
        empty, large = times["create"].median, times["snapshot"].median
        self.add(
            "  create to output from a snapshot of 500 MB", ms(large), f"from none {ms(empty)}", large / empty, "1.2",
            large <= 1.2 * empty,
        )  # fmt: skip

    def report(self) -> None:
        """The page about 5,000 completions, made and opened."""
        self.say("a report of 5,000 completions")
        figures = self.results["report"] = report.measure()
        if "skipped" in figures:
            self.add("report of 5,000 completions", f"skipped: {figures['skipped'][:60]}")
            return
        made = figures["audit_s"] + figures["render_s"]
        self.add("report of 5,000 completions: audit and render", ms(made), f"{figures['bytes'] / 1e6:.2f} MB")
        opened = figures["open_s"]
        if opened is None:
            self.add("  opened and painted in Chromium", "skipped: no chromium or playwright")
        else:
            self.add("  opened and painted in Chromium", ms(opened), "", None, "2 s", opened <= 2)

    def cases(self, engine: SyncEngine, shop: sides.Workshop) -> None:
        """A case in an open jail, against everything that could be used instead."""
        self.say("a case in an open jail, against a process, a bare fork and bubblewrap")
        missing = sides.have_bubblewrap()
        cpu = {"warm": Times(), "bare fork": Times()}
        runners = {
            "warm": lambda: sides.each_case(engine, sides.job(12), cpu["warm"]),
            "bare fork": lambda: shop.forks(cpu["bare fork"]),
            "subprocess": lambda: once(shop.python),
            "subprocess -S": lambda: once(shop.python_alone),
            "real interpreter": lambda: sides.each_case(engine, sides.job(3, warm=False)),
        }
        if not missing:
            try:
                shop.bubblewrap()
                runners["bubblewrap"] = lambda: once(shop.bubblewrap)
            except RuntimeError as exc:
                missing = str(exc)
        times = contest(runners, 16 * self.scale)
        self.keep("case", times)
        self.keep("case_cpu", cpu)
        warm, bare, process = times["warm"].median, times["bare fork"].median, times["subprocess"].median
        self.add(
            "one case, warm, in an open jail",
            ms(warm),
            f"subprocess.run {ms(process)}",
            warm / process,
            "below 1",
            warm < process,
        )
        alone = times["subprocess -S"].median
        self.add(
            "  against python3 -S (no site-packages)",
            ms(warm),
            f"subprocess.run {ms(alone)}",
            warm / alone,
            "below 1",
            warm < alone,
        )
        self.add(
            "  against a bare fork, exit and wait",
            ms(warm),
            f"bare fork {ms(bare)}",
            warm / bare,
            "2",
            warm <= 2 * bare,
        )
        used, plain = cpu["warm"].median, cpu["bare fork"].median
        self.add("  CPU time of the case's processes", ms(used), f"bare fork's {ms(plain)}", used / plain)
        real = times["real interpreter"].median
        self.add("one case, real interpreter in the jail", ms(real), f"subprocess.run {ms(process)}", real / process)
        if missing:
            self.add("  against bubblewrap + python3", ms(warm), f"skipped: {missing[:60]}")
        else:
            wrapped = times["bubblewrap"].median
            self.add(
                "  warm, against bubblewrap + python3",
                ms(warm),
                f"bubblewrap {ms(wrapped)}",
                warm / wrapped,
                "below 1",
                warm < wrapped,
            )

    def programs(self, engine: SyncEngine, shop: sides.Workshop) -> None:
        """A program from submitting it to its outcomes."""
        self.say("programs from end to end")
        times = contest(
            {
                "1 case": lambda: once(lambda: sides.checked(engine, sides.job(1))),
                "1 subprocess": lambda: once(shop.python),
                "10 cases": lambda: once(lambda: sides.checked(engine, sides.job(10))),
                "10 subprocesses": lambda: once(lambda: shop.python(10)),
                "first output": lambda: sides.first_output(engine, sides.job(10)),
            },
            14 * self.scale,
        )
        self.keep("program", times)
        for ours, theirs in (("1 case", "1 subprocess"), ("10 cases", "10 subprocesses")):
            a, b = times[ours].median, times[theirs].median
            self.add(f"one program, {ours}, end to end", ms(a), f"{theirs} {ms(b)}", a / b, "below 1", a < b)
        first = times["first output"].median
        self.add("submitted to first output, engine ready", ms(first), "", None, "12 ms", first <= 0.012)

    def slots(self, one: SyncEngine, two: SyncEngine) -> None:
        """Two slots against one."""
        self.say("two slots against one")
        times = contest({"one": lambda: sides.many(one, 6, 10), "two": lambda: sides.many(two, 6, 10)}, 12 * self.scale)
        self.keep("slots", times)
        rates = {side: 1 / t.median for side, t in times.items()}
        ratio = rates["two"] / rates["one"]
        met = ratio >= 1.7 if machine.about()["cpus"] != 1 else None
        self.add(
            "programs a second, 10 cases each, 2 slots",
            f"{rates['two']:.1f}",
            f"1 slot {rates['one']:.1f}",
            ratio,
            "1.7 on 2 free cores",
            met,
        )

    def again(self, engine: SyncEngine) -> None:
        """The same completions scored a second time, with the cache."""
        self.say("the same completions again")
        count = max(20, int(100 * self.scale))
        turns = [sides.score_twice(engine, count, 10) for _ in range(2)]
        first, second = Times([one for one, _ in turns]), Times([two for _, two in turns])
        self.keep("again", {"first": first, "second": second})
        share = second.median / first.median
        self.add(
            f"{count} programs, 10 cases each, scored a second time",
            ms(second.median),
            f"the first time {ms(first.median)}",
            share,
            "0.02",
            share <= 0.02,
        )

    def start(self, image: Any, ready: SyncEngine) -> None:
        """From nothing to output, and what an idle slot holds."""
        self.say("cold start and memory")
        times = contest({"cold": lambda: sides.cold(lambda: SyncEngine(slots=1, image=image))}, 5 * self.scale)
        self.keep("start", times)
        self.add(
            "engine created to first Python output",
            ms(times["cold"].median),
            "published for others: 351 ms",
            times["cold"].median / 0.351,
        )
        sides.checked(ready, sides.job(1))
        time.sleep(0.5)  # until the jail for the next job waits
        sizes = [sum(map(machine.proportional, machine.family(pid))) for pid in ready.agent_pids()]
        size = median(sizes) / 1e6
        self.results["idle_slot_mb"] = round(size, 2)
        self.add("memory of an idle slot (PSS)", f"{size:.1f} MB", "", None, "15 MB", size <= 15)

    def compiled(self, engine: SyncEngine, shop: sides.Workshop) -> None:
        """A C++ program."""
        if not next(row for row in LANGUAGES if row.name == "cpp").available():
            self.add("C++: compile and run one case", "skipped: g++ is not installed")
            return
        self.say("C++")
        times = contest(
            {
                "jail": lambda: once(lambda: sides.checked(engine, sides.job(1, language="cpp"))),
                "g++": lambda: once(shop.compile_and_run),
            },
            5 * self.scale,
            least=3,
        )
        self.keep("cpp", times)
        a, b = times["jail"].median, times["g++"].median
        self.add("C++: compile and run one case", ms(a), f"unsandboxed {ms(b)}", a / b)


def ms(seconds: float) -> str:
    """Milliseconds with three digits."""
    value = seconds * 1e3
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def table(rows: list[Row]) -> Table:
    """The rows for people."""
    shown = Table(title="Medians of interleaved turns, from one run", title_justify="left")
    for name, side in (
        ("what", "left"),
        ("measured", "right"),
        ("beside it", "right"),
        ("ratio", "right"),
        ("aim", "right"),
        ("", "left"),
    ):
        shown.add_column(name, justify="right" if side == "right" else "left")
    for row in rows:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}" if row["ratio"] >= 0.1 else f"{row['ratio']:.3f}"
        mark = {True: "met", False: "[bold]not met[/bold]", None: ""}[row["met"]]
        shown.add_row(row["what"], row["measured"], row["beside"], ratio, row["aim"], mark)
    return shown


def main() -> int:
    """Measure, show, and save; the exit status says nothing about aims."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measured speed on this machine, side by side."
    )
    parser.add_argument("--json", metavar="FILE", help="save all figures there")
    parser.add_argument("--scale", type=float, default=1.0, help="time to spend, 1 is about a minute")
    options = parser.parse_args()
    console, notes = Console(width=None if sys.stdout.isatty() else 130), Console(stderr=True)
    start = time.monotonic()
    before = {"load": machine.load(), "busy": machine.busy()}
    bench = Bench(options.scale, lambda text: notes.print(f"measuring {text} ...", style="dim"))
    bench.run()
    after = {"load": machine.load(), "busy": machine.busy()}
    about = machine.about()
    console.print(table(bench.rows))
    console.print(
        f"{about['cpus']} x {about['cpu']}, Linux {about['kernel']}, Python {about['python']}, isolation: {bench.results['isolation']}.\n"
        f"Load average {before['load']:.2f} at the start, {after['load']:.2f} at the end (with this run in it); "
        f"others used {before['busy']:.0%} and {after['busy']:.0%} of the CPUs."
    )
    quiet = max(before["busy"], after["busy"]) <= machine.QUIET
    if not quiet:
        console.print(
            "[bold]This machine was not quiet: trust the ratios, not the milliseconds, and neither far.[/bold]"
        )
    if options.json:
        figures = {
            "machine": about,
            "before": before,
            "after": after,
            "quiet": quiet,
            "seconds": round(time.monotonic() - start, 1),
        }
        Path(options.json).write_text(
            json.dumps({**figures, "rows": bench.rows, "times": bench.results}, indent=1) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
