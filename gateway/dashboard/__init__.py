"""The dashboard: what administrators see of their tenant in a browser, and do there.

Its pages are rendered here, of what the interface's operations answer; it owns no data. A browser shows its session by
a cookie, which opens these pages and nothing else: no operation of the interface takes it. What a page writes goes
through the one door of `gateway.dashboard.operations`, with a token that no other site can know.
"""

from gateway.dashboard.routes import page

__all__ = ["page"]
