"""Be an editor: drive `sam2track serve` as a child process, with nothing but Python's standard library.

    python examples/editor_client.py

A click, its preview, tracking with progress, an overlay video: editor_client.mp4 in the current folder. Other
languages do the same: write a line of JSON, read lines until the answer. docs/serve.md describes them.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

command = [sys.executable, "-m", "sam2track", "serve"]  # or just ["sam2track", "serve"]
process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
ids = itertools.count(1)


def ask(command, **fields):
    """Sends a request, shows its progress and returns its result."""
    process.stdin.write(json.dumps({"id": next(ids), "command": command, **fields}) + "\n")
    process.stdin.flush()
    while (answer := json.loads(process.stdout.readline()))["type"] == "progress":
        print(f"{command}: {answer['done']} of {answer['total']} frames")
    if answer["type"] == "error":
        raise RuntimeError(f"{answer['code']}: {answer['message']}")
    return answer["result"]


clip = ask("open", video=str(Path(__file__).parent / "clip.mp4"), stop=6)["clip"]
koi = ask("add_prompt", clip=clip, points=[[180, 334]])["object"]
print(f"the koi is within {koi['box']}, its mask a PNG of {len(koi['mask'])} characters")
ask("track", clip=clip)
ask("export", clip=clip, path="editor_client.mp4", overwrite=True)
ask("close", clip=clip)
process.communicate()  # the end of its input ends it
print("wrote editor_client.mp4")
