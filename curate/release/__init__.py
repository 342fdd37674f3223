"""The release: format, verification, and everything that writes one. Other packages import only what is named here."""

from typing import TYPE_CHECKING

from driftline.curate.core.late import lazy_face

if TYPE_CHECKING:
    from driftline.curate.release.format import Release as Release
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
