"""Catalogue entries: data sheets of accelerators and architectures of models, with sources."""

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from optimizer.documents import Document, Name
from optimizer.errors import SpecError
from optimizer.profiles.layers import ModelFacts
from optimizer.profiles.model_config import model_of_config

Positive = Annotated[float, Field(gt=0, le=1e15)]
Dimension = Annotated[int, Field(ge=1, le=10**9)]

IDLE_SHARE = 0.12
"""Idle power as a share of the power limit, used if it was not measured; measured shares are 0.04 to 0.15."""
_MAX_DEVIATION = 0.01
"""Maximum relative difference between the counted and the declared number of parameters."""
_FOUND_BY_CATALOGUE = Field("", max_length=253)


class Sourced(Document):
    """Base of catalogue entries: names, and sources of values."""

    name: str = _FOUND_BY_CATALOGUE
    """Name of the entry in the catalogue."""
    aliases: tuple[Name, ...] = Field((), strict=False)
    """Alternative names."""
    note: str = ""
    """Note for users of the entry; empty for none."""
    source: Name
    """Source of the values, except those in `otherSources`."""
    as_of: Name = Field(alias="asOf")
    """Date on which the values were taken from the source."""
    checked_against: str = Field("", alias="checkedAgainst")
    """Second source that was used to verify the values."""
    conflicts: tuple[str, ...] = Field((), strict=False)
    """Values on which the second source differs."""
    other_sources: dict[str, str] = Field(default={}, alias="otherSources")
    """Sources of individual values, by field."""


class DenseTflops(Document):
    """Dense arithmetic rates (without sparsity), by number format [TFLOPS]."""

    bf16: Positive
    """Rate for 16-bit numbers [TFLOPS]."""
    fp8: Positive | None = None
    """Rate for fp8 numbers [TFLOPS]; absent if the device has no native fp8."""
    int8: Positive | None = None
    """Rate for int8 numbers [TFLOPS], if it differs from fp8."""
    fp4: Positive | None = None
    """Rate for fp4 numbers [TFLOPS]; absent if the device has no native fp4."""


class AcceleratorFacts(Sourced):
    """The data sheet of an accelerator."""

    vendor: Name
    """Vendor of the accelerator."""
    generation: Name
    """Generation of the accelerator, in lower case."""
    devices: Dimension = 1
    """Number of devices per card as seen by the runtime; tensor parallel sizes count devices."""
    memory_gb: Positive = Field(alias="memoryGB")
    """Memory of a card according to the vendor [GB]."""
    memory_gib: Positive = Field(alias="memoryGiB")
    """Memory of a card as reported by the runtime [GiB]."""
    bandwidth_gb_per_s: Positive = Field(alias="bandwidthGBPerS")
    """Memory bandwidth of a card [GB/s]."""
    dense_tflops: DenseTflops = Field(alias="denseTflops")
    """Dense arithmetic rates of a card [TFLOPS]."""
    link_gb_per_s: Positive = Field(alias="linkGBPerS")
    """Rate of the link to the other devices of a node, in one direction [GB/s]."""
    link_kind: Name = Field(alias="linkKind")
    """Type of the link, such as NVLink or PCIe."""
    power_w: Positive | None = Field(None, alias="powerW")
    """Power limit of a card [W]; an estimate if the source says so."""
    idle_power_w: Positive | None = Field(None, alias="idlePowerW")
    """Measured idle power of a card [W]."""

    @property
    def idle_w(self) -> float | None:
        """Idle power [W]: measured, else a share of the power limit; None if neither is known."""
        if self.idle_power_w is not None or self.power_w is None:
            return self.idle_power_w
        return IDLE_SHARE * self.power_w

    @property
    def device_memory_gib(self) -> float:
        """Memory of one device [GiB]."""
        return self.memory_gib / self.devices

    @property
    def device_bandwidth_gb_per_s(self) -> float:
        """Memory bandwidth of one device [GB/s]."""
        return self.bandwidth_gb_per_s / self.devices

    @property
    def over_pcie(self) -> bool:
        """Whether devices communicate only over PCIe."""
        return self.link_kind.startswith("pcie")


class ModelEntry(Sourced):
    """A model in the catalogue: the keys of its config.json that determine layers, weights and cache."""

    repository: str = ""
    """Repository of the weights on Hugging Face; empty if unknown."""
    released: str = Field("", pattern=r"^(\d{4}-\d{2})?$")
    """Month in which the model was published; empty if unknown."""
    parameters_b: Positive = Field(alias="parametersB")
    """Declared number of parameters [10⁹]."""
    config: dict[str, Any]
    """Values of the config.json, by key."""

    @cached_property
    def facts(self) -> ModelFacts:
        """Architecture of the model.

        Raises:
            SpecError: the config cannot be interpreted, or contradicts the declared number of parameters.
        """
        facts = model_of_config(self.config, self.name, f"models.yaml: {self.name}")
        counted = facts.parameters / 1e9
        if abs(counted / self.parameters_b - 1) > _MAX_DEVIATION:
            raise SpecError(
                f"{self.name}: the sizes give {counted:.2f} billion parameters, but parametersB is "
                f"{self.parameters_b:g}; they must agree within 1 %: correct the sizes"
            )
        return replace(
            facts,
            released=self.released,
            note=self.note,
            source=self.source,
            as_of=self.as_of,
            checked_against=self.checked_against,
        )
