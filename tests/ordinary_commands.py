"""Further commands that people type: shells that differ, and programs that start and watch a training."""

from __future__ import annotations

from command_parts import BIN, JOBS, LAUNCH, LOOP, NEXT, PLAIN, PYTHON, Shape, launcher

_THEN = f"{LOOP}{NEXT}"


def _goes_no_further(run: str, *, tool: str = "", files: dict[str, str] | None = None) -> Shape:
    """Return a shape whose next command prints "it went on"."""
    return Shape(run=run, tool=tool, files=files or {}, never="it went on")


SHELLS: dict[str, Shape] = {
    "here string": _goes_no_further(f"bash <<< '{_THEN}'"),
    "sh -s < file": _goes_no_further("sh -s < run.sh", files={"run.sh": f"{LOOP}\necho it went on\n"}),
    "cat file | bash -s": _goes_no_further(
        "cat run.sh | bash -s -- --save 1", files={"run.sh": f'{LOOP} "$@"\necho it went on\n'}
    ),
    "source <(printf)": _goes_no_further(f". <(printf '%s\\n' '{LOOP}' 'echo it went on')"),
    "bash -x": _goes_no_further("bash -x run.sh 2> trace", files={"run.sh": f"{LOOP}\necho it went on\n"}),
    "bash --posix -e": _goes_no_further(f"bash --posix -ec '{_THEN}'"),
    "bash -i": _goes_no_further(f"bash -ic '{_THEN}'"),
    "bash -i -l in bash -i": _goes_no_further(f"bash -ilc 'bash -ic \"{_THEN}\"; echo it went on'"),
    "zsh -i": _goes_no_further(f"zsh -fic '{_THEN}'", tool="zsh"),
    "dash -i": _goes_no_further(f"dash -ic '{_THEN}'", tool="dash"),
    "mksh -i": _goes_no_further(f"mksh -ic '{_THEN}'", tool="mksh"),
    "TERM ignored, then": _goes_no_further(f"trap '' TERM; {_THEN}"),
    "TERM and HUP ignored, then": _goes_no_further(f"trap '' TERM HUP INT; {_THEN}"),
    "TERM ignored in zsh": _goes_no_further(f"zsh -fc \"trap '' TERM; {_THEN}\"", tool="zsh"),
    "a trap that does nothing": _goes_no_further(f"trap : TERM; {LOOP} && echo it went on"),
    "a trap that tells": _goes_no_further(f"trap 'echo told' TERM; {LOOP} && echo it went on"),
    "trap kill of its group": _goes_no_further(
        f"trap 'trap - TERM; kill -- -$$' TERM INT EXIT; sleep 1000 & {_THEN}"
    ),
    "trap DEBUG": _goes_no_further(f"trap ': $BASH_COMMAND' DEBUG; {_THEN}"),
    "zsh, always": _goes_no_further(f"zsh -fc '{{ {LOOP} }} always {{ echo it went on }}'", tool="zsh"),
    "zsh, multios": _goes_no_further(f"zsh -fc '{LOOP} > one > two; echo it went on'", tool="zsh"),
    "mksh, a coprocess": _goes_no_further(
        f"mksh -c '{LOOP} |& while read -p line; do echo $line; done; echo it went on'", tool="mksh"
    ),
    "ksh, a coprocess": _goes_no_further(
        f"ksh -c '{LOOP} |& while read -p line; do echo $line; done; echo it went on'", tool="ksh"
    ),
    "fish, a function": _goes_no_further(
        f"fish -c 'function train; {LOOP}; end; begin; train; echo it went on; end'", tool="fish"
    ),
    "coproc of a name": _goes_no_further(
        f'coproc T {{ {LOOP}; echo it went on; }}; while read -r -u "${{T[0]}}" line; do echo "$line"; done'
    ),
    "cat <()": _goes_no_further(f"cat <({_THEN}) <(sleep 0.1)"),
    "2> >(while read)": _goes_no_further(
        f'{LOOP} 2> >(while read -r line; do echo "$line"; done >&2) > >(cat){NEXT}'
    ),
    "exec 3>&1": _goes_no_further(f"exec 3>&1 > >(tee log >&3) 2>&1; {_THEN}"),
    "exec of a lock": _goes_no_further(f'exec {{fd}}> lock; flock "$fd"; {_THEN}', tool="flock"),
    "subshells in subshells": _goes_no_further(
        f"( ( ( ({LOOP}); echo it went on ) ); echo it went on ) | cat"
    ),
    "an exported function": _goes_no_further(
        f"train() {{ {LOOP}; }}; export -f train; echo 1 | xargs -I@ bash -c 'train @; echo it went on'"
    ),
    "folds from a file": Shape(
        run="printf '%s\\n' a b > folds; while read -r fold; do echo fold $fold; "
        f"{LOOP} < /dev/null; done < folds",
        never="fold b",
    ),
    "time limit, then anew": _goes_no_further(
        f"while :; do timeout 500 {LOOP}; [ $? -eq 124 ] || break; done{NEXT}"
    ),
    "four at once": _goes_no_further(
        "for i in 2 3 4; do BOA_CHECKPOINT_DIR=fold$i BOA_PROGRESS_FILE= "
        f'{LOOP} & all+=("$!"); done; {LOOP} & all+=("$!"); '
        f'for one in "${{all[@]}}"; do wait "$one"; done{NEXT}'
    ),
    "while jobs": _goes_no_further(f'{LOOP} & while [ -n "$(jobs -r)" ]; do sleep 0.2; done{NEXT}'),
    "tail --pid": _goes_no_further(f"{LOOP} > log & tail -s 0.1 --pid=$! -f log{NEXT}"),
    "PIPESTATUS": _goes_no_further(
        f"{{ {LOOP} || true; }} 2>&1 | tee log | grep -v xyz; [ ${{PIPESTATUS[0]}} = 0 ] && echo it went on"
    ),
    "wrappers in wrappers": _goes_no_further(
        f"nice -n 5 ionice -c 3 taskset -c 0 timeout 500 env -i setsid -w stdbuf -o0 sh -c '{_THEN}'{NEXT}",
        tool="taskset",
    ),
    "exec -a": _goes_no_further(f"(exec -a train bash -c '{_THEN}'){NEXT}"),
    "find -execdir": _goes_no_further(
        f"mkdir a b; touch a/x b/x; find a b -name x -execdir sh -c '{_THEN}' ';'{NEXT}"
    ),
    "make -O -j": _goes_no_further(
        "make -O -j2 train serve; echo it went on",
        tool="make",
        files={"Makefile": f"train:\n\t@{LOOP}\n\t@echo it went on\nserve:\n\t@sleep 600\n"},
    ),
}
"""Shells: what is read from where, what is ignored, and what is waited for."""

POLLED: dict[str, Shape] = {
    "started apart, tail --pid": _goes_no_further(
        f"bash -c '{LOOP} > log 2>&1 & echo $! > pid'; tail -s 0.1 --pid=$(cat pid) -f log{NEXT}"
    ),
    "started apart, kill -0": _goes_no_further(
        f"(setsid {LOOP} > log 2>&1 & echo $! > pid); while kill -0 $(cat pid); do sleep 0.2; done{NEXT}"
    ),
    "started apart, a file at its end": _goes_no_further(
        f"(({LOOP}; touch ended) > log 2>&1 &); until [ -e ended ]; do sleep 0.1; done{NEXT}"
    ),
    "tmux, then": _goes_no_further(
        f"tmux -L boa$$ new-session -d '{LOOP}'; while tmux -L boa$$ has-session; do sleep 0.2; done{NEXT}",
        tool="tmux",
    ),
}
"""Shells that wait for a training that they have not started themselves, by looking again and again."""

_SERVED = (
    "import socket, threading\n"
    "door = socket.create_server(('127.0.0.1', 0)); port = door.getsockname()[1]\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork(): os._exit(0)\n"
    "    guest, _ = door.accept()\n"
    "    words = guest.recv(1 << 16).decode().split('\\0')\n"
    "    code = subprocess.Popen(words, start_new_session=True).wait()\n"
    "    guest.sendall(str(code).encode()); os._exit(0)\n"
    "os.wait(); door.close()\n"
    "with socket.create_connection(('127.0.0.1', port)) as server:\n"
    "    server.sendall('\\0'.join(args).encode())\n"
    "    sys.exit(int(server.recv(99) or b'1'))"
)
_KERNEL = (
    "import os, signal, socket, sys\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "door = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
    "cells = door.makefile('rw')\n"
    "names = {'__name__': '__main__'}\n"
    "for line in cells:\n"
    "    exec(eval(line), names)\n"
    "    cells.write('done\\n'); cells.flush()\n"
)
_NOTEBOOK = (
    "import socket, signal\n"
    f"plain = {PLAIN!r}\n"
    "door = socket.create_server(('127.0.0.1', 0))\n"
    "kernel = subprocess.Popen([sys.executable, 'kernel.py', str(door.getsockname()[1])],\n"
    "                          start_new_session=True, stdin=subprocess.DEVNULL)\n"
    "cells = door.accept()[0].makefile('rw')\n"
    "for cell in ('import time', plain):\n"
    "    cells.write(repr(cell) + '\\n'); cells.flush()\n"
    "    assert cells.readline() == 'done\\n'\n"
    "kernel.send_signal(signal.SIGTERM)\n"
    "try: kernel.wait(1)\n"
    "except subprocess.TimeoutExpired: kernel.kill()"
)
_PREFORK = (
    "import runpy, signal, time\n"
    "sys.argv = args[1:]\n"
    "def worker():\n"
    "    child = os.fork()\n"
    "    if child == 0:\n"
    "        signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
    "        runpy.run_path(sys.argv[0], run_name='__main__'); sys.exit(0)\n"
    "    return child\n"
    "def end(*_):\n"
    "    for one in workers: os.kill(one, signal.SIGTERM)\n"
    "    sys.exit(0)\n"
    "workers = [worker()]\n"
    "signal.signal(signal.SIGTERM, end)\n"
    "while True:\n"
    "    ended, _ = os.wait()\n"
    "    workers = [one for one in workers if one != ended]; time.sleep(0.2); workers.append(worker())"
)
_DAEMON = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "os.umask(0o022)\n"
    "os.closerange(0, 1024)\n"
    "os.open(os.devnull, os.O_RDWR); os.dup2(0, 1); os.dup2(0, 2)\n"
    f"{PLAIN}"
)
_DAEMON_LATE = "from boa_daemon import job\njob.checkpoint_dir()\n" + _DAEMON.replace(
    "os.closerange(0, 1024)", "os.closerange(0, 1024); os.chdir('/')"
)
_TRAINED = (
    "import multiprocessing, os, runpy, signal, sys\n"
    "from concurrent.futures import ProcessPoolExecutor\n"
    "def train(*_):\n"
    f"    sys.argv = [{str(JOBS / 'loop.py')!r}]\n"
    "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "if __name__ == '__main__':\n"
    "    {start}\n"
)
_SWEEP = (
    "import time\n"
    "from boa_daemon import job\n"
    "for rate in (0.1, 0.01, 0.001):\n"
    "    for step in job.steps(1_000_000, load=lambda path: None, save=lambda file: file.write(b'x')):\n"
    "        time.sleep(0.005)\n"
)
_CRON = (
    "import time\n"
    "running = None\n"
    "while True:\n"
    "    if running is None or running.poll() is not None:\n"
    "        words = ['sh', '-c', ' '.join(args) + ' >> log 2>&1']\n"
    "        running = subprocess.Popen(words, start_new_session=True)\n"
    "    time.sleep(0.2)"
)
_NOX = (
    "import signal\n"
    "child = subprocess.Popen(args, stdout=subprocess.PIPE)\n"
    "try:\n"
    "    out, _ = child.communicate()\n"
    "except KeyboardInterrupt:\n"
    "    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):\n"
    "        child.send_signal(number)\n"
    "        try: child.wait(0.3); break\n"
    "        except subprocess.TimeoutExpired: pass\n"
    "    raise\n"
    "print(out.decode()); sys.exit(child.returncode)"
)
_SUBREAPER = (
    "import ctypes\n"
    "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
    "if os.fork() == 0:\n"
    "    subprocess.Popen(['sh', '-c', ' '.join(args) + '; echo it went on'], start_new_session=True)\n"
    "    os._exit(0)\n"
    "while True:\n"
    "    try: os.wait()\n"
    "    except ChildProcessError: break"
)
_TEST = "def test_training():\n" + "".join(f"    {line}\n" for line in PLAIN.splitlines())
_UNIT_TEST = "import unittest\nclass Case(unittest.TestCase):\n    def test_training(self):\n" + "".join(
    f"        {line}\n" for line in PLAIN.splitlines()
)


def _trained_by(start: str) -> Shape:
    """Return a script whose worker process trains, and not the script itself."""
    return _goes_no_further(
        f"{PYTHON} t.py{NEXT}", files={"t.py": _TRAINED.replace("{start}", start.replace("\n", "\n    "))}
    )


def _launched(start: str) -> Shape:
    """Return a launcher in Python with a command behind it."""
    return _goes_no_further(f"{LAUNCH}{NEXT}", files=launcher(start))


PROGRAMS: dict[str, Shape] = {
    **{
        f"{kind}: the worker trains": _trained_by(
            f"one = multiprocessing.get_context({kind!r}).Process(target=train)\none.start(); one.join()"
        )
        for kind in ("fork", "spawn", "forkserver")
    },
    "a daemonic worker trains": _trained_by(
        "one = multiprocessing.Process(target=train, daemon=True)\none.start(); one.join(600)"
    ),
    "a pool trains": _trained_by("with multiprocessing.Pool(1) as pool: pool.map(train, [1])"),
    "an executor trains": _trained_by(
        "context = multiprocessing.get_context('spawn')\n"
        "with ProcessPoolExecutor(1, context) as pool: pool.submit(train).result()"
    ),
    "its parent ends its workers at SIGTERM": _trained_by(
        "one = multiprocessing.get_context('fork').Process(target=train)\none.start()\n"
        "def end(*_): one.terminate(); one.join(0.5); one.kill(); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end)\none.join()"
    ),
    "hydra --multirun": _goes_no_further(f"{PYTHON} t.py{NEXT}", files={"t.py": _SWEEP}),
    "hydra --multirun, in processes": _trained_by(
        "context = multiprocessing.get_context('spawn')\n"
        "with context.Pool(1, maxtasksperchild=1) as pool: pool.map(train, [1, 2], 1)"
    ),
    "srun: a server starts it": _launched(_SERVED),
    "a notebook's kernel": Shape(run=LAUNCH, files={**launcher(_NOTEBOOK), "kernel.py": _KERNEL}),
    "gunicorn: prefork": Shape(run=LAUNCH, files=launcher(_PREFORK)),
    "a daemon of its own": Shape(run=f"{PYTHON} t.py", files={"t.py": _DAEMON}),
    "a daemon after its first use": Shape(run=f"{PYTHON} t.py", files={"t.py": _DAEMON_LATE}),
    "cron": Shape(run=LAUNCH, files=launcher(_CRON)),
    "nox": _launched(_NOX),
    "a reaper of orphans": _launched(_SUBREAPER),
    "os.popen": _launched("[print(line, end='') for line in os.popen(' '.join(args) + '; echo it went on')]"),
    "os.spawnv": _launched("sys.exit(os.spawnv(os.P_WAIT, args[0], args))"),
    "a terminal of its own": _launched(
        "import pty\npid, fd = pty.fork()\nif pid == 0: os.execv(args[0], args)\n"
        "while True:\n    try: data = os.read(fd, 999)\n    except OSError: break\n"
        "    os.write(1, data)\nos.waitpid(pid, 0)"
    ),
    "threads that start it": _launched(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(2) as threads: list(threads.map(subprocess.run, [args, args]))"
    ),
    "subprocess of asyncio with a time limit": _launched(
        "import asyncio\n"
        "async def main():\n"
        "    child = await asyncio.create_subprocess_exec(*args, stdout=-1)\n"
        "    await asyncio.wait_for(child.communicate(), 500)\n"
        "asyncio.run(main())"
    ),
    "pytest": _goes_no_further(
        f"{PYTHON} -m pytest -q -s -p no:cacheprovider t.py{NEXT}", files={"t.py": _TEST}
    ),
    "unittest": _goes_no_further(f"{PYTHON} -m unittest -q t{NEXT}", files={"t.py": _UNIT_TEST}),
    "python -c exec": _goes_no_further(
        f"{PYTHON} -c 'exec(open(\"t.py\").read())' 2>&1 | "
        f"{PYTHON} -uc 'import sys; [print(x) for x in sys.stdin]'{NEXT}",
        files={"t.py": PLAIN},
    ),
    "python -i": _goes_no_further(f"{PYTHON} -i t.py < /dev/null{NEXT}", files={"t.py": PLAIN}),
    "typed into python -i": _goes_no_further(f"(cat t.py; echo) | {PYTHON} -i{NEXT}", files={"t.py": PLAIN}),
    "accelerate, as a module": Shape(
        run=f"{PYTHON} -m accelerate.commands.launch --cpu --num_processes 1 {JOBS / 'loop.py'}{NEXT}",
        needs="accelerate",
        never="it went on",
    ),
    "nox itself": _goes_no_further(
        f"{BIN / 'nox'} -f n.py{NEXT}",
        tool=str(BIN / "nox"),
        files={
            "n.py": "import nox\n@nox.session(venv_backend='none')\ndef t(session):\n"
            f"    session.run(*{LOOP.split()!r}, external=True)\n"
        },
    ),
}
"""Programs that start a training, or are one."""

ORDINARY: dict[str, Shape] = {**SHELLS, **POLLED, **PROGRAMS}
