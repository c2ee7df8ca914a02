"""How a user's app is found and loaded from `pkg.mod:app` or `path/file.py:app`.

Whatever goes wrong in the user's module comes out as one ConfigError that names the file, what it raised and what to
look at, because a traceback through the loader helps nobody.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType

from turnyard.app.application import App
from turnyard.errors import ConfigError

_PACKAGE = str(Path(__file__).resolve().parents[1])
_FORM = "write MOD:APP, such as `app:app`, `pkg.mod:app` or `path/file.py:app`"


def load_app(spec: str) -> App:
    """Return the app that `spec` names.

    For a module the working directory joins the import path, for a file its folder.

    Raises:
        ConfigError: there is no such module, file or app, or importing it failed; the message says what to do.
    """
    place, found, name = spec.rpartition(":")
    if not found or not place or not name:
        raise ConfigError(f"{spec!r} names no app; {_FORM}")
    module = _load_file(Path(place)) if place.endswith(".py") or "/" in place else _load_module(place)
    app = _find(module, name, spec)
    app.spec = spec
    file = getattr(module, "__file__", None)
    if file:
        app.base_dir = Path(file).resolve().parent
    if not app.agents:
        raise ConfigError(f"{spec}: the app has no agents; declare one with {name}.agent(NAME, model=...)")
    return app


def _load_file(path: Path) -> ModuleType:
    file = path.resolve()
    if not file.is_file():
        raise ConfigError(f"{path}: no such file (looked for {file}); {_FORM}")
    folder, name = str(file.parent), file.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = sys.modules.get(name)
    if known is not None and _same_file(known, file):
        return known
    # a name that is taken by another module must not give that one instead of the file
    module_name = name if known is None and name.isidentifier() else f"turnyard_app_{name}_{abs(hash(folder)):x}"
    made = importlib.util.spec_from_file_location(module_name, file)
    if made is None or made.loader is None:
        raise ConfigError(f"{path}: Python cannot import this file; name it something.py")
    module = importlib.util.module_from_spec(made)
    sys.modules[module_name] = module
    try:
        made.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _broken(str(path), error) from error
    return module


def _same_file(module: ModuleType, file: Path) -> bool:
    known = getattr(module, "__file__", None)
    return known is not None and Path(known).resolve() == file


def _load_module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            at = Path(*name.split(".")).with_suffix(".py")
            raise ConfigError(
                f"no module {name!r} in {here} or among the installed packages; go to the folder that holds {at}, or write path/to/{at}:app"
            ) from error
        raise _broken(name, error) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _broken(name, error) from error


def _broken(place: str, error: BaseException) -> ConfigError:
    """Say where a module failed while it was imported, in the user's own file, and what to check."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return ConfigError(f"{place} cannot be imported: {error.filename}, line {error.lineno}: {error.msg}; correct the syntax there")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours_or_pythons(f.filename)]
    where = f" at {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    return ConfigError(f"{place} cannot be imported: {kind}: {error}{where}; {_advice(error)}")


def _is_ours_or_pythons(filename: str) -> bool:
    """Tell whether a frame is of no help to the user: the mistake is in the user's file that led there."""
    return filename.startswith((f"{_PACKAGE}/", "<frozen importlib", sysconfig.get_path("stdlib"))) or "/site-packages/" in filename


def _advice(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"install what provides {error.name!r} in this environment, or correct the import"
    if isinstance(error, ConfigError):
        return "correct the declaration"
    if isinstance(error, SystemExit):
        return 'put what runs the program under if __name__ == "__main__"'
    return "run that file with python to see the whole traceback"


def _find(module: ModuleType, name: str, spec: str) -> App:
    found = getattr(module, name, None)
    if isinstance(found, App):
        return found
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    there = f"it has {', '.join(apps)}" if apps else "it makes no App; write app = App()"
    what = f"no {name!r}" if found is None else f"a {name!r} that is a {type(found).__name__}, not an App"
    raise ConfigError(f"{spec}: the module has {what}; {there}")
