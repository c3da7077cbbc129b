"""Commands that do something else at a stop: traps that end nothing, scripts that live on, real launchers."""

from __future__ import annotations

import json

from command_parts import JOBS, LOOP, NEXT, PLAIN, PYTHON, Shape

_NEVER = "it went on"
_PRINTS = f"{PYTHON} -c 'print(\"it went on\")'"

_TRAPS = {
    "tells": "trap 'echo told' TERM",
    "does nothing": "trap : TERM",
    "is a function": "f() { echo told; }; trap f TERM",
    "sets a flag": "trap 'stop=1' TERM INT",
    "ignores": "trap '' TERM HUP",
    "is for the end": "trap 'echo bye' EXIT",
    "tells at the end too": "trap 'echo bye' EXIT TERM INT HUP",
    "ends": "trap 'echo told; exit 3' TERM",
    "says when": "trap 'echo $(date) told' TERM",
}
_SHELLS = ("bash", "dash", "zsh", "ksh", "mksh", "yash", "busybox ash")

TRAPS: dict[str, Shape] = {
    **{
        f"{shell}, a trap that {name}": Shape(
            run=f"{shell} s.sh",
            files={"s.sh": f"{trap}\n{LOOP}\n{_PRINTS}\n"},
            tool=shell.split()[0],
            never=_NEVER,
        )
        for shell in _SHELLS
        for name, trap in _TRAPS.items()
    },
    "bash, a trap in a subshell": Shape(run=f"(trap 'echo told' TERM; {LOOP}{NEXT}){NEXT}", never=_NEVER),
    "bash, a trap that clears up at its end too": Shape(
        run=f"c() {{ rm -f x; }}; trap c EXIT TERM INT HUP; {LOOP}{NEXT}", never=_NEVER
    ),
    "bash, a trap of a file that is read in": Shape(
        run=f". ./lib.sh; {LOOP}{NEXT}", files={"lib.sh": "trap 'echo told' TERM\n"}, never=_NEVER
    ),
    "bash, a trap that comes by a pipe": Shape(
        run=f"cat s.sh | bash <(cat <<'X'\ntrap 'echo told' TERM\n{LOOP}{NEXT}\nX\n)",
        files={"s.sh": ""},
        never=_NEVER,
    ),
    "sh, a trap in a here document": Shape(
        run=f"sh <<'X'\ntrap 'echo told' TERM\n{LOOP}{NEXT}\nX", never=_NEVER
    ),
    "ksh -i": Shape(run=f"ksh -ic '{LOOP}{NEXT}'", tool="ksh", never=_NEVER),
    "zsh, TRAPTERM": Shape(
        run="zsh s.sh",
        files={"s.sh": f"TRAPTERM() {{ echo told }}\n{LOOP}\n{_PRINTS}\n"},
        tool="zsh",
        never=_NEVER,
    ),
    "fish, a trap": Shape(
        run="fish s.sh",
        files={"s.sh": f"trap 'echo told' TERM\n{LOOP}\n{_PRINTS}\n"},
        tool="fish",
        never=_NEVER,
    ),
    "fish, a function at a signal": Shape(
        run="fish s.sh",
        files={"s.sh": f"function f --on-signal TERM\n  echo told\nend\n{LOOP}\n{_PRINTS}\n"},
        tool="fish",
        never=_NEVER,
    ),
}
"""Traps that do not end their shell, in each shell."""


def _lives(text: str, before: str = "") -> Shape:
    """Return a script that goes on after its last save."""
    return Shape(
        run=f"{PYTHON} t.py{NEXT}",
        files={"t.py": f"{before}\n{PLAIN}\n{text}\n"},
        never=_NEVER,
        stop_seconds=45.0,
    )


STAYS: dict[str, Shape] = {
    "sleeps for ever": _lives("while True: time.sleep(1)"),
    "asks for work every 20 ms": _lives("while True: time.sleep(0.02)"),
    "a thread that does not end": _lives(
        "", "import threading, time\nthreading.Thread(target=time.sleep, args=(900,)).start()"
    ),
    "an executor that hangs": _lives(
        "",
        "import time\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1); pool.submit(time.sleep, 900)",
    ),
    "a server that stays": _lives(
        "import http.server as h\nh.HTTPServer(('127.0.0.1', 0), h.BaseHTTPRequestHandler).serve_forever()"
    ),
    "waits for a child that hangs": _lives("import subprocess; subprocess.run(['sleep', '900'])"),
    "a handler of its own before": _lives(
        "while True: time.sleep(1)",
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))",
    ),
    "beside one that saves": Shape(
        run=f"{LOOP} --save 12 & {PYTHON} t.py & wait{NEXT}",
        files={
            "t.py": "import os\nos.environ |= {'BOA_CHECKPOINT_DIR': 'other', 'BOA_PROGRESS_FILE': ''}\n"
            f"{PLAIN}while True: time.sleep(1)\n"
        },
        never=_NEVER,
        stop_seconds=50.0,
    ),
    "evaluates for a while": _lives(
        "end = time.time() + 14\nwhile time.time() < end: sum(range(1000))\nopen('evaluated', 'w')"
    ),
}
"""Scripts that have saved, and live on: they are ended once they do nothing."""

_MPI = "mpirun --allow-run-as-root --oversubscribe -n 2"
_CELL = {
    "cell_type": "code",
    "id": "a",
    "metadata": {},
    "execution_count": None,
    "outputs": [],
    "source": PLAIN,
}
LAUNCHED: dict[str, Shape] = {
    "mpirun": Shape(run=f"{_MPI} {LOOP}{NEXT}", tool="mpirun", gpus=2, never=_NEVER),
    "mpirun, a shell": Shape(run=f"{_MPI} sh -c '{LOOP}{NEXT}'{NEXT}", tool="mpirun", gpus=2, never=_NEVER),
    "mpirun, two programs": Shape(
        run=f"{_MPI} --tag-output env {LOOP} --with pool : -n 1 sleep 900{NEXT}",
        tool="mpirun",
        gpus=2,
        never=_NEVER,
    ),
    "hydra": Shape(
        run=f"mpiexec.hydra -genvnone -n 2 {LOOP}{NEXT}", tool="mpiexec.hydra", gpus=2, never=_NEVER
    ),
    "GNU parallel, the next job": Shape(
        run=f"seq 2 | parallel -j1 'echo fold {{}}; {LOOP}'", tool="parallel", never="fold 2"
    ),
    "GNU parallel, by pipe": Shape(
        run=f"seq 2 | parallel --pipe -N1 -j1 '{LOOP}; echo it went' on{NEXT}", tool="parallel", never=_NEVER
    ),
    "a runner of stages": Shape(
        run=f"{PYTHON} dvc repro{NEXT}",
        files={
            "dvc": f"import subprocess\nsubprocess.run({LOOP.split()!r})\n"
            "subprocess.run(['echo', 'it went on'])\n"
        },
        never=_NEVER,
    ),
    "run-parts": Shape(
        run=f"mkdir d; mv one two d; run-parts d{NEXT}",
        files={"one": f"#!/bin/sh\n{LOOP}\n", "two": "#!/bin/sh\necho it went on\n"},
        tool="run-parts",
        never=_NEVER,
    ),
    "screen -d -m": Shape(
        run=f"screen -S boa$$ -d -m sh -c '{LOOP}; echo it went on > f'; "
        f"while screen -ls boa$$ > /dev/null; do sleep 0.2; done; cat f{NEXT}",
        tool="screen",
        never=_NEVER,
    ),
    "tmux wait-for": Shape(
        run=f"tmux -L boa$$ new-session -d '{LOOP}; tmux -L boa$$ wait-for -S done'; "
        f"tmux -L boa$$ wait-for done{NEXT}",
        tool="tmux",
        never=_NEVER,
    ),
    "sudo -E": Shape(run=f"sudo -E sh -c '{LOOP}{NEXT}'{NEXT}", tool="sudo", never=_NEVER),
    "sudo -i": Shape(run=f"sudo -n -i bash -c '{LOOP}{NEXT}'{NEXT}", tool="sudo", never=_NEVER),
    "unbuffer -p": Shape(run=f"yes | unbuffer -p sh -c '{LOOP}{NEXT}'{NEXT}", tool="unbuffer", never=_NEVER),
    "supervise": Shape(
        run="mkdir s; mv run s; supervise s",
        files={"run": f"#!/bin/sh\n{LOOP}\necho it went on\n"},
        tool="supervise",
        never=_NEVER,
    ),
    "supervisord": Shape(
        run="supervisord -n -c c.conf",
        files={
            "c.conf": "[supervisord]\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile=own.pid\n[program:t]\n"
            f"command={LOOP}\nautorestart=true\nstdout_logfile=/dev/stdout\nstdout_logfile_maxbytes=0\n"
        },
        tool="supervisord",
    ),
    "start-stop-daemon": Shape(
        run=f"start-stop-daemon -S -b -m -p $PWD/pid -x {PYTHON} -- {JOBS / 'loop.py'}; sleep 0.5; "
        f"while kill -0 $(cat pid); do sleep 0.2; done{NEXT}",
        tool="start-stop-daemon",
        never=_NEVER,
    ),
    "chronic": Shape(run=f"chronic sh -c '{LOOP}{NEXT}'{NEXT}", tool="chronic", never=_NEVER),
    "ts, sponge": Shape(run=f"{LOOP} | ts | sponge{NEXT}", tool="sponge", never=_NEVER),
    "socat": Shape(run=f"socat -u EXEC:'{LOOP}',pty,stderr -{NEXT}", tool="socat", never=_NEVER),
    "setlock, softlimit": Shape(
        run=f"setlock lock softlimit -o 256 sh -c '{LOOP}{NEXT}'{NEXT}", tool="setlock", never=_NEVER
    ),
    "flock -o -c": Shape(run=f"flock -o lock -c '{LOOP}{NEXT}'{NEXT}", tool="flock", never=_NEVER),
    "papermill": Shape(
        run=f"{PYTHON} -m papermill -k python3 nb.ipynb out.ipynb{NEXT}",
        files={
            "nb.ipynb": json.dumps(
                {"cells": [_CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5},
            )
        },
        needs="papermill",
        never=_NEVER,
    ),
    "deepspeed": Shape(
        run=f"DS_ACCELERATOR=cpu deepspeed --no_local_rank --num_accelerators 2 {JOBS / 'loop.py'}{NEXT}",
        needs="deepspeed",
        tool="deepspeed",
        gpus=2,
        never=_NEVER,
    ),
}
"""Launchers that distributions have; those that are not here are left out."""

LASTING: dict[str, Shape] = {**TRAPS, **STAYS, **LAUNCHED}
