"""Scripts, each in a fork of one process that has their imports: `python scripts.py MODULE…`. A line of stdin is JSON,
[code, folder]: the script writes `stdout` and `stderr` there, and a line of stdout is its exit code."""

import atexit
import gc
import json
import os
import sys
import traceback
from importlib import import_module
from types import ModuleType


def run(code: str, folder: str) -> int:
    """The exit code of `python -c CODE` in the folder."""
    for number, name in enumerate(("stdout", "stderr"), 1):
        os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT), number)
    os.chdir(folder)
    sys.argv = ["-c"]
    sys.path[0] = ""
    main = sys.modules["__main__"] = ModuleType("__main__")
    try:
        exec(compile(code, "<string>", "exec", dont_inherit=True), main.__dict__)
    except SystemExit as end:
        return int(end.code is not None) if not isinstance(end.code, int) else end.code
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    gc.disable()
    for module in sys.argv[1:]:
        import_module(module)
    gc.freeze()  # to look at what the imports made would copy it into each process
    gc.enable()
    for line in sys.stdin:
        if not (child := os.fork()):
            ended = run(*json.loads(line))
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
