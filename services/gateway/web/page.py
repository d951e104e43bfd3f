"""The status page: plain HTML without scripts."""

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape

from services.gateway.domain.status import Status

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ChatMind</title>
<link rel="stylesheet" href="/static/style.css">
</head>
<body>
<main>
<h1>ChatMind</h1>
<p class="{state_class}">{state}</p>
<h2>Services</h2>
<table>
<thead><tr><th scope="col">Service</th><th scope="col">State</th></tr></thead>
<tbody>
{components}
</tbody>
</table>
<h2>This gateway</h2>
<dl>
{facts}
</dl>
</main>
</body>
</html>
"""


def status_page(status: Status, *, version: str, now: datetime) -> str:
    """The page as HTML."""
    state, state_class = ("ready", "good") if status.ready else ("not ready", "bad")
    if status.draining:
        state = "shutting down"
    facts = {
        "version": version,
        "started": status.start_time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "up for": _duration((now - status.start_time).total_seconds()),
        **{f"open {kind}": str(count) for kind, count in status.open_calls.items()},
    }
    return _PAGE.format(
        state=state,
        state_class=state_class,
        components="\n".join(_rows(status)),
        facts="\n".join(
            f"<dt>{escape(name)}</dt><dd>{escape(fact)}</dd>" for name, fact in facts.items()
        ),
    )


def _rows(status: Status) -> Iterable[str]:
    yield '<tr><th scope="row">gateway</th><td class="good">serving</td></tr>'
    for name, well in status.components.items():
        state, state_class = ("serving", "good") if well else ("not serving", "bad")
        yield f'<tr><th scope="row">{escape(name)}</th><td class="{state_class}">{state}</td></tr>'


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours >= 2 * 24:
        return f"{hours // 24} days"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
