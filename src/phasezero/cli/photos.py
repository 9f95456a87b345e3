"""What the commands on photos share: checks before any work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from phasezero.errors import UserError
from phasezero.steps import Steps
from phasezero.validation import printable

if TYPE_CHECKING:
    from phasezero.data.files import Item

FEW = 3


def check_readable(items: Sequence[Item], steps: Steps) -> None:
    """Raise UserError that names the files that are no images, before any work is done."""
    from phasezero.data.files import unreadable_images

    paths = [item for item in items if isinstance(item, Path)]
    errors = unreadable_images(paths, lambda done: steps("opening photos", done, len(paths)))
    if len(errors) == 1:
        raise UserError(printable(str(errors[0])))
    if errors:
        more = f"; and {len(errors) - FEW} more" if len(errors) > FEW else ""
        raise UserError(printable(f"{len(errors)} photos: {'; '.join(map(str, errors[:FEW]))}{more}"))
