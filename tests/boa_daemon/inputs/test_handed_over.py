"""Commands that hand their work to another machine or service."""

from __future__ import annotations

import pytest

from boa_daemon.inputs.handed_over import handed_over


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("ssh host python t.py", "ssh"),
        ("cd /data && exec /usr/bin/ssh -t host 'python t.py'", "ssh"),
        ("if true; then docker run --rm image python t.py; fi", "docker"),
        ("sudo docker run image", "docker"),
        ("podman --log-level error run image", "podman"),
        ("echo python t.py | at now", "at"),
        ("LEVEL=1 nohup sbatch t.sh &", "sbatch"),
        ("timeout 60 systemd-run --user python t.py", "systemd-run"),
        ("set -e\nmkdir -p out\nkubectl exec pod -- python t.py", "kubectl"),
        ("python prepare.py \\\n  --fast\nssh host train", "ssh"),
        ("sudo -u bob -n ssh host", "ssh"),
        ("/usr/bin/env -i /usr/bin/ssh host", "ssh"),
        ("timeout -k 5 60 bash -lc 'cd x && ssh host python t.py'", "ssh"),
        ("for h in a b; do pdsh -w $h train; done", "pdsh"),
        ("if false; then :; elif qsub t.sh; then :; fi", "qsub"),
        ("find . -name '*.sh' | xargs -n 1 sbatch", "sbatch"),
        ("sky launch -y task.yaml", "sky"),
        ("ray job submit -- python t.py", "ray"),
        ("python prepare.py # it's quick\nssh host python t.py", "ssh"),
        ("curl -O http://host/a#b; sbatch t.sh", "sbatch"),
        ("echo \\# a; echo ${#list}; bash -c 'echo a#b && ssh host'", "ssh"),
        ("echo 'a # b' \"#\" && qsub t.sh", "qsub"),
        ("python t.py # ssh host\npython u.py", ""),
        ("python t.py;# ssh host", ""),
        ("bash -c 'python t.py --ssh ssh'", ""),
        ("ray start --head && python t.py", ""),
        ("sudo -u ssh python t.py", ""),
        ("systemd-run --scope python t.py", ""),
        ("docker ps && python t.py", ""),
        ("python ssh.py docker run", ""),
        ("echo 'ssh host'", ""),
        ("python t.py --at 3 | tee at", ""),
        ("tmux new -d 'python t.py'", ""),
        ("srun python t.py", ""),
        ("# ssh host\npython t.py", ""),
        ("echo 'unclosed", ""),
        ("", ""),
    ],
)
def test_the_program_is_named(command: str, program: str) -> None:
    """Words elsewhere in a command are no programs."""
    assert handed_over(command) == program
