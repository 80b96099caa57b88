"""Gives damaged and crafted inputs to everything that reads what may come from somebody else: savepoints, checkpoints
with their logs, rows of state, dead letters, keys on the command line, and requests to the console.

Each input has to be read, or to end in an amadou error, within 5 seconds, and with at most 200 MiB more than the memory
of the process before its first input. Whatever else happens is a failure. Failures at the same place in the code are
shown once, with the command that repeats the first one; at the end, with the smallest input. Nothing needs Spark: there
is no Java, so what only Spark can read ends in an error.
"""

import faulthandler
import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NoReturn

import pyarrow as pa
from attrs import evolve, frozen
from tests.qualify.artefacts import Artefacts, Input, all_calls, cause
from tests.qualify.command import Shown, add_seed, end_on_signals, parser_of
from tests.qualify.crafted import bombs
from tests.qualify.figures import ROOT, Piece
from tests.qualify.inputs import drawn, parquet_bomb

from amadou import AmadouError

SECONDS = 5.0
MEMORY = 200 << 20
IN_PROCESS = 5_000
"""Inputs after which a new process begins."""
SILENCE = 60.0
"""Seconds without an answer after which a process hangs, but not in Python."""
PROGRESS = 10.0
PACKAGES = tuple(f"{ROOT}/{name}/" for name in ("sdk", "runtime", "plugins"))


class HangError(BaseException):
    """A call takes too long. It is no `Exception`, which amadou could catch.

    :param frames: where the threads are
    """

    def __init__(self, seconds: float, frames: Iterable[FrameType]) -> None:
        super().__init__(f"this takes longer than {seconds:g} seconds")
        self.frames = [each for frame in frames for each in traceback.extract_stack(frame)]


@frozen
class Failure:
    """What should not have happened.

    :param kind: the type of the exception
    :param place: the innermost line of amadou
    """

    kind: str
    place: str
    message: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
        trace = "".join(traceback.format_exception(error))
        if isinstance(error, HangError):
            frames, trace = error.frames, "".join(traceback.format_list(error.frames))
        ours = [each for each in frames if each.filename.startswith(PACKAGES)]
        place = f"{Path(ours[-1].filename).relative_to(ROOT)}:{ours[-1].lineno} {ours[-1].name}" if ours else ""
        return cls(type(error).__name__, place, str(error)[:200], trace[-8_000:])


@frozen
class Answer:
    """What came of an input.

    :param shown: its changes, and the call
    """

    number: int
    reader: str
    shown: str
    failure: Failure | None = None

    def __str__(self) -> str:
        found = self.failure
        shown = f"{found.kind} at {found.place}: {found.message}\n{self.shown}" if found else self.shown
        return shown.replace("\n", "\n  ")


def failure_of(make: Callable[[], object], seconds: float = SECONDS) -> Failure | None:
    """Make a call, and return what should not have happened, if anything."""

    def fail(_: int, __: FrameType | None) -> NoReturn:
        raise HangError(seconds, sys._current_frames().values())

    signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        make()
    except BaseException as error:
        lacks_memory = cause(error, MemoryError)
        return None if isinstance(error, AmadouError) and not lacks_memory else Failure.of(lacks_memory or error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def work(seed: int, numbers: Sequence[int], directory: str, sending: "Connection[Any, Any]") -> None:
    """Try inputs in this process. Of each, send what it is, and what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ |= {"JAVA_HOME": "/nowhere", "TMPDIR": directory}
    logging.getLogger("amadou").addHandler(logging.NullHandler())
    pa.set_memory_pool(pa.system_memory_pool())  # the default one has reserved memory, to which no limit applies
    artefacts = Artefacts(Path(directory, "artefacts"))
    for call in all_calls(artefacts):  # imports everything
        artefacts.make(Input(call))
    bombs(), parquet_bomb()
    with open(f"{directory}/fault", "w") as fault:
        faulthandler.enable(fault)
        resource.setrlimit(resource.RLIMIT_DATA, (_used() + MEMORY, resource.RLIM_INFINITY))
        for number in numbers:
            reader, shown, given = drawn(seed, number, artefacts)
            sending.send(Answer(number, reader, shown))
            failure = failure_of(partial(artefacts.make, given))
            sending.send(failure)
            if failure is not None and failure.kind in ("HangError", "MemoryError", "ArrowMemoryError"):
                break  # threads go on, and memory is taken
        os._exit(0)


def _used() -> int:
    """Return how much memory this process can write to, in bytes. RLIMIT_AS would also count what is only reserved, as
    for threads.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))


def answers(seed: int, numbers: Sequence[int]) -> Iterator[Answer]:
    """Yield what comes of inputs, in their order. A new process begins after some of them, and after a bad end."""
    while numbers:
        tried = 0
        for answer in _answers_of_process(seed, numbers[:IN_PROCESS]):
            tried += 1
            yield answer
        numbers = numbers[tried:]


def _answers_of_process(seed: int, numbers: Sequence[int]) -> Iterator[Answer]:
    context = multiprocessing.get_context("spawn")
    shared = Path("/dev/shm")
    receiving, sending = context.Pipe(duplex=False)
    with TemporaryDirectory(prefix="amadou-readers-", dir=shared if shared.is_dir() else None) as directory, receiving:
        process = context.Process(target=work, args=(seed, numbers, directory, sending))
        process.start()
        sending.close()
        begun: Answer | None = None
        try:
            while receiving.poll(SILENCE) and (begun := receiving.recv()) and receiving.poll(SILENCE):
                yield evolve(begun, failure=receiving.recv())
                begun = None
            os.kill(process.pid or 0, signal.SIGABRT)  # writes where it is
        except EOFError:
            pass
        finally:
            process.join(SECONDS)
            process.kill()
        if begun is not None:
            trace = Path(directory, "fault").read_text()
            places = [line.strip() for line in trace.splitlines() if any(name in line for name in PACKAGES)]
            failure = Failure(f"status {process.exitcode}", "".join(places[:1]), "the process ended", trace)
            yield evolve(begun, failure=failure)
        elif process.exitcode:
            raise RuntimeError(f"a process ended with status {process.exitcode} outside of inputs: see above")


def main() -> int:
    parser = parser_of("readers", __doc__)
    add_seed(parser)
    parser.add_argument("--count", type=int, default=100_000, metavar="N", help="number of inputs (default: 100000)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="number of the first input (default: 0)")
    parser.add_argument("--show", action="store_true", help="print each input, and the tracebacks of failures")
    chosen = parser.parse_args()
    end_on_signals()
    numbers = range(chosen.first, chosen.first + chosen.count)
    options = {"count": chosen.count, "first": chosen.first}
    piece = Piece(chosen.figures, "readers", append=chosen.append, seed=chosen.seed, **options)
    failed: dict[tuple[str, str], list[Answer]] = {}
    tried: Counter[str] = Counter()
    began = said = time.monotonic()
    with Shown("readers", chosen.count, "inputs") as shown:
        for answer in answers(chosen.seed, numbers):
            tried[answer.reader.replace("_", " ")] += 1
            if chosen.show:
                shown.say(f"{answer.number} {answer.reader}\n{answer.shown}")
            if answer.failure is not None:
                alike = failed.setdefault((answer.failure.kind, answer.failure.place), [])
                alike.append(answer)
                if len(alike) == 1:
                    repeat = _repeat(chosen.seed, answer)
                    shown.say(f"FAILED, repeat it with: {repeat}\n{answer.failure.trace if chosen.show else answer}")
                    piece.found(str(answer), repeat)
            if time.monotonic() > said + PROGRESS or answer.number == numbers[-1]:
                said = time.monotonic()
                piece.tried(tried)
                rate = (answer.number + 1 - chosen.first) / (said - began)
                shown.advance(tried.total(), f"{rate:.0f} a second, failures at {len(failed)} places")
                tried.clear()
        for alike in sorted(failed.values(), key=len, reverse=True) if chosen.count > 1 else ():
            smallest = min(alike, key=lambda each: len(each.shown))
            readers = ", ".join(f"{count} {name}" for name, count in Counter(each.reader for each in alike).items())
            shown.say(f"{readers}: {smallest}\n  {_repeat(chosen.seed, smallest)}")
    return int(piece.has_found)


def _repeat(seed: int, answer: Answer) -> str:
    return f"python -m tests.qualify.readers --seed {seed} --first {answer.number} --count 1 --show --append"


if __name__ == "__main__":
    sys.exit(main())
