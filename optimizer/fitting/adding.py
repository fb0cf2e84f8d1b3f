"""A fitted profile into a system's document, with its provenance, in place of the entry that is there."""

from typing import Any

from optimizer.errors import SpecError
from optimizer.fitting.profile import FittedProfile


def with_profile(
    document: dict[str, Any], profile: FittedProfile, model: str | None, accelerator: str | None
) -> dict[str, Any]:
    """Return a system's document, in plain values, with a profile in it.

    Args:
        document: under the wire names.
        profile: what is added.
        model: the model's name in the document; none: that of the profile.
        accelerator: the accelerator's; none: that of the profile.

    Raises:
        SpecError: the document has no such accelerator.
    """
    entry = profile.entry()
    entry["name"], entry["acc"] = model or profile.name, accelerator or profile.accelerator
    names = [str(item.get("name")) for item in document.get("accelerators", ())]
    if entry["acc"] not in names:
        known = ", ".join(names) or "none"
        raise SpecError(
            f"acc: the system has no accelerator {entry['acc']!r}; name one of it with --acc: {known}"
        )
    models = list(document.get("models", ()))
    old = next((m for m in models if (m.get("name"), m.get("acc")) == (entry["name"], entry["acc"])), None)
    if old is None:
        return document | {"models": [*models, entry]}
    entry["accCount"] = old.get("accCount", entry["accCount"])
    return document | {"models": [entry if item is old else item for item in models]}
