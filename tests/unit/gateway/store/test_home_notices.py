from __future__ import annotations

import pytest

from gateway.store.kernel.home_notices import Away, files_away


@pytest.mark.parametrize("why", list(Away))
def test_only_owners_read_names_of_nodes(why: Away) -> None:
    owners, others = (files_away(why, "a:/srv", "b:/srv", for_owners=for_owners) for for_owners in (True, False))
    assert "/srv" in owners
    assert "/srv" not in others
    for text in (owners, others):
        assert text.endswith("The files do not come back by themselves.")
