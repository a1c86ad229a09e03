"""Who may import what, read from the source; and the linters, where they are installed."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sam2track"

# Each part and what it may import, in the order of the data flow: only parts further up. A new module goes in here.
MAY_IMPORT: dict[str, str] = {
    "version": "",
    "errors": "",
    "types": "",
    "orientation": "types",
    "spec": "errors",
    "options": "errors",
    "tracked_frames": "",
    "memory_bank": "spec types",
    "memory_tokens": "memory_bank types",
    "preprocess": "errors spec types",
    "prompts": "errors spec types",
    "postprocess": "options types",
    "matte": "errors postprocess types",
    "onnx_graph": "errors spec types",
    "graphs": "errors memory_tokens onnx_graph spec types",
    "models": "errors graphs onnx_graph spec types",
    "object_track": "errors memory_bank memory_tokens options postprocess prompts spec tracked_frames types",
    "tracker": "errors models object_track options postprocess preprocess prompts types",
    "concealment": "",
    "decoding": "concealment errors",
    "picture": "decoding orientation types",
    "keyframes": "",
    "packet_index": "decoding errors keyframes",
    "random_access": "decoding errors packet_index",
    "video": "decoding errors picture random_access types",
    "image_files": "decoding errors",
    "image_sequence": "decoding errors image_files picture types",
    "stream": "decoding errors picture types",
    "outputs": "errors matte types video",
    "frame_source": "errors types",
    "read_ahead": "",
    "clip_records": "types",
    "clip_state": "clip_records errors memory_bank object_track options outputs spec types",
    "recall": "clip_records frame_source memory_bank object_track prompts spec types",
    "clip": "clip_records clip_state errors frame_source image_sequence models object_track options postprocess"
    " preprocess read_ahead recall tracker types video",
    "prompt_file": "errors types",
    "open_source": "errors image_sequence video",
    "track_video": "clip models options prompt_file types",
    "batch_file": "clip errors image_files matte open_source outputs prompt_file",
    "serve": "clip errors image_sequence matte models onnx_graph open_source options outputs prompt_file prompts"
    " read_ahead types version video",
    "evaluation": "clip errors models options outputs postprocess tracker types",
    "build": "errors spec types",
    "__init__": "clip errors image_sequence models options prompt_file stream track_video tracker types version video",
    "cli": "batch_file build clip concealment errors evaluation graphs image_files image_sequence matte models"
    " onnx_graph open_source options outputs preprocess prompt_file prompts read_ahead serve spec stream tracker types"
    " version video",
    "__main__": "cli",
}

# Who may use a package of somebody else's; for all others it is out of bounds.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "onnxruntime": ("onnx_graph",),
    "av": ("concealment", "decoding", "picture", "packet_index", "random_access", "stream", "outputs", "evaluation"),
    "onnx": ("build",),
    "pycocotools": ("outputs",),
    "safetensors": ("build",),
    "click": ("cli",),
    "tqdm": ("cli",),
    "torch": (),
    "transformers": (),
    "PIL": (),
}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name, without the package's own."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


MODULES = modules()
each_module = pytest.mark.parametrize("module", MODULES)


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports(module: str) -> Iterator[str]:
    """The dotted name of everything a module imports, wherever in it: at the top, in a function, for types only."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            # `from sam2track import errors` imports a module too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(module: str) -> str:
    """The module itself, or the folder it is in."""
    return module.partition(".")[0]


def imported_parts(module: str) -> set[str]:
    names = (name.split(".") for name in imports(module))
    return {parts[1] for parts in names if parts[0] == "sam2track"} - {part_of(module)}


def test_every_part_has_its_place() -> None:
    assert {part_of(module) for module in MODULES} == set(MAY_IMPORT)


def test_the_table_has_no_circle() -> None:
    parts = list(MAY_IMPORT)
    for part, allowed in MAY_IMPORT.items():
        assert all(parts.index(other) < parts.index(part) for other in allowed.split()), part


@each_module
def test_a_module_imports_only_what_it_may(module: str) -> None:
    assert imported_parts(module) <= set(MAY_IMPORT[part_of(module)].split())


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_uses_all_that_it_may(part: str) -> None:
    """The table does not allow more than there is."""
    # The package's own names are lazy, so no import statement for them but those for types.
    used = set().union(*(imported_parts(module) for module in MODULES if part_of(module) == part))
    assert used == set(MAY_IMPORT[part].split())


@each_module
def test_a_package_of_others_is_used_in_its_place_only(module: str) -> None:
    used = {name.partition(".")[0] for name in imports(module)}
    assert {package for package in used & set(ONLY_IN) if part_of(module) not in ONLY_IN[package]} == set()


@pytest.mark.parametrize("package", [package for package, parts in ONLY_IN.items() if parts])
def test_a_package_of_others_is_used_there(package: str) -> None:
    users = {part_of(m) for m in MODULES if any(name.partition(".")[0] == package for name in imports(m))}
    assert users == set(ONLY_IN[package])


@each_module
def test_only_the_command_line_prints_or_exits(module: str) -> None:
    if part_of(module) == "cli":
        return
    assert {ast.unparse(node) for node in ast.walk(tree_of(module)) if isinstance(node, ast.Name)}.isdisjoint(
        {"print", "input", "exit", "quit"}
    )
    attributes = {ast.unparse(node) for node in ast.walk(tree_of(module)) if isinstance(node, ast.Attribute)}
    forbidden = {"sys.exit", "sys.stdout", "sys.stderr", "os._exit", "os.environ", "os.getenv", "time.sleep"}
    assert attributes & forbidden == set()


@each_module
def test_no_module_asserts(module: str) -> None:
    """An assertion vanishes under `python -O`: mistakes of the caller are raised."""
    assert [node.lineno for node in ast.walk(tree_of(module)) if isinstance(node, ast.Assert)] == []


@each_module
def test_every_module_says_what_it_is_for(module: str) -> None:
    assert ast.get_docstring(tree_of(module))


COMMANDS = {"check": ["ruff", "check", "."], "format": ["ruff", "format", "--check", "."], "types": ["mypy"]}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_linters_have_nothing_to_say(name: str) -> None:
    program, *arguments = COMMANDS[name]
    if importlib.util.find_spec(program) is None:
        pytest.skip(f"{program} is not installed: pip install {program}")
    if program == "mypy" and int(version("av").partition(".")[0]) < 18:
        pytest.skip("the dependencies' own types differ from version to version; checked with PyAV 18 and later")
    command = [sys.executable, "-m", program, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
