"""How much of a token budget a model call may need, before it is made."""

MIN_REPLY_TOKENS = 256
"""A reply with less room than this could not hold a call."""


def reserve_estimate(prompt_tokens_estimate: int, max_tokens: int) -> int:
    """Tokens to reserve for one call: the whole prompt and the longest reply. It is settled to what was really used."""
    return prompt_tokens_estimate + max_tokens


def affordable_reply(prompt_tokens_estimate: int, max_tokens: int, tokens_left: int | None) -> int | None:
    """The longest reply that still fits what is left (None: unlimited), or None where too little is left for any."""
    if tokens_left is None:
        return max_tokens
    room = min(max_tokens, tokens_left - prompt_tokens_estimate)
    return room if room >= min(MIN_REPLY_TOKENS, max_tokens) else None
