"""Records a process's events into its trace file, off the thread that has them.

An event is formatted where it happens (about a microsecond) and appended to a list; a thread
writes the list twice a second, so that a killed process loses half a second at most. Where
the disk cannot keep up, events are left out and counted rather than kept without bound.
"""

from __future__ import annotations

import json
import math
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.tracing.header import header_lines
from drivetrain_trainer.tracing.log import logger
from drivetrain_trainer.tracing.segments import SEPARATOR, Segments, event_line
from drivetrain_trainer.tracing.settings import TRACKS
from drivetrain_trainer.tracing.tracer import NULL_TRACER, FlowPhase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from drivetrain_trainer.tracing.gpu import GpuIntervals
    from drivetrain_trainer.tracing.settings import TraceSettings
    from drivetrain_trainer.tracing.tracer import Argument, GpuMark, Tracer

FLUSH_SECONDS: Final = 0.5
PENDING_EVENTS: Final = 100_000
"""Events that wait for the disk at most: some ten megabytes."""
_WRITTEN_AT_ONCE: Final = 1000
"""Events that one write takes: together they fit half of the least bound of a trace."""
WRITER_THREAD: Final = "trace_writer"
_CLOSE_TIMEOUT_S: Final = 5.0
_TRACK_ORDER: Final = 50
"""Device streams are shown below the threads."""
_CATEGORY: Final = "drivetrain"


class _Names(dict[str, str]):
    """Names as JSON strings, made once each."""

    def __missing__(self, name: str) -> str:
        encoded = self[name] = json.dumps(name)
        return encoded


class FileTracer:
    """A `Tracer` that writes Chrome's JSON array format."""

    enabled = True

    def __init__(self, settings: TraceSettings, gpu: GpuIntervals | None = None) -> None:
        """Open the file and start the writing thread.

        Raises:
            OSError: the file cannot be written.
        """
        self._settings = settings
        self._pid = settings.process_number
        self._cpu_ns = time.thread_time_ns if settings.thread_time else _no_cpu_ns
        self._gpu = gpu
        self._names = _Names()
        self._lines: list[str] = []
        self._lost = 0
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._metadata: list[str] = []
        self._local = threading.local()  # a number of a thread that is gone must not be found
        self._tracks: dict[str, int] = {}
        self._used = 0
        self._clock = (time.perf_counter_ns(), time.time_ns())
        self._closing = threading.Event()
        self.thread("main", 0)
        self._segments = Segments(
            settings.path, settings.max_bytes, header=self._header, instant=self._instant
        )
        self._lines.clear()  # the name of the main thread is in the header
        self._writer = threading.Thread(target=self._work, name=WRITER_THREAD, daemon=True)
        self._writer.start()

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._segments.path

    def cpu_ns(self) -> int:
        """See `Tracer.cpu_ns`."""
        return self._cpu_ns()

    def complete(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        cpu_start_ns: int = 0,
        args: Mapping[str, Argument] | None = None,
    ) -> None:
        """See `Tracer.complete`."""
        more = ""
        if cpu_start_ns:
            used = self._cpu_ns() - cpu_start_ns
            more = f',"tts":{_micro(cpu_start_ns)},"tdur":{_micro(used)}'
        if args is not None:
            more += f',"args":{json.dumps(args)}'
        self._append(self._span(self._thread_number(), name, start_ns, end_ns, more))

    def span(
        self, name: str, args: Mapping[str, Argument] | None = None
    ) -> AbstractContextManager[None]:
        """See `Tracer.span`."""
        return self._measure(name, args)

    def flow(self, kind: str, number: int, phase: FlowPhase, point: str) -> None:
        """See `Tracer.flow`."""
        now = time.perf_counter_ns()
        encoded = self._names[kind]
        bound = ',"bp":"e"' if phase is FlowPhase.END else ""
        self._append(
            f'{{"ph":"{phase.value}","cat":{encoded},"name":{encoded},"id":{number},'
            f'"pid":{self._pid},"tid":{self._thread_number()},"ts":{now // 1000}.{now % 1000:03d}'
            f'{bound},"args":{{"at":{self._names[point]}}}}},\n'
        )

    def counter(self, name: str, value: float) -> None:
        """See `Tracer.counter`."""
        if not math.isfinite(value):  # which JSON cannot say
            return
        self._append(
            f'{{"ph":"C","cat":"{_CATEGORY}","name":{self._names[name]},"pid":{self._pid},'
            f'"tid":{self._thread_number()},"ts":{_micro(time.perf_counter_ns())},'
            f'"args":{{"value":{json.dumps(value)}}}}},\n'
        )

    def instant(self, name: str, args: Mapping[str, Argument] | None = None) -> None:
        """See `Tracer.instant`."""
        self._append(self._instant(name, args) + ",\n")

    def thread(self, name: str, order: int) -> None:
        """See `Tracer.thread`."""
        number: int | None = getattr(self._local, "number", None)
        if number is None:
            with self._lock:
                number = self._local.number = self._next_number()
        self._describe(number, name, order)

    def gpu_mark(self) -> GpuMark | None:
        """See `Tracer.gpu_mark`."""
        return None if self._gpu is None else self._gpu.mark()

    def gpu_complete(self, name: str, track: str, begin: GpuMark | None) -> None:
        """See `Tracer.gpu_complete`."""
        if begin is not None and self._gpu is not None:
            self._gpu.complete(name, track, begin)

    def close(self) -> None:
        """See `Tracer.close`."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._writer.join(_CLOSE_TIMEOUT_S)
        if self._writer.is_alive():  # the disk does not answer: what is written is readable
            logger(__name__).warning(
                "trace is not complete: its disk does not answer", path=str(self.path)
            )
            return
        self._flush()
        self._segments.close()

    @contextmanager
    def _measure(self, name: str, args: Mapping[str, Argument] | None) -> Iterator[None]:
        cpu = self._cpu_ns()
        started = time.perf_counter_ns()
        try:
            yield
        finally:
            self.complete(name, started, time.perf_counter_ns(), cpu, args)

    def _span(self, track: int, name: str, start_ns: int, end_ns: int, more: str = "") -> str:
        took = max(end_ns - start_ns, 0)
        return (
            f'{{"ph":"X","cat":"{_CATEGORY}","name":{self._names[name]},"pid":{self._pid},'
            f'"tid":{track},"ts":{start_ns // 1000}.{start_ns % 1000:03d},'
            f'"dur":{took // 1000}.{took % 1000:03d}{more}}},\n'
        )

    def _instant(self, name: str, args: Mapping[str, Argument] | None = None) -> str:
        """Of the whole process, on the track of its main thread whichever thread says it."""
        more = "" if args is None else f',"args":{json.dumps(args)}'
        return (
            f'{{"ph":"i","s":"p","cat":"{_CATEGORY}","name":{json.dumps(name)},'
            f'"pid":{self._pid},"tid":{self._pid},'
            f'"ts":{_micro(time.perf_counter_ns())}{more}}}'
        )

    def _append(self, line: str) -> None:
        if len(self._lines) < PENDING_EVENTS:
            self._lines.append(line)
        else:
            self._lost += 1

    def _thread_number(self) -> int:
        number: int | None = getattr(self._local, "number", None)
        if number is None:
            self.thread(threading.current_thread().name, self._used)
            number = self._local.number
            assert number is not None
        return number

    def _next_number(self) -> int:
        number = self._pid + min(self._used, TRACKS - 1)
        self._used += 1
        return number

    def _describe(self, number: int, name: str, order: int) -> None:
        for kind, args in (
            ("thread_name", {"name": name}),
            ("thread_sort_index", {"sort_index": order}),
        ):
            line = event_line(
                {"ph": "M", "name": kind, "pid": self._pid, "tid": number, "ts": 0, "args": args}
            ).decode()
            with self._lock:
                self._metadata.append(line)
            self._append(line + ",\n")

    def _header(self, segment: int) -> bytes:
        monotonic_ns, realtime_ns = self._clock
        lines = header_lines(
            self._settings, segment, monotonic_ns=monotonic_ns, realtime_ns=realtime_ns
        )
        with self._lock:
            lines += [line.encode() for line in self._metadata]
        return SEPARATOR.join(lines) + SEPARATOR

    def _work(self) -> None:
        while not self._closing.wait(FLUSH_SECONDS):
            self._flush()

    def _flush(self) -> None:
        """Write what is there."""
        with self._flushing:
            self._resolve_gpu()
            self._write_pending()

    def _write_pending(self) -> None:
        lines = self._lines
        for _ in range(0, len(lines), _WRITTEN_AT_ONCE):  # what comes meanwhile is the next flush's
            data = "".join(lines[:_WRITTEN_AT_ONCE]).encode()
            del lines[:_WRITTEN_AT_ONCE]
            self._segments.write(data)
        lost, self._lost = self._lost, 0
        if lost:
            self._segments.write((self._instant("events lost", {"count": lost}) + ",\n").encode())
            logger(__name__).warning(
                "trace lost events: its disk is slow", count=lost, path=str(self.path)
            )

    def _resolve_gpu(self) -> None:
        if self._gpu is None:
            return
        try:
            for done in self._gpu.resolve():
                track = self._track(done.track)
                self._append(self._span(track, done.name, done.start_ns, done.end_ns))
            self._lost += self._gpu.take_lost()
        except Exception as error:  # noqa: BLE001  # whatever the driver says ends its part alone
            logger(__name__).warning("trace goes on without the device", reason=str(error))
            self._gpu = None

    def _track(self, name: str) -> int:
        """Number of a device stream, which is shown as a thread."""
        number = self._tracks.get(name)
        if number is None:
            with self._lock:
                number = self._tracks[name] = self._next_number()
            self._describe(number, name, _TRACK_ORDER + len(self._tracks))
        return number


def open_tracer(settings: TraceSettings | None) -> Tracer:
    """The tracer of these settings; one that records nothing for None.

    A file that cannot be written is told in the log: training goes on without a trace.
    """
    if settings is None:
        return NULL_TRACER
    gpu = None
    if settings.cuda_device is not None:
        # Imported here: only a CUDA learner has a use for torch in its tracer.
        from drivetrain_trainer.tracing.gpu import cuda_intervals  # noqa: PLC0415

        gpu = cuda_intervals(settings.cuda_device)
    try:
        tracer = FileTracer(settings, gpu)
    except OSError as error:
        logger(__name__).warning(
            "no trace: it cannot be written", path=str(settings.path), reason=str(error)
        )
        return NULL_TRACER
    logger(__name__).info("tracing", path=str(tracer.path))
    return tracer


def _no_cpu_ns() -> int:
    return 0


def _micro(nanoseconds: int) -> str:
    """Microseconds with all their digits."""
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"
