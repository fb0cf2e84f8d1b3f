"""Estimates the time per output token of a closed loop with a constant number of requests in flight."""

from optimizer.profiles.iterations import Iterations


def token_ms_of_loop(iterations: Iterations, requests: float) -> float:
    """Return the time per output token [ms] with `requests` always in flight (eq. E20).

    A request with O output tokens takes O iterations, of which the first computes its prompt. So on average a
    fraction (O-1)/O of the requests decode, and each other request adds one prompt between the tokens of a
    request. A prompt is computed together with decodes: it adds its work, not a separate iteration.
    """
    prompt, answer = iterations.deployment.in_tokens, iterations.deployment.out_tokens
    steps = max(answer - 1, 1.0)
    decoding = requests * steps / (steps + 1)
    step_ms = iterations.decode_ms(decoding, prompt + answer / 2)
    return step_ms + (requests - 1) / steps * _added_by_prompt_ms(iterations, decoding)


def _added_by_prompt_ms(iterations: Iterations, decoding: float) -> float:
    """Return the time that a prompt adds to an iteration with `decoding` decodes [ms]."""
    prompt = iterations.deployment.in_tokens
    whole = iterations.prompt_ms(1, prompt, prompt / 2)
    return whole - iterations.decode_ms(0, prompt) - iterations.experts_ms * iterations.touched(decoding)
