"""The doors of the engine: one policy at one load under one seed, users in a loop or arrivals in time."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from dspark_sim.engine.batching import RequestStream
from dspark_sim.engine.decoding import Observer
from dspark_sim.engine.fast import hindrance, require
from dspark_sim.engine.full_loop import FullLoop
from dspark_sim.engine.recorder import Recorder, Sink, records_of
from dspark_sim.engine.replay import build_replay
from dspark_sim.engine.requests import Requests, Tickets, requests_of_demand, requests_of_trace
from dspark_sim.engine.serving import Deployment, Hardware, Serving
from dspark_sim.engine.shortcuts import has_shortcut
from dspark_sim.engine.sources import ClosedLoop, OpenLoop, Source, mid_text
from dspark_sim.errors import InputError
from dspark_sim.hardware.profile import HardwareProfile
from dspark_sim.policies.base import Policy
from dspark_sim.schema import FloatArray, IntArray, RunLog
from dspark_sim.workload.mix import Demand
from dspark_sim.workload.shelf import slices
from dspark_sim.workload.traces import Trace
from dspark_sim.workload.visits import visited

DECODE_ONLY = Serving()


def simulate(
    trace: Trace,
    profile: HardwareProfile,
    policy: Policy,
    *,
    concurrency: int,
    output_tokens: int,
    seed: int,
    drafter: str | None = None,
    believed: HardwareProfile | None = None,
    requests: int | None = None,
    max_output_tokens: int | None = None,
    turnaround_s: float = 0.0,
    warmup_fraction: float | None = None,
    serving: Serving = DECODE_ONLY,
    observer: Observer | None = None,
    check: bool = False,
    fast: bool = False,
) -> RunLog:
    """Serve a closed loop of users and return its records.

    Args:
        trace: acceptance to replay.
        profile: true cost of a step.
        policy: verification policy (``parse_policy``).
        concurrency: users; each sends its next request once its last one is done [requests].
        output_tokens: committed output tokens to measure, up to the end of a step [tokens].
        seed: of every random stream, >= 0.
        drafter: drafter of the trace; None as in ``Trace.drafter``.
        believed: cost that the scheduler plans with; None: the true one.
        requests: a finite stream of that many requests, all from their first token, measured whole
            until the last is done; ``output_tokens`` and the warm-up then mean nothing.
        max_output_tokens: cuts every text [tokens].
        turnaround_s: from the end of a user's request to the sending of the next [s].
        warmup_fraction: warm-up before measuring, as a share of ``output_tokens``; None: until the
            running users have committed the longest text each, on average.
        serving: prefill, replicas, router.
        observer: called with anchors, verify lengths and accepted draft tokens of every step's rounds.
        check: test the laws of docs/concepts.md after every step (slow).
        fast: run the compiled step where there is one (:mod:`dspark_sim.engine.fast`); same results.

    Raises:
        InputError: an argument out of range, a drafter that the trace lacks, a policy that the
            drafter cannot serve, a text that no KV holds, or a user's rule that returns something
            else than lengths.
    """
    _at_least("concurrency", concurrency, 1)
    _at_least("output_tokens", output_tokens, 1)
    _at_least("seed", seed, 0)
    _at_least("requests", requests, 1)
    _at_least("max_output_tokens", max_output_tokens, 2)
    _at_least("turnaround_s", turnaround_s, 0)
    _at_least("warmup_fraction", warmup_fraction, 0)
    asked = requests_of_trace(trace, max_output_tokens)
    slots = min(concurrency, profile.max_num_seqs or concurrency, requests or concurrency)
    run = _Run(trace, profile, policy, asked, serving, drafter=drafter, believed=believed)
    if not run.fits_Q.any():
        raise InputError(f"profile {profile.name}: its KV holds no text of trace '{trace.name}'")
    # The first batch meets texts by the rounds of a full-block replay, a loop that has run for long by
    # those of the policy at hand, and only whole texts are on record: until the first batch is through.
    users = min(concurrency, slots * serving.replicas)
    longest = int(asked.output_tokens_Q.max()) - 1
    warmup_tokens = users * longest if warmup_fraction is None else warmup_fraction * output_tokens
    watched = check or observer is not None
    answers = not turnaround_s and bool(run.fits_Q.all())
    decodes_all = int(asked.output_tokens_Q.min()) > 1
    compiled = fast and not watched and run.compiles() and answers and (serving.replicas == 1 or decodes_all)
    full = not compiled and not watched and answers and decodes_all and requests is None and run.is_plain()
    run.recorder = _recorder_of(compiled)(
        run.replay.gamma,
        slots,
        warmup_tokens=0 if requests else warmup_tokens,
        output_tokens=None if requests else output_tokens,
        requests=requests,
        records=run.records,
    )
    deployed = run.deploy(slots, seed, observer, compiled)
    stream = RequestStream(len(asked), seed, requests)
    source = ClosedLoop(
        stream, run.tickets, run.fits_Q, deployed.send, run.recorder.refuse, turnaround_s=turnaround_s
    )
    started = 0
    if full:
        deployed.run_ahead(run.full_loop(deployed, stream, concurrency, run.mid_text(users, seed)))
        return run.log(source, concurrency=concurrency, seed=seed, slots=slots)
    if requests is None:
        started = deployed.start_in_mid_text(*run.mid_text(users, seed))
    source.start(concurrency - started, 0.0)
    deployed.run(source, check)
    return run.log(source, concurrency=concurrency, seed=seed, slots=slots)


def serve(
    trace: Trace,
    demand: Demand,
    arrival_s_Q: FloatArray,
    profile: HardwareProfile,
    policy: Policy,
    *,
    seed: int,
    drafter: str | None = None,
    believed: HardwareProfile | None = None,
    serving: Serving = DECODE_ONLY,
    check: bool = False,
    fast: bool = False,
    sink: Sink | None = None,
) -> RunLog:
    """Serve requests that arrive at known times, from an empty service to the end of the last one.

    Args:
        trace: acceptance to replay; that of the mix which ``demand`` was drawn from.
        demand: lengths of the requests, and the stretches of text that they replay.
        arrival_s_Q: when each arrives, sorted [s].
        profile: as in :func:`simulate`.
        policy: as in :func:`simulate`.
        seed: of the router's stream, >= 0.
        drafter: as in :func:`simulate`.
        believed: as in :func:`simulate`.
        serving: prefill, replicas, router.
        check: as in :func:`simulate`.
        fast: as in :func:`simulate`.
        sink: takes the steps as they are recorded and the requests as they end; the log holds none.

    Raises:
        InputError: as :func:`simulate`; or arrivals that are not sorted, finite times of 0 or more, one
            for each request.
    """
    _at_least("seed", seed, 0)
    if not len(demand) or len(arrival_s_Q) != len(demand):
        counts = f"{len(arrival_s_Q)} arrivals for {len(demand)} requests"
        raise InputError(f"{counts}; there must be one for each, and at least one")
    if not (np.isfinite(arrival_s_Q).all() and arrival_s_Q[0] >= 0 and (np.diff(arrival_s_Q) >= 0).all()):
        raise InputError("arrivals must be sorted, finite times of 0 s or more")
    asked = requests_of_demand(demand)
    run = _Run(trace, profile, policy, asked, serving, drafter=drafter, believed=believed)
    slots = min(len(demand), profile.max_num_seqs or len(demand))
    compiled = fast and not check and run.compiles()
    fitting = int(np.count_nonzero(run.fits_Q))
    run.recorder = _recorder_of(compiled)(
        run.replay.gamma, slots, 0, None, requests=fitting, records=run.records, sink=sink
    )
    deployed = run.deploy(slots, seed, compiled=compiled)
    source = OpenLoop(arrival_s_Q, run.tickets, run.fits_Q, deployed.send)
    deployed.run(source, check)
    return run.log(source, concurrency=0, seed=seed, slots=slots)


class _Run:
    """What both doors put together."""

    recorder: Recorder

    def __init__(
        self,
        trace: Trace,
        profile: HardwareProfile,
        policy: Policy,
        requests: Requests,
        serving: Serving,
        *,
        drafter: str | None,
        believed: HardwareProfile | None,
    ) -> None:
        self._trace, self._policy, self._serving = trace, policy, serving
        self._drafter = trace.drafter(drafter)
        self._requests = requests
        self.replay = build_replay(trace, self._drafter, policy)
        self.tickets = Tickets(capacity=max(64, len(requests)))
        self.records = records_of(requests, self.tickets)
        self._hardware = Hardware.of(profile, believed, serving.check(), self.replay)
        self.fits_Q = self._hardware.fits(requests.most_tokens_Q, self.replay.lookahead)

    def compiles(self) -> bool:
        """Return whether policy and prefill allow that the run is compiled."""
        return hindrance(self._policy, self._serving.check()) is None

    def is_plain(self) -> bool:
        """Return whether one replica decodes, by a rule without a view; no prompts, blocks, seams."""
        serving, bare = self._serving, self._hardware.ledger(0) is None and not self._requests.has_seams
        alone = serving.replicas == 1 and serving.check().kind == "none"
        return alone and bare and has_shortcut(self._policy)

    def full_loop(
        self, deployed: Deployment, stream: RequestStream, concurrency: int, start: tuple[IntArray, IntArray]
    ) -> FullLoop:
        """Return the loop of users whose slots are never empty, from ``start``: requests and rows."""
        return FullLoop(
            self.replay,
            self._requests,
            self.tickets,
            self.recorder,
            policy=self._policy,
            cost=deployed.cost,
            believed=deployed.believed,
            request_R=start[0],
            row_R=start[1],
            concurrency=concurrency,
            take=stream.take,
        )

    def deploy(
        self, slots: int, seed: int, observer: Observer | None = None, compiled: bool = False
    ) -> Deployment:
        """Return the replicas, idle at time 0."""
        self._deployed = Deployment(
            replay=self.replay,
            policy=self._policy,
            requests=self._requests,
            tickets=self.tickets,
            recorder=self.recorder,
            hardware=self._hardware,
            serving=self._serving,
            slots=slots,
            seed=seed,
            observer=observer,
            compiled=compiled,
        )
        return self._deployed

    def mid_text(self, count: int, seed: int) -> tuple[IntArray, IntArray]:
        """Return requests and rows of ``count`` users of a loop that has run for long."""
        rows = visited(self._trace, self._drafter)
        inside = np.empty(len(rows), dtype=bool)
        for some in slices(len(rows)):
            request = self._trace.request_of(rows[some])
            inside[some] = (rows[some] < self._requests.last_S[request]) & self.fits_Q[request]
        row = mid_text(rows, inside, count, seed)
        return self._trace.request_of(row), row

    def log(self, source: Source, *, concurrency: int, seed: int, slots: int) -> RunLog:
        """Return the records of the finished run."""
        policy, recorder = self._policy, self.recorder
        lossless = "lossless" if self._trace.meta.get("temperature") == 0 else policy.verdict
        return recorder.run_log(
            policy=policy.label,
            drafter=self._drafter.name,
            concurrency=concurrency,
            seed=seed,
            lag=policy.lag,
            num_gpus=self._deployed.num_gpus,
            lossless=lossless,
            refused=np.array(source.refused, dtype=np.int64),
            meta={
                "slots": slots,
                "warmup_steps": recorder.warmup_steps,
                "draft_kind": self.replay.draft_kind,
                "kv_blocks": self._hardware.blocks,
                "serving": asdict(self._serving),
            },
        )


def _recorder_of(compiled: bool) -> type[Recorder]:
    """Return the recorder of a run.

    Raises:
        InputError: the compiler is not installed.
    """
    if not compiled:
        return Recorder
    require()
    from dspark_sim.engine.compiled.recording import CompiledRecorder

    return CompiledRecorder


def _at_least(name: str, value: float | None, least: int) -> None:
    if value is not None and not least <= value < math.inf:
        raise InputError(f"{name} is {value}; it must be at least {least}")
