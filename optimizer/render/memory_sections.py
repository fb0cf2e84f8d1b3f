"""Sections on the memory that a model needs on accelerators."""

from collections.abc import Iterator

from optimizer.profiles.memory import GB, GIB
from optimizer.profiles.memory_document import DeviceMemory, MemoryAnswer
from optimizer.quantities import counted, precise, quantity, significant
from optimizer.section import Column, Paragraph, Section, name, table, titled_list, words

_SHORT = significant(3)


def memory_sections(answer: MemoryAnswer) -> list[Section]:
    """Return the sections on the memory of a request, the requests that fit, and models that do not fit."""
    problems = [f"{_on(item)}: {item.problem}; {_least(item)}" for item in answer.devices if item.problem]
    return [
        _headline(answer),
        _layers(answer),
        _request(answer),
        _devices(answer),
        _parts(answer),
        *titled_list("Does not fit", problems, bullet="- "),
        *titled_list("Notes", _notes(answer), bullet="- "),
    ]


def _headline(answer: MemoryAnswer) -> Section:
    return Section(
        text=[
            Paragraph(answer.model, "bold"),
            Paragraph(
                f"{_SHORT(answer.parameters_b)} x 10^9 parameters, weights {answer.weights}, "
                f"{_SHORT(answer.weights_gb)} GB; cache {answer.cache}, "
                f"{answer.attention}, {_SHORT(answer.token_bytes / 1e6)} MB per token"
            ),
            Paragraph(
                f"{precise(answer.in_tokens)} tokens in, {precise(answer.out_tokens)} out, at most "
                f"{precise(answer.max_length)}; blocks of {counted(answer.block_tokens, 'token')}"
            ),
        ]
    )


def _layers(answer: MemoryAnswer) -> Section:
    columns = (
        Column("layers", "count", form=",d"),
        words("attention", "attention"),
        words("cache", "cache"),
        Column("token", lambda layer: layer.token_bytes or None, "B", ",.0f"),
        words("feed-forward", "feed_forward"),
        words("weights", "weights", rank=1),
        Column("size", "weights_gb", "GB", _SHORT),
    )
    notes = [
        "attention: query / KV heads x widths of a head, or heads x sizes of a state",
        "token: cache of one layer with all heads; size: all weights of the line",
    ]
    return table("Layers", columns, answer.layers, "layers", notes=notes)


def _request(answer: MemoryAnswer) -> Section:
    rows = (
        ("reserved, longest request", answer.reserved_gb, 1.0),
        ("paged, entire output", answer.paged_gb, answer.paged_gain),
        ("paged, on average", answer.average_gb, answer.average_gain),
    )
    columns = (
        name("cache of a request", lambda row: row[0]),
        Column("size", lambda row: row[1], "GB", _SHORT),
        Column("requests", lambda row: row[2], "x", _SHORT),
    )
    return table("Cache of a request", columns, rows, "request")


def _devices(answer: MemoryAnswer) -> Section:
    columns = (
        name("on", _on),
        Column("usable", "usable_gb", "GB", _SHORT),
        Column("weights", "weights_gb", "GB", _SHORT),
        Column("workspace", "workspace_gb", "GB", _SHORT, rank=2),
        Column("free", "free_gb", "GB", _SHORT),
        Column("cache", "kv_tokens", "tokens", ",d", rank=1),
        Column("reserved", "requests.reserved", form=",d"),
        Column("paged", "requests.paged", form=",d"),
        Column("average", "requests.average", form=",d"),
        Column("minimum cards", "least_cards", form=",d"),
    )
    notes = ["GB of one device; requests at the same time on all devices of a replica"]
    return table("Requests at the same time", columns, answer.devices, "memory", notes=notes)


def _parts(answer: MemoryAnswer) -> Section:
    names = ("weights", "sampler", "activations", "graphs", "runtime", "workspace", "cache")
    used = [part for part in names if any(getattr(item.parts, part) for item in answer.devices)]
    columns = (
        name("on", _on),
        *(Column(part, f"parts.{part}", "GiB", ".2f", rank=int(part == "activations")) for part in used),
        Column("least", lambda item: item.free_low_gb * GB / GIB, "GiB", ".2f"),
        Column("most", lambda item: item.free_high_gb * GB / GIB, "GiB", ".2f"),
    )
    notes = [
        f"of one device, as {answer.engine} uses it (--engine states another)",
        "least, most: the interval of the cache",
    ]
    return table("Parts of the memory", columns, answer.devices, "parts", notes=notes)


def _on(item: DeviceMemory) -> str:
    return f"{item.cards} × {item.accelerator}" + (f", tp {item.tp}" if item.tp != item.cards else "")


def _least(item: DeviceMemory) -> str:
    if item.least_cards is None or item.least_requests is None:
        return "no number of cards up to 64 devices is enough"
    fits = counted(item.least_requests.paged, "request")
    return f"{counted(item.least_cards, 'card')} are the minimum, for {fits} with the entire output"


def _notes(answer: MemoryAnswer) -> Iterator[str]:
    yield from answer.notes
    for item in answer.devices:
        if item.kv_copies > 1:
            what = "the latent cache" if "MLA" in answer.attention else "each KV head"
            yield f"{_on(item)}: {what} is stored {quantity(item.kv_copies)} times among the devices"
    if answer.shared_tokens:
        yield (
            f"a shared prefix of {precise(answer.shared_tokens)} tokens in whole blocks: "
            f"{quantity(answer.sharing_gain, 3)} times as many requests on average; "
            f"{precise(answer.prefill_tokens)} of {precise(answer.in_tokens)} input tokens are computed"
        )
    yield "'average' relies on preemption when many outputs are long at once; 'paged' never preempts"
