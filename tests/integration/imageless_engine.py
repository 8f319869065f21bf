"""An engine without images as another package would bring it: one module and two entry points."""

from typing import ClassVar

from bench_common.engine_traits import EngineTraits
from bench_worker.engines.native import TRAITS as NATIVE_TRAITS
from bench_worker.engines.native.engine import NativeEngine

TRAITS = EngineTraits(inapplicable=NATIVE_TRAITS.inapplicable)

ENTRY_POINTS = """\
[weighbridge.engines]
imageless = imageless_engine:ImagelessEngine
[weighbridge.engine_traits]
imageless = imageless_engine:TRAITS
"""


class ImagelessEngine(NativeEngine):
    """Runs plain processes under another name."""

    name: ClassVar[str] = "imageless"
