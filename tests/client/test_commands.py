"""exec, exec_stream and spawn: what a command gets, what comes back, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest
from client_help import until

from proctor import CommandError, ConflictError, InvalidRequestError, NotFoundError

FLOOD = "import sys; sys.stdout.write('x' * int(sys.argv[1])); sys.stderr.write('y' * 10)"


def test_a_list_is_a_program_and_its_arguments(sbx: Any) -> None:
    run = sbx.exec(["printf", "%s|", "a b", "$HOME", "*", ""])
    assert (run.exit_code, run.stdout, run.stderr) == (0, "a b|$HOME|*||", "")


def test_text_is_the_shells(sbx: Any) -> None:
    run = sbx.exec("cd /tmp && pwd; echo $((6 * 7)) >&2; exit 3")
    assert (run.exit_code, run.stdout, run.stderr) == (3, "/tmp\n", "42\n")
    assert not run.timed_out
    assert (run.stdout_truncated, run.stderr_truncated, run.out_of_memory, run.replayed) == (False,) * 4
    assert run.duration_ms > 0
    assert run.process_id


def test_cwd_user_and_env(sbx: Any) -> None:
    assert sbx.exec("pwd").stdout == "/workspace\n"
    assert sbx.exec("pwd", cwd="/usr").stdout == "/usr\n"
    sbx.files.mkdir("below/here")
    assert sbx.exec("pwd", cwd="below/here").stdout == "/workspace/below/here\n"
    assert sbx.exec("echo $A-$B", env={"A": "1", "B": ""}).stdout == "1-\n"
    assert sbx.exec(["id", "-u"], user="root").stdout == "0\n"
    assert sbx.exec(["id", "-u"]).stdout != "0\n"
    with pytest.raises(InvalidRequestError, match="no directory"):
        sbx.exec("pwd", cwd="/nowhere")


def test_env_of_the_sandbox_is_every_commands(runtime: Any) -> None:
    with runtime.sandboxes.create(env={"WHO": "all"}) as box:
        assert box.exec("echo $WHO").stdout == "all\n"
        assert box.exec("echo $WHO", env={"WHO": "one"}).stdout == "one\n"


@pytest.mark.parametrize("stdin", ["text\n", "žluť", b"\x00\xff bytes", b"x" * 5_000_000, ""])
def test_stdin(sbx: Any, stdin: str | bytes) -> None:
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    run = sbx.exec(["python3", "-c", "import sys, hashlib; d = sys.stdin.buffer.read(); print(len(d), hashlib.md5(d).hexdigest())"],
                   stdin=stdin)  # fmt: skip
    import hashlib

    assert run.stdout == f"{len(data)} {hashlib.md5(data).hexdigest()}\n"


def test_a_command_that_reads_nothing_does_not_care_for_its_stdin(sbx: Any) -> None:
    assert sbx.exec(["true"], stdin=b"x" * 3_000_000).exit_code == 0


def test_bytes_that_are_no_text(sbx: Any) -> None:
    run = sbx.exec(["printf", r"a\377b"])
    assert run.stdout == "a\ufffdb"
    assert run.stdout_bytes == b"a\xffb"


def test_a_time_limit_is_a_result(sbx: Any) -> None:
    run = sbx.exec("echo before; sleep 1000", timeout_ms=300)
    assert (run.timed_out, run.exit_code, run.stdout) == (True, None, "before\n")
    assert sbx.exec("echo after").stdout == "after\n"


def test_a_signal_is_a_negative_code(sbx: Any) -> None:
    assert sbx.exec(["python3", "-c", "import os; os.kill(os.getpid(), 9)"]).exit_code == -9


def test_a_program_that_is_not_there(sbx: Any) -> None:
    assert sbx.exec(["no-such-program"]).exit_code == 127


def test_memory_is_bounded(runtime: Any) -> None:
    with runtime.sandboxes.create(memory_mib=64) as box:
        run = box.exec(["python3", "-c", "b = bytearray(1 << 30); print(len(b))"])
        assert run.exit_code != 0
        assert "1073741824" not in run.stdout
        if run.out_of_memory:
            with pytest.raises(CommandError) as caught:
                box.exec(["python3", "-c", "b = bytearray(1 << 30)"], check=True)
            assert caught.value.code == "out_of_memory"


def test_check(sbx: Any) -> None:
    assert sbx.exec("echo fine", check=True).stdout == "fine\n"
    with pytest.raises(CommandError) as caught:
        sbx.exec("echo out; echo bad >&2; exit 7", check=True)
    error = caught.value
    assert (error.code, error.exit_code, error.stdout, error.stderr) == ("command_failed", 7, "out\n", "bad\n")
    with pytest.raises(CommandError) as caught:
        sbx.exec(["sleep", "1000"], timeout_ms=100, check=True)
    assert (caught.value.code, caught.value.exit_code) == ("command_timeout", None)


# ---------------------------------------------------------------- how much comes back


def test_64_kib_come_back_and_a_flag_says_that_there_was_more(sbx: Any) -> None:
    run = sbx.exec(["python3", "-c", FLOOD, "65536"])
    assert (len(run.stdout), run.stdout_truncated) == (65_536, False)
    run = sbx.exec(["python3", "-c", FLOOD, "65537"])
    assert (len(run.stdout), run.stdout_truncated) == (65_536, True)
    assert (run.stderr, run.stderr_truncated) == ("y" * 10, False)


def test_1_mib_where_the_time_limit_is_long(sbx: Any) -> None:
    run = sbx.exec(["python3", "-c", FLOOD, str((1 << 20) + 1)], timeout_ms=60_001)
    assert (len(run.stdout), run.stdout_truncated) == (1 << 20, True)


def test_all_of_it_where_it_is_streamed(sbx: Any) -> None:
    pieces: list[str] = []
    run = sbx.exec(["python3", "-c", FLOOD, "3000000"], on_stdout=pieces.append)
    assert len("".join(pieces)) == len(run.stdout) == 3_000_000
    assert not run.stdout_truncated
    assert run.stderr == "y" * 10


def test_streamed_pieces_keep_their_order_whoever_is_slow(sbx: Any) -> None:
    lines: list[str] = []

    def slow(text: str) -> None:
        until(lambda: False, 0.001)
        lines.append(text)

    run = sbx.exec(["python3", "-uc", "for i in range(20000): print(i)"], on_stdout=slow)
    assert "".join(lines) == run.stdout == "".join(f"{i}\n" for i in range(20_000))


def test_a_character_that_is_cut_in_two_is_one_for_the_callback(sbx: Any) -> None:
    pieces: list[str] = []
    source = "import os, time; os.write(1, b'\\xc5'); time.sleep(0.2); os.write(1, b'\\xbe\\xc5')"
    sbx.exec(["python3", "-c", source], on_stdout=pieces.append)
    assert "".join(pieces) == "ž\ufffd"


def test_a_callback_that_raises_ends_the_command(sbx: Any) -> None:
    def bad(text: str) -> None:
        raise LookupError(text)

    with pytest.raises(LookupError):
        sbx.exec("echo now; sleep 1000", on_stdout=bad)
    assert until(lambda: sbx.exec(["pgrep", "-x", "sleep"]).exit_code == 1)


def test_events(sbx: Any) -> None:
    events = list(sbx.exec_stream("echo a; sleep 0.1; echo b >&2; exit 4"))
    assert [event.type for event in events] == ["start", "stdout", "stderr", "exit"]
    assert [event["data"] for event in events[1:3]] == ["a\n", "b\n"]
    assert events[1].bytes == b"a\n"
    end = events[-1]
    assert (end["exitCode"], end["exit_code"], end.timedOut, end["state"]) == (4, 4, False, "exited")


def test_leaving_the_events_early_ends_the_command(sbx: Any) -> None:
    events = sbx.exec_stream("while true; do echo x; sleep 0.01; done")
    for event in events:
        if event.type == "stdout":
            break
    events.close()
    assert until(lambda: all(row.state == "exited" for row in sbx.processes()))


# ---------------------------------------------------------------- in the background


def test_a_process_with_a_pipe(sbx: Any) -> None:
    process = sbx.spawn(["python3", "-c", "while True: print(int(input()) * 2, flush=True)"], stdin="pipe")
    output = process.output()
    for number in (4, 21):
        process.write(f"{number}\n")
        assert next(iter(output)).data == f"{2 * number}\n"
    process.close_stdin()
    rest = "".join(event.data for event in output)
    assert "EOFError" in rest
    ended = process.wait()
    assert ended.exit_code == 1
    assert ended.stdout == "8\n42\n"
    assert (process.state, process.exit_code) == ("exited", 1)


def test_waiting_without_reading_does_not_stop_the_program(sbx: Any) -> None:
    process = sbx.spawn(["python3", "-c", FLOOD, "20000000"])
    ended = process.wait()
    assert (ended.exit_code, len(ended.stdout), ended.stdout_truncated) == (0, 1 << 20, True)


def test_a_reader_that_goes_away_does_not_stop_the_program(sbx: Any) -> None:
    process = sbx.spawn(["python3", "-c", FLOOD, "20000000"])
    output = process.output()
    next(iter(output))
    output.close()
    ended = process.wait()
    assert (ended.exit_code, len(ended.stdout)) == (0, 20_000_000)


def test_kill(sbx: Any) -> None:
    process = sbx.spawn("trap 'echo got; exit 5' TERM; echo up; while true; do sleep 0.01; done")
    output = process.output()
    assert next(iter(output)).data == "up\n"
    process.kill()
    assert [event.data for event in output if event.type == "stdout"] == ["got\n"]
    assert process.wait().exit_code == 5
    process.kill()  # it has ended: nothing happens
    process = sbx.spawn("trap '' TERM; sleep 1000")
    process.kill("SIGKILL")
    assert process.wait().exit_code == -9
    with pytest.raises(InvalidRequestError, match="signal"):
        process.kill("SIGNONSENSE")


def test_waiting_may_be_given_up(sbx: Any) -> None:
    process = sbx.spawn(["sleep", "1000"])
    with pytest.raises(TimeoutError):
        process.wait(timeout_ms=50)
    assert process.refresh().state == "running"
    process.kill(9)
    assert process.wait(timeout_ms=60_000).exit_code == -9


def test_processes_are_found_again(sbx: Any) -> None:
    process = sbx.spawn(["sleep", "1000"])
    assert [(row.id, row.state) for row in sbx.processes()] == [(process.id, "running")]
    again = sbx.process(process.id)
    again.kill("KILL")
    assert again.wait().exit_code == process.wait().exit_code == -9
    with pytest.raises(NotFoundError):
        sbx.process("99999")


def test_a_daemon_outlives_its_exec(sbx: Any) -> None:
    sbx.exec("setsid sh -c 'while true; do date +%N > /workspace/alive; sleep 0.01; done' > /dev/null 2>&1 &")
    first = until(lambda: sbx.exec("cat alive").stdout)
    assert until(lambda: sbx.exec("cat alive").stdout not in ("", first))


def test_a_child_that_keeps_the_pipe_does_not_hold_up_its_parents_end(sbx: Any) -> None:
    assert sbx.exec("sleep 1000 & echo done").stdout == "done\n"


def test_all_end_with_the_sandbox(runtime: Any) -> None:
    box = runtime.sandboxes.create()
    process = box.spawn(["sleep", "1000"])
    box.stop()
    with pytest.raises(ConflictError, match="stopped"):
        box.exec("true")
    with pytest.raises(ConflictError):
        process.wait()
    box.delete()


@pytest.mark.parametrize(
    ("command", "options", "field"),
    [
        ([], {}, "command"), ("", {}, "command"), ([1], {}, "command"), (["a", None], {}, "command"), (None, {}, "command"),
        (["a\0b"], {}, "command"), ("true", {"user": "admin"}, "user"), ("true", {"env": {"A=B": "1"}}, "env"),
        ("true", {"env": {"A": 1}}, "env"), ("true", {"stdin": 5}, "stdin"), ("true", {"timeout_ms": 0}, "timeout_ms"),
        ("true", {"timeout_ms": "5"}, "timeout_ms"), ("true", {"cwd": 3}, "cwd"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(sbx: Any, command: Any, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError, match=field) as caught:
        sbx.exec(command, **options)
    assert caught.value.status == 400


def test_a_keyword_that_is_not_known_gets_a_guess(sbx: Any) -> None:
    with pytest.raises(TypeError, match=r"Did you mean 'timeout_ms'\?"):
        sbx.exec("true", timeout_m=5)
    assert sbx.exec("echo x; sleep 1000", timeoutMs=200).timedOut


def test_an_answer_is_given_again_for_the_same_key(sbx: Any) -> None:
    first = sbx.exec("echo x >> log; wc -l < log", idempotency_key="k1")
    second = sbx.exec("echo x >> log; wc -l < log", idempotency_key="k1")
    assert (first.stdout, first.replayed) == ("1\n", False)
    assert (second.stdout, second.replayed) == ("1\n", True)
    with pytest.raises(InvalidRequestError) as caught:
        sbx.exec("another", idempotencyKey="k1")
    assert (caught.value.code, caught.value.status) == ("idempotency_key_reused", 422)
