"""Actions for the collector: a tick's requests, answered as they come.

The environments of a rank form as many groups as the inference ring has slots. A group is
answered as soon as its observations are there, while the collector steps another one; groups
that are there together are answered together. Whichever way it goes, actions are inferred
over a batch of all environments of the rank in which each has its own row: an operation on a
batch of another size may round otherwise, an operation on other values in other rows may
not. A run therefore learns the same parameters, to the bit, whatever the number of groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from drivetrain_trainer.runtime.faults import StopRequestedError
from drivetrain_trainer.tracing import NO_FLOW, FlowPoint
from drivetrain_trainer.training.phases import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from drivetrain_trainer.runtime.learner_port import LearnerPort
    from drivetrain_trainer.runtime.replay import ReplayRing
    from drivetrain_trainer.runtime.ring_words import Command, Request
    from drivetrain_trainer.tracing import TickFlow
    from drivetrain_trainer.training.phases import PhaseTimeline
    from drivetrain_trainer.training.stop import StopSignal


class TickServer:
    """Serves one tick after the other from the learner's end of the inference ring."""

    def __init__(
        self,
        port: LearnerPort,
        replay: ReplayRing,
        *,
        device: torch.device,
        timeout_s: float,
        timeline: PhaseTimeline,
        flow: TickFlow = NO_FLOW,
        stop: StopSignal | None = None,
        stop_timeout_s: float = 0.0,
    ) -> None:
        """A server that waits at most `timeout_s` seconds for a request.

        Args:
            port: the learner's end of the ring.
            replay: takes the rows that come before the requests.
            device: of the agent.
            timeout_s: the longest time from an answer to the collector's next request.
            stop: once it is requested, `stop_timeout_s` is all the time that is left for a
                request: a collector that hangs must not use up the grace period.
            stop_timeout_s: seconds.
            timeline: told how long each phase took.
            flow: marks the ticks' way in a trace.
        """
        self.observation = torch.zeros(port.observation_shape, device=device)
        """(N, o) float32 of the latest tick; a row is written when its group is answered."""
        self._port = port
        self._replay = replay
        self._timeout_s = timeout_s
        self._stop = stop
        self._stop_timeout_s = min(stop_timeout_s, timeout_s)
        self._timeline = timeline
        self._flow = flow
        self._requests: list[Request] = []
        """Of the tick that is next to be served, in the groups' order."""
        self._committed: int | None = None

    def gather(self, tick: int) -> None:
        """Wait until the collector waits for its answers; all rows of earlier ticks are in then.

        Raises:
            PeerDiedError, StaleTickError, ProtocolError: as of `LearnerPort.await_request`
                and `ReplayRing.commit`.
        """
        while len(self._requests) < self._port.groups:
            self._await_next(tick)
        self._commit(tick - 1)

    def serve(
        self, tick: int, act: Callable[[Tensor], Tensor], *, epoch: int, command: Command
    ) -> None:
        """Answer every group of a tick; all rows of earlier ticks are in replay after.

        Args:
            tick: to be served.
            act: (N, o) observations -> (N, a) actions, each row a function of its own row;
                called once or several times, with the same policy and the same noise.
            epoch: number of that policy.
            command: goes with the answers.

        Raises:
            PeerDiedError, StaleTickError, ProtocolError: as of `gather`.
        """
        answered = 0
        while answered < self._port.groups:
            if answered == len(self._requests):
                self._await_next(tick)
            # The collector may have stepped the first groups by now, and ask for the next tick.
            left = self._port.groups - len(self._requests)
            for _ in range(min(self._port.arrived(), left)):
                self._await_next(tick)
            groups = range(answered, len(self._requests))
            with self._timeline.measure(Phase.INFERENCE):
                self._infer(tick, groups, act)
            with self._timeline.measure(Phase.COLLECTOR_RELEASE):
                for group in groups:
                    self._flow.mark(FlowPoint.RESPONSE, tick, group)
                    self._port.respond(tick, epoch, None, command, group=group)
            answered = groups.stop
        self._requests.clear()
        self._commit(tick - 1)

    def _await_next(self, tick: int) -> None:
        with self._timeline.measure(Phase.COLLECTOR_WAIT):
            request = self._await_request(tick)
        self._requests.append(request)

    def _await_request(self, tick: int) -> Request:
        group, meanwhile = len(self._requests), self._replay.meanwhile(tick - 1)
        if self._stop is not None:
            try:
                return self._port.await_request(
                    tick,
                    self._timeout_s,
                    group=group,
                    meanwhile=meanwhile,
                    interrupt=self._stop.interrupt,
                )
            except StopRequestedError:
                pass  # the boundary is still to be reached, but sooner
        timeout_s = self._timeout_s if self._stop is None else self._stop_timeout_s
        return self._port.await_request(tick, timeout_s, group=group, meanwhile=meanwhile)

    def _infer(self, tick: int, groups: range, act: Callable[[Tensor], Tensor]) -> None:
        """Bring groups' observations to the agent and its actions back into their slots."""
        rows = [self._port.rows[group] for group in groups]
        for group in groups:
            self._flow.mark(FlowPoint.INFERENCE, tick, group)
        with self._timeline.measure(Phase.INFERENCE_H2D):
            for group, own in zip(groups, rows, strict=True):
                self.observation[own].copy_(self._requests[group].observation)
        with self._timeline.measure(Phase.INFERENCE_FORWARD):
            action = act(self.observation)
            if action.is_cuda:  # the copy would wait for it all the same, and be blamed
                torch.cuda.current_stream(action.device).synchronize()
        with self._timeline.measure(Phase.INFERENCE_D2H):
            for group, own in zip(groups, rows, strict=True):
                self._port.place(action[own], group=group)

    def _commit(self, tick: int) -> None:
        if self._committed == tick:
            return
        with self._timeline.measure(Phase.REPLAY_BATCH_WAIT):
            self._replay.commit(tick)
        self._committed = tick
        self._timeline.tracer.counter("replay rows", self._replay.size)
