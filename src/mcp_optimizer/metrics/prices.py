"""What a named model's input costs, from the price list that ships with `genai-prices`. No network."""

from __future__ import annotations

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.metrics.savings import Prices

_SAMPLE = 1_000
"""Tokens that are priced: few, so the first of tiered prices applies."""


def prices_of(model: str) -> Prices:
    """The prices of a model by its name, or `provider:model` if several providers sell it."""
    # Takes half a second to load, so only on request.
    from genai_prices import Usage, calc_price

    provider, separator, name = model.partition(":")
    usages = (
        Usage(input_tokens=_SAMPLE),
        Usage(input_tokens=_SAMPLE, cache_read_tokens=_SAMPLE),
        Usage(input_tokens=_SAMPLE, cache_write_tokens=_SAMPLE),
    )
    try:
        plain, read, write = (
            calc_price(usage, name if separator else model, provider_id=provider if separator else None)
            for usage in usages
        )
    except LookupError as error:
        raise ConfigurationError(
            f"No known price for the model {model!r}. Use its provider's name for it, such as claude-sonnet-4-5, "
            "gpt-5 or google:gemini-2.5-pro."
        ) from error
    scale = 1_000_000 / _SAMPLE
    full = float(plain.input_price) * scale
    return Prices(
        model=plain.model.id,
        currency="USD",
        input=full,
        cache_read=float(read.input_price) * scale,
        # Providers that cache automatically charge nothing extra for new tokens.
        cache_write=float(write.input_price) * scale or full,
    )
