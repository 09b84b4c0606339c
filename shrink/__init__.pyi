from shrink.api import API_VERSION as API_VERSION
from shrink.api import Comparison as Comparison
from shrink.api import Run as Run
from shrink.api import RunStage as RunStage
from shrink.api import SearchResult as SearchResult
from shrink.api import cluster as cluster
from shrink.api import compact as compact
from shrink.api import compare as compare
from shrink.api import distill as distill
from shrink.api import evaluate as evaluate
from shrink.api import load_run as load_run
from shrink.api import profile as profile
from shrink.api import prune as prune
from shrink.api import quantize as quantize
from shrink.api import run as run
from shrink.api import search as search
from shrink.api import sweep as sweep
from shrink.api import train as train
from shrink.base.errors import ConversionError as ConversionError
from shrink.base.errors import DataError as DataError
from shrink.base.errors import InputError as InputError
from shrink.base.errors import InternalError as InternalError
from shrink.base.errors import ModelError as ModelError
from shrink.base.errors import RecipeError as RecipeError
from shrink.base.errors import ResourceError as ResourceError
from shrink.base.errors import ShrinkError as ShrinkError
from shrink.base.errors import StageError as StageError

__all__: list[str]
__version__: str
