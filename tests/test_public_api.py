"""What `import sam2track` offers, and that it costs nothing."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sam2track
import sam2track.errors
import sam2track.outputs

ROOT = Path(__file__).parent.parent
HEAVY = {
    "av",
    "click",
    "cv2",
    "numpy",
    "onnx",
    "onnxruntime",
    "pycocotools",
    "pydantic",
    "safetensors",
    "torch",
    "tqdm",
}


def fresh(code: str) -> str:
    """Run code in a new interpreter; returns what it printed, which includes nothing on stderr."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def loaded_after(code: str) -> set[str]:
    """Which of the heavy packages a new interpreter has loaded after this code, which prints nothing itself."""
    return set(fresh(f"{code}\nimport sys; print(*sorted({HEAVY!r} & set(sys.modules)))").split())


def test_the_public_names_are_exactly_these() -> None:
    assert sam2track.__all__ == [
        "Clip",
        "FrameResult",
        "Model",
        "ObjectResult",
        "PromptEntry",
        "Sam2TrackError",
        "TrackEvent",
        "Tracker",
        "TrackingOptions",
        "VideoFrame",
        "__version__",
        "load",
        "open_images",
        "open_stream",
        "open_video",
        "track_video",
    ]
    assert sam2track.__all__ == sorted(sam2track.__all__)


def test_every_public_name_is_there_and_found_by_dir() -> None:
    for module in (sam2track, sam2track.outputs):
        assert module.__all__ == sorted(module.__all__)
        for name in module.__all__:
            assert getattr(module, name) is getattr(module, name)
        assert set(module.__all__) <= set(dir(module))
    assert dir(sam2track) == sam2track.__all__


def test_every_public_name_is_documented() -> None:
    for module in (sam2track, sam2track.outputs, sam2track.errors):
        assert inspect.getdoc(module)
        public = getattr(module, "__all__", [name for name in vars(module) if name.endswith("Error")])
        for name in public:
            value = getattr(module, name)
            if name == "__version__":
                continue
            assert value.__doc__ and not value.__doc__.startswith(f"{name}("), name  # what a dataclass says of itself
            for attribute, member in vars(value).items() if inspect.isclass(value) else ():
                if not attribute.startswith("_") and callable(member):
                    assert inspect.getdoc(member), f"{name}.{attribute}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sam2track' has no attribute 'Traker'"):
        _ = sam2track.Traker  # type: ignore[attr-defined]
    assert not hasattr(sam2track, "tracking")


def test_every_error_is_also_a_builtin_one() -> None:
    """So that code which knows nothing of this package can catch it."""
    errors = [value for value in vars(sam2track.errors).values() if inspect.isclass(value)]
    assert len(errors) > 10
    for error in errors:
        assert issubclass(error, sam2track.Sam2TrackError)
        builtin = [base for base in error.__mro__ if base.__module__ == "builtins"]
        assert builtin[0] is not Exception or error.__name__ in ("Sam2TrackError", "BundleError"), error


def test_importing_loads_nothing_heavy_and_prints_nothing() -> None:
    assert loaded_after("import sam2track") == set()


def test_the_version_and_the_errors_cost_nothing() -> None:
    assert loaded_after("import sam2track, sam2track.errors; sam2track.__version__, sam2track.Sam2TrackError") == set()


@pytest.mark.parametrize(
    "module", ["tracker", "models", "graphs", "video", "stream", "matte", "outputs", "cli", "build.checkpoint"]
)
def test_a_module_loads_no_backend_before_it_is_used(module: str) -> None:
    assert not loaded_after(f"import sam2track.{module}") & {"av", "cv2", "onnx", "onnxruntime", "safetensors", "torch"}


@pytest.mark.parametrize("arguments", [["--help"], ["track", "--help"], ["info", "--help"], ["build", "--help"]])
def test_the_command_line_shows_its_help_at_once(arguments: list[str]) -> None:
    code = f"""
import contextlib, io
from sam2track.cli import main
with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
    main({arguments!r})
assert "Usage: sam2track" in shown.getvalue()
"""
    assert loaded_after(code) == {"click"}


def test_the_package_is_typed() -> None:
    assert (Path(sam2track.__file__).parent / "py.typed").is_file()


def test_the_changelog_tells_of_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1] == sam2track.__version__
    assert len(set(headings)) == len(headings)
