"""What queue models assume of the documents: a law, a target or a load that one cannot express is refused."""

from collections.abc import Iterable
from functools import partial

from optimizer.errors import SpecError
from optimizer.queueing.bulk.limits import line_problem, server_problem
from optimizer.queueing.measures import Measure
from optimizer.queueing.performance import VARIABILITY, QueueModel
from optimizer.queueing.table import QUEUE_MODELS, law_problem, models_that, variability_problem
from optimizer.simulation.batches import TRIGGERS, BatchServer
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.lines import ALL_JOBS, Line
from optimizer.spec.schema import DEFAULT_MAX_BATCH, Load, ModelProfile, ModelTarget, Server
from optimizer.spec.stages import repeated_name, stations_of
from optimizer.timing import BatchParms, is_static, laws_known


def check_profile(profile: ModelProfile, place: str) -> None:
    """Refuse a profile whose queue model cannot express its law; `place` stands before what is wrong.

    Raises:
        SpecError: it names a queue model that does not take its law.
    """
    terms = profile.iteration.further_terms if profile.iteration else []
    if profile.scheduler != "chunked":
        terms.append(f"scheduler: {profile.scheduler}")
    if profile.batch is not None:
        for name in ("at_tokens", "kv_capacity_tokens"):
            if getattr(profile, name):
                raise SpecError(
                    f"{place}.{ModelProfile.model_fields[name].alias}: requests of a batch server "
                    "(batchParms) have no tokens; remove it"
                )
    for law in laws_known(profile):
        problem = law_problem(profile.queue_model, law, f" ({', '.join(terms)})" if terms else "")
        if problem is not None:
            raise SpecError(f"{place}: {problem}")


LENGTHS_NEEDED = (
    "missing; a static batch lasts as long as its longest answer: give how much the output lengths vary"
)
"""What is said where a static batch has no variation of its lengths."""


def check_server(server: Server, prefix: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse a batch server that the queue model knows nothing of, and its fields on any other server.

    Raises:
        SpecError: a window, a trigger or a limit does not go with the rest, or a static batch lacks its CV.
    """
    mine = list(profiles)
    load = server.current.load
    if "out_tokens_cv" not in load.model_fields_set and any(map(is_static, mine)):
        raise SpecError(f"{prefix}currentAlloc.load.outTokensCV: {LENGTHS_NEEDED}")
    batched = [profile for profile in mine if profile.batch is not None]
    if not batched:
        own = ("batch_trigger", "batch_timeout_ms", "batch_window", "queue_counts", "stages", "jobs")
        stated = [name for name in own if name in server.model_fields_set]
        given = [name for name in stated if getattr(server, name) != Server.model_fields[name].default]
        if given and mine:
            raise SpecError(
                f"{prefix}{Server.model_fields[given[0]].alias}: {server.model!r} has no batchParms, and "
                "only batch servers collect requests; remove it"
            )
        return
    if len(batched) < len(mine):
        raise SpecError(
            f"{prefix}model: {server.model!r} has batchParms on some accelerators and tokens on others; give "
            "it one kind of latency model"
        )
    twice = repeated_name(server.stages)
    if twice is not None:
        raise SpecError(f"{prefix}stages: two stages are called {twice!r}; give each its own name")
    for profile in batched:
        line = batch_line(server, profile, server.batch_timeout_ms)
        problem = line_problem(line) or server_problem(line.server, load.arrival_cv)
        if problem is not None:
            part, why = problem
            raise SpecError(f"{prefix}{_SERVER_FIELDS[part]}: on {profile.accelerator!r}: {why}")


_SERVER_FIELDS = {
    "size": "maxBatchSize",
    "room": "maxQueueSize",
    "window_ms": "batchTimeout",
    "counts_system": "queueCounts",
    "arrival_cv": "currentAlloc.load.arrivalCV",
    "jobs": "jobs",
}


def batch_server(
    server: Server, profile: ModelProfile, window_ms: float, max_batch: int | None = None
) -> BatchServer:
    """Return a batch server as plain numbers, at its own batch limit unless another is given."""
    parms = profile.batch or BatchParms()
    size = max_batch or server.max_batch_size or profile.max_batch_size or DEFAULT_MAX_BATCH
    return BatchServer(
        size,
        window_ms,
        parms.base_ms,
        parms.slope_ms,
        UNLIMITED if server.max_queue_size is None else server.max_queue_size,
        server.queue_counts == "system",
        TRIGGERS.index(server.batch_trigger),
    )


def batch_line(server: Server, profile: ModelProfile, window_ms: float, max_batch: int | None = None) -> Line:
    """Return a batch server with its stages as plain numbers."""
    own = batch_server(server, profile, window_ms, max_batch)
    return Line(own, stations_of(server.stages), ALL_JOBS if server.jobs is None else server.jobs)


def check_load(load: Load, prefix: str) -> None:
    """Check a load beyond its schema, as far as that needs no other document.

    Raises:
        SpecError: the answers are shorter than a token.
    """
    if 0 < load.out_tokens < 1:
        raise SpecError(f"{prefix}avgOutTokens: must be 0 (idle) or at least 1, not {load.out_tokens:g}")


def lacks_answers(load: Load, profiles: Iterable[ModelProfile]) -> bool:
    """Return whether requests arrive whose output length is not given, though the model answers in tokens."""
    if not load.arrival_rate_rpm or load.out_tokens:
        return False
    batched = [profile.batch is not None for profile in profiles]
    return bool(batched) and not any(batched)


def check_answers(load: Load, prefix: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse requests without an output length; only batch servers answer without tokens.

    Raises:
        SpecError: there are such requests.
    """
    if lacks_answers(load, profiles):
        raise SpecError(
            f"{prefix}avgOutTokens: 0 or missing, but {load.arrival_rate_rpm:g} requests/min arrive; give "
            "the mean output length (at least 1), or set arrivalRate to 0"
        )


def check_variability(load: Load, prefix: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse a load that varies otherwise than the queue model of one of its model's profiles assumes.

    Raises:
        SpecError: a coefficient of variation is not the one that a queue model assumes.
    """
    if all(getattr(load, name) == 1 for name in VARIABILITY):
        return
    coefficients = {Load.model_fields[name].alias or name: getattr(load, name) for name in VARIABILITY}
    for profile in profiles:
        owner = f" of {profile.name!r} on {profile.accelerator!r}"
        problem = variability_problem(profile.queue_model, coefficients, owner)
        if problem is not None and laws_known(profile):
            raise SpecError(f"{prefix}{problem}")


def check_target(target: ModelTarget, place: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse a target that the queue model of one of its model's profiles cannot judge.

    Raises:
        SpecError: it asks for a percentile, or a share of requests, of a model that knows means only.
    """
    mine = list(profiles)
    _check_tokens(target, place, mine)
    models = {QUEUE_MODELS[profile.queue_model] for profile in mine}
    listed = {limit.measure for limit in target.latency}
    for measure, _ in target.latency_targets():
        if all(model.knows(measure) for model in models):
            continue
        field = "percentile" if target.percentile is not None else "goodputShare"
        field = "latency" if measure in listed else field
        for profile in mine:
            model = QUEUE_MODELS[profile.queue_model]
            if not model.knows(measure) and laws_known(profile):
                value = target.percentile if target.percentile is not None else target.goodput_share
                value = measure.percentile if measure in listed else value
                knowing = models_that(partial(_knows, measure))
                raise SpecError(
                    f"{place}.{field}: {value:g} asks for more than the queue model {model.name!r} of "
                    f"{profile.name!r} on {profile.accelerator!r} knows, which is means; remove it, or set "
                    f"queueModel to {knowing} there"
                )


def _check_tokens(target: ModelTarget, place: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse targets about tokens where there are none."""
    for profile in profiles:
        for name in ("itl_ms", "ttft_ms", "user_tps", "tps") if profile.batch is not None else ():
            if getattr(target, name):
                raise SpecError(
                    f"{place}.{ModelTarget.model_fields[name].alias}: {profile.name!r} on "
                    f"{profile.accelerator!r} answers without tokens (batchParms); set latency in its place"
                )


def _knows(measure: Measure, model: type[QueueModel]) -> bool:
    return model.knows(measure) and model.has_tokens
