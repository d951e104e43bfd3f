"""How long a document waits before it is tried again."""

FIRST_DELAY = 1.0
LONGEST_DELAY = 300.0


def retry_delay(retries: int, *, spread: float) -> float:
    """Seconds until the next try: twice as long each time, up to five minutes.

    Args:
        retries: how often it was put off before.
        spread: from 0 to 1, so that documents put off together do not come back together.
    """
    longest = min(FIRST_DELAY * float(1 << min(retries, 20)), LONGEST_DELAY)
    return longest * (0.5 + spread / 2)
