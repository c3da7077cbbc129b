"""What people type into `run`: a table of commands whose stop must lose no step, and how each is tried."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from command_parts import BIN, JOBS, LAUNCH, LOOP, NEVER, NEXT, OTHER, PLAIN, PYTHON, Shape, launcher
from engine_bench import EXAMPLES, TORCHRUN, Bench
from lasting_commands import LASTING
from ordinary_commands import ORDINARY

from boa_daemon.job.unit import read_json
from boa_daemon.tick.facts.ports import Accepted, RunReport

_UV = (
    "import signal, subprocess, sys\n"
    "child = subprocess.Popen(sys.argv[1:])\n"
    "signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))\n"
    "sys.exit(child.wait())\n"
)
_SPAWNED = (
    "import torch.multiprocessing as mp, runpy, sys\n"
    "def train(rank):\n"
    f"    sys.argv = [{str(JOBS / 'loop.py')!r}]\n"
    "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "if __name__ == '__main__':\n"
    "    mp.spawn(train, nprocs=1)\n"
)
_FORKED = (
    "import multiprocessing as mp, runpy, sys\n"
    "from boa_daemon import job\n"
    "job.checkpoint_dir()\n"
    "def train():\n"
    f"    sys.argv = [{str(JOBS / 'loop.py')!r}]\n"
    "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "child = mp.get_context('fork').Process(target=train)\n"
    "child.start(); child.join(); sys.exit(child.exitcode)\n"
)
_BY_HAND = (
    "import signal, time\n"
    "from boa_daemon import job\n"
    "asked = []\n"
    "signal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
    "found = job.resume()\n"
    "signal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
    "step = 0\n"
    "while True:\n"
    "    time.sleep(0.005); step += 1; job.report(step)\n"
    "    if asked:\n"
    "        job.save(step, lambda file: file.write(b'x')); break\n"
)

_ASYNC = (
    "import asyncio, signal, sys\n"
    "from boa_daemon import job\n"
    "async def main():\n"
    "    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: sys.exit(9))\n"
    "    for step in job.steps(1_000_000, load=lambda path: None, save=lambda file: file.write(b'x')):\n"
    "        await asyncio.sleep(0.005)\n"
    "asyncio.run(main())\n"
)
_USED = "import signal\nfrom boa_daemon import job\njob.checkpoint_dir()\n"

SHELLS: dict[str, Shape] = {
    "alone": Shape(run=LOOP),
    "exec": Shape(run=f"exec {LOOP}"),
    "last": Shape(run=f"cd . && {LOOP}"),
    "followed by ;": Shape(run=f"{LOOP}{NEXT}", never="it went on"),
    "followed by &&": Shape(run=f"{LOOP} && echo it went on", never="it went on"),
    "followed by ||": Shape(run=f"{LOOP} || echo it went on", never="it went on"),
    "two lines": Shape(run=f"{LOOP}\necho it went on", never="it went on"),
    "set -euo pipefail": Shape(run=f"set -euo pipefail\n{LOOP}\necho it went on", never="it went on"),
    "in if": Shape(run=f"if {LOOP}; then echo it went on; else echo it went on; fi", never="it went on"),
    "not": Shape(run=f"! {LOOP}{NEXT}", never="it went on"),
    "in for": Shape(run=f"for fold in 1 2; do echo fold $fold; {LOOP}; done", never="fold 2"),
    "in while": Shape(run=f"while ! {LOOP}; do sleep 1; done{NEXT}", never="it went on"),
    "retry loop": Shape(run=f"until {LOOP}; do echo again; sleep 1; done", never="again"),
    "in a function": Shape(run=f"train() {{ {LOOP}; }}; train{NEXT}", never="it went on"),
    "in a subshell": Shape(run=f"({LOOP}{NEXT}){NEXT}", never="it went on"),
    "in braces": Shape(run=f"{{ {LOOP}; echo it went on; }} 2>&1", never="it went on"),
    "in $()": Shape(run=f'said="$({LOOP})"; echo "it went on"', never="it went on"),
    "in eval": Shape(run=f"eval '{LOOP}'{NEXT}", never="it went on"),
    "trap on EXIT": Shape(run=f"trap 'echo bye' EXIT; {LOOP}"),
    "trap on TERM": Shape(run=f"trap 'echo told; exit 1' TERM; {LOOP}"),
    "trap that ignores TERM": Shape(run=f"trap '' TERM; {LOOP}; true"),
    "trap that passes TERM on": Shape(
        run=f"{LOOP} & child=$!; trap 'kill -TERM $child; wait $child' TERM INT; wait $child"
    ),
    "trap that kills": Shape(run=f"{LOOP} & trap 'kill -9 $!' TERM; wait"),
    "& and wait": Shape(run=f"{LOOP} & wait"),
    "& and wait $!": Shape(run=f"{LOOP} & wait $!{NEXT}", never="it went on"),
    "& and wait -n": Shape(run=f"sleep 1000 & {LOOP} & wait -n", never="it went on"),
    "coproc": Shape(run=f"coproc {LOOP}; cat <&${{COPROC[0]}}"),
    "set -m": Shape(run=f"set -m; {LOOP} & fg >/dev/null{NEXT}", never="it went on"),
    "bash run.sh": Shape(
        run="bash run.sh", files={"run.sh": f"set -e\n{LOOP}\necho it went on\n"}, never="it went on"
    ),
    "./run.sh": Shape(
        run="./run.sh && echo it went on",
        files={"run.sh": f"#!/bin/bash\nset -euo pipefail\n{LOOP}\necho it went on\n"},
        never="it went on",
    ),
    "source run.sh": Shape(
        run=". ./run.sh", files={"run.sh": f"{LOOP}\necho it went on\n"}, never="it went on"
    ),
    "script in a script": Shape(
        run="bash outer.sh",
        files={"outer.sh": "bash run.sh\necho it went on\n", "run.sh": f'{LOOP} "$@"\necho it went on\n'},
        never="it went on",
    ),
    "here document": Shape(run=f"bash <<'X'\n{LOOP}\necho it went on\nX", never="it went on"),
    "bash -c": Shape(run=f"bash -c '{LOOP}'"),
    "bash -lc": Shape(run=f"bash -lc 'cd . && {LOOP}; true'"),
    "sh -c": Shape(run=f"sh -c '{LOOP}; echo it went on'", never="it went on"),
    "dash": Shape(run=f"dash -c '{LOOP}; echo it went on'", tool="dash", never="it went on"),
    "busybox sh": Shape(run=f"busybox sh -c '{LOOP}; echo it went on'", tool="busybox", never="it went on"),
    "timeout": Shape(run=f"timeout 600 {LOOP}"),
    "timeout -k": Shape(run=f"timeout -k 1 600 {LOOP}{NEXT}", never="it went on"),
    "timeout --foreground": Shape(run=f"timeout --foreground 600 {LOOP}"),
    "setsid": Shape(run=f"setsid {LOOP}"),
    "setsid -w": Shape(run=f"setsid -w {LOOP}{NEXT}", never="it went on"),
    "nice": Shape(run=f"nice -n 5 {LOOP}"),
    "nohup": Shape(run=f"nohup {LOOP}"),
    "nohup & wait": Shape(run=f"nohup {LOOP} > log 2>&1 & wait"),
    "nohup & without wait": Shape(run=f"nohup {LOOP} > log 2>&1 &"),
    "& disown": Shape(run=f"{LOOP} & disown"),
    "setsid -f": Shape(run=f"setsid -f {LOOP}"),
    "ionice, taskset": Shape(run=f"taskset -c 0 {LOOP}; true", tool="taskset"),
    "env": Shape(run=f"env X=1 {LOOP}"),
    "X=1": Shape(run=f"X=1 {LOOP}"),
    "time": Shape(run=f"time {LOOP}"),
    "stdbuf": Shape(run=f"stdbuf -oL {LOOP}", tool="stdbuf"),
    "script -c": Shape(run=f"script -qec '{LOOP}; true' log", tool="script"),
    "flock": Shape(run=f"flock lock {LOOP}", tool="flock"),
    "xargs": Shape(run=f"echo --pause 0.005 | xargs {LOOP}"),
    "xargs, two folds": Shape(
        run=f"seq 2 | xargs -I@ sh -c 'echo fold @; {LOOP}'", tool="seq", never="fold 2"
    ),
    "find, two folds": Shape(
        run=f"mkdir a b; find a b -exec sh -c 'echo in $0; {LOOP}' '{{}}' ';'", never="in b"
    ),
    "/usr/bin/time": Shape(run=f"/usr/bin/time {LOOP}{NEXT}", tool="/usr/bin/time", never="it went on"),
    "| while read, slowly": Shape(run=f"while read -r line; do sleep 0.05; done < <({LOOP})"),
    "perl": Shape(run=f"perl -e 'exit system(@ARGV)' {LOOP}{NEXT}", tool="perl", never="it went on"),
    "& and tail -f": Shape(run=f"touch log; {LOOP} > log 2>&1 & tail -F log"),
    "& and kill -0": Shape(
        run=f"{LOOP} & pid=$!; while kill -0 $pid; do sleep 0.3; done{NEXT}", never="it went on"
    ),
    "find -exec": Shape(run=f"find . -maxdepth 0 -exec {LOOP} ';'"),
    "make": Shape(
        run="make train",
        files={"Makefile": f"train:\n\t{LOOP}\n\t@echo it went on\n"},
        tool="make",
        never="it went on",
    ),
    "| tee": Shape(run=f"{LOOP} | tee log"),
    "2>&1 | tee": Shape(run=f"{LOOP} 2>&1 | tee -a log{NEXT}", never="it went on"),
    "|& tee": Shape(run=f"set -o pipefail; {LOOP} |& tee log && echo it went on", never="it went on"),
    "| cat | grep": Shape(run=f"{LOOP} | cat | grep --line-buffered step"),
    "| while read": Shape(run=f'{LOOP} | while read -r line; do echo "$(date +%s) $line"; done'),
    "| head": Shape(run=f"{LOOP} 2>&1 | awk '{{ print; fflush() }}'"),
    "cat |": Shape(run=f"yes | {LOOP}"),
    "> >(tee)": Shape(run=f"{LOOP} > >(tee log) 2>&1"),
    "> >(tee) 2> >(tee)": Shape(run=f"{LOOP} > >(tee log) 2> >(tee errors >&2){NEXT}", never="it went on"),
    "exec > >(tee)": Shape(run=f"exec > >(tee log) 2>&1\n{LOOP}\necho it went on", never="it went on"),
    "named pipe": Shape(run=f"mkfifo pipe; cat pipe & {LOOP} > pipe"),
    "sidecar &": Shape(run=f"{PYTHON} -m http.server 0 & {LOOP}"),
    "sidecar that must live": Shape(
        run=f"{PYTHON} -m http.server 0 & server=$!; {LOOP}; kill $server",
    ),
    "sync loop &": Shape(run=f"while :; do cp -r . /dev/null; sleep 0.2; done 2>/dev/null & {LOOP}"),
    "save of 3 s": Shape(run=f"{LOOP} --save 3{NEXT}", never="it went on"),
    "save of 6 s": Shape(run=f"{LOOP} --save 6 | tee log{NEXT}", never="it went on"),
    "save of 20 s": Shape(run=f"bash -c '{LOOP} --save 20; true'"),
    "step of 5 s": Shape(run=f"{LOOP} --pause 5 | tee log", after_step=1),
    "by hand": Shape(
        run=f"{PYTHON} hand.py; echo it went on", files={"hand.py": _BY_HAND}, never="it went on"
    ),
    "handler of its own": Shape(run=f"{LOOP} --with own-handler"),
    "in a thread": Shape(run=f"{LOOP} --in-thread; true"),
    "env -i": Shape(run=f"env -i {LOOP}"),
    "env -i, then": Shape(run=f"env -i PATH=$PATH {LOOP}{NEXT}", never="it went on"),
    "env -i sh -c": Shape(run=f"exec env -i sh -c '{LOOP}; echo it went on'", never="it went on"),
    "su -": Shape(run=f"su - root -c '{LOOP}; echo it went on'", tool="su", never="it went on"),
    "su -c": Shape(run=f"su root -c '{LOOP}; echo it went on'{NEXT}", tool="su", never="it went on"),
    "su --pty": Shape(run=f"su --pty root -c '{LOOP}'", tool="su"),
    "runuser": Shape(
        run=f"runuser -u root -- sh -c '{LOOP}; echo it went on'{NEXT}", tool="runuser", never="it went on"
    ),
    "sg": Shape(run=f"sg root '{LOOP}; echo it went on'", tool="sg", never="it went on"),
    "nsenter": Shape(
        run=f"nsenter -t $$ -p sh -c '{LOOP}; echo it went on'", tool="nsenter", never="it went on"
    ),
    "unshare, first of its processes": Shape(
        run=f"unshare --pid --fork --mount-proc sh -c '{LOOP}; echo it went on'",
        tool="unshare",
        never="it went on",
    ),
    "setpriv": Shape(run=f"setpriv --pdeathsig TERM {LOOP}{NEXT}", tool="setpriv", never="it went on"),
    "chrt, ionice": Shape(run=f"chrt -b 0 ionice -c3 {LOOP}{NEXT}", tool="chrt", never="it went on"),
    "strace sh -c": Shape(
        run=f"strace -f -e trace=none -o log sh -c '{LOOP}; echo it went on'",
        tool="strace",
        never="it went on",
    ),
    "timeout sh -c": Shape(run=f"timeout -s KILL 500 sh -c '{LOOP}; echo it went on'", never="it went on"),
    "flock sh -c": Shape(run=f"flock lock sh -c '{LOOP}; echo it went on'", tool="flock", never="it went on"),
    "tini": Shape(run=f"tini -s -g -- sh -c '{LOOP}; echo it went on'", tool="tini", never="it went on"),
    "dumb-init": Shape(
        run=f"dumb-init sh -c '{LOOP}; echo it went on'", tool="dumb-init", never="it went on"
    ),
    "unbuffer": Shape(run=f"unbuffer sh -c '{LOOP}; echo it went on'", tool="unbuffer", never="it went on"),
    "parallel": Shape(run=f"parallel -j1 ::: '{LOOP}; echo it went on'", tool="parallel", never="it went on"),
    "zsh": Shape(run=f"zsh -c '{LOOP} | cat; echo it went on'", tool="zsh", never="it went on"),
    "fish": Shape(run=f"fish -c '{LOOP} | cat; and echo it went on'", tool="fish", never="it went on"),
    "tmux": Shape(
        run=f"tmux -L boa$$ new-session -d '{LOOP}'; while tmux -L boa$$ has-session; do sleep 0.2; done",
        tool="tmux",
    ),
    "make, recursive": Shape(
        run="make all",
        files={"Makefile": f"all:\n\t$(MAKE) train\n\t@echo it went on\ntrain:\n\t{LOOP}\n"},
        tool="make",
        never="it went on",
    ),
    "while true && break": Shape(run=f"while true; do {LOOP} && break; done{NEXT}", never="it went on"),
    "retry loop of three": Shape(
        run=f"for i in 1 2 3; do {LOOP} && break || {{ echo again; sleep 1; }}; done{NEXT}",
        never="it went on",
    ),
    "endless loop": Shape(run=f"while :; do {LOOP}; echo again; done", never="again"),
    "trap kill 0": Shape(run=f"trap 'kill 0' EXIT; sleep 1000 & {LOOP}{NEXT}", never="it went on"),
    "trap on CHLD and ERR": Shape(
        run=f"trap 'exit 5' ERR; trap 'echo child' CHLD; {LOOP}{NEXT}", never="it went on"
    ),
    "sh -c & wait": Shape(run=f"sh -c '{LOOP} & wait; echo it went on'", never="it went on"),
    "nothing is open": Shape(run=f"{LOOP} <&- >&- 2>&-{NEXT}", never="it went on"),
    "few descriptors": Shape(run=f"ulimit -n 64; {LOOP}{NEXT}", never="it went on"),
    "python - << X": Shape(run=f"{PYTHON} - <<'X'\n{PLAIN}X\necho it went on", never="it went on"),
    "cat | python -": Shape(
        run=f"cat t.py | {PYTHON} -; echo it went on", files={"t.py": PLAIN}, never="it went on"
    ),
    "python -c": Shape(run=f"{PYTHON} -c 'import t'{NEXT}", files={"t.py": PLAIN}, never="it went on"),
    "python -m": Shape(run=f"{PYTHON} -m t{NEXT}", files={"t.py": PLAIN}, never="it went on"),
    "python -m cProfile": Shape(run=f"{PYTHON} -m cProfile -o profile t.py", files={"t.py": PLAIN}),
    "python -m trace": Shape(run=f"{PYTHON} -m trace --count -C . t.py", files={"t.py": PLAIN}),
    "zipapp": Shape(
        run=f"mkdir z; mv t.py z/__main__.py; {PYTHON} -m zipapp z; {PYTHON} z.pyz{NEXT}",
        files={"t.py": PLAIN},
        never="it went on",
    ),
    "asyncio": Shape(run=f"{PYTHON} t.py", files={"t.py": _ASYNC}),
    "asyncio, in a thread": Shape(
        run=f"{PYTHON} -c 'import asyncio; asyncio.run(asyncio.to_thread(lambda: __import__(\"t\")))'",
        files={"t.py": PLAIN},
    ),
    "SIGTERM ignored": Shape(
        run=f"{PYTHON} t.py",
        files={"t.py": f"{_USED}signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{PLAIN}"},
    ),
    "SIGTERM as by default": Shape(
        run=f"{PYTHON} t.py",
        files={"t.py": f"{_USED}signal.signal(signal.SIGTERM, signal.SIG_DFL)\n{PLAIN}"},
    ),
    "all signals blocked": Shape(
        run=f"{PYTHON} t.py",
        files={"t.py": f"{_USED}signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n{PLAIN}"},
    ),
    "a timer's signals": Shape(
        run=f"{PYTHON} t.py",
        files={
            "t.py": f"{_USED}signal.signal(signal.SIGALRM, lambda *_: None)\n"
            f"signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\n{PLAIN}"
        },
    ),
    "faulthandler": Shape(
        run=f"{PYTHON} t.py",
        files={
            "t.py": f"{_USED}import faulthandler\nfaulthandler.register(signal.SIGTERM, chain=True)\n"
            f"faulthandler.dump_traceback_later(0.5, repeat=True)\n{PLAIN}"
        },
    ),
    "an upload of 3 s at exit": Shape(
        run=f"{PYTHON} t.py{NEXT}",
        files={
            "t.py": "import atexit, time\n"
            f"atexit.register(lambda: (time.sleep(3), print('uploaded', flush=True)))\n{PLAIN}"
        },
        never="it went on",
    ),
}
"""One process that saves, behind a shell, a wrapper or a pipe."""

_KINDS = ("fork", "spawn", "forkserver", "pool", "spawn-pool", "fresh-pool", "executor", "child", "shell")
HELPERS: dict[str, Shape] = {
    **{f"with {name}": Shape(run=f"{LOOP} --with {name}") for name in (*_KINDS, "uploader")},
    **{f"with {name}, late": Shape(run=f"{LOOP} --late --with {name} | cat") for name in _KINDS},
}
"""A process that saves and that needs others at each step."""

_JOBLIB = (
    "from joblib import Parallel, delayed\n"
    "from boa_daemon import job\n"
    "if __name__ == '__main__':\n"
    "    with Parallel(n_jobs=2) as pool:\n"
    "        for step in job.steps(1_000_000, load=lambda path: None, save=lambda file: file.write(b'x')):\n"
    "            pool(delayed(abs)(number) for number in range(4))\n"
)
_MANAGER = (
    "import multiprocessing, time\n"
    "from boa_daemon import job\n"
    "if __name__ == '__main__':\n"
    "    with multiprocessing.Manager() as manager:\n"
    "        state = manager.dict()\n"
    "        def save(file): file.write(str(state['step']).encode())\n"
    "        for step in job.steps(1_000_000, load=lambda path: None, save=save):\n"
    "            state['step'] = step; time.sleep(0.005)\n"
)

LAUNCHERS: dict[str, Shape] = {
    "subprocess.run": Shape(run=LAUNCH, files=launcher("sys.exit(subprocess.run(args).returncode)")),
    "subprocess.check_call": Shape(
        run=f"{LAUNCH} --save 3", files=launcher("subprocess.check_call(args + sys.argv[1:])")
    ),
    "subprocess.check_output": Shape(run=LAUNCH, files=launcher("print(subprocess.check_output(args))")),
    "Popen, lines read": Shape(
        run=LAUNCH,
        files=launcher(
            "with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as child:\n"
            "    for line in child.stdout: print(line, end='', flush=True)"
        ),
    ),
    "Popen in a new session": Shape(
        run=LAUNCH, files=launcher("sys.exit(subprocess.Popen(args, start_new_session=True).wait())")
    ),
    "shell=True, then": Shape(
        run=f"{LAUNCH}{NEXT}",
        files=launcher(
            "sys.exit(subprocess.run(' '.join(args) + '; echo it went on', shell=True).returncode)"
        ),
        never="it went on",
    ),
    "shell of asyncio": Shape(
        run=f"{LAUNCH}{NEXT}",
        files=launcher(
            "import asyncio\n"
            "async def main():\n"
            "    words = ' '.join(args) + '; echo it went on'\n"
            "    child = await asyncio.create_subprocess_shell(words, stdout=-1)\n"
            "    async for line in child.stdout: print(line.decode(), end='', flush=True)\n"
            "    await child.wait()\n"
            "asyncio.run(main())"
        ),
        never="it went on",
    ),
    "shell on a terminal": Shape(
        run=f"{LAUNCH}{NEXT}",
        files=launcher(
            "import pty\nsys.exit(pty.spawn(['sh', '-c', ' '.join(args) + '; echo it went on']) and 1)"
        ),
        never="it went on",
    ),
    "conda run": Shape(
        run=f"{LAUNCH} && echo it went on",
        files=launcher(
            "open('x.sh', 'w').write(' '.join(args) + chr(10) + 'echo it went on' + chr(10))\n"
            "child = subprocess.Popen(['bash', 'x.sh'], stdout=subprocess.PIPE)\n"
            "print(child.communicate()[0].decode()); sys.exit(child.returncode)"
        ),
        never="it went on",
    ),
    "environment of its own": Shape(
        run=f"{LAUNCH}{NEXT}",
        files=launcher("sys.exit(subprocess.call(args, env={}))"),
        never="it went on",
    ),
    "double fork": Shape(
        run=LAUNCH,
        files=launcher(
            "if os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nos.execv(args[0], args)"
        ),
    ),
    "launcher that ends at once": Shape(
        run=f"{LAUNCH}{NEXT}", files=launcher("if os.fork(): os._exit(0)\nos.execv(args[0], args)")
    ),
    "launcher that restarts what ended": Shape(
        run=LAUNCH, files=launcher("while True: subprocess.call(args)")
    ),
    "launcher that kills its group": Shape(
        run=f"{LAUNCH}{NEXT}",
        files=launcher(
            "import signal\nchild = subprocess.Popen(args)\n"
            "signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))\nsys.exit(child.wait())"
        ),
        never="it went on",
    ),
    "joblib": Shape(run=f"{PYTHON} t.py{NEXT}", files={"t.py": _JOBLIB}, needs="joblib", never="it went on"),
    "Manager": Shape(run=f"{PYTHON} t.py{NEXT}", files={"t.py": _MANAGER}, never="it went on"),
    "node": Shape(
        run="node l.js",
        files={"l.js": f"require('child_process').execSync({LOOP!r}, {{stdio: 'inherit'}});"},
        tool="node",
    ),
    "os.system": Shape(run=LAUNCH, files=launcher("os.system(' '.join(args))")),
    "os.execv": Shape(run=LAUNCH, files=launcher("os.execv(args[0], args)")),
    "re-exec after the first use": Shape(
        run=LAUNCH,
        files=launcher("from boa_daemon import job\njob.checkpoint_dir()\nos.execv(args[0], args)"),
    ),
    "launcher that kills at SIGTERM": Shape(
        run=LAUNCH,
        files=launcher(
            "import signal\nchild = subprocess.Popen(args)\n"
            "signal.signal(signal.SIGTERM, lambda *_: (child.kill(), sys.exit(1)))\nsys.exit(child.wait())"
        ),
    ),
    "deepspeed-shaped": Shape(
        run=LAUNCH,
        files=launcher(
            "import signal, time\n"
            "children = [subprocess.Popen(args)]\n"
            "def end(number, frame):\n"
            "    for one in children: one.terminate()\n"
            "    for one in children:\n"
            "        try: one.wait(timeout=1)\n"
            "        except subprocess.TimeoutExpired: one.kill()\n"
            "    sys.exit(1)\n"
            "signal.signal(signal.SIGTERM, end)\n"
            "while children:\n"
            "    children = [one for one in children if one.poll() is None]; time.sleep(0.2)"
        ),
    ),
    "uv run": Shape(run=f"{PYTHON} uv.py {LOOP}", files={"uv.py": _UV}),
    "uv run | tee": Shape(run=f"{PYTHON} uv.py {LOOP} --save 3 2>&1 | tee log", files={"uv.py": _UV}),
    "multiprocessing.Process trains": Shape(run=f"{PYTHON} spawned.py", files={"spawned.py": _FORKED}),
    "mp.spawn": Shape(run=f"{PYTHON} spawned.py", files={"spawned.py": _SPAWNED}, needs="torch"),
    "torch.distributed.run": Shape(run=f"{TORCHRUN} --nproc-per-node 1 {JOBS / 'loop.py'}", needs="torch"),
    "torchrun, save of 6 s": Shape(
        run=f"{TORCHRUN} {JOBS / 'loop.py'} --save 6 | tee log; echo it went on",
        needs="torch",
        never="it went on",
    ),
    "accelerate launch": Shape(
        run=f"{BIN / 'accelerate'} launch --cpu --num_processes 1 {JOBS / 'loop.py'}", needs="accelerate"
    ),
    "bash -c torchrun": Shape(
        run=f"bash -c '{TORCHRUN} {JOBS / 'loop.py'}; echo it went on'", needs="torch", never="it went on"
    ),
}
"""Programs that start the training and wait for it."""


def _example(name: str, needs: str, start: str = TORCHRUN, *, gpus: int = 1, piped: str = "") -> Shape:
    """Return an example of ours, started by torchrun unless `start` says otherwise."""
    run = f"{start} {EXAMPLES / name} {NEVER}{piped}"
    return Shape(run=run, needs=needs, gpus=gpus, after_step=5)


FRAMEWORKS: dict[str, Shape] = {
    "loader, 2 workers": Shape(run=f"{PYTHON} {JOBS / 'loader.py'}", needs="torch"),
    "loader, persistent": Shape(run=f"{PYTHON} {JOBS / 'loader.py'} --persistent | tee log", needs="torch"),
    "loader under torchrun": Shape(
        run=f"{TORCHRUN} {JOBS / 'loader.py'} --persistent", needs="torch", gpus=2
    ),
    "ddp": _example("train_ddp.py", "torch", gpus=2),
    "lightning": _example("train_lightning.py", "lightning", gpus=2),
    "huggingface": _example("train_huggingface.py", "transformers"),
    "fabric": _example("train_fabric.py", "lightning"),
    "accelerate": _example("train_accelerate.py", "accelerate"),
    "fsdp": _example("train_fsdp.py", "torch", gpus=2),
    "jax": _example("train_jax.py", "jax", PYTHON),
    "numpy": _example("train_numpy.py", "numpy", PYTHON, gpus=2, piped=" | tee log"),
}
"""Frameworks, with workers of their loaders where they have any."""

_FURTHER = f"{LOOP}; echo it went on"
MORE: dict[str, Shape] = {
    "ksh": Shape(run=f"ksh -c '{_FURTHER}'", tool="ksh", never="it went on"),
    "mksh": Shape(run=f"mksh -c '{LOOP} | cat; echo it went on'", tool="mksh", never="it went on"),
    "tcsh": Shape(run=f"tcsh -c '{_FURTHER}'", tool="tcsh", never="it went on"),
    "yash": Shape(run=f"yash -c '{_FURTHER}'", tool="yash", never="it went on"),
    "zsh, loop of retries": Shape(
        run=f"zsh -c 'until {LOOP}; do echo it went on; sleep 1; done'", tool="zsh", never="it went on"
    ),
    "fish, loop of retries": Shape(
        run=f"fish -c 'while not {LOOP}; echo it went on; sleep 1; end'", tool="fish", never="it went on"
    ),
    "script, then": Shape(run=f"script -qec '{LOOP}' log{NEXT}", tool="script", never="it went on"),
    "a shell below script": Shape(
        run=f"script -qec 'bash -c \"{_FURTHER}\"; echo it went on' log{NEXT}",
        tool="script",
        never="it went on",
    ),
    "a script below script": Shape(
        run="script -qefc ./run.sh log && echo it went on",
        files={"run.sh": f"#!/bin/bash\nset -e\n{LOOP} | tee own\necho it went on\n"},
        tool="script",
        never="it went on",
    ),
    "typed into script": Shape(
        run=f"printf '%s\\n' '{LOOP}' 'echo it went'\\ on exit | script -qc bash log",
        tool="script",
        never="\nit went on",
    ),
    "screen -D -m": Shape(run=f"screen -D -m bash -c '{_FURTHER} > log'", tool="screen"),
    "expect": Shape(
        run=f"expect -c 'set timeout -1; spawn {LOOP}; expect eof; puts [list it went on]'",
        tool="expect",
    ),
    "watch": Shape(run=f"TERM=dumb watch -n 1 -x {LOOP}", tool="watch"),
    "ninja": Shape(
        run="ninja",
        files={"build.ninja": f"rule t\n  command = {_FURTHER}\nbuild out: t\n"},
        tool="ninja",
        never="it went on",
    ),
    "make -k -j": Shape(
        run="make -k -j2 a b",
        # One training: two that share a checkpoint folder replace each other's checkpoint.
        files={"Makefile": f"a:\n\t-@{LOOP}\n\t@echo it went on\nb:\n\t-@sleep 600\n\t@echo it went on\n"},
        tool="make",
        never="it went on",
    ),
    "make with another shell": Shape(
        run="make train",
        files={"Makefile": f"SHELL=/bin/bash\n.ONESHELL:\ntrain:\n\t@{LOOP}\n\techo it went on\n"},
        tool="make",
        never="it went on",
    ),
    "env -S": Shape(run=f"env -S 'X=1 sh -c \"{_FURTHER}\"'", never="it went on"),
    "numactl": Shape(run=f"numactl --localalloc {LOOP}{NEXT}", tool="numactl", never="it went on"),
    "prlimit": Shape(run=f"prlimit --nofile=512 {LOOP}{NEXT}", tool="prlimit", never="it went on"),
    "choom": Shape(run=f"choom -n 100 -- sh -c '{_FURTHER}'", tool="choom", never="it went on"),
    "gdb --args": Shape(run=f"gdb -q -batch -ex run --args {LOOP}{NEXT}", tool="gdb", never="it went on"),
    "node": Shape(
        run="node t.js; echo it went on",
        files={
            "t.js": "const c = require('child_process').spawn('sh', ['-c', "
            f"`{_FURTHER}`], {{stdio: 'inherit'}}); c.on('exit', (code) => process.exit(code ?? 1))\n"
        },
        tool="node",
        never="it went on",
    ),
    "perl system": Shape(run=f"perl -e 'system(q({_FURTHER}))'{NEXT}", tool="perl", never="it went on"),
    "perl, a pipe": Shape(
        run=f"perl -e 'open(P, q({_FURTHER} |)); print while <P>'{NEXT}", tool="perl", never="it went on"
    ),
    "ruby": Shape(run=f"ruby -e 'system(%q({_FURTHER}))'{NEXT}", tool="ruby", never="it went on"),
    "awk": Shape(run=f"awk 'BEGIN {{ system(\"{_FURTHER}\") }}'{NEXT}", tool="awk", never="it went on"),
    "awk, a pipe": Shape(
        run=f'awk \'BEGIN {{ while ("{LOOP}" | getline x) print x; print "it went on" }}\'',
        tool="awk",
    ),
    "busybox env, timeout": Shape(
        run=f"busybox timeout 500 busybox sh -c '{_FURTHER}'{NEXT}", tool="busybox", never="it went on"
    ),
    "busybox xargs": Shape(
        run=f"seq 2 | busybox xargs -n1 sh -c 'echo fold $0; {LOOP}'", tool="busybox", never="fold 2"
    ),
    "xargs -P": Shape(
        run="seq 2 | xargs -P 2 -I@ sh -c "
        f"'[ @ = 1 ] || export BOA_CHECKPOINT_DIR=other BOA_PROGRESS_FILE=; {_FURTHER}'",
        never="it went on",
    ),
    "parallel, with retries": Shape(
        run=f"parallel --retries 3 -j1 ::: '{LOOP}' 'echo it went on'", tool="parallel"
    ),
    "a trap that starts it anew": Shape(
        run=f"again() {{ echo it went on; }}; trap again EXIT; trap '' TERM; {LOOP}; again",
    ),
    "a case and select": Shape(
        run=f"case $({LOOP} > /dev/null; echo $?) in 0) echo it went on;; *) echo it went on;; esac",
        never="it went on",
    ),
    "a test of its code": Shape(
        run=f"{LOOP}; code=$?; [ $code -eq 0 ] && echo it went on || echo it went on", never="it went on"
    ),
    "a background loop of retries": Shape(
        run=f"(while ! {LOOP}; do echo it went on; sleep 1; done) & wait{NEXT}", never="it went on"
    ),
    "in two folds at once": Shape(
        run=f"({LOOP}; echo it went on) & (cd .; {OTHER}; echo it went on) & wait; echo it went on",
        never="it went on",
    ),
    "the second begins late": Shape(
        run=f"({LOOP}; echo it went on) & (sleep 1.2; {OTHER}; echo it went on) & wait{NEXT}",
        never="it went on",
    ),
    "pipe of two trainings": Shape(run=f"{LOOP} | {OTHER}{NEXT}", never="it went on"),
}
"""Further commands: other shells, task runners, and interpreters that start a shell."""

_LOOPED = "for step in job.steps(1_000_000, load=lambda path: None, save=save):\n"
_SAVES = "def save(file): file.write(b'x')\n"
_POOLED = (
    "import multiprocessing, os, time\n"
    "from concurrent.futures import ProcessPoolExecutor\n"
    "from boa_daemon import job\n"
    f"{_SAVES}"
    "job.checkpoint_dir()\n"
    "{first}\n"
    "with ProcessPoolExecutor(2, multiprocessing.get_context('fork')) as pool:\n"
    f"    {_LOOPED}"
    "        {each}\n"
    "        time.sleep(0.01); list(pool.map(abs, [1, 2]))\n"
)
_RANKS_OF_MPI = (
    "import signal, threading, time\n"
    "def start(rank):\n"
    "    told = {**os.environ, 'OMPI_COMM_WORLD_RANK': str(rank), 'OMPI_COMM_WORLD_SIZE': '2'}\n"
    "    return subprocess.Popen(args, preexec_fn=os.setpgrp, stdout=subprocess.PIPE, env=told)\n"
    "ranks = [start(rank) for rank in range(2)]\n"
    "def end(*_):\n"
    "    for number in (signal.SIGTERM, signal.SIGKILL):\n"
    "        for one in ranks: os.killpg(one.pid, number)\n"
    "        time.sleep(0.3)\n"
    "signal.signal(signal.SIGTERM, end)\n"
    "def copy(one):\n"
    "    for line in one.stdout: print(line.decode(), end='', flush=True)\n"
    "for one in ranks: threading.Thread(target=copy, args=(one,)).start()\n"
    "sys.exit(max(one.wait() for one in ranks))"
)
_KEYBOARD = (
    "import signal, time\n"
    "from boa_daemon import job\n"
    "job.resume(); step = 0\n"
    "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
    "try:\n"
    "    while True: step += 1; time.sleep(0.01); job.report(step)\n"
    "except KeyboardInterrupt:\n"
    "    time.sleep(1); job.save(step, lambda file: file.write(b'x'))\n"
)


def _python(name: str, text: str, run: str = f"{PYTHON} t.py | cat") -> dict[str, Shape]:
    """Return a shape that runs a script, and then something else."""
    return {name: Shape(run=f"{run}{NEXT}", files={"t.py": text}, never="it went on")}


SCRIPTS: dict[str, Shape] = {
    **_python("python -", PLAIN, f"{PYTHON} - < t.py"),
    **_python("cat | python", PLAIN, f"cat t.py | {PYTHON}"),
    **_python("python -I", PLAIN, f"{PYTHON} -I t.py"),
    **_python("python -m", PLAIN, f"{PYTHON} -m t"),
    **_python("python -m cProfile", PLAIN, f"{PYTHON} -m cProfile -o profile t.py"),
    **_python("python -m pdb", PLAIN, f"echo c | {PYTHON} -m pdb t.py"),
    **_python(
        "zipapp", PLAIN, f"mkdir z; cp t.py z/__main__.py; {PYTHON} -m zipapp z -o z.pyz; {PYTHON} z.pyz"
    ),
    **_python("SIGTERM as KeyboardInterrupt", _KEYBOARD),
    **_python(
        "SIGTERM blocked", f"import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [2, 10, 15])\n{PLAIN}"
    ),
    **_python("SIGTERM ignored before", f"import signal\nsignal.signal(15, signal.SIG_IGN)\n{PLAIN}"),
    **_python("closes all descriptors", _POOLED.format(first="os.closerange(3, 512)", each="pass")),
    **_python(
        "reads all files of its unit",
        _POOLED.format(
            first="pass", each="if step == 5: open(os.environ['BOA_REGISTER_FILE'], 'rb').close()"
        ),
    ),
    "goes on in a fork": Shape(
        run=f"{PYTHON} t.py",
        files={
            "t.py": f"import os, time\nfrom boa_daemon import job\n{_SAVES}{_LOOPED}"
            "    time.sleep(0.01)\n    if step == 5 and os.fork(): os._exit(0)\n"
        },
    ),
    **_python(
        "a save that forks",
        "import os, subprocess, time\nfrom boa_daemon import job\n"
        "def save(file):\n"
        "    child = os.fork()\n"
        "    if child == 0: file.write(b'y' * 1000); file.flush(); os._exit(0)\n"
        "    os.waitpid(child, 0); subprocess.run('sleep 1; true', shell=True, check=True)\n"
        f"{_LOOPED}    time.sleep(0.01)\n",
    ),
    **_python(
        "a stop in a save",
        "import time\nfrom boa_daemon import job\n"
        "def save(file): time.sleep(2); file.write(b'x')\n"
        f"{_LOOPED.replace('save=save', 'save=save, every=20')}    time.sleep(0.01)\n",
    ),
    **_python(
        "a folder saved by a thread",
        "import time\nfrom concurrent.futures import ThreadPoolExecutor\nfrom boa_daemon import job\n"
        "threads = ThreadPoolExecutor(1)\n"
        "def save(folder): return threads.submit(lambda: (time.sleep(1), (folder / 'x').write_bytes(b'1')))\n"
        f"{_LOOPED.replace('save=save', 'save=save, folder=True, every=15')}    time.sleep(0.01)\n",
    ),
    "suspended by others": Shape(
        run=f"{LOOP} & p=$!; while kill -STOP $p; do sleep 0.05; kill -CONT $p; sleep 0.02; done{NEXT}",
        never="it went on",
    ),
    "a launcher that looks for a checkpoint": Shape(
        run=f"{LAUNCH}{NEXT}",
        files=launcher("from boa_daemon import job\nfound = job.resume()\nsys.exit(subprocess.call(args))"),
        never="it went on",
    ),
    "a launcher that does so, and restarts": Shape(
        run=LAUNCH,
        files=launcher("from boa_daemon import job\njob.resume()\nwhile True: subprocess.call(args)"),
        grace_seconds=10.0,
    ),
    "mpirun-shaped, two ranks": Shape(
        run=f"{LAUNCH}{NEXT}", files=launcher(_RANKS_OF_MPI), never="it went on"
    ),
    "posix_spawn": Shape(
        run=f"{LAUNCH}{NEXT}",
        files=launcher("os.waitpid(os.posix_spawn(args[0], args, os.environ), 0)"),
        never="it went on",
    ),
    "trap kill 0": Shape(run=f"trap 'kill 0' TERM EXIT; {LOOP} & wait{NEXT}", never="it went on"),
    "trap kill jobs": Shape(run=f"trap 'kill $(jobs -p)' EXIT; {LOOP} & wait{NEXT}", never="it went on"),
    "lastpipe": Shape(run=f"shopt -s lastpipe; echo x | {LOOP}{NEXT}", never="it went on"),
    "mapfile": Shape(run=f"mapfile -t lines < <({LOOP}){NEXT}", never="it went on"),
    "| tee >(gzip)": Shape(run=f"{LOOP} 2>&1 | tee >(gzip > log.gz){NEXT}", never="it went on"),
    "npm run": Shape(
        run="npm run train --silent; echo it went on",
        files={"package.json": '{"scripts": {"train": "' + LOOP + '; echo it went on"}}'},
        tool="npm",
        never="it went on",
    ),
    "chroot": Shape(run=f"chroot / sh -c '{_FURTHER}'{NEXT}", tool="chroot", never="it went on"),
    "unshare -Ur": Shape(run=f"unshare -Ur sh -c '{_FURTHER}'{NEXT}", tool="unshare", never="it went on"),
    "unshare, killed with it": Shape(
        run=f"unshare -Urpf --kill-child --mount-proc bash -c '{_FURTHER}'{NEXT}",
        tool="unshare",
        never="it went on",
    ),
    "unshare -n -i": Shape(
        run=f"unshare -m -n -i sh -c '{_FURTHER}'{NEXT}", tool="unshare", never="it went on"
    ),
    "setarch": Shape(run=f"setarch -R sh -c '{_FURTHER}'{NEXT}", tool="setarch", never="it went on"),
    "fakeroot": Shape(run=f"fakeroot sh -c '{_FURTHER}'{NEXT}", tool="fakeroot", never="it went on"),
    "tmux new -d": Shape(run=f"tmux -L boa$$ new-session -d '{LOOP}'", tool="tmux"),
}
"""How a script is run, what it does to its signals, descriptors and forks, and further launchers."""

SHAPES: dict[str, Shape] = {
    **SHELLS, **HELPERS, **LAUNCHERS, **FRAMEWORKS, **MORE, **SCRIPTS, **ORDINARY, **LASTING
}  # fmt: skip


def try_shape(
    bench: Bench,
    shape: Shape,
    *,
    seconds: float = 180.0,
    save_seconds: float = 0.0,
    kill_at: float | None = None,
    whom: tuple[str, ...] = ("pid",),
) -> tuple[RunReport, str]:
    """Start a shape, stop it after some steps, and return its end and what it printed.

    A save of the loop takes `save_seconds`, unless its command says otherwise. `kill_at` seconds after the
    order to stop, or before it if that is negative, all of `whom` are killed: the keeper ("pid"), its guard.
    """
    bench.workdir.mkdir(parents=True, exist_ok=True)
    for name, text in shape.files.items():
        (bench.workdir / name).write_text(text)
        (bench.workdir / name).chmod(0o755)
    environment = {"OMP_NUM_THREADS": "1", "SAVE_SECONDS": str(save_seconds)}
    answer = bench.admit(shape.run, stop_grace_seconds=shape.grace_seconds, environment=environment)
    assert answer == Accepted(), answer
    bench.start(shape.gpus)
    bench.wait(lambda report: (report.step or 0) >= shape.after_step, seconds=seconds)
    time.sleep(0.1)
    if kill_at is not None and kill_at < 0.0:
        kill_keepers(bench, whom)
        time.sleep(-kill_at)
    bench.stop()
    if kill_at is not None and kill_at >= 0.0:
        time.sleep(kill_at)
        kill_keepers(bench, whom)
    end = bench.wait_end(seconds=shape.stop_seconds or seconds)
    return end, bench.printed()


def kill_keepers(bench: Bench, whom: tuple[str, ...] = ("pid",)) -> None:
    """Kill those who keep the units of the newest generation, as far as they live."""
    for file in bench.workdir.parent.glob(f"**/g{bench.generation}/n*/keeper.json"):
        kept = read_json(file) or {}
        for name in whom:
            with suppress(ProcessLookupError):
                os.kill(int(kept[name]), signal.SIGKILL)
