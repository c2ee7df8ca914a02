"""What this child still knows of sessions whose turns it ran, so that beginning the next one brings only what is new."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnyard.records.commit import TurnView

_MOST_ENTRIES = 50_000


class Views:
    """The last view of the sessions used lately. A view is a guess: the server says whether it still holds."""

    def __init__(self, most_entries: int = _MOST_ENTRIES) -> None:
        self._most_entries = most_entries
        self._entries = 0
        self._views: OrderedDict[str, TurnView] = OrderedDict()

    def keep(self, view: TurnView) -> None:
        """Remember a view, at the cost of those not used for longest."""
        self.take(view.session)
        self._views[view.session] = view
        self._entries += len(view.entries)
        while self._entries > self._most_entries:
            _, oldest = self._views.popitem(last=False)
            self._entries -= len(oldest.entries)

    def take(self, session: str) -> TurnView | None:
        """Return and forget what is known of a session."""
        view = self._views.pop(session, None)
        if view is not None:
            self._entries -= len(view.entries)
        return view
