"""Runs at the start of every Python below `chunkscope record`, and waits for torch.

The launcher puts this file's folder first on PYTHONPATH. Python imports `sitecustomize` before the
program; a `sitecustomize` that this one hides is run as well. Nothing else is imported until the
program has imported torch; then the recorder of the package that this file lies in starts.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False  # typing would take longer to import than all the rest
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))


class _AfterTorch:
    """Finds torch as Python would, and has the recorder started when it is loaded."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


class _Loader:
    """Loads as another loader does, then starts the recorder."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            _start_recorder()
        except Exception as error:
            sys.stderr.write(f"chunkscope: this process is not recorded: {error!r}\n")


def _start_recorder() -> None:
    """Start the recorder, from the very package that this file belongs to."""
    import importlib.util

    if "chunkscope" not in sys.modules:
        file = os.path.join(_PACKAGE, "__init__.py")
        spec = importlib.util.spec_from_file_location(
            "chunkscope", file, submodule_search_locations=[_PACKAGE]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["chunkscope"] = module
        spec.loader.exec_module(module)
    importlib.import_module("chunkscope.traces.record.start").start_from_environment()


def _run_hidden() -> None:
    """Run the `sitecustomize` that would have been found without us."""
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    import importlib.util

    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if os.environ.get("CHUNKSCOPE_RECORD"):
        sys.meta_path.insert(0, _AfterTorch())
    _run_hidden()
