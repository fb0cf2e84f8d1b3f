"""Reader of inference-perf reports: one stage per file (`stage_N_lifecycle_metrics.json`), and `config.yaml`.

Source: `inference_perf/reportgen/base.py`, 2025 and 2026. All its times are in seconds.
"""

from dataclasses import replace

from optimizer.errors import FitError
from optimizer.fitting.readers.paths import Table, find, measured, number_in, plain, record, text_at
from optimizer.fitting.readers.report import BenchmarkFile, Reader, RunReport, having
from optimizer.fitting.runs import Arrivals

TABLE: Table = {
    "offered_rps": plain("load_summary/requested_rate"),
    "sent_rps": plain("load_summary/achieved_rate"),
    "users": plain("load_summary/concurrency"),
    "client_delay_ms": measured(
        "s", "load_summary/schedule_delay/median", "load_summary/schedule_delay/mean"
    ),
    "throughput_rps": plain("successes/throughput/requests_per_sec"),
    "requested": plain("load_summary/count"),
    "completed": plain("successes/count"),
    "failed": plain("failures/count"),
    "duration_s": plain("benchmark_time_seconds"),
    **{
        f"{side}_{name}": plain(f"successes/{side}_tokens/{name}", f"successes/{side}_len/{name}")
        for side in ("prompt", "output")
        for name in ("mean", "p10", "p90")
    },
    "text_tokens": plain("successes/output_len/mean"),
    "ttft_ms": measured("s", "successes/latency/time_to_first_token/mean"),
    "ttft_median_ms": measured("s", "successes/latency/time_to_first_token/median"),
    "itl_ms": measured("s", "successes/latency/inter_token_latency/mean"),
    "tpot_ms": measured("s", "successes/latency/time_per_output_token/mean"),
    "latency_ms": measured("s", "successes/latency/request_latency/mean"),
}
_WORKERS = ("num_workers", "worker_max_concurrency")


def _read(report: BenchmarkFile) -> RunReport:
    """Read the run of a stage.

    Raises:
        FitError: the file summarises several stages.
    """
    cached, prompts = (
        number_in(find(report.tree, f"successes/prompt_tokens/{key}")) for key in ("cached", "total")
    )
    config = report.beside("config.yaml")
    process = text_at(config, "load/type")
    workers, each = (number_in(find(config, f"load/{key}")) for key in _WORKERS)
    changed = record(
        report.tree,
        TABLE,
        report.name,
        arrivals=Arrivals.POISSON if process == "poisson" else Arrivals.CONSTANT,
        cached_share=cached / prompts if cached and prompts else None,
    )
    if changed.offered_rps is None and changed.users is None:
        raise FitError(
            f"{report.name}: load_summary.requested_rate is missing, as in totals over stages; "
            "give the stage_N_lifecycle_metrics.json files"
        )
    note = "the report does not state whether arrivals are even or Poisson: assumed even"
    if changed.users is not None:
        changed = replace(changed, offered_rps=None)
    elif workers and each:
        changed = replace(changed, users=workers * each)
    open_loop = changed.offered_rps is not None and process not in {"constant", "poisson"}
    return RunReport(
        (changed,), "inference-perf", text_at(config, "server/model_name"), notes=(note,) if open_loop else ()
    )


READER = Reader("inference-perf", having(["successes"], ["load_summary"]), _read)
