"""The time per output token of a closed loop: a constant number of requests in flight."""

from optimizer.profiles.iterations import Iterations


def token_ms_of_loop(iterations: Iterations, requests: float) -> float:
    """Return the time per output token [ms] with `requests` always in flight (eq. E20).

    Each of them takes O iterations, in one of which its prompt is computed. While it decodes, so do the
    others, but for the one in O that is in its prompt; and each of the others puts one prompt between its
    tokens. A prompt is computed together with the tokens of the others: it adds its work, not an iteration
    of its own.
    """
    prompt, answer = iterations.deployment.in_tokens, iterations.deployment.out_tokens
    steps = max(answer - 1, 1.0)
    decoding = requests * steps / (steps + 1)
    step_ms = iterations.decode_ms(decoding, prompt + answer / 2)
    return step_ms + (requests - 1) / steps * _added_by_prompt_ms(iterations, decoding)


def _added_by_prompt_ms(iterations: Iterations, decoding: float) -> float:
    """Return how much longer an iteration takes that has a prompt in it."""
    prompt = iterations.deployment.in_tokens
    whole = iterations.prompt_ms(1, prompt, prompt / 2)
    return whole - iterations.decode_ms(0, prompt) - iterations.experts_ms * iterations.touched(decoding)
